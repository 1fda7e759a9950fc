"""Window views on one, two and four slots, and on a cluster of two workers with a core each: throughput and latency.

This is figure 6 of the HPM paper on one machine: the sliding view of `windows_spark.py` over all rows at once, and the view of `windows_latency.py` at
10,000 tuples a second in real time, 25 s each. Beside it Spark's own batch aggregation of the same files by the same key, without windows, in the same session:
it keeps no state and writes nothing, so that what it gains by more slots is about what this machine can give.
The ratios are to one slot. On two processors four slots cannot be faster than two. A cluster adds processes and sockets.

Run: python benchmarks/windows_scaling.py [--small]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from expectations import Expectations
from penstock.spark.sessions.build import build_session
from penstock_lab.servers.cluster import StandaloneCluster
from windows_latency import RATES, measure
from windows_spark import OUTPUT, Rows, warmed

CONF = {
    "spark.driver.memory": "4g",
    "spark.executor.memory": "2g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
}
SLOTS = (1, 2, 4)
CLUSTER = "two workers"


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured in a session.

    Attributes:
        rate, batch: rows a second of the view, and of Spark's batch aggregation.
        p50, p99: seconds from the newest tuple to a visible window.
        wrong: rows that differ from DuckDB's.
    """

    rate: float
    batch: float
    p50: float
    p99: float
    wrong: int


@contextmanager
def sessions(slots: int | None) -> Iterator[SparkSession]:
    """A session with so many slots in one process; None: on a cluster of two workers."""
    if slots is not None:
        with session(f"local[{slots}]") as spark:
            yield spark
        return
    with (
        tempfile.TemporaryDirectory() as data,
        StandaloneCluster(Path(data), memory="3g") as cluster,
        session(cluster.url) as spark,
    ):
        yield spark


@contextmanager
def session(master: str) -> Iterator[SparkSession]:
    """A session that ends with the block."""
    spark = build_session(master, CONF, "windows_scaling")
    try:
        yield spark
    finally:
        spark.stop()


def batch_rate(spark: SparkSession, rows: Rows) -> float:
    """Rows a second of Spark's batch aggregation, the best of three runs."""
    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        read = spark.read.parquet(str(rows.folder)).groupBy("key").agg({"value": "sum", "*": "count"})
        read.write.format("noop").mode("overwrite").save()
        seconds.append(time.perf_counter() - began)
    return rows.files * rows.file_rows / min(seconds)


def measured(slots: int | None, rows: Rows, seconds: float) -> Measured:
    """Throughput and latency in a session of its own."""
    with sessions(slots) as spark:
        rate = warmed(spark, CLUSTER if slots is None else f"{slots} slots", rows).rate
        batch = batch_rate(spark, rows)
        timed = measure(spark, RATES[0], seconds)
    p50, p99 = np.quantile(timed.seconds, (0.5, 0.99))
    return Measured(rate, batch, float(p50), float(p99), timed.wrong)


def main(small: bool) -> int:
    """Measures every side, prints the table; 1 where an expectation does not hold."""
    expect = Expectations(judged=not small)
    OUTPUT.mkdir(parents=True, exist_ok=True)
    rows = (Rows(16, 50_000) if small else Rows(100, 1_000_000)).write()
    sides: dict[int | None, Measured] = {
        slots: measured(slots, rows, 5.0 if small else 25.0) for slots in (*SLOTS, None)
    }
    table = Table("slots", "rows/s", "times one", "batch rows/s", "times one", "p50 s", "p99 s")
    one = sides[1]
    for slots, each in sides.items():
        name = CLUSTER if slots is None else str(slots)
        rates = (f"{each.rate:,.0f}", f"{each.rate / one.rate:.2f}")
        batch = (f"{each.batch:,.0f}", f"{each.batch / one.batch:.2f}")
        table.add_row(name, *rates, *batch, f"{each.p50:.2f}", f"{each.p99:.2f}")
        expect.hold(f"{name}: every row is DuckDB's", not each.wrong, f"{each.wrong:,} differ", always=True)
    Console(width=150).print(table)
    expect.at_least("two slots, times one", sides[2].rate / one.rate, 1.6)
    expect.at_most("four slots: p50, seconds", sides[4].p50, 1.0)
    expect.at_most("a cluster of two workers: p50, seconds", sides[None].p50, 1.0)
    return expect.exit_code


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--small", action="store_true", help="few rows; the ratios then mean little and are not judged"
    )
    sys.exit(main(parser.parse_args().small))
