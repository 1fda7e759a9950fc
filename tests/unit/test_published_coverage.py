"""What a view says of its early answers' coverage is what they turned out to have."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa

from penstock.operators.windows.clocks import Lateness
from penstock.operators.windows.operator import WindowOperator
from penstock.operators.windows.slack import RequiredSlack, WindowOutcome
from penstock.plan.windows import Aggregate, ErrorBound, WindowPlan, Windows
from penstock_lab.simulate.disorder import SECOND, Disorder, generated
from penstock_lab.simulate.windows import pane_batch, play

PLAN = WindowPlan(
    "v",
    "t",
    Windows(SECOND, SECOND),
    (),
    (Aggregate("count", None, pa.int64()),),
    ErrorBound(0.05, 0.05),
)


@dataclass(slots=True)
class Hearing(RequiredSlack):
    """Ours, with what it hears of final windows."""

    heard: dict[int, WindowOutcome] = field(default_factory=dict)

    def known(self, outcome: WindowOutcome, age: int, *, final: bool = False) -> None:
        RequiredSlack.known(self, outcome, age, final=final)
        if final and outcome.is_answered:
            self.heard[outcome.end] = outcome


def test_windows_that_were_looked_at_before_their_answer_are_judged_by_the_answer() -> None:
    """As long as too little is known windows are looked at while they wait; their answer holds more than nothing."""
    policy = Hearing(PLAN.bound)
    arrivals = generated("late", [Disorder(0.02, 0.1, 0.5, 0.8, 8.0)], 40_000, 200.0, seed=1)
    played, operator = play(arrivals, PLAN, policy, SECOND // 2, 5 * SECOND)
    true = dict(zip(played.early.column("end").to_pylist(), played.coverage.tolist(), strict=True))
    assert len(policy.heard) > 100
    # a tuple that came when its window was final is not in what was heard
    assert max(abs(each.coverage - true[end]) for end, each in policy.heard.items()) < 0.01
    told = operator.views["v"].judge.state.coverage
    assert told is not None
    assert abs(told - np.mean(list(true.values()))) < 0.02


@dataclass(slots=True)
class Lowered(RequiredSlack):
    """Waits for ten seconds, and from some moment on for a tenth of one."""

    until: int = 0
    is_over: bool = False

    def arrived(self, lateness: Lateness) -> None:
        RequiredSlack.arrived(self, lateness)
        self.is_over = lateness.age > self.until

    @property
    def slack(self) -> int:
        return SECOND // 10 if self.is_over else 10 * SECOND

    @property
    def is_learning(self) -> bool:
        """Windows are looked at while they wait."""
        return True


def test_coverage_is_that_of_the_slack_in_use() -> None:
    """As slack falls after a cold start, what windows held that had waited for long is not what answers hold now."""
    policy = Lowered(PLAN.bound, until=100 * SECOND)
    arrivals = generated("late", [Disorder(0.02, 0.1, 0.5, 0.8, 8.0)], 24_000, 120.0, seed=1)
    played, operator = play(arrivals, PLAN, policy, SECOND // 2, 5 * SECOND)
    ends, slacks = played.early.column("end").to_numpy(), played.early.column("slack").to_numpy()
    first = ends[slacks < 2 * SECOND].min()
    held = float(np.mean(played.coverage[ends >= first]))
    told = operator.views["v"].judge.state.coverage
    assert np.mean(played.coverage[ends < first]) > 0.999
    assert told is not None
    assert abs(told - held) < 0.25 * (1 - held)


def test_windows_that_a_larger_slack_had_held_did_not_close_by_the_smaller_one() -> None:
    arrivals = generated("late", [Disorder(0.02, 0.1, 0.5, 0.8, 8.0)], 24_000, 120.0, seed=1)
    policy = Lowered(PLAN.bound, until=100 * SECOND)
    played, _ = play(arrivals, PLAN, policy, SECOND // 2, 5 * SECOND)
    rows = played.early.select(["end", "k", "slack", "answered"]).to_pylist()
    fell = [each for each in rows if each["answered"] == max(r["answered"] for r in rows if r["k"] > SECOND)]
    assert len(fell) > 5  # all that the larger one held close at once
    by_end = sorted(fell, key=lambda each: each["end"])
    assert by_end[0]["k"] > 8 * SECOND
    assert all(SECOND // 10 <= each["k"] <= each["slack"] for each in by_end)
    assert all(one["k"] - other["k"] == SECOND for one, other in pairwise(by_end[:-1]))


def test_what_is_promised_has_a_coverage_where_a_backlog_was_taken_in_by_steps() -> None:
    """Windows of the backlog are final as they close; those after it are answered early, and promised."""
    arrivals = generated("late", [Disorder(0.02, 0.1, 0.5, 0.8, 8.0)], 24_000, 120.0, seed=1)
    operator = WindowOperator([(PLAN, RequiredSlack.of(PLAN))], 5 * SECOND)
    early = []
    for first in range(0, 24_000, 200):
        batch = pane_batch(arrivals, operator, first, first + 200, arrivals.delays)
        answers = operator.process(replace(batch, goes_on=first < 20_000))
        early += [each for each in answers if not each.final and not each.revision]
    promised = [each for each in early if each.promised]
    assert len(promised) > 10
    assert all(each.coverage is not None for each in promised)
