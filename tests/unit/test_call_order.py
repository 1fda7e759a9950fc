"""The order of users' functions in conditions: the best by what was measured, over all branches, and not changed for little."""

from __future__ import annotations

from itertools import permutations

import pytest

from penstock.control.policies.call_order import CallMeasure, CallOrderPolicy
from penstock.control.policies.output_rate import SwitchSettings

#: seconds a pair, share that passes
CALLS = {"a": (1e-4, 0.9), "b": (1e-5, 0.5), "c": (1e-3, 0.01), "d": (2e-5, 0.4)}
ROWS = 10_000


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def run(order: list[str], branches: dict[frozenset[str], int]) -> dict[str, CallMeasure]:
    """What calls in an order do."""
    found = {call: CallMeasure() for call in CALLS}
    for own, rows in branches.items():
        pairs = float(rows)
        for call in order:
            if call in own:
                seconds, share = CALLS[call]
                found[call] += CallMeasure(pairs, pairs * share, pairs, 0, pairs * seconds)
                pairs *= share
    return found


def spent(order: list[str], branches: dict[frozenset[str], int]) -> float:
    return sum(each.seconds for each in run(order, branches).values())


@pytest.mark.parametrize(
    "branches",
    [
        {frozenset("abcd"): ROWS},
        {frozenset("ab"): ROWS, frozenset("cd"): 300, frozenset("c"): 20},
        {frozenset("ac"): 50, frozenset("bd"): ROWS, frozenset("abd"): 4_000},
    ],
)
def test_the_order_found_is_the_best_of_all(branches: dict[frozenset[str], int]) -> None:
    clock = Clock()
    policy = CallOrderPolicy(SwitchSettings(dwell_seconds=5, threshold=0), clock)
    calls = list(CALLS)
    for _ in range(3):
        order = [calls[number] for number in policy.order_of(calls)]
        did = run(order, branches)
        policy.measured(calls, [did[call] for call in calls], branches, ROWS, 1.0)
        clock.now += 5
    order = [calls[number] for number in policy.order_of(calls)]
    best = min(spent(list(each), branches) for each in permutations(calls))
    assert spent(order, branches) == pytest.approx(best)
    standing = policy.standing
    assert standing.order == tuple(order)
    assert standing.tuples == 3 * ROWS
    assert standing.seconds == pytest.approx(standing.best_seconds)
    assert standing.best_seconds == pytest.approx(best / ROWS, rel=1e-6)


def test_a_change_is_made_when_it_saves_enough_and_the_last_one_is_old_enough() -> None:
    clock = Clock()
    policy = CallOrderPolicy(SwitchSettings(dwell_seconds=10), clock)
    branches = {frozenset("ab"): ROWS}
    calls = ["a", "b"]

    def take(a: tuple[float, float], b: tuple[float, float]) -> object:
        measures = [CallMeasure(ROWS, ROWS * f, ROWS, 0, ROWS * t) for t, f in (a, b)]
        return policy.measured(calls, measures, branches, ROWS, 30.0)

    assert take((1e-5, 0.5), (1.01e-5, 0.5)) is None
    assert take((1e-5, 0.5), (0.99e-5, 0.5)) is None, "it would save too little"
    changed = take((1e-4, 0.5), (1e-6, 0.5))
    assert changed is not None
    assert policy.order_of(calls) == (1, 0)
    clock.now += 1
    assert take((1e-6, 0.5), (1e-4, 0.5)) is None, "the last change is too recent"
    assert policy.standing.best == ("a", "b")
    clock.now += 10
    assert take((1e-6, 0.5), (1e-4, 0.5)) is not None
    assert policy.order_of(calls) == (0, 1)


def test_a_call_that_was_never_reached_stays_behind_and_new_ones_follow() -> None:
    policy = CallOrderPolicy(SwitchSettings(), Clock())
    calls = ["a", "b", "c"]
    branches = {frozenset("abc"): ROWS}
    did = [CallMeasure(ROWS, 10, ROWS, 0, 1.0), CallMeasure(), CallMeasure(10, 5, 10, 0, 1e-4)]
    policy.measured(calls, did, branches, ROWS, 1.0)
    assert policy.standing.best[-1] == "b"
    assert policy.order_of(["z", "b", "a"])[-1] == 0
