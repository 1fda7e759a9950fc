"""A run whose results and checkpoint are in a bucket, beside the same run in a local folder.

A file of 1,000 tuples arrives each second. The latency is from the file's name to the commit that makes its rows visible, by the clock of this
machine. Requests are counted by a proxy between the run and the S3 server, in the batches behind the first ones; the proxy costs some
milliseconds a request. Everything is on the loopback address, so a real store is slower by its round trip.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections import Counter
from datetime import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from expectations import Expectations
from penstock.spark.engine import Engine
from penstock.spark.sessions.build import build_session
from penstock_lab.servers.fault_proxy import PASS, FaultProxy
from penstock_lab.servers.s3 import S3Server

SECONDS, WARM, ROWS = 45, 10, 1_000
#: US dollars a thousand requests of S3's standard storage in its first region, as published in 2026: writes and lists, reads
WRITE_PRICE, READ_PRICE = 0.005, 0.0004
VIEWS = {
    "large": "SELECT * FROM s WHERE x >= 500",
    "counts": "SELECT window(at, '10 seconds') AS w, count(*) AS n FROM s GROUP BY w",
}


def kind_of(path: str) -> str:
    """What a request is for, by the name of its object."""
    for part, kind in (
        ("/spark/", "Spark's checkpoint"),
        ("/windows/", "the state of windows"),
        ("/ledger/", "ledger"),
        ("/matches/", "matches"),
        ("/results/", "results"),
        ("/log/files/", "log"),
        ("/events/", "events"),
        ("status.json", "status"),
    ):
        if part in path:
            return kind
    return "other"


class Feed(threading.Thread):
    """Puts a file a second into a folder; remembers when each had its name."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self.folder = folder
        self.put: list[float] = []

    def run(self) -> None:
        for number in range(SECONDS):
            at = 1_700_000_000_000_000 + number * 1_000_000 + np.arange(ROWS) * 1_000
            table = pa.table({"x": np.arange(ROWS), "at": pa.array(at, pa.timestamp("us", "UTC"))})
            hidden = self.folder / f".{number}"
            pq.write_table(table, hidden)
            hidden.rename(self.folder / f"{number:04d}.parquet")
            self.put.append(time.time())
            time.sleep(max(0.0, self.put[0] + number + 1 - time.time()))


def measure(spark: SparkSession, output: str, folder: Path) -> list[float]:
    """Seconds from file to visible matches, a file each behind the first ones; the rows of windows are not timed."""
    feed = Feed(folder)
    folder.mkdir()
    at = pa.array([0], pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"x": pa.array([0]), "at": at}), folder / "first.parquet")
    engine = Engine(spark).execute(
        f"CREATE TABLE s (x BIGINT, at TIMESTAMP) USING parquet OPTIONS (path '{folder}', event_time 'at')"
    )
    engine.add_views(VIEWS)
    with engine.start(output) as run:
        while not run.events("batch"):
            time.sleep(0.1)
        feed.start()
        feed.join()
        until = time.monotonic() + 60
        while run.status().streams["s"].tuples < SECONDS * ROWS + 1 and time.monotonic() < until:
            time.sleep(0.1)
        batches = run.events("batch")[1:]
    found, taken = [], 0
    for event in batches:
        visible = datetime.fromisoformat(event["time"]).timestamp()
        files = event["tuples"] // ROWS
        found += [visible - put for put in feed.put[taken : taken + files]]
        taken += files
    return found[WARM:]


def main() -> int:
    """Runs both sides, prints the table and what a batch costs; 1 where an expectation does not hold."""
    expect, console = Expectations(), Console(width=130)
    with tempfile.TemporaryDirectory() as name, S3Server(Path(name) / "s3") as server:
        server.create_bucket("bench")
        with FaultProxy(server.environment()["AWS_ENDPOINT_URL"]) as proxy:
            counted: Counter[tuple[str, str]] = Counter()
            guard = threading.Lock()

            def count(method: str, path: str) -> str:
                with guard:
                    counted[kind_of(path), method] += 1
                return PASS

            proxy.fault = count
            os.environ.update({**server.environment(), "AWS_ENDPOINT_URL": proxy.endpoint})
            spark = build_session("local[2]", {}, "object_store", stores=["s3://bench"])
            local = measure(spark, str(Path(name) / "out"), Path(name) / "local-in")
            counted.clear()
            before = proxy.bytes_in, proxy.bytes_out
            remote = measure(spark, "s3://bench/out", Path(name) / "s3-in")
            moved = proxy.bytes_in - before[0], proxy.bytes_out - before[1]
            spark.stop()
    table = Table(
        "requests a second, with a batch each", "PUT", "GET", "HEAD", "DELETE", "POST", title="On S3"
    )
    for kind in sorted({kind for kind, _ in counted}):
        table.add_row(
            kind,
            *(f"{counted[kind, each] / SECONDS:.1f}" for each in ("PUT", "GET", "HEAD", "DELETE", "POST")),
        )
    console.print(table)
    writes = sum(number for (_, method), number in counted.items() if method in ("PUT", "POST"))
    reads = sum(number for (_, method), number in counted.items() if method in ("GET", "HEAD"))
    price = (writes * WRITE_PRICE + reads * READ_PRICE) / 1_000 / SECONDS
    console.print(
        f"bytes a second: {moved[0] / SECONDS:,.0f} to the store, {moved[1] / SECONDS:,.0f} from it; at list prices a batch costs "
        f"{price * 100:.4f} cents, a day of one batch a second {price * 86_400:.2f} dollars"
    )
    for side, seconds in (("local", local), ("s3", remote)):
        p50, p99 = np.percentile(seconds, [50, 99])
        console.print(
            f"{side}: file to visible matches p50 {p50:.2f} s, p99 {p99:.2f} s ({len(seconds)} files)"
        )
        expect.at_least(f"{side}: files that were answered", len(seconds), SECONDS - WARM)
    return expect.exit_code


if __name__ == "__main__":
    sys.exit(main())
