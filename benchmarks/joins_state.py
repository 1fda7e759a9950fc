"""What a join view keeps: bytes a base tuple beside Spark's state store, and whether 10,000 cuts leave it where it was.

kept    The work `few` of joins_spark.py (100,000 keys, within 5 s either way), each of its files in 12 by event time: ours a file a
        batch, with a history of `SHORT_SECONDS`, until the log has lost its beginning; Spark the same rows as they are there. Bytes of the runs by
        the tuples in them, and what of Spark's state store lies in its checkpoint and in RocksDB by the rows of its operator.
        Beside them: a tuple in its file (Parquet), and its columns as they are (8 bytes each).
cuts    Two streams that always have a next batch of 100 tuples, 10,000 keys, event times of the clock, joined within 5 s; a
        history of `HISTORY_SECONDS`. The process is looked at 200 times, each time after a collection: what is alive in the JVM's heap,
        proportional set sizes of driver, JVM and workers, files and bytes by kind; and the processor time a cut.

Expected, or the exit code is 1. `kept`: no more than `RUN_LIMIT` times a tuple's columns, and less than Spark. `cuts`: the last
tenth has no more than `MEMORY_LIMIT` times the memory of the sixth, `PROCESSOR_LIMIT` times its processor time a cut, `FILES_LIMIT` times its
files and bytes. The sixth is the first one in which all that is bounded is full: the 10,000 events in memory are of 4,000 cuts and their batches. The logs have lost
their beginning, no event tells of a failure, no tuple lacked partners. A run of fewer than `LEAST_CUTS` is told and not judged by tenths.

    python benchmarks/joins_state.py [kept] [cuts] [--cuts 10000] [--minutes 60]
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import nan
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from joins_spark import CONF, FILE_ROWS, WORKS, Work, data, spark_query
from penstock.spark.engine import Engine
from penstock.spark.log.runs import open_run
from penstock.spark.log.stream_log import LogReader
from penstock.spark.run import Run
from penstock.spark.sessions.build import build_session
from penstock.spark.storage.layout import TUPLES_FILES, Layout
from penstock.trigger import Trigger
from soak_measures import BOUNDED, PARTS, RESULTS, kept, spent

HISTORY_SECONDS, SHORT_SECONDS = 15.0, 4.0
#: files of the work `kept` for each one of joins_spark.py
SLICES = 12
#: of a tuple: event time, key, value
COLUMNS_BYTES = 24
ROWS, KEYS = 100, 10_000
STREAMS = ("lefts", "rights")
VIEW = (
    "SELECT l.id AS left_id, r.id AS right_id, l.ts FROM lefts l JOIN rights r ON l.k = r.k "
    "AND r.ts BETWEEN l.ts - INTERVAL 5 SECONDS AND l.ts + INTERVAL 5 SECONDS"
)
LOOKS, TENTHS, LEAST_CUTS = 200, 10, 8_000
RUN_LIMIT, MEMORY_LIMIT, PROCESSOR_LIMIT, FILES_LIMIT = 2.0, 1.1, 1.1, 1.25
MEGA = 1 << 20
PROCESSOR, HEAP = "processor, ms a cut", "alive in the heap, MB"


def sliced(folder: Path, work: Work, target: Path) -> Path:
    """The streams of a work, each of its files in several by event time."""
    for stream in range(work.streams):
        (target / f"s{stream}").mkdir(parents=True)
        for file in sorted((folder / f"s{stream}").iterdir()):
            rows = pq.read_table(file)
            rows = rows.take(pc.sort_indices(rows["ts"]))
            for number in range(SLICES):
                first, last = (each * FILE_ROWS // SLICES for each in (number, number + 1))
                part = rows.slice(first, last - first)
                pq.write_table(part, target / f"s{stream}" / f"{file.stem}-{number:02d}.parquet")
    return target


def ours(spark: SparkSession, folder: Path, work: Work, output: Path) -> tuple[int, int]:
    """Bytes of the runs that the logs hold at the end, and tuples in them."""
    engine = Engine(spark, history_seconds=SHORT_SECONDS)
    for stream in range(work.streams):
        options = f"path '{folder / f's{stream}'}', event_time 'ts', max_files_per_trigger '1'"
        engine.execute(f"CREATE TABLE s{stream} USING parquet OPTIONS ({options})")
    run = engine.view("joined", work.text).start(output, trigger=Trigger.available_now())
    run.await_termination()
    run.stop()
    layout = Layout.of(output, None)
    size = tuples = 0
    for stream in range(work.streams):
        if not LogReader(layout.log(f"s{stream}")).first:
            raise RuntimeError(f"the log of s{stream} has not lost its beginning: no steady state")
        for path in layout.log_files(f"s{stream}", TUPLES_FILES).rglob("*.arrow"):
            size += path.stat().st_size
            tuples += open_run(path).rows
    return size, tuples


def sparks(spark: SparkSession, folder: Path, work: Work, output: Path) -> tuple[int, int, int]:
    """Bytes of state in the checkpoint, bytes of RocksDB's files, and rows in it after the last batch that brought some."""
    query = spark_query(spark, folder, work, output)
    query.awaitTermination()
    last = [each for each in query.recentProgress if each["numInputRows"]][-1]["stateOperators"][0]
    state = output / "checkpoint" / "state"
    size = sum(path.stat().st_size for path in state.rglob("*") if path.is_file())
    return size, last["customMetrics"]["rocksdbSstFileSize"], last["numRowsTotal"]


def kept_by_tuple(console: Console) -> list[tuple[bool, str]]:
    """Runs the part `kept`."""
    work = WORKS["few"]
    folder = data("few", work)
    files = [file for stream in range(work.streams) for file in (folder / f"s{stream}").iterdir()]
    in_parquet = sum(file.stat().st_size for file in files) / (len(files) * FILE_ROWS)
    with tempfile.TemporaryDirectory(prefix="penstock-state-") as place:
        spark = build_session("local[2]", CONF, "state")
        size, tuples = ours(spark, sliced(folder, work, Path(place) / "in"), work, Path(place) / "ours")
        checkpoint, store, rows = sparks(spark, folder, work, Path(place) / "spark")
        spark.stop()
    table = Table("what", "MB", "tuples", "bytes a tuple")
    run = size / tuples
    for what, held, count in (
        ("ours: runs of the logs", size, tuples),
        ("Spark: state in the checkpoint", checkpoint, rows),
        ("Spark: RocksDB's files", store, rows),
    ):
        table.add_row(what, f"{held / MEGA:,.1f}", f"{count:,}", f"{held / count:,.1f}")
    table.add_row("its columns", "", "", str(COLUMNS_BYTES))
    table.add_row("in its file, Parquet", "", "", f"{in_parquet:.1f}")
    console.print(table)
    return [
        (
            run <= RUN_LIMIT * COLUMNS_BYTES,
            f"{run:.1f} bytes a base tuple, {run / COLUMNS_BYTES:.2f} times its columns, allowed {RUN_LIMIT}",
        ),
        (
            run < min(checkpoint, store) / rows,
            f"Spark keeps {checkpoint / rows:.0f} in its checkpoint and {store / rows:.0f} in RocksDB",
        ),
    ]


@dataclass(frozen=True, slots=True)
class Look:
    """The process of the part `cuts` at one moment.

    Attributes:
        cuts: answered so far.
        seconds: since its beginning.
        processor: seconds, of all processes.
        figures: bytes of memory, and files and bytes kept, by name.
    """

    cuts: int
    seconds: float
    processor: float
    figures: dict[str, float]


@dataclass(frozen=True, slots=True)
class Ended:
    """How the process of the part `cuts` ended.

    Attributes:
        rows, beyond: joined rows, and tuples that lacked partners.
        first: of each log the first entry that is kept.
        failures: kinds of events that tell of one.
    """

    rows: int
    beyond: int
    first: tuple[int, ...]
    failures: tuple[str, ...]


class Cuts:
    """Runs the part `cuts` in a process of its own, which leads a session so that those it starts can be told.

    Args:
        output: the results folder, not there yet.
        told: where looks go, and in the end how it ended.
    """

    def __init__(self, output: Path, told: Connection) -> None:
        os.setsid()
        self._told = told
        self._layout = Layout.of(output, None)
        conf = {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"}
        self._spark = build_session("local[2]", conf, "cuts")
        engine = Engine(
            self._spark,
            history_seconds=HISTORY_SECONDS,
            events_bytes=MEGA,
            events_files=3,
            max_delay_seconds=HISTORY_SECONDS,
        )
        for seed, stream in enumerate(STREAMS):
            source = self._spark.readStream.format("rate-micro-batch")
            frame = source.option("rowsPerBatch", ROWS).option("numPartitions", 1).load()
            frame = frame.selectExpr(
                "value AS id",
                f"pmod(xxhash64(value, {seed}), {KEYS}) AS k",
                "current_timestamp() - make_dt_interval(0, 0, 0, value % 100 / 1000) AS ts",
            )
            engine.stream(stream, frame, event_time="ts")
        self._run = engine.view("joined", VIEW).start(output)
        self._began = time.monotonic()
        self._newest, self._rows, self._beyond = -1, 0, 0
        self._failures: set[str] = set()

    def go(self, cuts: int, seconds: float) -> None:
        """Looks so often that `LOOKS` come to all cuts, until there are as many or the time is over."""
        due = 0
        while self._newest + 1 < cuts and time.monotonic() < self._began + seconds and self._run.active:
            time.sleep(0.25)
            self._take(self._run)
            if self._newest >= due:
                due += cuts // LOOKS
                self._told.send(self._look())
        if not self._run.active:
            self._run.await_termination()
        self._run.stop()
        first = tuple(LogReader(self._layout.log(stream)).first for stream in STREAMS)
        self._told.send(Ended(self._rows, self._beyond, first, tuple(sorted(self._failures))))
        self._spark.stop()

    def _take(self, run: Run) -> None:
        for event in run.events():
            if event["kind"].endswith("_failed"):
                self._failures.add(event["kind"])
            if event["kind"] == "cut" and event["cut"] > self._newest:
                self._newest = event["cut"]
                view = event["figures"]["views"]["joined"]
                self._rows += view["rows"]
                self._beyond += view["beyond_history"]

    def _look(self) -> Look:
        found = look(self._spark, self._layout.output, self._newest + 1, self._began)
        lanes = [path for path in (self._layout.checkpoint / "_lanes").rglob("*") if path.is_file()]
        found.figures["of the lane, files"] = float(len(lanes))
        return found


def look(spark: SparkSession, output: Path, cuts: int, began: float) -> Look:
    """What is held now, garbage of the JVM aside.

    Args:
        spark: the session.
        output: of the run.
        cuts: done so far.
        began: when the first of them was, by the monotonic clock.
    """
    java: Any = spark._jvm
    java.java.lang.System.gc()
    runtime = java.java.lang.Runtime.getRuntime()
    found = spent(os.getpid())
    figures = {HEAP: float(runtime.totalMemory() - runtime.freeMemory()) / MEGA}
    figures |= {f"{part}, MB": held / MEGA for part, held in found.memory.items()}
    for kind, (files, size) in kept(output).items():
        if kind in (*BOUNDED, RESULTS):
            figures |= {f"{kind}, files": float(files), f"{kind}, MB": size / MEGA}
    return Look(cuts, time.monotonic() - began, sum(found.processor.values()), figures)


def _inside(output: Path, told: Connection, cuts: int, seconds: float) -> None:
    Cuts(output, told).go(cuts, seconds)


def by_tenth(looks: Sequence[Look]) -> dict[str, list[float]]:
    """By name the medians of each tenth of the cuts, and what a cut took in it; NaN where it was not looked in a tenth."""
    last = looks[-1].cuts
    parts = [
        [each for each in looks if last * tenth <= TENTHS * each.cuts <= last * (tenth + 1)]
        for tenth in range(TENTHS)
    ]
    rows = {
        "clock, ms a cut": [_slope(part, [each.seconds for each in part]) for part in parts],
        PROCESSOR: [_slope(part, [each.processor for each in part]) for part in parts],
    }
    for name in looks[0].figures:
        rows[name] = [median(each.figures[name] for each in part) if part else nan for part in parts]
    return rows


def _slope(looks: Sequence[Look], values: Sequence[float]) -> float:
    """Milliseconds a cut from the first to the last of some looks; NaN of none."""
    if not looks:
        return nan
    return 1e3 * (values[-1] - values[0]) / max(1, looks[-1].cuts - looks[0].cuts)


def many_cuts(console: Console, cuts: int, seconds: float) -> list[tuple[bool, str]]:
    """Runs the part `cuts`."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="penstock-cuts-") as place:
        here, there = context.Pipe(duplex=False)
        process = context.Process(target=_inside, args=(Path(place) / "out", there, cuts, seconds))
        process.start()
        there.close()
        looks: list[Look] = []
        while isinstance(told := here.recv(), Look):
            looks.append(told)
            if len(looks) % 10 == 0:
                print(f"{told.cuts:,} cuts in {told.seconds / 60:.1f} minutes", file=sys.stderr, flush=True)
        process.join()
    rows = by_tenth(looks)
    table = Table("tenth of the cuts", *map(str, range(1, TENTHS + 1)), "10 / 6")
    for name, values in rows.items():
        digits = 0 if values[5] >= 100 or name.endswith("files") else 1
        ratio = values[9] / values[5] if values[5] else float("nan")
        table.add_row(name, *(f"{value:,.{digits}f}" for value in values), f"{ratio:.2f}")
    table.caption = (
        f"{looks[-1].cuts:,} cuts in {looks[-1].seconds / 60:.1f} minutes, {told.rows:,} joined rows"
    )
    console.print(table)
    judged = [
        (not told.failures, f"events that tell of a failure: {', '.join(told.failures) or 'none'}"),
        (told.rows > 0 and not told.beyond, f"{told.beyond} tuples lacked partners"),
        (min(told.first) > 0, f"the logs begin with entries {' and '.join(map(str, told.first))}"),
    ]
    if looks[-1].cuts < LEAST_CUTS:
        return judged
    limits = {PROCESSOR: PROCESSOR_LIMIT, HEAP: MEMORY_LIMIT}
    limits |= {f"{part}, MB": MEMORY_LIMIT for part in PARTS}
    limits |= {f"{kind}, {what}": FILES_LIMIT for kind in BOUNDED for what in ("files", "MB")}
    for name, limit in limits.items():
        sixth, last = rows[name][5], rows[name][9]
        judged.append(
            (
                last <= limit * sixth,
                f"{name}: {last:.4g} after {sixth:.4g}, {last / sixth:.2f} times, allowed {limit}",
            )
        )
    return judged


def main() -> int:
    """Runs the parts that are asked for; 1 where something did not hold."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", nargs="?", choices=["kept", "cuts"], help="default: both")
    parser.add_argument("--cuts", type=int, default=10_000)
    parser.add_argument("--minutes", type=float, default=60.0)
    given = parser.parse_args()
    console = Console(width=170)
    judged = []
    if given.part in (None, "kept"):
        judged += kept_by_tuple(console)
    if given.part in (None, "cuts"):
        judged += many_cuts(console, given.cuts, given.minutes * 60)
    for holds, text in judged:
        console.print(f"{'held    ' if holds else 'NOT HELD'} {text}", highlight=False)
    return 0 if all(holds for holds, _ in judged) else 1


if __name__ == "__main__":
    sys.exit(main())
