"""Window views on Spark: ours beside Spark's own streaming aggregation on the same rows, on two cores.

Rows: an event time (400,000 rows a second of it, shuffled within 50 ms), a key and a double, Parquet files of
1,000,000 rows, written once to `out/bench/data`; batches of four files. Ours publishes early answers, corrections and
final results to Parquet, and gathers entries as it does on any finite stream; Spark's side runs in update mode with a watermark of 1 s and writes nothing. A side's
rate is that of the batches after the first three, which pay for plans, workers, kernels and the first cut
of windows: from the end of the third to the end of everything, for ours the publication of the last final result. The JVM
compiles what it runs often, a core's worth for the first minute of a session: some runs of each side are not
counted, and the streams are 25 batches long (those of `keys` ten). Parts:

sliding  SUM and COUNT by 1,000 keys over 10 s sliding by 1 s: in the scan, behind a DataFrame, Spark's own
late     the same where 3 % of the tuples come up to 20 s late: corrections are on the way while the rate is measured, Spark's
         own has a watermark of 20 s, so that it drops none; what was published last of each row must be DuckDB's answer
many     one view by 10 keys, and 80 that differ in window and aggregate on the same stream, with a shard a core and
         with one: each shard looks at every view
tasks    the sliding view with one task at a time (`local[1]`)
keys     one view of 10 s by 10,000, 100,000 and 1,000,000 keys, all touched by every batch

The exit code is 1 where a ratio is not what is expected.

Run: python benchmarks/windows_spark.py [--small] [part ...]
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table

from expectations import Expectations
from penstock.spark.engine import Engine
from penstock.spark.sessions.build import build_session
from penstock.trigger import Trigger

OUTPUT = Path(__file__).resolve().parent.parent / "out" / "bench"
ROWS_A_SECOND = 400_000
COLUMNS = "ts TIMESTAMP, key BIGINT, value DOUBLE"
SLIDING = (
    "SELECT key, window(ts, '10 seconds', '1 second') AS w, sum(value) AS s, count(*) AS n "
    "FROM tuples GROUP BY key, w"
)
TUMBLING = "SELECT key, window(ts, '10 seconds') AS w, sum(value) AS s FROM tuples GROUP BY key, w"
SEED = 7
WARM_BATCHES = 3
WARM_RUNS = 3
FILES_A_BATCH = 4
LATE_SHARE, LATE_SECONDS = 0.03, 20
PARTS = ("sliding", "late", "many", "tasks", "keys")


@dataclass(frozen=True, slots=True)
class Rows:
    """A folder of rows.

    Attributes:
        files, file_rows: how much.
        keys: number of different keys.
        late: share of the rows that are of an earlier time than their place says, by up to `LATE_SECONDS`.
    """

    files: int
    file_rows: int
    keys: int = 1_000
    late: float = 0.0

    @property
    def folder(self) -> Path:
        """Where they lie."""
        return OUTPUT / "data" / f"windows-{self.files}x{self.file_rows}-{self.keys}-{self.late:g}"

    @property
    def measured(self) -> int:
        """Rows of the batches that count."""
        return (self.files - WARM_BATCHES * FILES_A_BATCH) * self.file_rows

    def write(self) -> Rows:
        """Writes the files once; those of a folder that is complete are read, so that no side reads from the disk."""
        present = list(self.folder.glob("*.parquet"))
        if len(present) == self.files:
            for path in present:
                path.read_bytes()
            return self
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        rows = self.file_rows
        for number in range(self.files):
            rng = np.random.default_rng([SEED, number])
            even = (number * rows + np.arange(rows)) * (1_000_000 / ROWS_A_SECOND)
            delay = np.where(rng.random(rows) < self.late, rng.uniform(0, LATE_SECONDS * 1e6, rows), 0)
            ts = 1_700_000_000_000_000 + (even + rng.uniform(0, 50_000, rows) - delay).astype(np.int64)
            table = pa.table(
                {
                    "ts": pa.array(ts).cast(pa.timestamp("us", "UTC")),
                    "key": rng.integers(0, self.keys, rows),
                    # sums of such values are exact, in any order
                    "value": rng.integers(0, 1 << 20, rows) / (1 << 20),
                }
            )
            pq.write_table(table, self.folder / f"{number:03d}.parquet", row_group_size=max(1, rows // 4))
        return self


@dataclass(frozen=True, slots=True)
class Side:
    """What was measured of one side.

    Attributes:
        name: what ran.
        rate: rows a second.
        ingest, cuts: median seconds of a batch, and of a cut, that counts; 0 for Spark's own.
        note: what else is known.
        corrected: times that an answered window was corrected before it was final.
    """

    name: str
    rate: float
    ingest: float = 0.0
    cuts: float = 0.0
    note: str = ""
    corrected: int = 0


def ours(
    spark: SparkSession,
    name: str,
    rows: Rows,
    queries: dict[str, str],
    look: Callable[[Path], None] | None = None,
    **tune: Any,
) -> Side:
    """Runs the engine over all rows; its results can be looked at before they are removed."""
    with tempfile.TemporaryDirectory(dir=OUTPUT) as folder:
        engine = Engine(spark, **tune).execute(
            f"CREATE TABLE tuples ({COLUMNS}) USING parquet "
            f"OPTIONS (path '{rows.folder}', event_time 'ts', max_files_per_trigger '{FILES_A_BATCH}')"
        )
        engine.add_views(queries)
        run = engine.start(folder, trigger=Trigger.available_now(ended=True))
        run.await_termination()
        run.stop()
        batches, cuts = run.events("batch"), run.events("windows")
        if look is not None:
            look(Path(folder))
    began, ended = (datetime.fromisoformat(each["time"]) for each in (batches[WARM_BATCHES - 1], cuts[-1]))
    parts = ("bind_seconds", "run_seconds", "publish_seconds")
    ingest = median(sum(each[part] for part in parts) for each in batches[WARM_BATCHES:])
    published, corrected = (
        sum(counts[what] for each in cuts for counts in each["views"].values())
        for what in ("rows", "corrected")
    )
    side = Side(
        name,
        rows.measured / (ended - began).total_seconds(),
        ingest,
        median(each["run_seconds"] + each["publish_seconds"] for each in cuts[1:] or cuts),
        f"{published:,} rows of results" + (f", {corrected:,} times a window corrected" if corrected else ""),
        corrected,
    )
    _tell(side)
    return side


def warmed(spark: SparkSession, name: str, rows: Rows) -> Side:
    """The sliding view in a session whose JVM has compiled what it needs."""
    for _ in range(WARM_RUNS):
        ours(spark, "not counted", rows, {"sliding": SLIDING})
    return ours(spark, name, rows, {"sliding": SLIDING})


def warmed_native(spark: SparkSession, name: str, rows: Rows) -> Side:
    """Spark's own sliding aggregation in a session that has run it before."""
    native(spark, "not counted", rows, SLIDING)
    return native(spark, name, rows, SLIDING)


def with_late_tuples(spark: SparkSession, files: int, file_rows: int, expect: Expectations) -> list[Side]:
    """The sliding view of ours and Spark's own where some tuples come late, and of ours where none does."""
    late, in_order = Rows(files, file_rows, late=LATE_SHARE).write(), Rows(files, file_rows)
    ours(spark, "not counted", late, {"sliding": SLIDING})
    own = ours(
        spark,
        f"ours in the scan, {LATE_SHARE:.0%} late",
        late,
        {"sliding": SLIDING},
        lambda output: ends_exact(
            output / "results" / "sliding",
            late.folder,
            expect,
            "late tuples: what was published last is DuckDB's",
        ),
    )
    punctual = ours(spark, "ours in the scan, none late, once more", in_order, {"sliding": SLIDING})
    native(spark, "not counted", late, SLIDING, LATE_SECONDS)
    plain = native(spark, f"Spark's own aggregation, {LATE_SHARE:.0%} late", late, SLIDING, LATE_SECONDS)
    expect.hold(
        "late tuples: windows are corrected on the way", own.corrected > 0, f"{own.corrected:,} times"
    )
    expect.at_least("late tuples, share of the rate without them", own.rate / punctual.rate, 0.7)
    expect.at_least("late tuples, times Spark's own", own.rate / plain.rate, 5)
    return [own, punctual, plain]


def ends_exact(results: Path, folder: Path, expect: Expectations, what: str, condition: str = "TRUE") -> None:
    """Whether what was published last of each row of a sliding view is final, and DuckDB's answer.

    Args:
        results: the view's results.
        folder: its tuples.
        expect: takes the finding.
        what: the name of the finding.
        condition: the view's WHERE.
    """
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        database.execute(
            "CREATE TABLE told AS SELECT key, epoch_us(w.start) // 1000000 AS start, max_by(s, revision) AS s, "
            f"max_by(n, revision) AS n FROM read_parquet('{results}/*.parquet') "
            "GROUP BY ALL HAVING max_by(is_final, revision)"
        )
        database.execute(
            "CREATE TABLE exact AS WITH panes AS (SELECT key, epoch_us(ts) // 1000000 AS second, sum(value) AS s, "
            f"count(*) AS n FROM read_parquet('{folder}/*.parquet') WHERE {condition} GROUP BY ALL) "
            "SELECT key, second - back AS start, sum(s) AS s, sum(n)::BIGINT AS n FROM panes, range(10) past(back) GROUP BY ALL"
        )
        found = database.execute(
            "SELECT count(*), count(*) FILTER (told.s = exact.s AND told.n = exact.n) FROM exact FULL JOIN told USING (key, start)"
        ).fetchone()
    every, same = found or (0, 0)
    expect.hold(what, 0 < every == same, f"{same:,} of {every:,} rows", always=True)


def native(spark: SparkSession, name: str, rows: Rows, query: str, watermark_seconds: int = 1) -> Side:
    """Spark's own aggregation over the same batches."""
    ends: list[float] = []

    def drain(batch: DataFrame, _: int) -> None:
        batch.write.format("noop").mode("append").save()
        ends.append(time.time())

    stream = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", FILES_A_BATCH)
    stream.parquet(str(rows.folder)).withWatermark(
        "ts", f"{watermark_seconds} seconds"
    ).createOrReplaceTempView("tuples")
    with tempfile.TemporaryDirectory(dir=OUTPUT) as folder:
        writer = spark.sql(query).writeStream.outputMode("update").foreachBatch(drain)
        writer.option("checkpointLocation", folder).trigger(availableNow=True).start().awaitTermination()
    batches = rows.files // FILES_A_BATCH
    side = Side(
        name,
        rows.measured / (ends[batches - 1] - ends[WARM_BATCHES - 1]),
        note="writes nothing",
    )
    _tell(side)
    return side


def _tell(side: Side) -> None:
    print(f"{side.name}: {side.rate:,.0f} rows/s", flush=True)


def many_views() -> dict[str, str]:
    """80 views that differ in window and aggregate."""
    aggregates = ("sum", "count", "avg", "min", "max", "stddev", "var_pop", "stddev_pop")
    return {
        f"{aggregate}_{size}": f"SELECT key, window(ts, '{size} seconds', '1 second') AS w, "
        f"{aggregate}(value) AS a FROM tuples GROUP BY key, w"
        for aggregate in aggregates
        for size in range(5, 15)
    }


def report(sides: Sequence[Side]) -> None:
    """Prints the table."""
    table = Table("side", "rows/s", "ingest s", "cut s", "notes", title="Window views on Spark")
    for side in sides:
        parts = [f"{seconds:.2f}" if seconds else "" for seconds in (side.ingest, side.cuts)]
        table.add_row(side.name, f"{side.rate:,.0f}", *parts, side.note)
    Console(width=150).print(table)


def main(small: bool, parts: Sequence[str]) -> int:
    """Runs some parts, prints the table and the ratios; 1 where one is not what is expected."""
    expect = Expectations(judged=not small)
    OUTPUT.mkdir(parents=True, exist_ok=True)
    long, files, file_rows = (16, 16, 50_000) if small else (100, 40, 1_000_000)
    rows = Rows(long, file_rows).write()
    conf = {
        "spark.driver.memory": "6g",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
    }
    spark = build_session("local[2]", conf, "windows_spark")
    scan = warmed(spark, "ours in the scan", rows)
    sides = [scan]
    if "sliding" in parts:
        ours(spark, "not counted", rows, {"sliding": SLIDING}, map_in_scan=False)
        behind = ours(spark, "ours behind a DataFrame", rows, {"sliding": SLIDING}, map_in_scan=False)
        plain = warmed_native(spark, "Spark's own aggregation", rows)
        sides += [behind, plain]
        expect.at_least("in the scan, times Spark's own", scan.rate / plain.rate, 5)
        expect.at_least("behind a DataFrame, times Spark's own", behind.rate / plain.rate, 1.5)
    if "late" in parts:
        sides += with_late_tuples(spark, long, file_rows, expect)
    if "many" in parts:
        views = many_views()
        ten = Rows(long, file_rows, 10).write()
        for shards in (2, 1):
            one = ours(
                spark, f"one view by 10 keys, {shards} shards", ten, {"v": views["sum_10"]}, shards=shards
            )
            every = ours(spark, f"80 views by 10 keys, {shards} shards", ten, views, shards=shards)
            sides += [one, every]
            expect.at_least(
                f"80 views, {shards} shards, share of one view's rate", every.rate / one.rate, 0.7
            )
    if "keys" in parts:
        by_keys = {
            keys: ours(spark, f"ours by {keys:,} keys", Rows(files, file_rows, keys).write(), {"v": TUMBLING})
            for keys in (10_000, 100_000, 1_000_000)
        }
        sides += by_keys.values()
        for few, more in ((10_000, 100_000), (100_000, 1_000_000)):
            growth = by_keys[few].rate / by_keys[more].rate
            expect.at_least(
                f"{more:,} keys for {few:,}: keys grow 10 times, time {growth:.2f} times; ratio",
                10 / growth,
                1,
            )
    spark.stop()
    if "tasks" in parts:
        spark = build_session("local[1]", conf, "windows_spark")
        single = warmed(spark, "ours in the scan, one task", rows)
        sides.append(single)
        expect.at_least("two tasks, times one", scan.rate / single.rate, 1.6)
        spark.stop()
    report(sides)
    return expect.exit_code


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--small", action="store_true", help="few rows; the ratios then mean little and are not judged"
    )
    parser.add_argument("parts", nargs="*", metavar="part", help=f"some of {', '.join(PARTS)}; all if none")
    arguments = parser.parse_args()
    if unknown := set(arguments.parts) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}; allowed: {', '.join(PARTS)}")
    sys.exit(main(arguments.small, arguments.parts or PARTS))
