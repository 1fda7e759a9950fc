"""Slack from a cold start, for `disorder.py`: twenty stretches of three days of flights, each by an operator that knows nothing.

An hour sliding by fifteen minutes, batches of five minutes, COUNT(*), SUM(distance) and AVG(dep_delay) of the flights that departed
(event time: scheduled, arrival: actual departure). A day begins at 08:00 UTC, the night in New York. The stream goes on for half a day beyond
a stretch, so that slack and not its end closes the windows; those that are open even then are not counted. Each stretch once as it is, once
after a tuple of 24 hours (the operator has seen that delay before the stretch begins, with the horizon that it leads to), and once when that
tuple has been forgotten: it came with the beginning of the twelve days before the stretch, after which three hours of it are left.

At night no flight departs. The engine then takes the stream to move on with the clock (`idle_seconds`, 30 s where nothing else is said) and answers
what is due beforehand; so it is here, for every policy: the evening's windows are answered by night, not with the first flight of the morning, and their first answers count although none of them is promised.

Slack is compared in three ways, and at most 1.6 is expected of each: the mean K that closed the windows over the best fixed K, the mean time
that the answers waited over that of the best fixed slack's answers, and over the best fixed K. Shares are judged by the upper end of their interval.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.table import Table

from expectations import Expectations
from penstock.cli.demo_data import read_flights
from penstock.operators.windows.slack import Ints, RequiredSlack, SlackPolicy, WindowOutcome
from penstock.operators.windows.slack_policies import FixedSlack, LargestDelaySlack
from penstock.plan.windows import Aggregate, ErrorBound, WindowPlan, Windows
from penstock.settings import Settings
from penstock_lab.simulate.disorder import SECOND, Arrivals, recorded
from penstock_lab.simulate.windows import play, wilson

HOUR = 3600 * SECOND
DAY = 24 * HOUR
WINDOWS = Windows(HOUR, HOUR // 4)
STEP, GAMMA = 5 * 60 * SECOND, HOUR // 4
IDLE = int(Settings().idle_seconds * SECOND)
AGGREGATES = {"count": None, "sum": "distance", "avg": "dep_delay"}
#: days from the beginning of one stretch to that of the next, and of the first
APART, FIRST, LENGTH, STRETCHES = 18, 5, 3, 20
#: hours for which the stream goes on behind a stretch; days before it in which a tuple is forgotten
BEYOND, FORGETTING = 12, 12
#: what is expected: satisfied in the worst stretch, and mean slack over the best fixed one's (medians over stretches)
LEAST_SATISFIED, MOST_SLACK = 0.88, 1.6


@dataclass(frozen=True, slots=True)
class Stretch:
    """What one policy did on one stretch.

    Attributes:
        kept: windows within the bound.
        windows: how many there are.
        mean_k: seconds of slack by which they were closed.
        mean_slack: seconds from a window's end to the event time that the stream had come to when it was answered.
    """

    kept: int
    windows: int
    mean_k: float
    mean_slack: float

    @property
    def satisfied(self) -> float:
        """Share of the windows whose early answer was within epsilon."""
        return self.kept / self.windows


class Hindsight(SlackPolicy):
    """Answers without slack and notes what each window would have needed."""

    def __init__(self) -> None:
        self.required: dict[int, Ints] = {}

    @property
    def slack(self) -> int:
        """None."""
        return 0

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
    played, _ = play(arrivals, plan, policy, STEP, GAMMA, largest=largest, idle=IDLE)
    share, _, _, windows = played.satisfied(since, until)
    return Stretch(
        round(share * windows), windows, played.mean_k(since, until), played.mean_slack(since, until)
    )


@dataclass(frozen=True, slots=True)
class Summary:
    """One policy over all stretches.

    Attributes:
        satisfied: share of windows within the bound.
        high: upper end of its 95 % interval.
        worst: that share in the worst stretch.
        minutes: mean slack of the answers.
        k: mean K over the best fixed K, median over stretches.
        beside: mean slack of the answers over that of the best fixed slack's, median.
        mixed: mean slack of the answers over the best fixed K, median.
    """

    satisfied: float
    high: float
    worst: float
    minutes: float
    k: float
    beside: float
    mixed: float

    @classmethod
    def of(cls, own: Sequence[Stretch], fixed: Sequence[Stretch], best: Sequence[int]) -> Summary:
        """Sums stretches up, beside the best fixed slacks, microseconds, and what those did on the same ones."""
        kept, windows = sum(each.kept for each in own), sum(each.windows for each in own)
        share, _, high, _ = wilson(kept, windows)
        seconds = [slack / SECOND for slack in best]
        return cls(
            share,
            high,
            min(each.satisfied for each in own),
            float(np.mean([each.mean_slack for each in own])) / 60,
            float(np.median([each.mean_k / slack for each, slack in zip(own, seconds, strict=True)])),
            float(
                np.median(
                    [each.mean_slack / other.mean_slack for each, other in zip(own, fixed, strict=True)]
                )
            ),
            float(np.median([each.mean_slack / slack for each, slack in zip(own, seconds, strict=True)])),
        )

    def judge(self, what: str, bound: ErrorBound, expected: Expectations) -> None:
        """Judges what was expected of ours; the satisfied share by the upper end of its interval."""
        least = 1 - bound.delta
        expected.hold(
            f"{what}: satisfied",
            self.high >= least,
            f"{self.satisfied:.4f}, up to {self.high:.4f} (at least {least:g})",
        )
        expected.at_least(f"{what}: satisfied in the worst stretch", self.worst, LEAST_SATISFIED)
        expected.at_most(f"{what}: K / best fixed K", self.k, MOST_SLACK)
        expected.at_most(f"{what}: slack of answers / that of the best fixed K's", self.beside, MOST_SLACK)
        expected.at_most(f"{what}: slack of answers / best fixed K", self.mixed, MOST_SLACK)


def from_cold_starts(
    console: Console, bound: ErrorBound, expected: Expectations, number: int = STRETCHES
) -> None:
    """Plays the stretches, prints them, and judges ours.

    Args:
        console: where to.
        bound: of the views.
        expected: judges.
        number: of stretches.
    """
    flights = Flights.read()
    begins = [flights.begin(each) for each in range(number)]
    cold = [flights.around(each) for each in range(number)]
    # the first stretch has not as many days before it
    old = [flights.around(each, FORGETTING) for each in range(1, number)]
    table = Table(
        "aggregate", "before", "policy", "satisfied", "upper end", "worst stretch", "mean slack min", "K / best fixed K",
        "slack / best fixed's", "slack / best fixed K", title=f"Flights, {number} stretches of {LENGTH} days, each from a cold start",
    )  # fmt: skip
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
            best = [fixed[place] for place in places]
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
            told = {
                name: Summary.of(stretches, every["best fixed slack"], best)
                for name, stretches in every.items()
            }
            for name, own in told.items():
                table.add_row(
                    function, before, name, f"{own.satisfied:.4f}", f"{own.high:.4f}", f"{own.worst:.3f}",
                    f"{own.minutes:.0f}", f"{own.k:.2f}", f"{own.beside:.2f}", f"{own.mixed:.2f}",
                )  # fmt: skip
            told["ours"].judge(f"{function} after {before}", bound, expected)
    console.print(table)
