"""How long after the newest tuple of a result the result can be read, on two cores, and which part takes how long.

A process of its own writes a Parquet file every 100 ms at 10,000 and at 500,000 tuples/s; a tuple's event time is the
time of its making. The engine answers SUM and COUNT by 100 keys a second. Of every published batch that has rows:
from the newest event time in it to its publication, in parts: until the ingest batch began (the file, Spark's listing,
the end of the batch before), the ingest batch, until the cut began, the cut. The first batches
are not counted. How long a window waits for late tuples, its slack, is not in it: the newest tuple is the one that closes
the window. That is the part `order`; the part `late` has tuples that come late, and is told in `windows_late.py`. The exit code is 1 where
what is expected of it does not hold.

Run: python benchmarks/windows_latency.py [--small] [part ...]
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from expectations import Expectations
from latency import WARM_SECONDS, begun, due_files, event_times, moment, put_file
from penstock.spark.engine import Engine
from penstock.spark.sessions.build import build_session
from windows_late import late

COLUMNS = "ts TIMESTAMP, key BIGINT, value DOUBLE"
QUERY = "SELECT key, window(ts, '1 second') AS w, sum(value) AS s, count(*) AS n FROM tuples GROUP BY key, w"
RATES = (10_000, 500_000)
FILE_SECONDS = 0.1
KEYS = 100
STEPS = ("until ingest", "ingest", "until cut", "cut")
PARTS = ("order", "late")


def produce(folder: Path, rate: int, seconds: float) -> None:
    """Writes files at a rate until the time is over."""
    rows = int(rate * FILE_SECONDS)
    rng = np.random.default_rng(1)
    for number, due in due_files(FILE_SECONDS, seconds):
        table = pa.table(
            {
                "ts": event_times(due - FILE_SECONDS + np.arange(1, rows + 1) / rate),
                "key": rng.integers(0, KEYS, rows),
                "value": rng.random(rows),
            }
        )
        put_file(folder, number, table)


def measure(spark: SparkSession, rate: int, seconds: float) -> npt.NDArray[np.float64]:
    """float64[batches, steps]: the seconds of each step of every published batch."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "in"
        folder.mkdir()
        engine = Engine(spark).execute(
            f"CREATE TABLE tuples ({COLUMNS}) USING parquet OPTIONS (path '{folder}', event_time 'ts')"
        )
        run = engine.view("sums", QUERY).start(Path(place) / "out")
        total = WARM_SECONDS + seconds
        producer = multiprocessing.get_context("spawn").Process(target=produce, args=(folder, rate, total))
        producer.start()
        producer.join()
        ingest = {event["batch"]: event for event in run.events("batch")}
        cuts = run.events("windows")
        run.stop()
    first = min(moment(event) for event in ingest.values()) + WARM_SECONDS
    rows = []
    for event in cuts:
        if event["answered"] is None:
            continue
        batch = ingest[event["answered"]]
        newest = batch["newest_event_time_us"] / 1e6
        if newest < first or not any(counts["rows"] for counts in event["views"].values()):
            continue
        moments = [
            newest,
            begun(batch, "bind", "run", "publish"),
            moment(batch),
            begun(event, "run", "make", "publish"),
            moment(event),
        ]
        rows.append(np.diff(moments))
    return np.array(rows)


def in_order(spark: SparkSession, small: bool) -> None:
    """Measures both rates and prints the table."""
    table = Table("tuples/s", "batches", "p50 s", "p99 s", *(f"{step}, p50 s" for step in STEPS))
    for rate in RATES:
        steps = measure(spark, rate, 25.0 if small else 60.0)
        whole = steps.sum(axis=1)
        figures = [np.median(whole), np.quantile(whole, 0.99), *np.median(steps, axis=0)]
        table.add_row(f"{rate:,}", str(len(steps)), *(f"{figure:.2f}" for figure in figures))
    Console(width=150).print(table)


def main(small: bool, parts: Sequence[str]) -> int:
    """Runs some parts; 1 where an expectation does not hold."""
    conf = {
        "spark.driver.memory": "4g",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
    }
    spark = build_session("local[2]", conf, "windows_latency")
    expect = Expectations()
    if "order" in parts:
        in_order(spark, small)
    if "late" in parts:
        late(spark, small, expect)
    spark.stop()
    return expect.exit_code


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--small", action="store_true", help="25 seconds a rate; one stream with late tuples")
    parser.add_argument("parts", nargs="*", metavar="part", help=f"some of {', '.join(PARTS)}; all if none")
    arguments = parser.parse_args()
    if unknown := set(arguments.parts) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}; allowed: {', '.join(PARTS)}")
    sys.exit(main(arguments.small, arguments.parts or PARTS))
