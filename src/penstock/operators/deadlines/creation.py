"""Which instances of a window are created as its stream goes on, and how many tuples each has been seen to hold."""

from __future__ import annotations

import base64
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.operators.deadlines.instances import Tuples
from penstock.operators.deadlines.learned_slack import LearnedSlack
from penstock.operators.windows.lifecycle import ends_of
from penstock.plan.deadlines import WindowSpan
from penstock.plan.times import AFTER_ALL, BEFORE_ALL
from penstock.plan.windows import Windows

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class CreatedWindow:
    """A window that is closed: an instance of its view.

    Attributes:
        end: its end, microseconds; instances of a view are told apart by it.
        entry: it holds the tuples that came with log entries up to this one.
        slack: from its end to where the stream had come, or was taken to have come, microseconds; negative where it was created
            beforehand as what was there was all there was.
        coverage: estimated share of its tuples that it holds; None where nothing can be promised, as where it was created
            beforehand.
        due: event time with which it closes, its end and the slack K by then, microseconds.
    """

    end: int
    entry: int
    slack: int
    coverage: float | None
    due: int


@dataclass(frozen=True, slots=True)
class CreationState:
    """How far a view has come.

    Attributes:
        entry: the last one of the log that was taken in.
        floor: windows that begin before it lack tuples, which came before the view: they are not created, microseconds.
        closed: windows that end by then have been created if they had tuples, microseconds.
        open: those that nothing has become of yet.
        beforehand: the ends of later windows that have been created, as the stream was silent or what was there was all there
            was then; all of them had tuples.
        learned: what was learned of slack, base64; "" where the view waits for no late tuples.
    """

    entry: int
    floor: int
    closed: int = BEFORE_ALL
    open: tuple[CreatedWindow, ...] = ()
    beforehand: tuple[int, ...] = ()
    learned: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Brought:
    """What an entry of the log brings a view.

    Attributes:
        entry: its number; entries follow each other.
        tuples: the view's.
        newest: largest event time of the stream up to here, microseconds, None where there is none.
        moment: how far the stream has come, or is taken to have come as it is silent, microseconds; None: nowhere.
        delays: of some of the stream's tuples, the largest among them, microseconds.
        every: whether later windows are created too: what is there is all there is for now.
    """

    entry: int
    tuples: Tuples
    newest: int | None
    moment: int | None
    delays: tuple[int, ...] = ()
    every: bool = False


class WindowCreation:
    """Counts the tuples of a view by time, and tells the windows that close.

    Event times alone close windows. Silence, and the end of what there is for now, create those that are open and have tuples
    *beforehand*, each once, and close none: a window that had no tuples by then is created when it is closed, and what is learned
    of slack is what would be without them.

    It is a function of the entries: whoever takes in the same ones from the same state creates the same windows with the same
    entries. Counts and what slack is learned from are no part of the state, but made of the entries up to it. While these are taken
    in again it stands as it did: what they have not created yet is still open.

    Args:
        windows: the view's.
        state: how far the view had come; entries up to there are taken in again.
        slack: lets windows wait for late tuples; None: they close as soon as the stream has come to their end.
    """

    def __init__(self, windows: Windows, state: CreationState, slack: LearnedSlack | None = None) -> None:
        self._windows = windows
        self._then = state
        self._slack = slack
        self._entry, self._closed = state.entry, state.closed
        #: open windows of the state whose entries have not been taken in again
        self._awaited = state.open
        self._beforehand = set(state.beforehand)
        #: newest event time of the entry before
        self._newest: int | None = None
        #: tuples in panes before all of `_counts`
        self._before = 0
        #: by the start of a pane
        self._counts: dict[int, int] = {}
        if slack is not None and state.learned:
            slack.restore(base64.b64decode(state.learned))

    @property
    def slack(self) -> LearnedSlack | None:
        """What lets windows wait for late tuples."""
        return self._slack

    def needed(self, unsettled: Iterable[int]) -> int:
        """Tuples before it are not needed any more, microseconds.

        Args:
            unsettled: the ends of the windows that have been told and nothing has become of yet.
        """
        ends = (*unsettled, *(each.end for each in self._awaited))
        settled = min([self._closed, *(end - 1 for end in ends)])
        needed = max(BEFORE_ALL, settled - self._windows.size + 1)
        return needed if self._slack is None else min(needed, self._slack.needed)

    def state(self, unsettled: Iterable[CreatedWindow]) -> CreationState:
        """How far the view has come.

        Args:
            unsettled: the windows that have been told and nothing has become of yet.
        """
        learned = "" if self._slack is None else base64.b64encode(self._slack.stored()).decode()
        beforehand = tuple(sorted(self._beforehand))
        unsettled = (*unsettled, *self._awaited)
        return CreationState(self._entry, self._then.floor, self._closed, unsettled, beforehand, learned)

    def take_in(self, brought: Brought) -> list[tuple[CreatedWindow, WindowSpan]]:
        """The windows that are created with an entry, by their ends, and the places of their tuples among all of the view.

        Args:
            brought: the next entry; of those that the state had, the windows that it calls open.
        """
        before, self._newest = self._newest, brought.newest
        times = brought.tuples.times
        self._count(times)
        # nothing is known of the time before the first entry: no window that is created holds tuples of both
        arrival = before if before is not None else int(times.min(initial=AFTER_ALL)) - 1
        if brought.entry <= self._then.entry:
            if self._slack is not None and len(times):
                self._slack.put(brought.tuples, arrival)
            again = [each for each in self._awaited if each.entry == brought.entry]
            self._awaited = tuple(each for each in self._awaited if each.entry > brought.entry)
            return self._placed(again)
        self._entry = brought.entry
        moment = brought.moment
        frontier = BEFORE_ALL if brought.newest is None else brought.newest
        until = frontier if moment is None else max(frontier, moment)
        if self._slack is not None:
            self._slack.take_in(brought.tuples, arrival, brought.newest, np.array(brought.delays, np.int64))
            frontier, until = self._slack.frontier(frontier), until - self._slack.slack
        closing, ends = self._due(frontier, AFTER_ALL if brought.every else max(frontier, until))
        coverage = None if self._slack is None else self._slack.coverage
        waits = 0 if self._slack is None else self._slack.slack
        found = self._placed(
            [
                CreatedWindow(
                    end,
                    brought.entry,
                    0 if moment is None else moment - end,
                    coverage if end <= frontier else None,
                    end + waits,
                )
                for end in ends
            ]
        )
        if self._slack is not None:
            self._slack.closed(closing, arrival)
        self._forget()
        return found

    def _count(self, times: Integers) -> None:
        panes, counts = np.unique(self._windows.panes_of(times), return_counts=True)
        for each, count in zip(panes.tolist(), counts.tolist(), strict=True):
            self._counts[each] = self._counts.get(each, 0) + count

    def _due(self, frontier: int, until: int) -> tuple[list[int], list[int]]:
        """The ends of the windows with tuples that close, as they end by one moment, and of those that are created, by another."""
        self._closed, before = max(self._closed, frontier), self._closed
        if not self._counts or until <= before:
            return [], []
        ends = ends_of(self._windows, np.array(list(self._counts), np.int64))
        due = ends[
            (ends > before) & (ends <= until) & (ends - self._windows.size >= self._then.floor)
        ].tolist()
        found = [end for end in due if end not in self._beforehand]
        self._beforehand = {end for end in self._beforehand.union(found) if end > self._closed}
        return [end for end in due if end <= frontier], found

    def _placed(self, found: list[CreatedWindow]) -> list[tuple[CreatedWindow, WindowSpan]]:
        if not found:
            return []
        places, size = _Places(self._before, self._counts), self._windows.size
        return [(each, WindowSpan(places.before(each.end - size), places.before(each.end))) for each in found]

    def _forget(self) -> None:
        """What lies before every window that may still close is one number."""
        forgotten = self._closed - self._windows.size - self._windows.slide
        for pane in [each for each in self._counts if each < forgotten]:
            self._before += self._counts.pop(pane)


class _Places:
    """How many tuples lie before a boundary of panes."""

    def __init__(self, before: int, counts: Mapping[int, int]) -> None:
        self._panes = sorted(counts)
        self._sums = np.cumsum([before, *(counts[pane] for pane in self._panes)]).tolist()

    def before(self, moment: int) -> int:
        found: int = self._sums[bisect_left(self._panes, moment)]
        return found
