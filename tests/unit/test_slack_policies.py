"""The slack policies that a view may choose: by the formulas of their papers, by name, and in words."""

from __future__ import annotations

from dataclasses import replace
from statistics import NormalDist
from typing import get_args

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import InputError
from penstock.monitor.slacks import slack_words
from penstock.operators.windows.clocks import Lateness
from penstock.operators.windows.coverage import coverage_threshold, window_threshold
from penstock.operators.windows.slack import WindowOutcome
from penstock.operators.windows.slack_policies import (
    POLICIES,
    FirstDelaysSlack,
    FixedSlack,
    LargestDelaySlack,
    ProportionalDerivativeSlack,
    RecentDelaySlack,
    policy_of,
)
from penstock.plan.slack import SLACK_POLICIES, SlackChoice
from penstock.plan.times import AFTER_ALL
from penstock.plan.windows import Aggregate, ErrorBound, WindowPlan, Windows
from penstock.settings import Settings, tuned

BOUND = ErrorBound(0.05, 0.05)
COUNT = Aggregate("count", None, pa.int64())
SUM = Aggregate("sum", "v", pa.float64())
PLAN = WindowPlan("v", "t", Windows(10, 5), (), (COUNT,), BOUND)
Z = NormalDist().inv_cdf(0.975)


def lateness(*delays: int, age: int = 0) -> Lateness:
    return Lateness(np.array(delays, np.int64), max(delays, default=0), age)


def outcome(end: int, coverage: float, slack: int = 0, threshold: float | None = None) -> WindowOutcome:
    return WindowOutcome(end, slack, coverage, np.zeros(1, np.int64), threshold=threshold)


def test_one_table_has_all_policies() -> None:
    assert tuple(POLICIES) == SLACK_POLICIES
    assert get_args(Settings.model_fields["slack_policy"].annotation) == SLACK_POLICIES
    for name in SLACK_POLICIES:
        length = 7 if name == "fixed" else None
        assert policy_of(replace(PLAN, slack=SlackChoice(name, length))).slack == (length or 0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"slack_policy": "fixed"}, "slack_seconds: slack_policy fixed needs it"),
        ({"slack_policy": "pd", "slack_seconds": 3.0}, "slack_seconds: only slack_policy fixed has a length"),
        ({"slack_seconds": 3.0}, "slack_seconds: only slack_policy fixed has a length"),
        ({"slack_policy": "pid"}, "slack_policy: Input should be 'required', 'pd'"),
        ({"slack_policy": "fixed", "slack_seconds": -1.0}, "slack_seconds: Input should be greater"),
    ],
)
def test_settings_are_validated(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as raised:
        tuned(Settings(), changes)
    assert message in str(raised.value)


def test_the_setting_gives_the_policy_of_views_that_name_none() -> None:
    assert Settings().slack == SlackChoice("required")
    assert Settings(slack_policy="fixed", slack_seconds=1.5).slack == SlackChoice("fixed", 1_500_000)


def test_pd_aims_at_the_coverage_that_each_window_needs() -> None:
    """alpha* = alpha + Kp err_i + Kd (err_i - err_{i-1}), err_i = lambda_thr - lambda_i, K = alpha k."""
    policy = ProportionalDerivativeSlack()
    policy.arrived(lateness(100, 20))
    assert policy.slack == 100
    policy.known(outcome(10, 0.99, threshold=0.95), 50)
    assert policy.slack == 100, "it counts once it is final"
    policy.known(outcome(10, 0.99, threshold=0.95), 50, final=True)
    policy.known(outcome(20, 0.93, threshold=0.97), 50, final=True)
    first, second = 0.95 - 0.99, 0.97 - 0.93
    assert policy.alpha == pytest.approx(1 + 0.2 * first + 4 * first + 0.2 * second + 4 * (second - first))
    assert policy.slack == int(policy.alpha * 100)


def test_pd_learns_nothing_from_windows_without_an_early_answer() -> None:
    policy = ProportionalDerivativeSlack()
    policy.known(outcome(10, 0.0, slack=AFTER_ALL, threshold=0.95), 50, final=True)
    assert policy.alpha == 1


def test_pd_counts_a_window_once_its_period_is_over() -> None:
    policy = ProportionalDerivativeSlack(threshold=0.95, period=5)
    policy.known(outcome(10, 0.99, slack=3), 7)
    assert policy.alpha == 1
    policy.known(outcome(10, 0.99, slack=3), 8)
    alpha = policy.alpha
    assert alpha == pytest.approx(1 - 4.2 * 0.04)
    policy.known(outcome(10, 0.5, slack=3), 20, final=True)
    assert policy.alpha == alpha


def test_mp_k_slack_is_the_largest_delay_ever() -> None:
    policy = LargestDelaySlack()
    for delays, slack in (((3, 0), 3), ((9,), 9), ((), 9), ((2,), 9)):
        policy.arrived(lateness(*delays))
        assert policy.slack == slack


def test_k_slack_is_measured_while_the_stream_is_young() -> None:
    policy = FirstDelaysSlack.of(PLAN)
    assert policy.period == 10 + 19 * 5
    policy.arrived(lateness(4, age=3))
    policy.arrived(lateness(8, age=105))
    policy.arrived(lateness(50, age=106))
    assert policy.slack == 8


def test_aq_k_slack_is_a_quantile_of_recent_tuples() -> None:
    policy = RecentDelaySlack(0.9, memory=100)
    policy.brought(np.array([0, 7]), np.array([90, 10]))
    assert policy.slack == 0
    policy.brought(np.array([7]), np.array([1]))
    assert policy.slack == 7
    for _ in range(4):
        policy.brought(np.array([0]), np.array([25]))
    assert policy.slack == 0


def test_aq_k_slack_aims_at_what_final_windows_need() -> None:
    policy = RecentDelaySlack()
    policy.brought(np.array([0, 3, 9]), np.array([90, 8, 2]))
    assert policy.slack == 9, "before a window is final every tuple counts"
    policy.known(outcome(10, 1.0, threshold=0.95), 0, final=True)
    policy.brought(np.array([0, 3, 9]), np.array([90, 8, 2]))
    assert policy.slack == 3


def test_a_fixed_slack_never_changes() -> None:
    policy = FixedSlack(30)
    policy.arrived(lateness(90))
    policy.known(outcome(10, 0.1), 0, final=True)
    assert policy.slack == 30


@pytest.mark.parametrize("n", [10.0, 500.0])
@pytest.mark.parametrize("cv", [0.2, 1.0])
def test_coverage_thresholds_are_the_least_that_meet_their_condition(n: float, cv: float) -> None:
    share = coverage_threshold("sum", BOUND, n, cv)
    assert (1 - share) + Z * cv * np.sqrt(share * (1 - share) / n) == pytest.approx(0.05)
    share = coverage_threshold("avg", BOUND, n, cv)
    assert Z * cv * np.sqrt((1 - share) / (share * n)) == pytest.approx(0.05)
    share = coverage_threshold("percentile", BOUND, n, cv, 0.25)
    assert Z * np.sqrt(0.25 * 0.75 * (1 - share) / (share * n)) == pytest.approx(0.05)
    assert coverage_threshold("count", BOUND, n, cv) == pytest.approx(0.95)
    assert coverage_threshold("min", BOUND, n, cv) == pytest.approx(0.95)
    assert coverage_threshold("stddev_samp", BOUND, n, cv) == 1.0


def test_a_window_s_threshold_is_by_its_own_tuples() -> None:
    rng = np.random.default_rng(3)
    values = rng.gamma(4, 0.25, (200, 50))
    rows = pa.table({"rows": np.full(200, 50), "count:v": np.full(200, 50), "sum:v": values.sum(1)})
    found = window_threshold(rows, [], [COUNT, SUM], BOUND)
    expected = coverage_threshold("sum", BOUND, 10_000, 0.5)
    assert found == pytest.approx(expected, abs=5e-4)
    assert window_threshold(rows, [], [COUNT], BOUND) == pytest.approx(0.95)
    absolute = ErrorBound(500.0, 0.05, absolute=True)
    assert window_threshold(rows, [], [COUNT], absolute) == pytest.approx(0.95)


def test_a_window_s_threshold_is_that_of_its_middle_group() -> None:
    rows = pa.table(
        {
            "k": [1, 1, 2, 3, 3],
            "rows": [5, 5, 1, 50, 50],
            "count:v": [5, 5, 1, 50, 50],
            "sum:v": [4.0, 6, 1, 50, 50],
        }
    )
    each = [
        window_threshold(rows.filter(pa.array([k == key for k in rows["k"].to_pylist()])), [], [SUM], BOUND)
        for key in (1, 3)
    ]
    found = window_threshold(rows, ["k"], [SUM], BOUND)
    assert min(each) <= found <= 1.0


@pytest.mark.parametrize(
    ("policy", "figures", "words"),
    [
        (
            "required",
            {"is_learning": True, "known": 3, "needed": 20, "largest": 4_000_000},
            "required: too few windows are known (final: 3 of 20); K follows the largest delay, 4 s, and the stream's age",
        ),
        (
            "required",
            {"is_learning": False, "known": 120, "needed": 20, "largest": 4_000_000},
            "required: K is what the newest 120 final windows needed for their bound",
        ),
        (
            "pd",
            {"alpha": 0.8312, "largest": 17_000_000, "coverage": 0.93, "threshold": 0.9712},
            "pd: K = 0.831 times the largest delay, 17 s; coverage 93.00%, aimed at 97.12%",
        ),
        (
            "pd",
            {"alpha": 1.0, "largest": 0},
            "pd: K = 1 times the largest delay, 0 s; no window is final yet",
        ),
        (
            "aq-k-slack",
            {"coverage": 0.95, "tuples": 10_400},
            "aq-k-slack: 95.00% of the newest 10,400 tuples were no later than K",
        ),
        ("mp-k-slack", {}, "mp-k-slack: K is the largest delay so far"),
        (
            "k-slack",
            {"period": 60_000_000, "is_measuring": False},
            "k-slack: K is the largest delay of the stream's first 1 min and does not change",
        ),
        ("fixed", {}, "fixed: the user set K"),
    ],
)
def test_the_status_says_why_k_is_what_it_is(policy: str, figures: dict[str, float], words: str) -> None:
    assert slack_words({"slack_policy": policy, "slack_figures": figures}) == words
    assert slack_words({"slack": 3}) is None
