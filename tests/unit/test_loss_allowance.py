"""The allowance of losses: the paper's tables, literally."""

from __future__ import annotations

import pytest

from penstock.control.policies.deadlines.allowance import CurrentConstraint, LossHistory
from penstock.plan.deadlines import DeadlineQuery, LossConstraint

DECLARED = LossConstraint(2, 5)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # m' > k': m' -= 1
        (CurrentConstraint(2, 5), CurrentConstraint(2, 4)),
        (CurrentConstraint(1, 4), CurrentConstraint(1, 3)),
        (CurrentConstraint(0, 3), CurrentConstraint(0, 2)),
        # ... and k' == m' == 0: anew
        (CurrentConstraint(0, 1), CurrentConstraint(2, 5)),
        # m' == k' > 0: both
        (CurrentConstraint(2, 2), CurrentConstraint(1, 1)),
        (CurrentConstraint(1, 1), CurrentConstraint(2, 5)),
        # marked as violating: anew, and the mark is cleared
        (CurrentConstraint(0, 4, violating=True), CurrentConstraint(2, 5)),
    ],
)
def test_table_3_satisfied(before: CurrentConstraint, after: CurrentConstraint) -> None:
    assert before.satisfied(DECLARED) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # k' > 0: both
        (CurrentConstraint(2, 5), CurrentConstraint(1, 4)),
        (CurrentConstraint(1, 3), CurrentConstraint(0, 2)),
        # ... and k' == m' == 0: anew
        (CurrentConstraint(1, 1), CurrentConstraint(2, 5)),
        # k' == 0: m' += 1, marked
        (CurrentConstraint(0, 3), CurrentConstraint(0, 4, violating=True)),
        (CurrentConstraint(0, 4, violating=True), CurrentConstraint(0, 5, violating=True)),
    ],
)
def test_table_3_missed(before: CurrentConstraint, after: CurrentConstraint) -> None:
    assert before.missed(DECLARED) == after


def test_nothing_may_be_lost() -> None:
    declared = LossConstraint(0, 1)
    start = CurrentConstraint.of(declared)
    assert start.satisfied(declared) == start
    assert start.missed(declared) == CurrentConstraint(0, 2, violating=True)


def test_everything_may_be_lost() -> None:
    declared = LossConstraint(1, 1)
    start = CurrentConstraint.of(declared)
    assert start.satisfied(declared) == start == start.missed(declared)


@pytest.mark.parametrize(("k", "m"), [(-1, 4), (5, 4), (0, 0)])
def test_impossible_constraints(k: int, m: int) -> None:
    with pytest.raises(ValueError, match=rf"got \({k}, {m}\)"):
        LossConstraint(k, m)


def test_deadlines_lie_ahead() -> None:
    with pytest.raises(ValueError, match=r"the deadline of 'v' must be above 0 s, got 0"):
        DeadlineQuery("v", 0.0)


def test_history_counts_overlapping_runs() -> None:
    history = LossHistory(LossConstraint(1, 3))
    assert [history.add(lost) for lost in (True, False, True, False, True, True)] == [
        False,
        False,
        True,
        False,
        True,
        True,
    ]
    assert history.violations == 3
    assert history.distance() == 0  # two of the last two
    history.add(False)
    assert history.distance() == 1
    history.add(False)
    history.add(False)
    assert history.distance() == 2
