"""What the clocks of a stream make of delays: the horizon, what is final, what is forgotten."""

from __future__ import annotations

import numpy as np

from penstock.operators.windows.clocks import Clocks, StreamTime
from penstock.plan.times import AFTER_ALL, BEFORE_ALL

HOUR = 3600 * 1_000_000
DAY = 24 * HOUR


def heard(clocks: Clocks, newest: int, *delays: int) -> None:
    clocks.take_in(newest, None, np.array(delays or (0,), np.int64))


def test_nothing_is_final_before_a_longer_delay_could_have_shown() -> None:
    clocks = Clocks(AFTER_ALL, 0)
    heard(clocks, 0)
    assert clocks.known == BEFORE_ALL  # of one batch nothing is known
    heard(clocks, HOUR)
    assert clocks.known == HOUR
    heard(clocks, 2 * HOUR, HOUR)
    assert clocks.known == BEFORE_ALL
    heard(clocks, 7 * HOUR)
    assert 5.7 * HOUR < clocks.known < 5.8 * HOUR


def test_half_of_the_largest_delay_is_forgotten_in_four_days() -> None:
    clocks = Clocks(AFTER_ALL, 2 * HOUR)
    heard(clocks, 0)
    heard(clocks, DAY, DAY)
    assert clocks.state.horizon == 1.25 * DAY
    for day in range(2, 6):
        heard(clocks, day * DAY)
    assert abs(clocks.state.largest - DAY / 2) < 1
    for day in range(6, 60):
        heard(clocks, day * DAY)
    assert clocks.state.horizon == 2 * HOUR  # its least


def test_a_delay_that_comes_back_every_day_stays_within_the_horizon() -> None:
    clocks = Clocks(AFTER_ALL, 0)
    for day in range(30):
        assert day < 2 or clocks.state.horizon >= 3 * HOUR
        heard(clocks, day * DAY, 3 * HOUR)


def test_a_lowered_largest_delay_holds_at_once() -> None:
    clocks = Clocks(AFTER_ALL, 0)
    heard(clocks, 0)
    heard(clocks, 20 * DAY, DAY)
    clocks.adjust(HOUR, 0)
    assert clocks.state.horizon == 1.25 * HOUR
    heard(clocks, 21 * DAY, 2 * HOUR)
    assert clocks.state.largest <= HOUR


def test_a_stored_time_goes_on_by_the_settings_of_today() -> None:
    clocks = Clocks(AFTER_ALL, 0)
    heard(clocks, 0)
    heard(clocks, 20 * DAY, DAY)
    other = Clocks(HOUR, 0)
    other.restore(clocks.state)
    assert other.state.horizon == 1.25 * HOUR


def test_of_an_earlier_version_s_time_the_horizon_tells_the_largest_delay() -> None:
    time = StreamTime(newest=10 * DAY, reached=None, arrival=1, batches=5, horizon=5 * HOUR)
    assert time.largest == 4 * HOUR
    assert time.known == 10 * DAY - 5 * HOUR
