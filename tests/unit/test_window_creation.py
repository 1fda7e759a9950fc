"""Windows are told once they are closed, each once, with the places of their tuples."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.operators.deadlines.creation import CreatedWindow, WindowCreation
from penstock.plan.deadlines import WindowSpan
from penstock.plan.times import BEFORE_ALL
from penstock.plan.windows import Windows


def _made(windows: Windows, settled: int = BEFORE_ALL, floor: int = BEFORE_ALL) -> WindowCreation:
    return WindowCreation(windows, settled, floor)


def test_a_window_is_told_once_it_is_closed() -> None:
    creation = _made(Windows(4, 2))
    creation.add(np.array([1, 3, 3, 6]))
    assert creation.close(1) == []
    assert creation.close(4) == [CreatedWindow(2, WindowSpan(0, 1)), CreatedWindow(4, WindowSpan(0, 3))]
    assert creation.close(4) == []
    creation.add(np.array([2, 7]))
    assert creation.close(8) == [CreatedWindow(6, WindowSpan(1, 4)), CreatedWindow(8, WindowSpan(4, 6))]


def test_what_was_settled_and_what_began_before_is_not_told() -> None:
    creation = _made(Windows(4, 2), settled=4, floor=4)
    creation.add(np.array([1, 3, 5, 9]))
    assert [each.end for each in creation.close(100)] == [8, 10, 12]


def test_windows_without_tuples_are_none() -> None:
    creation = _made(Windows(2, 2))
    creation.add(np.array([0, 1_000_000_001]))
    assert [each.end for each in creation.close(2_000_000_000)] == [2, 1_000_000_002]


def test_a_stream_that_is_taken_to_have_ended_goes_on() -> None:
    creation = _made(Windows(10, 10))
    creation.add(np.array([5, 3_600]))
    assert [each.end for each in creation.close(5, every=True)] == [10, 3_610]
    assert creation.beforehand == {10, 3_610}
    creation.add(np.array([7, 12, 25]))
    assert [each.end for each in creation.close(25)] == [20], "the first one has been told"
    later = WindowCreation(Windows(10, 10), creation.closed, BEFORE_ALL, creation.beforehand)
    later.add(np.array([25, 3_605]))
    assert [each.end for each in later.close(4_000)] == [30], "one that was told far ahead holds no other up"
    assert later.beforehand == set()


@pytest.mark.parametrize("batches", [1, 4])
@given(data=st.data())
def test_every_window_is_told_once_with_the_tuples_that_had_come(batches: int, data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 12))
    windows = Windows(size, slide := data.draw(st.integers(1, size)), data.draw(st.integers(0, slide - 1)))
    creation = _made(windows)
    seen: list[int] = []
    told: dict[int, WindowSpan] = {}
    reached = -(10**6)
    for _ in range(batches):
        times = data.draw(st.lists(st.integers(-40, 40), max_size=12))
        creation.add(np.array(times, np.int64))
        seen += times
        reached = max([reached, *times])
        for each in creation.close(reached):
            assert each.end not in told
            assert each.end <= reached
            assert each.span.tuples == sum(each.end - size <= time < each.end for time in seen)
            assert each.span.first == sum(time < each.end - size for time in seen)
            told[each.end] = each.span
    assert sorted(told) == list(told)
    if batches == 1:
        ends = {end for time in seen for end in windows.ends(time)}
        assert set(told) == {end for end in ends if end <= reached}
