"""Views with a deadline in real time, on two cores: what is in time of ours, of best effort and of Spark's Structured Streaming.

A process of its own writes a Parquet file of a stream every 200 ms, 100 tuples/s, event time the clock's. Three views of it, windows of 5 s
that slide by 1 s, deadlines of 1, 2 and 5 s. Their aggregate is a function of the user's in plain Python, a loop a tuple, worked out
afresh for each window; instances take 1 : 2 : 3.

load    Processor time that all instances ask for, as a share of what two cores give. What an order costs is measured first: all are worked out,
        with a deadline that nobody misses, and a line is laid through the medians of the three views, so that an order is what any order takes and
        so much a turn of the loop, beside the other order, the ingest and the publications. The turns are set by that line.
sides   Ours (`deadline_policy` planned), best effort, which works on each window until its deadline, and Spark. It refuses a user's aggregate in
        streaming ("Streaming aggregation doesn't support group aggregate pandas UDF"), so there the values of a window are collected and given to the same function:
        `SELECT w, work(xs) FROM (SELECT window(..) AS w, collect_list(x) AS xs FROM readings GROUP BY 1)`, append mode, no delay, one query a view, a
        FAIR pool each. It has no deadlines: what waits is worked out.
DSR     Share of the windows that are visible in time. Visible: of ours, another process that looks every 10 ms has found the manifest; of
        Spark's, the row is in the driver (foreachBatch). In time: no later than the deadline after the window was created. By the feed that is
        when the first file could be read that holds a tuple beyond its end: all of the ingest counts. By the lane it is the arrival that it reports.
bound   What nobody can exceed by the costs that are measured: two cores, the cheapest views first.
busy    Beside the same at the least and the largest load a second stream that always has a next batch of 400,000 tuples; and that stream alone.
slots   Sessions have a slot for tasks more than cores, as `penstock run` makes them: `local[3]` with `spark.default.parallelism` 2. The same of ours on one
        with as many slots as cores, of which orders take all but one.

Expected, or the exit code is 1: see `judged`. The floor of an order is `order_floor.py`'s.

    python benchmarks/deadlines_spark.py [--loads 0.5 1 1.5 2] [--seconds 40] [--quick]
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from deadlines_feed import HOP_SECONDS, SHARES, VIEWS, View, turn_seconds
from deadlines_sides import Answered, Cell, Outcome, answered
from penstock.spark.sessions.build import build_session

LOADS, CORES = (0.5, 1.0, 1.5, 2.0), 2
#: the stream is fed so long before and after the windows that are counted
WARM_SECONDS, REST_SECONDS = 15.0, 5.0
#: of the orders by which costs are measured
CALIBRATED_LOAD, CALIBRATED_SECONDS, NO_DEADLINE = 0.8, 20.0, 60.0
OURS, BEST_EFFORT = "planned", "best-effort"
SIDES = {"ours": OURS, "best effort": BEST_EFFORT, "Spark": None}
BUSY, TIGHT = "ours, busy", "ours, no slot more"
#: ours may have so much less in time than best effort, and has so much more from load 1.5 on
TOLERANCE, BETTER, OVERLOAD = 0.05, 0.1, 1.5
#: nine of ten windows are noticed no later after their file, of ours and of other sides; and nine of ten in time beside a busy ingest
OUR_LAG_SECONDS, LAG_SECONDS, BUSY_SHARE = 0.5, 2.0, 0.5
#: by the file as much is in time as can be, but for
BELOW_BOUND = 0.05
#: the busy stream has so much of its rate at load 0.5 at load 2, and so much of its rate alone beside either
BALLAST_SHARE, BALLAST_ALONE = 0.33, 0.9

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Costs:
    """What an order takes: `seconds = floor + turn * turns`."""

    floor: float
    turn: float

    def turns(self, load: float) -> dict[View, int]:
        """Turns of the loop of each view with which all instances ask for that load."""
        left = load * CORES * HOP_SECONDS - len(VIEWS) * self.floor
        return {view: max(0, round(left * view.share / SHARES / self.turn)) for view in VIEWS}

    def bound(self, turns: Mapping[View, int]) -> float:
        """The share of the instances that can be in time at most: the cheapest views first."""
        left, share = float(CORES * HOP_SECONDS), 0.0
        for seconds in sorted(self.floor + self.turn * each for each in turns.values()):
            share += min(1.0, left / seconds)
            left = max(0.0, left - seconds)
        return share / len(turns)


@dataclass(frozen=True, slots=True)
class Figures:
    """What is told of a cell.

    Attributes:
        load, side: which.
        bound: see `Costs.bound`.
        by_feed, by_lane: DSR; NaN of a side that has no lane.
        by_view: by the feed.
        lag: float64[windows], seconds from the feed's creation to the lane's.
        errors: float64[orders], of predictions, as a share of what was predicted wrongly.
        windows, wrong: that are counted; rows that are not `spark.sql`'s.
        ballast: tuples a second of the busy stream.
    """

    load: float
    side: str
    bound: float
    by_feed: float
    by_lane: float
    by_view: tuple[float, ...]
    lag: Floats
    errors: Floats
    windows: int
    wrong: int
    ballast: float


def measured_costs(spark: SparkSession, folder: Path) -> Costs:
    """Measures what orders cost, beside each other."""
    guessed = Costs(0.15, 5 * 100 * turn_seconds())
    turns = guessed.turns(CALIBRATED_LOAD)
    cell = Cell(turns, WARM_SECONDS + CALIBRATED_SECONDS + REST_SECONDS, "edf", NO_DEADLINE)
    found = answered(spark, folder, cell)
    counted = set(found.fed.ends(WARM_SECONDS, REST_SECONDS))
    medians = [
        float(
            np.median(
                [
                    each.seconds
                    for each in found.outcomes
                    if each.view == view.name and each.end in counted and each.seconds is not None
                ]
            )
        )
        for view in VIEWS
    ]
    turn, floor = np.polyfit([turns[view] for view in VIEWS], medians, 1)
    return Costs(max(0.0, float(floor)), float(turn))


def figures(load: float, side: str, bound: float, found: Answered) -> Figures:
    """What is told of a cell."""
    ends = found.fed.ends(WARM_SECONDS, REST_SECONDS)
    outcomes = {(each.view, each.end): each for each in found.outcomes}
    by_view = tuple(1 - float(np.mean(lost)) for lost in losses(found).values())
    lane = [outcomes.get((view.name, end)) for view in VIEWS for end in ends] if outcomes else []
    known = [each for each in lane if each is not None]
    in_time = [each.is_released and each.seen <= each.arrived + _deadline(each) for each in known]
    lag = [each.noticed - found.fed.created(each.end) for each in known]
    errors = [
        abs(each.predicted / (each.seconds + found.publishing[each.publication]) - 1)
        for each in known
        if each.predicted and each.seconds
    ]
    return Figures(
        load,
        side,
        bound,
        float(np.mean(by_view)),
        sum(in_time) / len(lane) if lane else float("nan"),
        by_view,
        np.array(lag),
        np.array(errors),
        len(VIEWS) * len(ends),
        found.wrong,
        found.ballast,
    )


def losses(found: Answered) -> dict[View, npt.NDArray[np.bool_]]:
    """Which of the windows that are counted were not visible in time by the feed, bool[windows] by view, in order."""
    ends = found.fed.ends(WARM_SECONDS, REST_SECONDS)

    def is_lost(view: View, end: int) -> bool:
        return found.seen.get((view.name, end), float("inf")) > found.fed.created(end) + view.deadline

    return {view: np.array([is_lost(view, end) for end in ends]) for view in VIEWS}


def _deadline(outcome: Outcome) -> float:
    return next(view.deadline for view in VIEWS if view.name == outcome.view)


def judged(found: Sequence[Figures], alone: float | None) -> list[tuple[bool, str]]:
    """What was expected, whether it came, and by which figures.

    Args:
        found: the cells.
        alone: tuples a second of the busy stream where no view has a deadline; None: not measured.
    """
    by = {(each.load, each.side): each for each in found}
    told = [
        (not each.wrong, f"{_named(each)}: {each.wrong} rows are not those of spark.sql") for each in found
    ]
    for load in sorted({each.load for each in found}):
        ours, plain = by[load, "ours"], by[load, "best effort"]
        least = plain.by_lane + (BETTER if load >= OVERLOAD else -TOLERANCE)
        told.append(
            (
                ours.by_lane >= least,
                f"{_named(ours)}: DSR {ours.by_lane:.3f}, best effort {plain.by_lane:.3f}, expected from {least:.3f}",
            )
        )
    for each in found:
        if each.side != "Spark":
            lag = float(np.quantile(each.lag, 0.9))
            allowed = OUR_LAG_SECONDS if each.side == "ours" else LAG_SECONDS
            told.append(
                (
                    lag <= allowed,
                    f"{_named(each)}: nine of ten windows are noticed {lag:.2f} s after their file, allowed {allowed}",
                )
            )
        if each.side == "ours":
            least = each.bound - BELOW_BOUND
            told.append(
                (
                    each.by_feed >= least,
                    f"{_named(each)}: DSR by the file {each.by_feed:.3f}, expected from {least:.3f}",
                )
            )
    busy = [each for each in found if each.side == BUSY]
    if len(busy) == 2:
        idle, full = sorted(busy, key=lambda each: each.load)
        told += [
            (
                idle.by_lane >= BUSY_SHARE,
                f"{_named(idle)}: DSR {idle.by_lane:.3f}, expected from {BUSY_SHARE}",
            ),
            (
                full.ballast >= BALLAST_SHARE * idle.ballast,
                f"{_named(full)}: the busy stream has {full.ballast:,.0f} tuples/s, {idle.ballast:,.0f} at load {idle.load:g}, expected from {BALLAST_SHARE:.0%}",
            ),
        ]
    if alone is not None:
        told += [
            (
                each.ballast >= BALLAST_ALONE * alone,
                f"{_named(each)}: the busy stream has {each.ballast:,.0f} tuples/s, {alone:,.0f} alone, expected from {BALLAST_ALONE:.0%}",
            )
            for each in busy
        ]
    return told


def _named(each: Figures) -> str:
    return f"load {each.load:g}, {each.side}"


def main() -> int:
    """Measures, prints the table; 1 where something did not hold."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--loads", type=float, nargs="+", default=LOADS)
    parser.add_argument("--seconds", type=float, default=40.0, help="of event time whose windows are counted")
    parser.add_argument("--quick", action="store_true", help="load 1.5 alone, 20 s, no busy ingest")
    given = parser.parse_args()
    loads, seconds = ((1.5,), 20.0) if given.quick else (given.loads, given.seconds)
    plain = [(load, side, policy, False) for load in loads for side, policy in SIDES.items()]
    if not given.quick:
        plain += [(load, BUSY, OURS, True) for load in sorted({min(loads), max(loads)})]
    tight = [(load, TIGHT, OURS, False) for load in loads]
    # of a larger machine no more than that
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    console = Console(width=150)
    found: list[Figures] = []
    with tempfile.TemporaryDirectory(prefix="penstock-deadlines-") as place:
        spark = session(CORES + 1)
        costs = measured_costs(spark, Path(place) / "costs")
        console.print(
            f"an order takes {costs.floor:.3f} s and {1e6 * costs.turn:.1f} us a turn of its loop over all tuples"
        )
        alone = None
        if not given.quick:
            nothing = Cell({}, seconds, OURS, is_busy=True)
            alone = answered(spark, Path(place) / "alone", nothing).ballast
            console.print(f"the busy stream alone has {alone:,.0f} tuples/s", highlight=False)
        for slots, cells in ((CORES + 1, plain), (CORES, tight)):
            spark = session(slots)
            for load, side, policy, is_busy in cells:
                turns = costs.turns(load)
                cell = Cell(turns, WARM_SECONDS + seconds + REST_SECONDS, policy, is_busy=is_busy)
                seen = answered(spark, Path(place) / f"{load} {side}", cell)
                found.append(figures(load, side, costs.bound(turns), seen))
                console.print(_told(found[-1]), highlight=False)
            spark.stop()
    console.print(_table(found))
    held = judged(found, alone)
    for holds, text in held:
        console.print(f"{'held    ' if holds else 'NOT HELD'} {text}", highlight=False)
    return 0 if all(holds for holds, _ in held) else 1


def session(slots: int) -> SparkSession:
    """A session with so many slots for tasks on the cores that are measured."""
    conf = {
        "spark.driver.memory": "3g",
        "spark.default.parallelism": str(CORES),
        "spark.sql.shuffle.partitions": str(CORES),
        "spark.sql.session.timeZone": "UTC",
    }
    return build_session(f"local[{slots}]", conf, "deadlines_spark")


def _told(each: Figures) -> str:
    return (
        f"{_named(each)}: DSR by feed {each.by_feed:.3f}, by lane {each.by_lane:.3f}, bound {each.bound:.3f}, "
        f"by view {', '.join(f'{share:.2f}' for share in each.by_view)}"
    )


def _table(found: Sequence[Figures]) -> Table:
    views = [f"{view.deadline} s" for view in VIEWS]
    table = Table(
        "load",
        "side",
        "bound",
        "DSR by feed",
        *views,
        "DSR by lane",
        "error p50",
        "p90",
        "lag p50 s",
        "p90",
        "busy, 1000/s",
    )
    for each in found:
        table.add_row(
            f"{each.load:g}",
            each.side,
            *(f"{share:.2f}" for share in (each.bound, each.by_feed, *each.by_view)),
            *(
                [""] * 5
                if each.side == "Spark"
                else [f"{each.by_lane:.2f}", *two(each.errors), *two(each.lag)]
            ),
            f"{each.ballast / 1e3:,.0f}" if each.ballast else "",
        )
    table.caption = f"{found[0].windows} windows a cell"
    return table


def two(values: Floats) -> list[str]:
    """Median and nine of ten, as text."""
    return [f"{each:.2f}" for each in np.quantile(values, (0.5, 0.9))]


if __name__ == "__main__":
    sys.exit(main())
