"""The floor of an order: what a window with a deadline costs where working it out costs next to nothing.

Orders over 10,000 tuples in ten runs, as jobs of the deadline lane: a count that is built in, a class of the user's that
counts, worked out afresh and carried, and one whose state is nearly as large as one may be. In turns with them a bare
stateless job: the floor of the floor. Once on an idle machine, once beside two processes that never rest. Seconds of the
worker are beside those of the whole job.

The exit code is 1 where an order takes longer than the bare job of the same run and what is allowed for its own work: the
median by more than `OWN_SECONDS` and a quarter of the bare job's, the 99th percentile by twice as much.

    python benchmarks/order_floor.py [--small]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from penstock.operators.deadlines.aggregates import user_aggregate
from penstock.operators.deadlines.instances import CalledAggregate, Extent
from penstock.operators.routing.routers import HashRouter
from penstock.operators.runs.run import RunPlan
from penstock.plan.windows import Aggregate, ErrorBound, WindowPlan, Windows
from penstock.spark.lanes.cells import CellJobs
from penstock.spark.lanes.deadlines.orders import DONE, STATE_BYTES, OrderTask, run_tasks
from penstock.spark.log.entries import Entry
from penstock.spark.log.run_files import RunFiles
from penstock.spark.log.runs import write_run_file
from penstock.spark.log.stream_log import StreamLog
from penstock.spark.sessions.build import build_session
from penstock.spark.storage.layout import Layout, tuples_kind
from penstock.sql.windows.bind import BoundOutput, BoundWindow

TUPLES, RUNS, ENTRIES = 10_000, 10, 40
WARM = 40
SECOND = 1_000_000
#: what an order may cost beside its job: ten runs mapped, one file synced
OWN_SECONDS = 0.060
MOMENT = pa.timestamp("us", "UTC")

Seconds = npt.NDArray[np.float64]


def counting(ballast: int) -> type:
    """A class that counts, with so many bytes of state beside."""

    class Count:
        def __init__(self) -> None:
            self.count, self.ballast = 0, b"." * ballast

        def add(self, values: pa.Array) -> None:
            self.count += len(values)

        def remove(self, values: pa.Array) -> None:
            self.count -= len(values)

        def result(self) -> int:
            return self.count

    return Count


def written_log(folder: Path) -> StreamLog:
    """A log of entries with a run each, a second of event time long."""
    layout = Layout.of(folder, None)
    layout.ledger.open()
    log = StreamLog(layout.log("log"))
    log.path(tuples_kind(0), "").mkdir(parents=True)
    rows = TUPLES // RUNS
    for number in range(ENTRIES):
        times = number * SECOND + np.arange(rows) * (SECOND // rows)
        tuples = pa.table({"ts": pa.array(times).cast(MOMENT), "x": pa.array(np.arange(rows))})
        name = f"{number}.arrow"
        write_run_file(log.path(tuples_kind(0), name), tuples, RunPlan((), "ts", HashRouter((), 1)))
        log.append(Entry(number, number, 0, number, files={tuples_kind(0): (name,)}))
    return log


def view_of(aggregates: tuple[Aggregate, ...]) -> BoundWindow:
    """A count over ten seconds; without aggregates it is the user's."""
    windows = Windows(RUNS * SECOND, SECOND)
    plan = WindowPlan("floor", "ts", windows, (), aggregates, ErrorBound(0.1, 0.1))
    window = pa.struct([("start", MOMENT), ("end", MOMENT)])
    outputs = (BoundOutput("_w.start", "s", MOMENT), BoundOutput("_a0", "n", pa.int64()))
    return BoundWindow(plan, (), None, window, outputs, having=None)


def measure(spark: SparkSession, folder: Path, orders: int) -> dict[str, tuple[Seconds, Seconds]]:
    """By kind of order float64[orders] of the whole job, and of the worker's part; of the bare job the first twice."""
    log = written_log(folder)
    files, jobs = RunFiles(log, 0), CellJobs(spark, "orders")
    small, large = (
        (CalledAggregate(user_aggregate("floor", counting(ballast), pa.int64(), "BIGINT"), ("x",)),)
        for ballast in (0, STATE_BYTES - 8_192)
    )
    kinds: dict[str, tuple[tuple[CalledAggregate, ...], bool]] = {
        "built-in count": ((), False),
        "class, afresh": (small, False),
        "class, carried": (small, True),
        f"class, carried with {(STATE_BYTES - 8_192) >> 10} KB": (large, True),
    }
    carried: dict[str, bytes | None] = dict.fromkeys(kinds)
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in ("bare job", *kinds)}

    def timed(name: str, run: Callable[[], float]) -> None:
        began = time.perf_counter()
        inside = run()
        seconds[name].append((time.perf_counter() - began, inside))

    for number in range(WARM + orders):
        timed("bare job", lambda: float(jobs.run(_nothing, [0])[0]))
        entry = number % (ENTRIES - RUNS)
        extent = Extent(entry * SECOND, (entry + RUNS) * SECOND, entry + RUNS)
        for name, (calls, is_carried) in kinds.items():
            # the first window again: what was carried lies far from it
            given = carried[name] if is_carried and entry else None
            staging = folder / "staging"
            deadline = time.time() + 60
            found = files.find(-1, entry + RUNS - 1)
            view = view_of(() if calls else (Aggregate("count", "x", pa.int64()),))
            task = OrderTask(0, view, calls, extent, found, staging, deadline, carried=given)
            if not is_carried:
                task = replace(task, state_bytes=0)

            def run(task: OrderTask = task, name: str = name) -> float:
                ((report,),) = jobs.run(run_tasks, [[task]])
                assert report.outcome == DONE, report
                assert not report.uncarried, report.uncarried
                assert report.work.carried == (task.carried is not None)
                carried[name] = report.carried
                return float(report.seconds)

            timed(name, run)
    return {name: tuple(np.array(own[WARM:]).T) for name, own in seconds.items()}  # type: ignore[misc]


def _nothing(_: int) -> int:
    return 0


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Processes that never rest."""
    command = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def main(small: bool) -> int:
    """Measures both, prints the table; 1 where an order takes longer than is allowed."""
    conf = {"spark.driver.memory": "2g", "spark.sql.session.timeZone": "UTC"}
    spark = build_session("local[2]", conf, "order_floor")
    orders = 60 if small else 200
    columns = ("machine", "order", "job p50", "p99", "worker p50", "p99")
    table = Table(*columns, title=f"ms, {orders} orders over {TUPLES:,} tuples in {RUNS} runs")
    fails = []
    for machine, busy in (("idle", 0), ("busy", 2)):
        with tempfile.TemporaryDirectory() as place, busy_processes(busy):
            found = measure(spark, Path(place), orders)
        bare = _two(found["bare job"][0])
        for name, (jobs, inside) in found.items():
            figures = [*_two(jobs), *_two(inside)]
            table.add_row(machine, name, *(f"{1e3 * figure:.0f}" for figure in figures))
            for which, own, order, job in zip(("p50", "p99"), (1, 2), _two(jobs), bare, strict=True):
                most = job + own * (OWN_SECONDS + job / 4)
                if order > most:
                    fails.append(
                        f"{machine}, {name}, {which}: {1e3 * order:.0f} ms, allowed beside its bare job {1e3 * most:.0f} ms"
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
    parser.add_argument("--small", action="store_true", help="60 orders instead of 200")
    sys.exit(main(parser.parse_args().small))
