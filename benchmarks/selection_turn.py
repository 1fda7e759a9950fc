"""A drift on Spark that turns the best order of the ASCs round: what a tuple's matching takes, and rows/s, batch by batch.

Parquet files that are a batch each, 10 BIGINT columns uniform in [0, 99], but two: in the first half `a1` is in the one range that all
20 queries want of it for 5 % of the tuples and `a8` for all of them; in the second half it is the other way round. Each query also wants
70 % of the values of each other column. Three runs over the same files: Penstock, whose controller sees samples (lambda is
one file), and the two orders that are best for one half each, held fast. The next file arrives PAUSE seconds after the batch before, so
that recovery is counted in periods. Figures are read from `events.jsonl`: `asc_ns_per_tuple` is the tasks' processor time.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from expectations import Expectations
from penstock.operators.coding.regions import carried_over
from penstock.spark.engine import Engine

ATTRIBUTES, QUERIES = 10, 20
FIRST, SECOND = 1, 8
WANTED = (40, 44)
PAUSE = 1.5
#: recomputation periods that recovery may take, and what a tuple may take then, times the better fixed order
PERIODS, AT_MOST = 2, 1.25


@dataclass(frozen=True, slots=True)
class TurnScale:
    """Size of a run: rows of a file, and how many files."""

    file_rows: int
    files: int


FULL = TurnScale(1_000_000, 12)
SMALL = TurnScale(100_000, 4)


def conditions() -> dict[str, str]:
    """Conditions of all columns."""
    rng = np.random.default_rng(5)
    found = {}
    for number in range(QUERIES):
        lows = rng.integers(0, 31, ATTRIBUTES).tolist()
        ranges = [WANTED if a in (FIRST, SECOND) else (low, low + 69) for a, low in enumerate(lows)]
        found[f"q{number}"] = " AND ".join(
            f"a{a} BETWEEN {low} AND {high}" for a, (low, high) in enumerate(ranges)
        )
    return found


def write_files(folder: Path, scale: TurnScale) -> None:
    """The stream; the best first column changes in its middle."""
    rng = np.random.default_rng(6)
    for number in range(scale.files):
        values = rng.integers(0, 100, (ATTRIBUTES, scale.file_rows))
        values[SECOND if number < scale.files // 2 else FIRST] = WANTED[0]
        table = pa.table({f"a{a}": column for a, column in enumerate(values)})
        pq.write_table(table, folder / f"{number:03d}.parquet", row_group_size=scale.file_rows // 4)


def run(
    spark: SparkSession, stored: Path, folder: Path, scale: TurnScale, order: list[str] | None
) -> list[Any]:
    """The `batch` events of a run, by an order held fast or by Penstock's own."""
    (folder / "in").mkdir(parents=True)
    engine = Engine(
        spark,
        strategy="asc",
        recomputation_period_tuples=scale.file_rows,
        sample_tuples=0 if order else 10_000,
    )
    columns = ", ".join(f"a{a} BIGINT" for a in range(ATTRIBUTES))
    path = folder / "in"
    engine.execute(
        f"CREATE TABLE tuples ({columns}) USING parquet OPTIONS (path '{path}', max_files_per_trigger '1');"
    )
    engine.add_views({name: f"SELECT a0 FROM tuples WHERE {sql}" for name, sql in conditions().items()})
    running = engine.start(folder / "out")
    plans = running._execution.queries["tuples"].plans
    for number, file in enumerate(sorted(stored.iterdir())):
        if number == 1 and order:
            plans.swap_sequence(0, carried_over(plans.compiled(0).program.plan.coded, order))
        (path / file.name).hardlink_to(file)
        while len(running.events("batch")) <= number:
            running.await_termination(0.1)
        time.sleep(PAUSE)
    running.stop()
    return running.events("batch")


def run_turn(spark: SparkSession, output: Path, small: bool, expect: Expectations) -> None:
    """Runs all three, prints them side by side and whether recovery is as soon as expected."""
    scale = SMALL if small else FULL
    rest = [f"a{a}" for a in range(ATTRIBUTES) if a not in (FIRST, SECOND)]
    orders = {
        "Penstock": None,
        "best first": [f"a{FIRST}", *rest, f"a{SECOND}"],
        "best afterwards": [f"a{SECOND}", *rest, f"a{FIRST}"],
    }
    with tempfile.TemporaryDirectory(dir=output) as name:
        stored = Path(name) / "stored"
        stored.mkdir()
        write_files(stored, scale)
        found = {
            side: run(spark, stored, Path(name) / str(at), scale, order)
            for at, (side, order) in enumerate(orders.items())
        }
    cost = {side: [each["asc_ns_per_tuple"] for each in batches] for side, batches in found.items()}
    rate = {
        side: [each["tuples"] / each["run_seconds"] for each in batches] for side, batches in found.items()
    }
    pairs = {side: sum(each["pairs"] for each in batches) for side, batches in found.items()}
    table = Table("batch", *(f"{side}, ns" for side in orders), *(f"{side}, rows/s" for side in orders))
    for number in range(scale.files):
        table.add_row(
            str(number),
            *(f"{cost[side][number]:.1f}" for side in orders),
            *(f"{rate[side][number]:,.0f}" for side in orders),
        )
    Console(width=160).print(table)
    expect.hold(
        "turn: the same matches by each order", len(set(pairs.values())) == 1, str(pairs), always=True
    )
    late = slice(scale.files // 2 + PERIODS, None)
    best, worst = median(cost["best afterwards"][late]), median(cost["best first"][late])
    ours = median(cost["Penstock"][late])
    expect.at_most(
        f"turn: ns a tuple over the best fixed order's, {PERIODS} periods after it", ours / best, AT_MOST
    )
    expect.at_least("turn: ns a tuple of the order that was best before, over ours", worst / ours, 1.5)
    rates = {side: median(rate[side][late]) for side in orders}
    print("rows/s then: " + ", ".join(f"{side} {value:,.0f}" for side, value in rates.items()))
