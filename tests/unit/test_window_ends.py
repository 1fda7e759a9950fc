"""The ends of the windows that hold some moments."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.operators.windows.lifecycle import ends_of
from penstock.plan.windows import Windows

moments = st.lists(st.integers(-200, 200), max_size=12)


@st.composite
def windows(draw: st.DrawFn) -> Windows:
    slide = draw(st.integers(1, 20))
    return Windows(slide + draw(st.integers(0, 60)), slide, draw(st.integers(0, slide - 1)))


@given(windows(), moments)
def test_they_are_those_of_each_moment_once_and_ascend(laid: Windows, some: list[int]) -> None:
    each = {end for moment in some for end in laid.ends(moment)}
    assert ends_of(laid, np.array(some, np.int64)).tolist() == sorted(each)


def test_many_windows_that_hold_many_moments() -> None:
    """A day's windows every five seconds, over a day of panes."""
    found = ends_of(Windows(86_400, 5), np.arange(0, 86_400, 5))
    assert (len(found), found[0], found[-1]) == (2 * 17_280 - 1, 5, 2 * 86_400 - 5)


@given(windows(), moments)
def test_a_pane_lies_between_two_edges_of_windows_that_follow_each_other(
    laid: Windows, some: list[int]
) -> None:
    starts = [laid.start + number * laid.slide for number in range(-400, 401)]
    edges = {*starts, *(start + laid.size for start in starts)}
    found = laid.panes_of(np.array(some, np.int64)).tolist()
    assert found == [max(edge for edge in edges if edge <= moment) for moment in some]
