"""The life of a view's windows: open, answered, closed, final.

A window [start, end) with tuples is open until t_max passes its end by the slack; then it is closed, and answered
unless it was beforehand. It is final when t_max passes its end by the horizon, and forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from penstock.plan.times import BEFORE_ALL, EARLIEST, LATEST
from penstock.plan.windows import Windows


def ends_of(windows: Windows, moments: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Ends of the windows that hold any of some moments, ascending."""
    moments, slide = np.unique(moments), windows.slide
    if windows.is_cumulating:
        last = (moments - windows.start) // windows.size * windows.size + windows.start + windows.size
    else:
        last = (moments - windows.start) // slide * slide + windows.start + windows.size
    first = last - (last - moments - 1) // slide * slide
    # both ascend: a moment adds the ends beyond those of the moments before it
    first = np.maximum(first, np.append(first[:1], last[:-1] + slide))
    counts = (last - first) // slide + 1
    places = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    ends: npt.NDArray[np.int64] = np.repeat(first, counts) + slide * places
    return ends


def held(moments: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Those of some moments that windows hold."""
    return moments[(moments >= EARLIEST) & (moments <= LATEST)]


@dataclass(slots=True)
class Beginning:
    """What an operator that begins after other batches of its stream cannot know.

    Attributes:
        since: windows that start at or before it may hold tuples of the batches before, microseconds.
        is_whole: whether the operator has been given those tuples, or there are none.
    """

    since: int
    is_whole: bool

    @property
    def unseen(self) -> int:
        """Windows that start at or before it lack tuples."""
        return BEFORE_ALL if self.is_whole else self.since


@dataclass(slots=True)
class Told:
    """What was said of a window that is not final.

    Attributes:
        revision: the newest.
        arrival: what had arrived by then is in it.
    """

    revision: int
    arrival: int


@dataclass(slots=True)
class WindowStates:
    """Where the windows of a view stand.

    Attributes:
        frontier: windows that end at or before it are closed: they have been answered, or were empty.
        final: windows that end at or before it are final, but for those that lack tuples; never beyond `frontier`.
        told: answered windows that are not final, by end.
    """

    frontier: int = BEFORE_ALL
    final: int = BEFORE_ALL
    told: dict[int, Told] = field(default_factory=dict)


class Lifecycle:
    """Says which windows are due.

    Args:
        windows: how they lie.
        floor: windows that end at or before it were over before the view began, and are not answered.
        beginning: of the operator.
    """

    def __init__(self, windows: Windows, floor: int, beginning: Beginning) -> None:
        self.windows = windows
        self.floor = floor
        self._beginning = beginning
        self.state = WindowStates()

    def is_closed(self, end: int) -> bool:
        """Whether late tuples of the window that ends then are corrections."""
        return end <= self.state.frontier

    def lacks(self, end: int) -> bool:
        """Whether the window lacks tuples of the batches before the operator's first one."""
        return self.windows.begin(end) <= self._beginning.unseen

    def wants(self, end: int) -> bool:
        """Whether tuples of the window are still kept for it."""
        return end > self.state.final or self.lacks(end)

    def due(self, ends: npt.NDArray[np.int64], until: int) -> list[int]:
        """Those of some windows, by their ends, that are not closed and end by `until`, in the same order."""
        least = max(self.state.frontier, self.floor)
        found: list[int] = ends[(ends > least) & (ends <= until)].tolist()
        return found

    def lacking(self, panes: Iterable[int], since: int) -> set[int]:
        """Ends of the closed windows that hold one of the panes and start at or before `since`."""
        last = min(self.windows.last_end(since), self.state.frontier)
        return {end for pane in panes for end in self.windows.ends(pane) if self.floor < end <= last}

    def becoming_final(self, until: int) -> list[int]:
        """Ends of the answered windows that end by `until` and lack nothing, ascending."""
        return sorted(end for end in self.state.told if end <= until and not self.lacks(end))

    def open(self, ends: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Those of some windows, by their ends, that are not final, in the same order."""
        unseen = self.windows.last_end(self._beginning.unseen)
        return ends[(ends > self.floor) & ((ends > self.state.final) | (ends <= unseen))]
