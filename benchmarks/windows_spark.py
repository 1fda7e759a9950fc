"""Window views on Spark: ours beside Spark's own streaming aggregation on the same rows, on two cores.

Rows: an event time (400,000 rows a second of it, shuffled within 50 ms), one of 1,000 keys and a double, Parquet files of
1,000,000 rows, written once to `out/bench/data`; SUM and COUNT by key over 10 s sliding by 1 s, batches of
4,000,000 rows. Ours publishes early answers, corrections and final results to Parquet; Spark's side runs
in update mode with a watermark of 1 s and writes nothing. A side's rate is taken from the end of its first
batch, which pays for plans, workers and kernels, to the end of its last one, for ours to the last final result. One
run of ours is not counted at all.

Run: python benchmarks/windows_spark.py [--small]
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table

from penstock.spark.engine import Engine
from penstock.spark.session import build_session

OUTPUT = Path(__file__).resolve().parent.parent / "out" / "bench"
KEYS = 1_000
ROWS_A_SECOND = 400_000
COLUMNS = "ts TIMESTAMP, key BIGINT, value DOUBLE"
QUERY = (
    "SELECT key, window(ts, '10 seconds', '1 second') AS w, sum(value) AS s, count(*) AS n "
    "FROM tuples GROUP BY key, w"
)
SEED = 7


def write_rows(folder: Path, files: int, rows: int) -> Path:
    """Writes the files once; a folder that is complete is used again."""
    if len(list(folder.glob("*.parquet"))) == files:
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for number in range(files):
        rng = np.random.default_rng([SEED, number])
        even = (number * rows + np.arange(rows)) * (1_000_000 / ROWS_A_SECOND)
        ts = 1_700_000_000_000_000 + (even + rng.uniform(0, 50_000, rows)).astype(np.int64)
        table = pa.table(
            {
                "ts": pa.array(ts).cast(pa.timestamp("us", "UTC")),
                "key": rng.integers(0, KEYS, rows),
                "value": rng.random(rows),
            }
        )
        pq.write_table(table, folder / f"{number:03d}.parquet", row_group_size=max(1, rows // 4))
    return folder


def ours(
    spark: SparkSession, data: Path, queries: dict[str, str], files: int, **tune: Any
) -> tuple[float, str]:
    """Rows a second of the engine, and where its time went."""
    with tempfile.TemporaryDirectory(dir=OUTPUT) as folder:
        engine = Engine(spark, **tune).execute(
            f"CREATE TABLE tuples ({COLUMNS}) USING parquet "
            f"OPTIONS (path '{data}', event_time 'ts', max_files_per_trigger '{files}')"
        )
        engine.views(queries)
        run = engine.start(folder, available_now=True)
        run.await_termination()
        ended = time.time()
        run.stop()
        batches, keyed = run.events("batch"), run.events("windows")
    rows = sum(each["tuples"] for each in batches[1:])
    first = _epoch(batches[0]["time"])
    spent = {
        "ingest": median(each["run_seconds"] for each in batches[1:]),
        "keyed": median(each["run_seconds"] + each["publish_seconds"] for each in keyed),
    }
    note = ", ".join(f"{part} {seconds:.2f} s a batch" for part, seconds in spent.items())
    return rows / (ended - first), note


def native(spark: SparkSession, data: Path, files: int, file_rows: int) -> float:
    """Rows a second of Spark's own aggregation."""
    ends: list[float] = []

    def drain(batch: DataFrame, _: int) -> None:
        batch.write.format("noop").mode("append").save()
        ends.append(time.time())

    stream = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", files).parquet(str(data))
    stream.withWatermark("ts", "1 second").createOrReplaceTempView("tuples")
    with tempfile.TemporaryDirectory(dir=OUTPUT) as folder:
        writer = spark.sql(QUERY).writeStream.outputMode("update").foreachBatch(drain)
        writer.option("checkpointLocation", folder).trigger(availableNow=True).start().awaitTermination()
    batches = len(list(data.glob("*.parquet"))) // files
    return (batches - 1) * files * file_rows / (ends[batches - 1] - ends[0])


def _epoch(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp()


def report(rows: Sequence[tuple[str, float, str]]) -> None:
    """Prints the table and the ratios."""
    table = Table("side", "rows/s", "x native", "notes", title="Window views on Spark, two cores")
    unit = {name: rate for name, rate, _ in rows}["Spark's own aggregation"]
    for name, rate, note in rows:
        comparable = "10 keys" not in name
        table.add_row(name, f"{rate:,.0f}", f"{rate / unit:.2f}" if comparable else "", note)
    Console(width=150).print(table)


def main(small: bool = False) -> None:
    """Runs all sides and prints the table."""
    OUTPUT.mkdir(parents=True, exist_ok=True)
    files, file_rows, files_a_batch = (6, 50_000, 2) if small else (24, 1_000_000, 4)
    conf = {
        "spark.driver.memory": "4g",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
    }
    spark = build_session("local[2]", conf, "windows_spark")
    data = write_rows(OUTPUT / "data" / f"windows-{files}x{file_rows}", files, file_rows)
    ours(spark, data, {"sliding": QUERY}, files_a_batch)
    sides = []
    for place, tune in (("in the scan", {}), ("behind a DataFrame", {"map_in_scan": False})):
        rate, note = ours(spark, data, {"sliding": QUERY}, files_a_batch, **tune)
        print(f"ours {place}: {rate:,.0f} rows/s", flush=True)
        sides.append((f"ours {place}", rate, note))
    sides.append(("Spark's own aggregation", native(spark, data, files_a_batch, file_rows), "writes nothing"))
    print(f"Spark: {sides[-1][1]:,.0f} rows/s", flush=True)
    many = {
        f"v{number}": f"SELECT key % 10 AS k, window(ts, '{5 + number % 8} seconds', '1 second') AS w, "
        f"sum(value + {number}) AS s, count(*) AS n FROM tuples GROUP BY k, w"
        for number in range(80)
    }
    for name, queries in (
        ("one view by 10 keys", dict([next(iter(many.items()))])),
        ("80 views by 10 keys", many),
    ):
        rate, note = ours(spark, data, queries, files_a_batch)
        print(f"ours, {name}: {rate:,.0f} rows/s", flush=True)
        sides.append((f"ours, {name}", rate, note))
    report(sides)
    spark.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--small", action="store_true", help="few rows; the ratios then mean little")
    sys.exit(main(parser.parse_args().small))
