"""How K follows from what windows would have needed."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.operators.windows.clocks import Lateness
from penstock.operators.windows.slack import (
    Ints,
    RequiredSlack,
    WindowOutcome,
)
from penstock.operators.windows.slack_quantiles import least_slack, truncated_quantile
from penstock.plan.times import AFTER_ALL
from penstock.plan.windows import ErrorBound

BOUND = ErrorBound(0.05, 0.05)
WINDOWS = st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=5), min_size=1, max_size=60)


def outcome(end: int, slack: int, *required: int, settled: int = 0) -> WindowOutcome:
    return WindowOutcome(end, slack, 1.0, np.array(required), settled)


def stream(largest: int, age: int) -> Lateness:
    return Lateness(np.zeros(0, np.int64), largest, age)


@given(WINDOWS, st.floats(0.01, 0.6), st.sampled_from([1.0, 2.0]))
def test_the_least_slack_is_the_least_of_all_that_keep_the_expected_loss(
    windows: list[list[int]], level: float, overlap: float
) -> None:
    n = len(windows) / overlap

    def expected(slack: int) -> float:
        losses = [np.mean(np.array(own) > slack) for own in windows]
        return float(n * np.mean(losses) + min(1, 2 * max(losses))) / (n + 1)

    found = least_slack(
        np.array([each for own in windows for each in own]),
        np.array([len(own) for own in windows]),
        level,
        overlap,
    )
    most = max(max(own) for own in windows)
    allowed = [slack for slack in range(most + 1) if expected(slack) <= level + 1e-9]
    # where one group of a window needs as much as another's the answer is the same
    assert found == min((slack for slack in allowed), default=most)


def test_one_window_of_many_groups_weighs_no_more_than_one_of_few() -> None:
    required = np.concatenate([np.full(1000, 90), np.zeros(99, np.int64)])
    assert least_slack(required, np.array([1000, *[1] * 99]), 0.05) == 0


@given(st.lists(st.integers(0, 50), min_size=1, max_size=40), st.floats(0.05, 0.95))
def test_without_truncation_the_quantile_is_that_of_the_times(times: list[int], level: float) -> None:
    known = np.array(times)
    shares = {each: np.mean(known <= each) for each in times}
    expected = min(each for each, share in shares.items() if share >= level - 1e-9)
    assert truncated_quantile(known, np.full(len(known), AFTER_ALL), level) in (
        expected,
        min((each for each, share in shares.items() if share > level + 1e-9), default=expected),
    )


def test_the_quantile_of_truncated_times_is_not_that_of_those_that_are_seen() -> None:
    rng = np.random.default_rng(3)
    times, limits = rng.exponential(100, 40_000).astype(np.int64), rng.integers(0, 800, 40_000)
    seen = times <= limits
    found = truncated_quantile(times[seen], limits[seen], 0.95)
    true, naive = np.quantile(times, 0.95), np.quantile(times[seen], 0.95)
    assert naive < 0.9 * true
    assert found == pytest.approx(true, rel=0.06)


def test_as_long_as_little_is_known_k_lets_longer_delays_show() -> None:
    policy = RequiredSlack(BOUND)
    policy.arrived(stream(100, 120))
    assert policy.slack == 100  # the largest
    policy.arrived(stream(100, 300))
    assert policy.slack == 200  # two thirds of its age
    policy.arrived(stream(100, 100_000))
    assert policy.slack == 600  # six times the largest
    assert policy.is_learning


def test_windows_count_once_they_are_ripe() -> None:
    policy = RequiredSlack(BOUND)
    policy.arrived(stream(1_000_000, 10_000))
    for number in range(60):
        policy.known(outcome(number, AFTER_ALL, number % 10, settled=20), age=500)
    assert not policy.is_learning
    assert not policy.promised  # of none it is certain
    assert policy.slack == 9


def test_windows_are_ripe_only_once_the_stream_is_twice_as_old() -> None:
    policy = RequiredSlack(BOUND)
    for number in range(60):
        policy.known(outcome(number, AFTER_ALL, 5, settled=300), age=500)
    policy.arrived(stream(400, 599))
    assert (policy.is_learning, policy.slack) == (True, 400)
    policy.arrived(stream(400, 600))
    assert (policy.is_learning, policy.slack) == (False, 5)


def test_violations_are_repaid_before_their_windows_are_final() -> None:
    policy = RequiredSlack(BOUND)
    for number in range(400):
        policy.known(outcome(number, 100, number % 100), age=0, final=True)
    before = policy.slack
    policy.arrived(stream(1000, 100_000))
    for number in range(30):
        policy.known(outcome(1000 + number, before, before + 1 + number % 3, settled=AFTER_ALL), age=90)
    assert policy.slack > before
    assert policy.memory.debt < 0  # what is final broke nothing


def test_one_outcome_told_again_counts_once() -> None:
    policy = RequiredSlack(BOUND)
    for number in range(100):
        policy.known(outcome(number, 10, 3), age=0, final=True)
    for _ in range(50):
        policy.known(outcome(500, 10, 40), age=60)
    assert policy.slack == 3


def test_a_window_that_is_forgotten_raises_nothing() -> None:
    policy = RequiredSlack(BOUND)
    for number in range(40):
        policy.known(outcome(number, 10, 3), age=0, final=True)
    for number in range(8):
        policy.known(outcome(500 + number, 10, 40, settled=AFTER_ALL), age=60)
    assert policy.slack == int(40 * (2 - 3.4 / 8))
    for number in range(8):
        policy.forget(500 + number)
    assert policy.slack == 3


def test_more_violations_at_once_than_chance_has_raise_k_beyond_all_that_is_known() -> None:
    policy, slacks = RequiredSlack(BOUND), []
    for number in range(120):
        policy.known(outcome(number, 10, 10), age=0, final=True)
    for number in range(40):
        policy.known(outcome(500 + number, 10, 40, settled=AFTER_ALL), age=60)
        slacks.append(policy.slack)
    assert slacks[2] == 10  # three may be chance
    assert slacks[9] == int(40 * (2 - 3.5 / 10))
    assert slacks[2:] == sorted(slacks[2:])
    assert slacks[-1] < 80
    # what is answered since keeps its bound: the alarm is over, the debt is not
    for number in range(40):
        policy.known(outcome(600 + number, 80, 40, settled=AFTER_ALL), age=60)
    assert policy.slack == 40


def test_windows_that_overlap_are_violated_together_by_chance_too() -> None:
    policy = RequiredSlack(BOUND, overlap=2.0)
    for number in range(240):
        policy.known(outcome(number, 10, 10), age=0, final=True)
    for number in range(8):
        policy.known(outcome(500 + number, 10, 40, settled=AFTER_ALL), age=60)
        if number < 6:
            assert policy.slack <= 40
    assert policy.slack == int(40 * (2 - 6.4 / 8))


def test_memory_is_bounded_in_windows_and_in_groups() -> None:
    policy = RequiredSlack(BOUND)
    many: Ints = np.arange(1000)
    for number in range(500):
        policy.known(WindowOutcome(number, 10, 1.0, many), age=0, final=True)
    assert len(policy.memory) == len(policy.memory.sizes) == len(policy.memory.settled) == 120
    assert len(policy.memory.required) == 120 * 64


def test_windows_that_overlap_much_are_promised_in_the_end() -> None:
    """A day by a minute: 38 windows tell as much as one."""
    policy = RequiredSlack(BOUND, overlap=sqrt(24 * 60))
    for number in range(2000):
        policy.known(outcome(number, 10, number % 10), age=0, final=True)
    assert policy.promised
    assert policy.slack == 9  # nothing on top, once enough is known


def test_a_young_stream_is_given_more_than_its_windows_say() -> None:
    policy, slacks = RequiredSlack(BOUND), []
    for number in range(60):
        policy.known(outcome(number, 1000, 100), age=0, final=True)
        slacks.append(policy.slack)
    assert slacks[19] == 125
    assert slacks[19:] == sorted(slacks[19:], reverse=True)
    assert slacks[39:] == [100] * 21


def test_what_twenty_bad_windows_required_is_forgotten_with_them() -> None:
    policy, rng = RequiredSlack(BOUND), np.random.default_rng(1)
    slacks = []
    for number in range(800):
        required = 4000 if 400 <= number < 420 else int(rng.exponential(33))
        slacks.append(policy.slack)
        policy.known(outcome(number, policy.slack, required), age=0, final=True)
    assert max(slacks[405:420]) == 4000
    assert max(slacks[550:]) < 3 * max(slacks[300:400])


def test_half_of_a_debt_is_forgotten_after_twenty_windows_over_delta() -> None:
    policy = RequiredSlack(BOUND)
    policy.memory.debt = 300.0
    for number in range(400):
        policy.known(outcome(number, 10, 3), age=0, final=True)
    kept = 0.5 ** (1 / 400)
    repaid = 0.05 * sum(kept**each for each in range(400))
    assert policy.memory.debt == pytest.approx(150 - repaid)


def test_many_groups_of_which_few_differ_need_no_allowance_for_a_window_of_another_kind() -> None:
    """In each of forty windows the same five of a hundred groups need more: that is what the next one will be like."""
    windows = np.tile(np.concatenate([np.full(5, 90), np.full(95, 10)]), 40)
    sizes = np.full(40, 100)
    assert least_slack(windows, sizes, 0.06) == 10
    assert least_slack(windows, sizes, 0.05) == 90
    # of one group nothing is known but whether it needs more
    assert least_slack(np.array([90, 90, *[10] * 38]), np.ones(40, np.int64), 0.05) == 90
