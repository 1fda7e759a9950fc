"""How long after the newer of its two tuples a joined row can be read, at 50,000 rows/s a stream, on two cores.

A process of its own writes a Parquet file to each of two streams every 250 ms; a tuple has arrived when its file is begun to be
written. 500,000 keys within 5 s either way: a pair for each tuple, 500,000 base tuples in each window. Another process looks for the
manifest of the next cut every 10 ms and reads the rows of its files. Of each joined row: from the arrival of the newer tuple until the
manifest was seen. In parts, from the newest arrival in the cut: until the batch of the ingest began that brought it (the file, Spark's listing,
the batch before), the batch, until the cut was begun (the cut before), the putting of the cut, its answer, its publication. Tuples that
arrived in the first `WARM_SECONDS` are not counted. Beside them once a second a job of Spark's that does nothing: nothing can be faster than
two of them, the batch's and the cut's.

Expected, or the exit code is 1: the median below `P50_SECONDS`, the 99th percentile below `P99_SECONDS`; at the end of the feed no more than
`BACKLOG_SECONDS` of a stream are in no cut; as many joined rows as DuckDB counts.

    python benchmarks/joins_latency.py [--seconds 60] [--rate 50000]
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from cut_floor import bare_job
from latency import WARM_SECONDS, begun, due_files, event_times, moment, put_file
from penstock.spark.engine import Engine
from penstock.spark.publication.kinds import folder_of
from penstock.spark.publication.manifests import files_of
from penstock.spark.run import Run
from penstock.spark.sessions.build import build_session
from penstock.spark.storage.formats import MANIFEST
from penstock.spark.storage.joins import JOINS
from penstock.spark.storage.lane_views import lane_name
from penstock.spark.storage.layout import Layout
from processes import processor_seconds

STREAMS = ("s0", "s1")
COLUMNS = "ts TIMESTAMP, arrived BIGINT, k BIGINT, v DOUBLE"
VIEW = (
    "SELECT s0.k, s0.v AS v0, s1.v AS v1, s0.arrived AS arrived0, s1.arrived AS arrived1 FROM s0 JOIN s1 ON s0.k = s1.k "
    "AND s1.ts BETWEEN s0.ts - INTERVAL 5 SECONDS AND s0.ts + INTERVAL 5 SECONDS"
)
KEYS_BY_RATE = 10
FILE_SECONDS, SETTLE_SECONDS = 0.25, 30.0
P50_SECONDS, P99_SECONDS, BACKLOG_SECONDS = 1.0, 2.0, 2.0
LOOK_SECONDS, BARE_SECONDS = 0.01, 1.0
PARTS = ("until ingest", "ingest", "until cut", "put", "answer", "publish")

Seconds = npt.NDArray[np.float64]


def feed(folder: Path, rate: int, seconds: float) -> None:
    """Writes files to both streams at a rate until the time is over."""
    rows = int(rate * FILE_SECONDS)
    rng = np.random.default_rng(1)
    for number, due in due_files(FILE_SECONDS, seconds):
        for stream in STREAMS:
            arrived = time.time()
            made = due - FILE_SECONDS + np.arange(rows) * (FILE_SECONDS / rows)
            table = pa.table(
                {
                    "ts": event_times(made),
                    "arrived": np.full(rows, int(arrived * 1e6)),
                    "k": rng.integers(0, rate * KEYS_BY_RATE, rows),
                    "v": rng.random(rows),
                }
            )
            put_file(folder / stream, number, table)


@dataclass(frozen=True, slots=True)
class SeenCut:
    """A published cut: when its manifest was seen, and int64[pairs], when the newer tuple of each row arrived, microseconds."""

    number: int
    seen: float
    arrivals: npt.NDArray[np.int64]


def consume(output: Path, told: Connection) -> None:
    """Follows the published cuts and reads their rows."""
    layout, lane, number = Layout.of(output, None), lane_name(JOINS.name, 0), 0
    while True:
        document = MANIFEST.read(layout.manifests(lane)[number])
        if document is None:
            time.sleep(LOOK_SECONDS)
            continue
        seen = time.time()
        newer = [np.zeros(0, np.int64)]
        for file in files_of(document):
            path = folder_of(layout, lane, file.kind) / file.name
            columns = pq.read_table(path, columns=["arrived0", "arrived1"]).columns
            newer.append(np.maximum(*(each.to_numpy() for each in columns)))
        told.send(SeenCut(number, seen, np.concatenate(newer)))
        number += 1


@dataclass(frozen=True, slots=True)
class Measured:
    """What was seen of a run.

    Attributes:
        rows: float64[pairs], from the arrival of the newer tuple until its cut was seen.
        parts: float64[cuts, parts], of the newest arrival in each cut.
        backlog: by stream the seconds of it that were in no cut when the feed ended.
        pairs, expected: joined rows, and what DuckDB counts.
        bare: seconds of jobs that do nothing, beside the feed.
        processor: seconds of all processes by second of the feed.
        load: of the machine at its end.
    """

    rows: Seconds
    parts: Seconds
    backlog: tuple[float, ...]
    pairs: int
    expected: int
    bare: list[float]
    processor: float
    load: float


def measure(spark: SparkSession, folder: Path, rate: int, seconds: float) -> Measured:
    """Runs the feed, the engine and the consumer side by side."""
    engine = Engine(spark)
    for stream in STREAMS:
        place = folder / "in" / stream
        place.mkdir(parents=True)
        engine.execute(
            f"CREATE TABLE {stream} ({COLUMNS}) USING parquet OPTIONS (path '{place}', event_time 'ts')"
        )
    run = engine.view("joined", VIEW).start(folder / "out")
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    total = WARM_SECONDS + seconds
    consumer = context.Process(target=consume, args=(folder / "out", there), daemon=True)
    consumer.start()
    there.close()
    cuts: list[SeenCut] = []
    follower = threading.Thread(target=_receive, args=(here, cuts))
    follower.start()
    feeder = context.Process(target=feed, args=(folder / "in", rate, total), daemon=True)
    began, before = time.time(), processor_seconds(os.getpid())
    feeder.start()
    feeder.join(WARM_SECONDS)
    bare = []
    while feeder.is_alive():
        bare.append(bare_job(spark))
        feeder.join(BARE_SECONDS)
    processor = (processor_seconds(os.getpid()) - before) / total
    load = os.getloadavg()[0]
    tuples = int(rate * FILE_SECONDS) * int(total / FILE_SECONDS)
    backlog = tuple((tuples - each) / rate for each in _answered(run))
    limit = time.monotonic() + SETTLE_SECONDS
    while max(_answered(run)) < tuples and time.monotonic() < limit:
        time.sleep(0.1)
    # until the consumer has read the last one
    time.sleep(2.0)
    consumer.terminate()
    follower.join()
    events = {kind: run.events(kind) for kind in ("cut", "batch")}
    run.stop()
    first = (began + WARM_SECONDS) * 1e6
    counted = [each for each in cuts if each.arrivals.size and each.arrivals.max() >= first]
    return Measured(
        np.concatenate([each.seen - each.arrivals[each.arrivals >= first] / 1e6 for each in counted]),
        np.array([_parts(events, each) for each in counted]),
        backlog,
        sum(each.arrivals.size for each in cuts),
        _expected(folder / "in"),
        bare,
        processor,
        load,
    )


def _receive(here: Connection, cuts: list[SeenCut]) -> None:
    with suppress(EOFError):
        while True:
            cuts.append(here.recv())


def _answered(run: Run) -> list[int]:
    """By stream the tuples that are in a cut."""
    reach = run.events("cut")[-1]["streams"]
    batches = run.events("batch")
    return [
        sum(each["tuples"] for each in batches if each["stream"] == name and each["batch"] <= reach[name])
        for name in STREAMS
    ]


def _parts(events: Mapping[str, Sequence[Mapping[str, Any]]], seen: SeenCut) -> Seconds:
    """float64[parts]: what the newest arrival in a cut waited for. A stream that is never silent has an entry a batch."""
    cut = next(each for each in events["cut"] if each["cut"] == seen.number)
    brought = [each for each in events["batch"] if each["batch"] == cut["streams"].get(each["stream"])]
    batch = max(brought, key=lambda each: each["newest_event_time_us"])
    taken = ("put", "answer", "publish")
    moments = [
        seen.arrivals.max() / 1e6,
        begun(batch, "bind", "run", "publish"),
        moment(batch),
        begun(cut, *taken),
    ]
    return np.array([*np.diff(moments), *(cut[f"{part}_seconds"] for part in taken)])


def _expected(folder: Path) -> int:
    """How many pairs DuckDB finds in the files of both streams."""
    given = [f"read_parquet('{folder / name}/*.parquet')" for name in STREAMS]
    counted = duckdb.execute(
        f"SELECT count(*) FROM {given[0]} s0 JOIN {given[1]} s1 ON s0.k = s1.k "
        "AND s1.ts BETWEEN s0.ts - INTERVAL 5 SECONDS AND s0.ts + INTERVAL 5 SECONDS"
    ).fetchall()
    return int(counted[0][0])


def main() -> int:
    """Measures and prints; 1 where something did not hold."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rate", type=int, default=50_000)
    given = parser.parse_args()
    conf = {"spark.driver.memory": "4g", "spark.sql.shuffle.partitions": "2"}
    spark = build_session("local[2]", conf, "joins_latency")
    with tempfile.TemporaryDirectory(prefix="penstock-latency-") as place:
        found = measure(spark, Path(place), given.rate, given.seconds)
    spark.stop()
    table = Table("", "p50 s", "p90 s", "p99 s", "max s")
    table.add_row("joined rows", *_cells(found.rows))
    table.add_row("newest arrival of a cut", *_cells(found.parts.sum(axis=1)))
    for number, part in enumerate(PARTS):
        table.add_row(f"  {part}", *_cells(found.parts[:, number]))
    table.add_row("a job that does nothing", *_cells(np.array(found.bare)))
    told = f"{given.rate:,} rows/s a stream for {given.seconds:g} s, {len(found.parts)} cuts; {found.processor:.2f} processors used, load {found.load:.1f}"
    console = Console(width=130)
    console.print(table)
    console.print(told, highlight=False)
    p50, p99 = np.quantile(found.rows, (0.5, 0.99))
    behind = max(found.backlog)
    judged = [
        (p50 < P50_SECONDS, f"the median is {p50:.2f} s, allowed {P50_SECONDS}"),
        (p99 < P99_SECONDS, f"the 99th percentile is {p99:.2f} s, allowed {P99_SECONDS}"),
        (
            behind <= BACKLOG_SECONDS,
            f"{behind:.2f} s of a stream were in no cut at the end, allowed {BACKLOG_SECONDS}",
        ),
        (found.pairs == found.expected, f"{found.pairs:,} joined rows, DuckDB {found.expected:,}"),
    ]
    for holds, text in judged:
        console.print(f"{'held    ' if holds else 'NOT HELD'} {text}", highlight=False)
    return 0 if all(holds for holds, _ in judged) else 1


def _cells(seconds: Seconds) -> list[str]:
    return [f"{each:.2f}" for each in (*np.quantile(seconds, (0.5, 0.9, 0.99)), seconds.max())]


if __name__ == "__main__":
    sys.exit(main())
