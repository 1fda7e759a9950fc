"""What counts as silence of a stream, and what does not."""

from __future__ import annotations

from penstock.control.stream_clock import Heard, StreamClock, StreamTime, weighted_median


class Time:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def looks(interval: float, *seen: tuple[float, int, Heard], idle: float = 10.0) -> list[float]:
    """What looks at (seconds, batches, what was heard) find."""
    clock = Time()
    stream = StreamClock(idle, interval, clock)
    found = []
    for seconds, batches, heard in seen:
        clock.now = 1_000.0 + seconds
        found.append(stream.look(batches, heard))
    return found


def test_silence_is_counted_once() -> None:
    heard = [(second, 1, Heard.NOTHING) for second in range(26)]
    found = looks(0.0, *heard)
    assert [second for second, silent in enumerate(found) if silent] == [11, 22]
    assert [silent for silent in found if silent] == [11.0, 11.0]


def test_starting_is_no_silence() -> None:
    assert looks(0.0, (0, 0, Heard.UNKNOWN), (50, 0, Heard.NOTHING), (59, 0, Heard.NOTHING)) == [0, 0, 0]
    clock = Time()
    stream = StreamClock(10, 0, clock)
    stream.look(1, Heard.NOTHING)
    clock.now += 50
    stream.restart()
    assert stream.look(1, Heard.NOTHING) == 0


def test_a_batch_an_outage_and_a_backlog_are_no_silence() -> None:
    nothing = Heard.NOTHING
    assert looks(0.0, (0, 1, nothing), (9, 1, Heard.SOMETHING), (18, 1, nothing), (20, 1, nothing)) == [
        0,
        0,
        0,
        11,
    ]
    assert looks(0.0, (0, 1, nothing), (9, 2, nothing), (18, 2, nothing)) == [0, 0, 0]
    assert looks(0.0, (0, 1, nothing), (30, 1, Heard.UNKNOWN), (31, 1, Heard.UNKNOWN)) == [0, 0, 0]


def test_a_trigger_s_wait_is_no_silence_until_it_has_found_nothing() -> None:
    asked = [(second, 1, Heard.UNKNOWN if second < 40 else Heard.NOTHING) for second in range(100)]
    found = looks(40.0, (0, 1, Heard.SOMETHING), *asked)[1:]
    assert {second: silent for second, silent in enumerate(found) if silent} == {40: 40.0, 80: 40.0}


def test_a_trigger_that_hangs_is_no_silence() -> None:
    hangs = [(second, 1, Heard.UNKNOWN) for second in range(2, 60)]
    found = looks(0.0, (0, 1, Heard.SOMETHING), (1, 1, Heard.NOTHING), *hangs, (60, 1, Heard.NOTHING))
    assert not any(found), "nobody knows what there was while it hung"


def test_a_stream_may_never_be_taken_for_silent() -> None:
    assert looks(0.0, (0, 1, Heard.NOTHING), (10_000, 1, Heard.NOTHING), idle=0.0) == [0, 0]


def test_most_of_the_tuples_tell_the_time() -> None:
    stream = StreamTime()
    assert stream.middle is None
    stream.add(99, 7)
    assert stream.middle is None, "too few"
    stream.add(1, 2_000)
    assert stream.middle == 7, "one of a hundred"
    for number in range(5):
        stream.add(200, 100 + number)
    assert stream.middle == 102
    assert stream.share_after(102) == 0.4
    stream.add(10_000, 9_000)
    assert stream.middle == 9_000


def test_a_median_of_what_counts_several_times() -> None:
    assert weighted_median([]) is None
    assert weighted_median([(1, 50), (3, 10), (2, 30)]) == 10
    assert weighted_median([(1, 50), (3, 30), (1, 10)]) == 30
