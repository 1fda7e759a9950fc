"""What dividing a large order is worth: one window of 50 million tuples by one task, and by two tasks and the one that merges them.

COUNT, SUM, AVG and MAX of a whole number by one key. Three parts, of which each has both sides in turns and compares their answers:

- in one process: jobs of the deadline lane under `local[3]`, as on two processors with a slot left to the ingest, for 4 groups and for 100,000.
  The log's writer writes the runs directly, ten of them. No partials are kept, as in the first order of a view;
- on workers: the same jobs on a standalone cluster, whose workers have one processor each: one worker has the one task, two have the shares;
- arrivals: an engine on one worker and on two. All tuples are fed as files; what is measured begins with the last one, which
  closes the window, and ends with the published rows. The window is the first large one of its run.

The exit code is 1 where two are not 1.6 times as fast as one, by the median.

    python benchmarks/order_shares.py [--tuples N] [--turns N] [--parts process,workers,arrivals]
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from expectations import Expectations
from order_workers import FILES, arrived, cluster_of, cluster_session, executors_of, written_files
from penstock.operators.deadlines.instances import Extent
from penstock.operators.routing.routers import HashRouter
from penstock.operators.runs.run import RunPlan
from penstock.plan.windows import Aggregate, ErrorBound, WindowPlan, Windows
from penstock.spark.lanes.cells import CellJobs
from penstock.spark.lanes.deadlines import shares
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

RUNS, SHARES, POOL = 10, 2, "orders"
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
    files, jobs = RunFiles(written_log(folder, tuples), 0), CellJobs(spark, POOL, niceness=LOW_PRIORITY)
    seconds: dict[tuple[int, int], list[float]] = {(groups, n): [] for groups in GROUPS for n in (1, SHARES)}
    for turn in range(turns + 1):
        for groups in GROUPS:
            answers = []
            for count in (1, SHARES) if turn % 2 else (SHARES, 1):
                task = OrderTask(
                    0,
                    view_of(groups),
                    (),
                    Extent(0, SIZE, RUNS),
                    files.find(-1, RUNS - 1),
                    folder / "staging",
                    time.time() + 600,
                    shares=count,
                )
                began = time.perf_counter()
                if count == 1:
                    ((report,),) = jobs.run(run_tasks, [[task]])
                else:
                    report = work_divided(jobs, task)
                if turn:
                    seconds[groups, count].append(time.perf_counter() - began)
                answers.append(answer(report))
                remove_folder(task.staging)
            assert answers[0].equals(answers[1]), "a divided order answers as one that is not"
            assert sum(answers[0].column("a0").to_pylist()) == tuples // RUNS * RUNS
    return seconds


def on_workers(place: Path, tuples: int, turns: int) -> dict[tuple[int, int], list[float]]:
    """As `measure`, on two workers of a cluster with a slot each: two shares are always on two."""
    with cluster_of(place, slots=1) as cluster, cluster_session(cluster, SHARES, slots=1) as spark:
        seconds = measure(spark, place, tuples, turns)
        for tasks in (1, SHARES):
            ran = [len(each) for each in executors_of(spark, POOL, tasks).values()]
            assert set(ran) == {tasks}, f"jobs of {tasks} tasks ran on so many executors: {ran}"
            print(f"{len(ran)} jobs of {tasks} tasks ran on {tasks} executors each")
    return seconds


def arrivals(place: Path, tuples: int, turns: int) -> dict[tuple[int, int], list[float]]:
    """Seconds from the last file to the rows, as of `measure`."""
    files = written_files(place / "files", tuples, GROUPS[0])
    seconds: dict[tuple[int, int], list[float]] = {(GROUPS[0], n): [] for n in (1, SHARES)}
    executors = []
    with cluster_of(place, slots=2) as cluster:
        for turn in range(turns):
            answers = []
            for workers in (1, SHARES) if turn % 2 else (SHARES, 1):
                with cluster_session(cluster, workers, slots=2) as spark:
                    arrival = arrived(spark, place / "run", files, workers)
                seconds[GROUPS[0], workers].append(arrival.seconds)
                parts = f"noticed after {arrival.noticed:.2f} s, order {arrival.order:.2f} s on {arrival.executors}"
                print(f"workers {workers}: {parts}, published after {arrival.seconds:.2f} s", flush=True)
                answers.append(arrival.rows)
                if workers == SHARES:
                    executors.append(arrival.executors)
            assert answers[0] == answers[1], "two workers answer as one does"
            assert sum(row.n for row in answers[0]) == tuples // FILES * FILES
    assert np.median(executors) == SHARES, f"shares ran on so many executors: {executors}"
    return seconds


def in_one_process(place: Path, tuples: int, turns: int) -> dict[tuple[int, int], list[float]]:
    """As `measure`, in a local session."""
    conf = {"spark.driver.memory": "2g", "spark.default.parallelism": "2"}
    spark = build_session("local[3]", conf, "order_shares")
    try:
        return measure(spark, place, tuples, turns)
    finally:
        spark.stop()


#: by name, what measures it, its title, and whose seconds those are
PARTS = {
    "process": (in_one_process, "one process", "task"),
    "workers": (on_workers, "workers of one processor each", "worker"),
    "arrivals": (arrivals, "workers of one processor each, from the last file to the rows", "worker"),
}


def main(tuples: int, turns: int, parts: Sequence[str]) -> int:
    """Measures all parts, prints their tables; 1 where two are not as fast as expected."""
    expect = Expectations()
    for part in parts:
        measured, title, side = PARTS[part]
        with tempfile.TemporaryDirectory() as place:
            seconds = measured(Path(place), tuples, turns)
        load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
        print(f"{title}: one window of {tuples:,} tuples, median of {turns} turns; load {load}")
        table = Table("groups", f"one {side}, s", f"{SHARES} {side}s, s", "ratio")
        ratios = {}
        for groups in sorted({groups for groups, _ in seconds}):
            whole, divided = (float(np.median(seconds[groups, n])) for n in (1, SHARES))
            ratios[groups] = whole / divided
            sides = (" ".join(f"{each:.2f}" for each in seconds[groups, n]) for n in (1, SHARES))
            print(f"{groups:,} groups, each turn: {' | '.join(sides)}")
            table.add_row(f"{groups:,}", f"{whole:.2f}", f"{divided:.2f}", f"{ratios[groups]:.2f}")
        Console(width=140).print(table)
        for groups, ratio in ratios.items():
            expect.at_least(f"{title}, {groups:,} groups: times as fast", ratio, LEAST_RATIO)
    return expect.exit_code


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tuples", type=int, default=50_000_000, help="tuples in the window (50,000,000)")
    parser.add_argument("--turns", type=int, default=5, help="measured turns of each side (5)")
    parser.add_argument("--parts", default=",".join(PARTS), help="which of them (all)")
    parser.add_argument(
        "--least", type=int, help="tuples of a share, at least; for a try with few (as the engine has it)"
    )
    given = parser.parse_args()
    if given.least:
        shares.LEAST_TUPLES = given.least
    sys.exit(main(given.tuples, given.turns, given.parts.split(",")))
