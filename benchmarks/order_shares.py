"""What dividing a large order is worth: one window of 50 million tuples by one task, and by two tasks and the one that merges them.

COUNT, SUM, AVG and MAX of a whole number, for 4 groups and for 100,000. The runs are written directly by the log's writer, ten of them:
to feed so many tuples through a stream would take longer than all that is measured. Both sides are jobs of the deadline lane, in turns in one process
under `local[3]`, as on two processors with a slot left to the ingest. No partials are kept, as in the first order of a view. Answers of both sides are compared.

The exit code is 1 where two tasks are not 1.6 times as fast, by the median.

    python benchmarks/order_shares.py [--tuples N] [--turns N]
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from penstock.operators.deadlines.instances import Extent
from penstock.operators.routing.routers import HashRouter
from penstock.operators.runs.run import RunPlan
from penstock.plan.windows import Aggregate, ErrorBound, WindowPlan, Windows
from penstock.spark.lanes.cells import CellJobs
from penstock.spark.lanes.deadlines.orders import DONE, OrderReport, OrderTask, run_tasks
from penstock.spark.lanes.deadlines.shares import work_divided
from penstock.spark.log.entries import Entry
from penstock.spark.log.run_files import RunFiles
from penstock.spark.log.runs import write_run_file
from penstock.spark.log.stream_log import StreamLog
from penstock.spark.sessions.build import build_session
from penstock.spark.sessions.priority import LOW_PRIORITY
from penstock.spark.storage.layout import Layout, tuples_kind
from penstock.spark.storage.store_paths import remove_folder
from penstock.sql.windows.bind import BoundOutput, BoundWindow

RUNS, SHARES = 10, 2
GROUPS = (4, 100_000)
LEAST_RATIO = 1.6
SIZE = 3_600_000_000
MOMENT = pa.timestamp("us", "UTC")
AGGREGATES = (
    Aggregate("count", None, pa.int64()),
    Aggregate("sum", "x", pa.int64()),
    Aggregate("avg", "x", pa.float64()),
    Aggregate("max", "x", pa.int64()),
)


def written_log(folder: Path, tuples: int) -> StreamLog:
    """A log of entries with a run each, of one window together; a tuple has a key for each number of groups."""
    layout = Layout.of(folder, None)
    layout.ledger.open()
    log = StreamLog(layout.log("log"))
    log.path(tuples_kind(0), "").mkdir(parents=True)
    random, rows, span = np.random.default_rng(7), tuples // RUNS, SIZE // RUNS
    for number in range(RUNS):
        times = number * span + np.sort(random.integers(0, span, rows))
        columns = {"ts": pa.array(times).cast(MOMENT), "x": pa.array(random.integers(-1000, 1000, rows))}
        columns |= {f"k{groups}": pa.array(random.integers(0, groups, rows)) for groups in GROUPS}
        name = f"{number}.arrow"
        write_run_file(
            log.path(tuples_kind(0), name), pa.table(columns), RunPlan((), "ts", HashRouter((), 1))
        )
        log.append(Entry(number, number, 0, number, files={tuples_kind(0): (name,)}))
    return log


def view_of(groups: int) -> BoundWindow:
    """A window of an hour by one key."""
    keys = ((f"k{groups}", pa.int64()),)
    plan = WindowPlan("large", "ts", Windows(SIZE, SIZE), keys, AGGREGATES, ErrorBound(0.1, 0.1))
    window = pa.struct([("start", MOMENT), ("end", MOMENT)])
    outputs = [BoundOutput("_k0", "k", pa.int64())]
    outputs += [BoundOutput(f"_a{at}", f"a{at}", each.type) for at, each in enumerate(AGGREGATES)]
    return BoundWindow(plan, (), None, window, tuple(outputs), having=None)


def answer(report: OrderReport) -> pa.Table:
    """The rows that an order has staged, by key."""
    assert report.outcome == DONE, report
    (file,) = [file for each in report.results for file in each.left]
    rows = pq.read_table(file.path)
    return rows.select(["k", *(f"a{at}" for at in range(len(AGGREGATES)))]).sort_by("k")


def measure(spark: SparkSession, folder: Path, tuples: int, turns: int) -> dict[tuple[int, int], list[float]]:
    """By groups and tasks the seconds of each turn but the first."""
    files, jobs = RunFiles(written_log(folder, tuples), 0), CellJobs(spark, "orders", niceness=LOW_PRIORITY)
    seconds: dict[tuple[int, int], list[float]] = {(groups, n): [] for groups in GROUPS for n in (1, SHARES)}
    for turn in range(turns + 1):
        for groups in GROUPS:
            answers = []
            for shares in (1, SHARES) if turn % 2 else (SHARES, 1):
                task = OrderTask(
                    0,
                    view_of(groups),
                    (),
                    Extent(0, SIZE, RUNS),
                    files.find(-1, RUNS - 1),
                    folder / "staging",
                    time.time() + 600,
                    shares=shares,
                )
                began = time.perf_counter()
                if shares == 1:
                    ((report,),) = jobs.run(run_tasks, [[task]])
                else:
                    report = work_divided(jobs, task)
                if turn:
                    seconds[groups, shares].append(time.perf_counter() - began)
                answers.append(answer(report))
                remove_folder(task.staging)
            assert answers[0].equals(answers[1]), "a divided order answers as one that is not"
            assert sum(answers[0].column("a0").to_pylist()) == tuples // RUNS * RUNS
    return seconds


def main(tuples: int, turns: int) -> int:
    """Measures both, prints the table; 1 where two tasks are not as fast as expected."""
    conf = {"spark.driver.memory": "2g", "spark.default.parallelism": "2"}
    spark = build_session("local[3]", conf, "order_shares")
    with tempfile.TemporaryDirectory() as place:
        seconds = measure(spark, Path(place), tuples, turns)
    spark.stop()
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    title = f"one window of {tuples:,} tuples, median of {turns} turns; load {load}"
    table = Table("groups", "one task, s", f"{SHARES} tasks, s", "ratio")
    fails = []
    for groups in GROUPS:
        whole, divided = (float(np.median(seconds[groups, n])) for n in (1, SHARES))
        table.add_row(f"{groups:,}", f"{whole:.2f}", f"{divided:.2f}", f"{whole / divided:.2f}")
        if whole / divided < LEAST_RATIO:
            fails.append(f"{groups:,} groups: {whole / divided:.2f} times as fast, expected {LEAST_RATIO}")
    print(title)
    Console(width=140).print(table)
    for fail in fails:
        print(fail)
    return 1 if fails else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tuples", type=int, default=50_000_000, help="tuples in the window (50,000,000)")
    parser.add_argument("--turns", type=int, default=5, help="measured turns of each side (5)")
    given = parser.parse_args()
    sys.exit(main(given.tuples, given.turns))
