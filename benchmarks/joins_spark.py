"""Join views on Spark: ours beside Spark's own stream-stream and stream-static joins on the same rows, on two cores.

Rows: an event time (100,000 rows of a file lie within 10 s, shuffled among them), keys of 64 bits and a double, Parquet files
of 100,000 rows, written once to `out/bench/data`; results in Parquet on both sides. One file of each stream a batch (Spark) or
batch of the ingest (ours; a cut takes what there is), but of `second`. Spark: `stateFormatVersion` 4, RocksDB with changelog checkpoints,
2 shuffle partitions, watermarks of 5 s. A rate is input rows by the time from the beginning of the first batch to
the last visible row, in a session in which both sides have run the same before (`warm_batches`: a stream runs for days, and a JVM
is warm after minutes); the sides take turns, the median of three runs counts. Beside it what a second of a processor joins, of all
processes, which other work on the machine changes less. The exit code is 1 where a goal is missed. Parts:

many     10,000 keys, within 5 s either way: about 5 pairs a row
few      100,000 keys, the same
three    three streams by two different keys
static   one stream, each row of which finds one in a static table of 100,000
second   the same with ten files a batch, a second of a stream of 1,000,000 rows/s

Run: python benchmarks/joins_spark.py [--runs N] [--only ours|spark] [part ...]
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import product
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console
from rich.table import Table

from penstock.spark.engine import Engine
from penstock.spark.sessions.build import build_session
from penstock.trigger import Trigger
from processes import processor_seconds

DATA = Path(__file__).resolve().parent.parent / "out" / "bench" / "data"
FILE_ROWS, FILE_SECONDS = 100_000, 10
TABLE_ROWS = 100_000
SEED = 7
CONF = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.join.stateFormatVersion": "4",
}
NEAR = "{0}.ts BETWEEN {1}.ts - INTERVAL 5 SECONDS AND {1}.ts + INTERVAL 5 SECONDS"


@dataclass(frozen=True, slots=True)
class Work:
    """What is joined.

    Attributes:
        streams: how many, of so many files each.
        files: of a stream.
        keys: number of different keys, by key column.
        text: the view.
        goal: times Spark's rate.
        spark_text: the same for Spark, where it refuses `text`: of joined rows it takes one event time.
        batch_files: of a stream in a batch.
        warm_batches: both sides run so many before they are measured.
    """

    streams: int
    files: int
    keys: tuple[int, ...]
    text: str
    goal: float
    spark_text: str | None = None
    batch_files: int = 1
    warm_batches: int = 2


PAIR = f"SELECT s0.k0, s0.ts, s0.v AS v0, s1.v AS v1 FROM s0 JOIN s1 ON s0.k0 = s1.k0 AND {NEAR.format('s1', 's0')}"
WORKS = {
    "many": Work(2, 12, (10_000,), PAIR, 8),
    "few": Work(2, 12, (100_000,), PAIR, 12),
    "three": Work(
        3,
        12,
        (10_000, 10_000),
        "SELECT s0.k0, s1.k1, s0.ts, s0.v AS v0, s1.v AS v1, s2.v AS v2 FROM s0 JOIN s1 ON s0.k0 = s1.k0 AND "
        f"{NEAR.format('s1', 's0')} JOIN s2 ON s1.k1 = s2.k1 AND {NEAR.format('s2', 's1')} AND {NEAR.format('s2', 's0')}",
        5,
        "SELECT p.k0, p.k1, p.ts, p.v0, p.v1, s2.v AS v2 FROM (SELECT s0.k0, s1.k1, s0.ts, s1.ts + INTERVAL 0 SECONDS AS t1, "
        f"s0.v AS v0, s1.v AS v1 FROM s0 JOIN s1 ON s0.k0 = s1.k0 AND {NEAR.format('s1', 's0')}) p JOIN s2 ON p.k1 = s2.k1 AND "
        f"{NEAR.format('s2', 'p')} AND s2.ts BETWEEN p.t1 - INTERVAL 5 SECONDS AND p.t1 + INTERVAL 5 SECONDS",
    ),
    "static": Work(
        1,
        40,
        (TABLE_ROWS,),
        "SELECT s0.k0, s0.ts, s0.v, names.name FROM s0 JOIN names ON s0.k0 = names.k0",
        2,
        warm_batches=40,
    ),
}
WORKS["second"] = replace(WORKS["static"], files=120, batch_files=10, warm_batches=12)


def data(work: Work) -> Path:
    """The folders of a work's streams, `s0` and so on, and of the static table `names`."""
    keys = "-".join(map(str, work.keys))
    folder = DATA / f"joins-{work.streams}x{work.files}x{FILE_ROWS}-{keys}"
    if folder.is_dir():
        return folder
    rng = np.random.default_rng(SEED)
    beside = folder.with_name(f".{folder.name}")
    shutil.rmtree(beside, ignore_errors=True)
    for stream in range(work.streams):
        (beside / f"s{stream}").mkdir(parents=True)
        for number in range(work.files):
            times = 1_700_000_000 + (number + rng.random(FILE_ROWS)) * FILE_SECONDS
            columns = {f"k{key}": rng.integers(0, count, FILE_ROWS) for key, count in enumerate(work.keys)}
            moments = pa.array((times * 1e6).astype(np.int64)).cast(pa.timestamp("us", "UTC"))
            rows = pa.table({"ts": moments, **columns, "v": rng.random(FILE_ROWS)})
            pq.write_table(rows, beside / f"s{stream}" / f"{number:04d}.parquet")
    (beside / "names").mkdir()
    keys = np.arange(TABLE_ROWS)
    pq.write_table(
        pa.table({"k0": keys, "name": [f"n{key}" for key in keys]}), beside / "names" / "all.parquet"
    )
    beside.rename(folder)
    return folder


def first_files(folder: Path, count: int, target: Path) -> Path:
    """The same streams with their first files only."""
    for stream in folder.iterdir():
        (target / stream.name).mkdir()
        for file in sorted(stream.iterdir())[:count]:
            (target / stream.name / file.name).hardlink_to(file)
    return target


@dataclass(frozen=True, slots=True)
class Measured:
    """A run: seconds from the beginning of its first batch to its last visible row, and rows it put out."""

    seconds: float
    rows: int


@dataclass(frozen=True, slots=True)
class Rates:
    """Input rows of a run by the second, and by the second of a processor."""

    clock: float
    processor: float


def ours(spark: SparkSession, folder: Path, work: Work, output: Path) -> Measured:
    """Penstock's side."""
    engine = Engine(spark)
    for stream in range(work.streams):
        options = (
            f"path '{folder / f's{stream}'}', event_time 'ts', max_files_per_trigger '{work.batch_files}'"
        )
        engine.execute(f"CREATE TABLE s{stream} USING parquet OPTIONS ({options})")
    engine.execute(f"CREATE TABLE names USING parquet OPTIONS (path '{folder / 'names'}', static 'true')")
    engine.view("joined", work.text)
    run = engine.start(output, trigger=Trigger.available_now())
    run.await_termination()
    first = run.events("batch")[0]
    begun = _seconds(first["time"]) - sum(first[f"{each}_seconds"] for each in ("bind", "run", "publish"))
    cuts = run.events("cut")
    done = max(_seconds(cut["time"]) for cut in cuts)
    run.stop()
    return Measured(done - begun, sum(cut["figures"]["views"]["joined"]["rows"] for cut in cuts))


def spark_query(spark: SparkSession, folder: Path, work: Work, output: Path) -> StreamingQuery:
    """Spark's own, begun; it ends with the last file."""

    def stream(number: int) -> DataFrame:
        path = folder / f"s{number}"
        frame = spark.readStream.schema(spark.read.parquet(str(path)).schema)
        return (
            frame.option("maxFilesPerTrigger", work.batch_files)
            .parquet(str(path))
            .withWatermark("ts", "5 seconds")
        )

    for number in range(work.streams):
        stream(number).createOrReplaceTempView(f"s{number}")
    spark.read.parquet(str(folder / "names")).createOrReplaceTempView("names")
    writer = spark.sql(work.spark_text or work.text).writeStream.format("parquet").trigger(availableNow=True)
    return writer.option("checkpointLocation", str(output / "checkpoint")).start(str(output / "rows"))


def sparks(spark: SparkSession, folder: Path, work: Work, output: Path) -> Measured:
    """Spark's side."""
    query = spark_query(spark, folder, work, output)
    query.awaitTermination()
    progress = [each for each in query.recentProgress if each["numInputRows"]]
    last = progress[-1]
    seconds = _seconds(last["timestamp"]) + last["batchDuration"] / 1e3 - _seconds(progress[0]["timestamp"])
    return Measured(seconds, spark.read.parquet(str(output / "rows")).count())


SIDES: dict[str, Callable[[SparkSession, Path, Work, Path], Measured]] = {"ours": ours, "Spark": sparks}


def measured(
    sides: Sequence[str], spark: SparkSession, folder: Path, work: Work, runs: int
) -> tuple[dict[str, Rates], set[int]]:
    """By side its median rates, and how many rows they put out."""
    rows_in = work.streams * work.files * FILE_ROWS
    found: dict[str, list[Rates]] = {side: [] for side in sides}
    put_out: set[int] = set()
    with tempfile.TemporaryDirectory(prefix="penstock-joins-") as place:
        (Path(place) / "few").mkdir()
        few = first_files(folder, work.warm_batches * work.batch_files, Path(place) / "few")
        for side in sides:
            SIDES[side](spark, few, work, Path(place) / f"warm-{side}")
        for number, side in product(range(runs), sides):
            before = processor_seconds(os.getpid())
            run = SIDES[side](spark, folder, work, Path(place) / f"{number}-{side}")
            processor = processor_seconds(os.getpid()) - before
            found[side].append(Rates(rows_in / run.seconds, rows_in / processor))
            put_out.add(run.rows)
            print(
                f"{side}: {rows_in / run.seconds:,.0f} rows/s in {run.seconds:.1f} s, {processor:.1f} s of a processor, "
                f"{run.rows:,} rows out",
                flush=True,
            )
    rates = {
        side: Rates(median(each.clock for each in runs), median(each.processor for each in runs))
        for side, runs in found.items()
    }
    return rates, put_out


def main() -> int:
    """Runs the parts that are asked for and prints a table; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="part", help=", ".join(WORKS))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", choices=["ours", "spark"])
    given = parser.parse_args()
    spark = build_session("local[2]", CONF, "benchmark")
    table = Table(
        "work", "rows in", "rows out", "ours, rows/s", "Spark, rows/s", "times", "by processor", "goal", ""
    )
    holds = True
    for part in given.parts or WORKS:
        work = WORKS[part]
        sides = [side for side in SIDES if given.only in (None, side.lower())]
        rates, put_out = measured(sides, spark, data(work), work, given.runs)
        cells = [f"{rates[side].clock:,.0f}" if side in rates else "" for side in SIDES]
        verdict = ["", "", f"{work.goal:g}", ""]
        if len(rates) == len(SIDES):
            own, theirs = (rates[side] for side in SIDES)
            is_met = own.clock >= work.goal * theirs.clock and len(put_out) == 1
            holds = holds and is_met
            verdict = [
                f"{own.clock / theirs.clock:.1f}",
                f"{own.processor / theirs.processor:.1f}",
                f"{work.goal:g}",
                "held" if is_met else "NOT HELD",
            ]
        rows = f"{work.streams * work.files * FILE_ROWS:,}"
        table.add_row(part, rows, " or ".join(f"{each:,}" for each in put_out), *cells, *verdict)
    Console(width=130).print(table)
    spark.stop()
    return 0 if holds else 1


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment.replace("Z", "+00:00")).timestamp()


if __name__ == "__main__":
    sys.exit(main())
