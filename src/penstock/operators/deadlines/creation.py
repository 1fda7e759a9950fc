"""Which instances of a window are created as its stream goes on, and how many tuples each has been seen to hold."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.operators.windows.lifecycle import ends_of
from penstock.plan.deadlines import WindowSpan
from penstock.plan.windows import Windows

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class CreatedWindow:
    """A window that is closed: an instance of its view.

    Attributes:
        end: its end, microseconds; instances of a view are told apart by it.
        span: its tuples, as places among all of the view.
    """

    end: int
    span: WindowSpan


class WindowCreation:
    """Counts the tuples of a view by time, and tells the windows that close.

    Counts are by pane. What lies before every window that may still close is one number.

    Args:
        windows: the view's.
        closed: windows that end by then have been told, microseconds.
        floor: nor are windows told that begin before it: tuples of theirs came before the view.
        beforehand: the ends of later windows that were told all the same.
    """

    def __init__(self, windows: Windows, closed: int, floor: int, beforehand: Collection[int] = ()) -> None:
        self._windows = windows
        self._floor = floor
        self._closed = closed
        self._beforehand = set(beforehand)
        #: tuples in panes before all of `_counts`
        self._before = 0
        #: by the start of a pane
        self._counts: dict[int, int] = {}

    @property
    def closed(self) -> int:
        """Windows that end by then have been told, microseconds."""
        return self._closed

    @property
    def beforehand(self) -> frozenset[int]:
        """The ends of later windows that have been told."""
        return frozenset(self._beforehand)

    def add(self, times: Integers) -> None:
        """Takes in tuples, int64[n] microseconds in any order."""
        pane, start = self._windows.pane, self._windows.start
        panes, counts = np.unique((times - start) // pane * pane + start, return_counts=True)
        for each, count in zip(panes.tolist(), counts.tolist(), strict=True):
            if each < self._forgotten:
                self._before += count
            else:
                self._counts[each] = self._counts.get(each, 0) + count

    def close(self, moment: int, *, every: bool = False) -> list[CreatedWindow]:
        """The windows with tuples that end by a moment and were not told before, by their ends.

        Args:
            moment: how far the stream has come, microseconds.
            every: later windows too: what is there is all there is for now.
        """
        self._closed, before = max(self._closed, moment), self._closed
        found: list[CreatedWindow] = []
        if self._counts and (every or moment > before):
            ends = ends_of(self._windows, np.array(list(self._counts), np.int64))
            due = ends[(ends > before) & (ends - self._windows.size >= self._floor)]
            places = _Places(self._before, self._counts)
            for end in (due if every else due[due <= moment]).tolist():
                if end not in self._beforehand:
                    span = WindowSpan(places.before(end - self._windows.size), places.before(end))
                    found.append(CreatedWindow(end, span))
            self._beforehand.update(each.end for each in found)
        self._beforehand = {end for end in self._beforehand if end > self._closed}
        for pane in [each for each in self._counts if each < self._forgotten]:
            self._before += self._counts.pop(pane)
        return found

    @property
    def _forgotten(self) -> int:
        return self._closed - self._windows.size - self._windows.pane


class _Places:
    """How many tuples lie before a boundary of panes."""

    def __init__(self, before: int, counts: Mapping[int, int]) -> None:
        self._panes = sorted(counts)
        self._sums = np.cumsum([before, *(counts[pane] for pane in self._panes)]).tolist()

    def before(self, moment: int) -> int:
        found: int = self._sums[bisect_left(self._panes, moment)]
        return found
