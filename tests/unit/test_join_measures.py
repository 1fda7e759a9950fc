"""Averages of the newest time, selectivities from samples, unit costs from timed work."""

from __future__ import annotations

from dataclasses import astuple, replace

import numpy as np
import pytest

from penstock.optimizer.averages import Averaging, AveragingSettings, FadingSums
from penstock.optimizer.join_measures import JoinAverages, JoinMeasures, StepCount, Work, equal_pairs
from penstock.optimizer.join_statistics import UnitCosts

FADING = AveragingSettings(Averaging.EXPONENTIAL, 2.0)
QUIET = JoinMeasures(1.0, 4, (100, 0), (0, 500), {(0, 0, 1): (1000.0, 10.0)})


def test_exponential_sums_lose_half_of_their_weight_in_a_half_life() -> None:
    sums = FadingSums(FADING)
    sums.add(2.0, {"n": 8.0})
    sums.add(2.0, {"n": 1.0})
    assert sums.sum("n") == pytest.approx(5)
    sums.add(4.0, {})
    assert sums.sum("n") == pytest.approx(1.25)


def test_windowed_sums_hold_the_newest_periods() -> None:
    sums = FadingSums(AveragingSettings(Averaging.WINDOWED, 3.0))
    for number in range(1, 6):
        sums.add(1.0, {"n": float(number)})
    assert sums.sum("n") == 3 + 4 + 5
    sums.add(10.0, {"n": 7.0})
    assert sums.sum("n") == 7


def test_a_ratio_weighs_periods_by_what_they_measured() -> None:
    sums = FadingSums(AveragingSettings(Averaging.WINDOWED, 10.0))
    sums.add(1.0, {"passed": 1.0, "tuples": 2.0})
    sums.add(1.0, {"passed": 0.0, "tuples": 98.0})
    assert sums.ratio("passed", "tuples") == pytest.approx(0.01)
    assert sums.ratio("passed", "nothing") == 0


def test_averages_are_over_a_time_above_0() -> None:
    with pytest.raises(ValueError, match="seconds must be above 0, got 0"):
        AveragingSettings(Averaging.WINDOWED, 0)


def test_statistics_of_a_period() -> None:
    averages = JoinAverages(FADING)
    with pytest.raises(ValueError, match="nothing was measured yet"):
        averages.statistics()
    averages.add(replace(QUIET, satisfied={(0, 1): (50.0, 25.0)}, delays=(0.5, 0.0)))
    found = averages.statistics()
    assert found.rates == (100, 0)
    assert found.sizes == (0, 500)
    assert found.equal == {(0, 0, 1): 0.01}
    assert found.satisfied == {(0, 1): 0.5}
    assert found.delays == (0.5, 0)
    assert found.cut_seconds == 0.25
    assert found.costs == UnitCosts()


def test_a_change_is_followed_within_a_few_half_lives() -> None:
    averages = JoinAverages(AveragingSettings(Averaging.EXPONENTIAL, 0.5))
    for _ in range(20):
        averages.add(QUIET)
    for _ in range(2):
        averages.add(replace(QUIET, tuples=(200, 0), equal={(0, 0, 1): (1000.0, 90.0)}))
    found = averages.statistics()
    assert found.rates[0] == pytest.approx(200, rel=0.05)
    assert found.equal[0, 0, 1] == pytest.approx(0.09, rel=0.1)


def test_what_no_pair_showed_is_rare_and_not_impossible() -> None:
    averages = JoinAverages(FADING)
    averages.add(replace(QUIET, equal={(0, 0, 1): (1000.0, 0.0)}))
    assert averages.statistics().equal[0, 0, 1] == pytest.approx(0.0005)


def test_what_is_not_measured_any_more_stays_as_it_was() -> None:
    averages = JoinAverages(FADING)
    averages.add(QUIET)
    for _ in range(100):
        averages.add(replace(QUIET, equal={}))
    assert averages.statistics().equal[0, 0, 1] == pytest.approx(0.01)


def test_equal_pairs_are_counted_and_not_sampled() -> None:
    rng = np.random.default_rng(1)
    left, right = rng.integers(0, 30, 400), rng.integers(10, 50, 300)
    assert equal_pairs(left, right) == (400 * 300, float((left[:, None] == right).sum()))


def works(costs: UnitCosts, rng: np.random.Generator, count: int) -> list[Work]:
    """Steps of merge, hash and nested loops of random sizes, each timed with an error of 5 %."""
    found = []
    for _ in range(count):
        a, b, c = rng.uniform(1e3, 1e6, 3)
        steps = (
            Work(probes=a, pairs=b, outputs=c),
            Work(pairs=a, outputs=b, built=c, lookups=a + b),
            Work(nested=a, outputs=b),
        )
        found += [replace(work, seconds=work.seconds_at(costs) * rng.lognormal(0, 0.05)) for work in steps]
    return found


def test_unit_costs_are_told_apart() -> None:
    rng = np.random.default_rng(2)
    true = UnitCosts(30e-9, 2e-9, 50e-9, 1e-9, 90e-9, 20e-9)
    averages = JoinAverages(AveragingSettings(Averaging.WINDOWED, 1000.0))
    for work in works(true, rng, 200):
        averages.add(replace(QUIET, work=(work,)))
    found = averages.statistics().costs
    for work in works(true, rng, 50):
        assert work.seconds_at(found) == pytest.approx(work.seconds, rel=0.35)
    assert np.allclose(astuple(found), astuple(true), rtol=0.6)


def test_what_is_never_timed_keeps_its_ratio_to_the_rest() -> None:
    averages = JoinAverages(FADING)
    slow = UnitCosts().times(10)
    work = Work(nested=1e6, outputs=1e5)
    averages.add(replace(QUIET, work=(replace(work, seconds=work.seconds_at(slow)),)))
    assert np.allclose(astuple(averages.statistics().costs), astuple(slow), rtol=0.02)


def test_steps_are_told_a_second_and_forgotten_with_their_order() -> None:
    averages = JoinAverages(FADING)
    of_cells = (
        StepCount(0, 1, 10, 40, 20, 0.5),
        StepCount(1, 0, 6, 6, 3, 0.25),
        StepCount(0, 1, 30, 0, 0, 0),
    )
    averages.add(replace(QUIET, seconds=2.0, steps=of_cells))
    assert averages.steps() == (StepCount(0, 1, 20, 20, 10, 0.25), StepCount(1, 0, 3, 3, 1.5, 0.125))
    averages.add(replace(QUIET, seconds=2.0))
    (first, _) = averages.steps()
    assert first.rows == pytest.approx(20 / 3), "half of what was, over two seconds and half of two"
    averages.order_switched()
    assert averages.steps() == ()
    assert averages.statistics().rates == pytest.approx((100 / 2, 0))
