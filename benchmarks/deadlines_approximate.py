"""Windows under overload with `LOSS(k, m, 'approximate')` beside the same without it, in real time, on two cores.

A process of its own writes a Parquet file of a stream every 200 ms, `RATE` tuples/s of `GROUPS` groups, event time the clock's. Views of windows of 10 s that
slide by 1 s, deadline 2 s, each the median and the number of the values under a condition of its own, by group. A median needs all values of a window,
so that not all windows can be worked out in time.

in time    Share of the windows whose rows another process has found no later than the deadline after the first file could be read that holds a tuple
           beyond the window's end: exact ones, and those from a sample.
covered    Share of the bounds of rows from a sample that hold what DuckDB says of all tuples of the window, the least of both columns. 95 % are promised.
missing    Rows of DuckDB's that a window with exact rows does not have.
width      Bound of a median beside the exact median, p50.

Expected, or the exit code is 1: see `judged`.

    python benchmarks/deadlines_approximate.py [--rate 100000] [--views 6] [--seconds 30]
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from math import inf
from pathlib import Path

import duckdb
import numpy as np
import numpy.typing as npt
from pyspark.sql import Row, SparkSession
from rich.console import Console
from rich.table import Table

from deadlines_feed import COLUMNS, MICROS, STREAM, Fed
from deadlines_sides import Outcome, fed_stream, micros, seen_outcomes
from deadlines_spark import CORES, REST_SECONDS, WARM_SECONDS, session
from expectations import Expectations
from penstock.spark.engine import Engine
from penstock.spark.lanes.deadlines.ledger import APPROXIMATED

RATE, GROUPS, VIEWS = 100_000, 10, 6
#: so many that hardly two tuples have the same
VALUES = 1 << 40
SIZE_SECONDS, DEADLINE_SECONDS = 10, 2
#: time in which owed exact rows are worked out
SETTLE_SECONDS = 15.0
#: with samples so many windows have rows in time, so many more than without, and so many more for each exact one that is given up for them
IN_TIME, GAINED, GAINED_EACH = 0.9, 0.2, 2.0
COVERED = 0.93
SIDES = {"without": "LOSS(1, 4)", "approximate": "LOSS(1, 4, 'approximate')"}


@dataclass(frozen=True, slots=True)
class Side:
    """What was seen of a side.

    Attributes:
        windows: how many were counted.
        exact, sampled: in time, from all tuples or from a sample.
        wrong: rows with bound 0 that are not DuckDB's.
        missing: groups that an exact window lacks.
        covered: of each row from a sample, whether the bounds of its median and of its count hold, bool[rows, 2].
        widths: bounds of medians beside the exact ones.
    """

    windows: int
    exact: int
    sampled: int
    wrong: int
    missing: int
    covered: npt.NDArray[np.bool_]
    widths: npt.NDArray[np.float64]

    @property
    def in_time(self) -> float:
        """Share of the windows with rows in time."""
        return (self.exact + self.sampled) / self.windows


def text(number: int, hints: str) -> str:
    """A view."""
    return (
        f"SELECT /*+ {hints} */ k, window(ts, '{SIZE_SECONDS} seconds', '1 second') AS w, median(x) AS m, count(*) AS n "
        f"FROM {STREAM} WHERE x >= {number} GROUP BY k, w"
    )


def measured(spark: SparkSession, folder: Path, given: argparse.Namespace, loss: str) -> Side:
    """Runs a side."""
    (folder / "in").mkdir(parents=True)
    # not compacted, so that each manifest is seen
    engine = Engine(spark, compact_every_batches=0)
    columns = COLUMNS.replace("x BIGINT", "k BIGINT, x BIGINT")
    engine.execute(
        f"CREATE TABLE {STREAM} ({columns}) USING parquet OPTIONS (path '{folder / 'in'}', event_time 'ts')"
    )
    hints = f"DEADLINE('{DEADLINE_SECONDS} seconds'), {loss}"
    engine.add_views({f"v{number}": text(number, hints) for number in range(given.views)})
    run = engine.start(folder / "out")
    try:
        with seen_outcomes(folder / "out") as outcomes:
            seconds = WARM_SECONDS + given.seconds + REST_SECONDS
            with fed_stream(folder / "in", seconds, given.rate, GROUPS, VALUES) as told:
                fed: Fed = told()
            time.sleep(SETTLE_SECONDS)
            rows = {
                number: run.changes(f"v{number}").where("op <> 'delete'").collect()
                for number in range(given.views)
            }
    finally:
        run.stop()
    return judged_rows(folder / "in", fed, outcomes, rows, given.views)


def exact_rows(folder: Path, number: int) -> dict[tuple[int, int], tuple[float, int]]:
    """The rows of a view over all tuples, as DuckDB says: by group and end of the window, microseconds."""
    query = f"""
        WITH ends AS (SELECT unnest(generate_series(min(epoch_us(ts)) // {MICROS}, max(epoch_us(ts)) // {MICROS} + {SIZE_SECONDS})) * {MICROS} AS e FROM readings)
        SELECT k, e, median(x), count(*) FROM readings JOIN ends ON epoch_us(ts) < e AND epoch_us(ts) >= e - {SIZE_SECONDS * MICROS}
        WHERE x >= {number} GROUP BY k, e
    """
    with duckdb.connect() as lake:
        lake.execute(f"CREATE VIEW readings AS SELECT * FROM read_parquet('{folder}/*.parquet')")
        return {(k, end): (middle, count) for k, end, middle, count in lake.execute(query).fetchall()}


def judged_rows(
    folder: Path, fed: Fed, outcomes: list[Outcome], rows: dict[int, list[Row]], views: int
) -> Side:
    """Compares all rows that were published with those over all tuples."""
    wrong, missing, covered, widths = 0, 0, [], []
    for number, own in rows.items():
        wanted = exact_rows(folder, number)
        complete = Counter(
            micros(row.w.end)
            for row in own
            if row["revision"] == 0 and ("m_bound" not in row or not row["n_bound"])
        )
        missing += sum(GROUPS - count for count in complete.values())
        for row in own:
            exact = wanted.get((row.k, micros(row.w.end)))
            bounds = (row["m_bound"], row["n_bound"]) if "m_bound" in row else (0, 0)
            if exact is None or bounds == (0, 0):
                wrong += (row.m, row.n) != exact
                continue
            pairs = zip((row.m, row.n), bounds, exact, strict=True)
            covered.append([bound is None or abs(value - truth) <= bound for value, bound, truth in pairs])
            widths.append(bounds[0] / exact[0] if bounds[0] is not None else np.inf)
    counted = set(fed.ends(WARM_SECONDS, REST_SECONDS, 1, SIZE_SECONDS))
    in_time = [
        each
        for each in outcomes
        if each.end in counted and each.seen <= fed.created(each.end) + DEADLINE_SECONDS
    ]
    return Side(
        views * len(counted),
        sum(each.is_released for each in in_time),
        sum(each.outcome == APPROXIMATED for each in in_time),
        wrong,
        missing,
        np.array(covered, bool).reshape(-1, 2),
        np.array(widths, float),
    )


def judged(expected: Expectations, sides: dict[str, Side]) -> None:
    """Says what holds."""
    without, sampled = sides["without"], sides["approximate"]
    expected.at_least("windows with rows in time", sampled.in_time, IN_TIME)
    gained = sampled.in_time - without.in_time
    expected.at_least("more than without samples", gained, GAINED)
    given_up = max(0.0, without.exact / without.windows - sampled.exact / sampled.windows)
    expected.at_least("more for each exact one given up", gained / given_up if given_up else inf, GAINED_EACH)
    for column, name in enumerate(("median", "count")):
        share = float(sampled.covered[:, column].mean()) if len(sampled.covered) else 0.0
        expected.at_least(f"bounds of the {name} that hold, of {len(sampled.covered)}", share, COVERED)
    for name, side in sides.items():
        faults = f"{side.wrong} wrong, {side.missing} missing"
        expected.hold(
            f"{name}: exact rows are DuckDB's", not side.wrong and not side.missing, faults, always=True
        )


def main() -> int:
    """Measures, prints the table; 1 where something did not hold."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rate", type=int, default=RATE, help="tuples a second")
    parser.add_argument("--views", type=int, default=VIEWS)
    parser.add_argument("--seconds", type=float, default=30.0, help="of event time whose windows are counted")
    given = parser.parse_args()
    # of a larger machine no more than that
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    expected = Expectations()
    table = Table("side", "windows", "exact in time", "sampled in time", "covered", "width of medians, p50")
    with tempfile.TemporaryDirectory(prefix="penstock-approximate-") as place:
        spark = session(CORES + 1)
        sides = {}
        for name, loss in SIDES.items():
            side = sides[name] = measured(spark, Path(place) / name, given, loss)
            shares = [f"{count / side.windows:.3f}" for count in (side.exact, side.sampled)]
            bounds = (
                [f"{figures:.3f}" for figures in (side.covered.mean(axis=0).min(), np.median(side.widths))]
                if len(side.covered)
                else ["", ""]
            )
            table.add_row(name, str(side.windows), *shares, *bounds)
            print(f"{name}: exact in time {shares[0]}, sampled {shares[1]}", flush=True)
        spark.stop()
    Console(width=120).print(table)
    judged(expected, sides)
    return expected.exit_code


if __name__ == "__main__":
    sys.exit(main())
