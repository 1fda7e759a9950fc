"""The floor of a lane: how long after its entry the result of a cut can be read, where the answer itself costs nothing.

A lane over two logs answers each cut with a stateless job, a task a core, that returns nothing. An entry is put every
second; from that moment until the manifest of the cut is there, in parts: until the lane has found the entry,
the putting of the cut, the job, the publication. Between the cuts a bare stateless job of Spark is timed, in a pool of its
own: the floor of the floor. Once on an idle machine, once beside an ingest query that keeps both cores busy.

The exit code is 1 where a cut takes longer than the bare job of the same run and what is allowed for a cut's own work:
the median by more than `OWN_SECONDS` and a quarter of the bare job's, the 99th percentile by twice as much.

    python benchmarks/cut_floor.py [--small]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from penstock.settings import Settings
from penstock.spark.engine import Engine
from penstock.spark.lanes.cut_lane import CutAnswer, CutLane
from penstock.spark.lanes.cuts import Cut
from penstock.spark.lanes.lane import LaneContext
from penstock.spark.log.appended import Appended
from penstock.spark.log.entries import Entry
from penstock.spark.log.row_log import RowLogs
from penstock.spark.log.stream_log import StreamLog
from penstock.spark.sessions.build import build_session
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.layout import Layout
from penstock.trigger import Trigger

CELLS = 2
PERIOD_SECONDS = 0.5
WARM_CUTS = 40
BUSY_ROWS = 2_000_000
QUERIES = 1_000
PARTS = ("wake", "put", "answer", "publish")
#: what a cut may cost beside its job: two durable small files and the wake-up
OWN_SECONDS = 0.060

Seconds = npt.NDArray[np.float64]


class EmptyLane(CutLane):
    """Answers each cut with a job that finds nothing."""

    def answer(self, cut: Cut, staging: Path) -> CutAnswer:  # noqa: ARG002
        found = self.jobs.run(_nothing, [cut.number] * CELLS)
        return CutAnswer(figures={"rows": sum(found)})


def _nothing(_: int) -> int:
    return 0


def measure(spark: SparkSession, folder: Path, cuts: int) -> tuple[Seconds, Seconds]:
    """float64[cuts, parts] of the lane, float64[cuts] of the bare job."""
    layout = Layout(folder / "out", folder / "checkpoint")
    layout.open()
    events = EventLog(layout.events)
    appended = Appended()
    rows = RowLogs(layout, events, appended.tell)
    context = LaneContext(spark, layout, events, Settings(), Trigger(), "floor", Appended(), appended, rows)
    logs = {name: StreamLog(layout.log(name)) for name in ("left", "right")}
    keepers: list[Any] = [
        SimpleNamespace(stream=name, ingest=SimpleNamespace(stream=name), active=True, is_complete=False)
        for name in logs
    ]
    lane = EmptyLane("floor", context, keepers)
    lane.start()
    bare = []
    for number in range(WARM_CUTS + cuts):
        began = time.perf_counter()
        log = logs["left" if number % 2 else "right"]
        log.append(Entry(number // 2, number // 2, 0, time.time_ns() // 1_000))
        context.appended.tell()
        while len(_cuts(events)) <= number:
            time.sleep(0.005)
        _until(began + PERIOD_SECONDS)
        bare.append(bare_job(spark))
        _until(began + 2 * PERIOD_SECONDS)
    lane.stop()
    told = _cuts(events)[WARM_CUTS:]
    return np.array([[each[f"{part}_seconds"] for part in PARTS] for each in told]), np.array(
        bare[WARM_CUTS:]
    )


def _until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.perf_counter()))


def _cuts(events: EventLog) -> list[Mapping[str, Any]]:
    return [event for event in events.recent if event["kind"] == "cut"]


def bare_job(spark: SparkSession) -> float:
    """Seconds that a stateless job takes that does nothing, a task a core."""
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", "bare")
    job = spark.range(0, CELLS, 1, CELLS).mapInArrow(lambda batches: batches, "id BIGINT")
    began = time.perf_counter()
    job.collect()
    return time.perf_counter() - began


@contextmanager
def ingest(spark: SparkSession, folder: Path) -> Iterator[None]:
    """A stream that is never caught up with: 2 M tuples a batch against a thousand queries."""
    incoming = folder / "in"
    incoming.mkdir()
    rng = np.random.default_rng(1)
    table = pa.table({"id": rng.integers(0, 1 << 30, BUSY_ROWS), "amount": rng.random(BUSY_ROWS)})
    pq.write_table(table, folder / "table.parquet", row_group_size=BUSY_ROWS // 8)
    stopping = threading.Event()

    def feed() -> None:
        number = 0
        while not stopping.is_set():
            if run.status().streams["busy"].batches + 3 > number:
                (incoming / f"{number:06d}.parquet").hardlink_to(folder / "table.parquet")
                number += 1
            stopping.wait(0.02)

    options = f"path '{incoming}', max_files_per_trigger '1'"
    engine = Engine(spark).execute(
        f"CREATE TABLE busy (id BIGINT, amount DOUBLE) USING parquet OPTIONS ({options})"
    )
    engine.add_views(
        {f"q{n}": f"SELECT * FROM busy WHERE amount > {1 - (n + 1) / 1e7}" for n in range(QUERIES)}
    )
    run = engine.start(folder / "busy")
    feeder = threading.Thread(target=feed)
    feeder.start()
    try:
        yield
    finally:
        stopping.set()
        feeder.join()
        run.stop()


def main(small: bool) -> int:
    """Measures both, prints the table; 1 where a cut takes longer than is allowed."""
    conf = {"spark.driver.memory": "4g", "spark.sql.session.timeZone": "UTC"}
    spark = build_session("local[2]", conf, "cut_floor")
    cuts = 60 if small else 200
    columns = ("machine", "bare job p50", "p99", "cut p50", "p99", *(f"{part} p50" for part in PARTS))
    table = Table(*columns, title=f"ms, {cuts} cuts")
    fails = []
    for name in ("idle", "busy"):
        with tempfile.TemporaryDirectory() as place:
            if name == "idle":
                parts, bare = measure(spark, Path(place), cuts)
            else:
                with ingest(spark, Path(place)):
                    parts, bare = measure(spark, Path(place), cuts)
        whole = parts.sum(axis=1)
        figures = [*_two(bare), *_two(whole), *np.median(parts, axis=0)]
        table.add_row(name, *(f"{1e3 * figure:.0f}" for figure in figures))
        for which, own, cut, job in zip(("p50", "p99"), (1, 2), _two(whole), _two(bare), strict=True):
            most = job + own * (OWN_SECONDS + job / 4)
            if cut > most:
                fails.append(
                    f"{name}, {which}: {1e3 * cut:.0f} ms, allowed beside its bare job {1e3 * most:.0f} ms"
                )
    Console(width=140).print(table)
    for fail in fails:
        print(fail)
    spark.stop()
    return 1 if fails else 0


def _two(seconds: Seconds) -> tuple[float, float]:
    return float(np.median(seconds)), float(np.quantile(seconds, 0.99))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--small", action="store_true", help="60 cuts instead of 200")
    sys.exit(main(parser.parse_args().small))
