"""The tuples that arrive in a second beside those that are answered."""

from __future__ import annotations

import pytest

from penstock.page.paces import Pace, PaceMeter


def test_before_the_first_batch_nothing_is_known() -> None:
    meter = PaceMeter()
    meter.add_backlog(0.0, 500, "records")
    assert meter.pace(1.0) == Pace()


def test_a_backlog_that_grows_arrived_and_was_not_answered() -> None:
    meter = PaceMeter()
    for second in range(1, 11):
        meter.add_batch(float(second), 400, 1.0)
        meter.add_backlog(float(second), 100 * second, "records")
    assert meter.pace(10.5) == Pace(pytest.approx(400), pytest.approx(500))


def test_a_backlog_that_shrinks_is_answered_beside_what_arrives() -> None:
    meter = PaceMeter()
    for second in range(1, 11):
        meter.add_batch(float(second), 400, 1.0)
        meter.add_backlog(float(second), 5_000 - 300 * second, "records")
    assert meter.pace(10.5).arrives == pytest.approx(100)


def test_files_that_wait_and_sources_that_do_not_count_say_no_rate_of_arrival() -> None:
    for unit, backlog in (("files", 3), (None, None)):
        meter = PaceMeter()
        meter.add_batch(2.0, 400, 1.0)
        meter.add_backlog(2.0, backlog, unit)
        assert meter.pace(2.5) == Pace(400)


def test_an_idle_stream_slows_down_and_only_the_last_minute_counts() -> None:
    meter = PaceMeter()
    meter.add_batch(1.0, 600, 1.0)
    meter.add_backlog(1.0, 0, "files")
    assert meter.pace(2.0) == Pace(600, 600)
    assert meter.pace(60.0) == Pace(10, 10)
    assert meter.pace(90.0) == Pace(0, 0)
