"""Slack from a cold start, for `disorder.py`: twenty stretches of three days of flights, each by an operator that knows nothing.

An hour sliding by fifteen minutes, batches of five minutes, COUNT(*), SUM(distance) and AVG(dep_delay) of the flights that departed
(event time: scheduled, arrival: actual departure). A day begins at 08:00 UTC, the night in New York. The stream goes on for half a day beyond
a stretch, so that slack and not its end closes the windows; those that are open even then are not counted. Each stretch once as it is, once
after a tuple of 24 hours (the operator has seen that delay before the stretch begins, with the horizon that it leads to), and once when that
tuple has been forgotten: it came with the beginning of the twelve days before the stretch, after which three hours of it are left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.table import Table

from penstock.cli.demo_data import read_flights
from penstock.operators.windows.clocks import Lateness
from penstock.operators.windows.slack import FixedSlack, Ints, RequiredSlack, SlackPolicy, WindowOutcome
from penstock.plan.windows import Aggregate, ErrorBound, WindowPlan, Windows
from penstock.simulate.disorder import SECOND, Arrivals, recorded
from penstock.simulate.slack_baselines import LargestDelaySlack
from penstock.simulate.windows import play, wilson

HOUR = 3600 * SECOND
DAY = 24 * HOUR
WINDOWS = Windows(HOUR, HOUR // 4)
STEP, GAMMA = 5 * 60 * SECOND, HOUR // 4
AGGREGATES = {"count": None, "sum": "distance", "avg": "dep_delay"}
#: days from the beginning of one stretch to that of the next, and of the first
APART, FIRST, LENGTH, STRETCHES = 18, 5, 3, 20
#: hours for which the stream goes on behind a stretch; days before it in which a tuple is forgotten
BEYOND, FORGETTING = 12, 12
#: what is expected: satisfied in the worst stretch, and mean slack of the answers over the best fixed K (median over stretches)
LEAST_SATISFIED, MOST_SLACK = 0.88, 1.6


@dataclass(frozen=True, slots=True)
class Stretch:
    """What one policy did on one stretch.

    Attributes:
        kept: windows within the bound.
        windows: how many there are.
        mean_slack: seconds from a window's end to the newest event time when it was answered. At night the stream stands still: a window that ends
            in the evening is answered in the morning, whatever its slack.
    """

    kept: int
    windows: int
    mean_slack: float

    @property
    def satisfied(self) -> float:
        """Share of the windows whose early answer was within epsilon."""
        return self.kept / self.windows


class Hindsight:
    """Answers without slack and notes what each window would have needed."""

    def __init__(self) -> None:
        self.slack = 0
        self.required: dict[int, Ints] = {}

    def arrived(self, lateness: Lateness) -> None:
        """Not looked at."""

    def known(self, outcome: WindowOutcome, age: int, *, final: bool = False) -> None:  # noqa: ARG002
        """Keeps what was required in the end."""
        if final:
            self.required[outcome.end] = outcome.required


@dataclass(frozen=True, slots=True)
class Flights:
    """Flights by scheduled departure, microseconds.

    Attributes:
        table: of those that departed.
        scheduled: int64[flights].
    """

    table: pa.Table
    scheduled: Ints

    @classmethod
    def read(cls) -> Flights:
        """All of them."""
        table = read_flights().filter(pc.field("dep_delay").is_valid())
        table = table.select(["sched_dep", "arrival", "distance", "dep_delay"])
        return cls(table, table.column("sched_dep").cast(pa.timestamp("us")).cast(pa.int64()).to_numpy())

    def begin(self, number: int) -> int:
        """When a stretch begins."""
        return int(self.scheduled.min()) // DAY * DAY + 8 * HOUR + (FIRST + APART * number) * DAY

    def around(self, number: int, before: int = 0) -> Arrivals:
        """A stretch with what comes behind it, and so many days before it."""
        first = self.begin(number) - before * DAY
        last = self.begin(number) + LENGTH * DAY + BEYOND * HOUR
        own = self.table.filter(pa.array((self.scheduled >= first) & (self.scheduled < last)))
        return recorded("flights", own, "sched_dep", "arrival")


def _best_fixed(arrivals: Arrivals, plan: WindowPlan, until: int) -> int:
    """The least slack, microseconds, that keeps the bound of the windows that end by then, as is known in the end."""
    hindsight = Hindsight()
    play(arrivals, plan, hindsight, STEP, GAMMA, DAY)
    required = np.concatenate([own for end, own in hindsight.required.items() if end <= until])
    return max(1, int(np.quantile(required, 1 - plan.bound.delta)))


def _played(arrivals: Arrivals, plan: WindowPlan, policy: SlackPolicy, begin: int, largest: int) -> Stretch:
    """A policy on one stretch.

    Args:
        arrivals: the stretch and what lies around it.
        plan: the view.
        policy: which.
        begin: when the stretch begins; windows that end within it are counted.
        largest: delay that was seen before the stream began, microseconds.
    """
    since, until = begin + 1, begin + LENGTH * DAY + 1
    played, _ = play(arrivals, plan, policy, STEP, GAMMA, largest=largest)
    share, _, _, windows = played.satisfied(since, until)
    return Stretch(round(share * windows), windows, played.mean_slack(since, until))


@dataclass(frozen=True, slots=True)
class Summary:
    """One policy over all stretches: share of windows within the bound with its interval, the worst stretch's, mean slack in minutes, and
    the medians over stretches of mean slack over the best fixed K, which nights lengthen for any K, and over that of the best fixed slack's answers."""

    satisfied: float
    low: float
    high: float
    worst: float
    slack: float
    ratio: float
    beside: float

    @classmethod
    def of(cls, own: Sequence[Stretch], fixed: Sequence[Stretch], best: Sequence[int]) -> Summary:
        """Sums stretches up, beside the best fixed slacks, microseconds, and what those did on the same ones."""
        kept, windows = sum(each.kept for each in own), sum(each.windows for each in own)
        share, low, high, _ = wilson(kept, windows)
        ratios = [each.mean_slack * SECOND / slack for each, slack in zip(own, best, strict=True)]
        beside = [each.mean_slack / other.mean_slack for each, other in zip(own, fixed, strict=True)]
        return cls(
            share,
            low,
            high,
            min(each.satisfied for each in own),
            float(np.mean([each.mean_slack for each in own])) / 60,
            float(np.median(ratios)),
            float(np.median(beside)),
        )

    def holds(self, bound: ErrorBound) -> bool:
        """Whether it is what is expected; the satisfied share is judged by the upper end of its interval."""
        return self.high >= 1 - bound.delta and self.worst >= LEAST_SATISFIED and self.ratio <= MOST_SLACK


def from_cold_starts(console: Console, bound: ErrorBound, number: int = STRETCHES) -> bool:
    """Plays the stretches, prints them, and says whether ours does what is expected in all of them.

    Args:
        console: where to.
        bound: of the views.
        number: of stretches.
    """
    flights, kept = Flights.read(), True
    begins = [flights.begin(each) for each in range(number)]
    cold = [flights.around(each) for each in range(number)]
    # the first stretch has not as many days before it
    old = [flights.around(each, FORGETTING) for each in range(1, number)]
    table = Table(
        "aggregate", "before", "policy", "satisfied", "95 % interval", "worst stretch", "mean slack min",
        "over best fixed K, median", "over its answers' slack", title=f"Flights, {number} stretches of {LENGTH} days, each from a cold start",
    )  # fmt: skip
    lines = []
    for function, argument in AGGREGATES.items():
        plan = WindowPlan("view", "time", WINDOWS, (), (Aggregate(function, argument, pa.float64()),), bound)
        fixed = [
            _best_fixed(own, plan, begin + LENGTH * DAY) for own, begin in zip(cold, begins, strict=True)
        ]
        for before, largest, streams in (
            ("nothing", 0, cold),
            ("a tuple of 24 h", DAY, cold),
            ("a tuple of 24 h, forgotten", DAY, old),
        ):
            places = range(number - len(streams), number)
            policies: dict[str, Callable[[int], SlackPolicy]] = {
                "best fixed slack": lambda place, fixed=fixed: FixedSlack(fixed[place]),
                "MP-K-slack": lambda _, largest=largest: LargestDelaySlack(largest),
                "ours": lambda _, plan=plan: RequiredSlack.of(plan),
            }
            every = {
                name: [
                    _played(own, plan, policy(place), begins[place], largest)
                    for place, own in zip(places, streams, strict=True)
                ]
                for name, policy in policies.items()
            }
            for name, stretches in every.items():
                told = Summary.of(stretches, every["best fixed slack"], [fixed[place] for place in places])
                table.add_row(
                    function, before, name, f"{told.satisfied:.4f}", f"{told.low:.4f} - {told.high:.4f}",
                    f"{told.worst:.3f}", f"{told.slack:.0f}", f"{told.ratio:.2f}", f"{told.beside:.2f}",
                )  # fmt: skip
            own = Summary.of(every["ours"], every["best fixed slack"], [fixed[place] for place in places])
            kept &= own.holds(bound)
            lines.append(
                f"{'HELD    ' if own.holds(bound) else 'NOT HELD'} {function} after {before}: satisfied {own.satisfied:.4f}, "
                f"the upper end of its interval {own.high:.4f} (at least {1 - bound.delta}), {own.worst:.3f} in the worst stretch (at least {LEAST_SATISFIED}), "
                f"mean slack {own.ratio:.2f} times the best fixed one (median, at most {MOST_SLACK}; {own.beside:.2f} times that of its answers)"
            )
    console.print(table)
    for line in lines:
        console.print(line)
    return kept
