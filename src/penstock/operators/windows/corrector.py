"""What late tuples change in windows that were answered.

A late tuple is added to its open windows and registered for each closed one; registered windows are corrected together
when the late tuples span more than Gamma of event time. Source: the HPM paper, time-domain partition, by window.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from penstock.operators.windows.aggregates import Parts
from penstock.operators.windows.content import Content
from penstock.operators.windows.required_slack import END
from penstock.operators.windows.rows import by_number, by_touch, differences, window_rows
from penstock.operators.windows.selections import WindowPanes
from penstock.operators.windows.told_windows import ToldWindows
from penstock.plan.windows import WindowPlan


@dataclass(slots=True)
class Registered:
    """Windows with late tuples.

    Attributes:
        ends: of the windows.
        oldest, newest: the stretch of panes that the tuples lie in, where there are any.
    """

    ends: set[int] = field(default_factory=set)
    oldest: int = 0
    newest: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Changes:
    """How the rows of a window differ from what was said of it.

    Attributes:
        rows: those that differ.
        replaced: what was said of their groups.
        others: the rows of the groups that have got no tuple since.
    """

    rows: pa.Table
    replaced: pa.Table
    others: pa.Table


class Corrector:
    """Registers the late tuples of a view and finds what they change.

    Args:
        plan: the view.
        parts: what panes hold.
        panes: what has arrived.
        gamma: late tuples are corrected when they span more event time, microseconds.
    """

    def __init__(self, plan: WindowPlan, parts: Parts, panes: WindowPanes, gamma: int) -> None:
        self._plan = plan
        self._parts = parts
        self._panes = panes
        self.gamma = gamma
        self._keys = [name for name, _ in plan.keys]
        self.state = Registered()

    def register(self, end: int, pane: int) -> None:
        """A late tuple in a pane belongs to a closed window."""
        state = self.state
        if not state.ends:
            state.oldest = state.newest = pane
        state.ends.add(end)
        state.oldest, state.newest = min(state.oldest, pane), max(state.newest, pane)

    @property
    def is_due(self) -> bool:
        """Whether the late tuples span more than Gamma."""
        return bool(self.state.ends) and self.state.newest - self.state.oldest > self.gamma

    def take(self) -> list[int]:
        """The registered windows, ascending; they are registered no longer."""
        ends = sorted(self.state.ends)
        self.state.ends.clear()
        return ends

    def drop(self, end: int) -> None:
        """A window needs no correction any more."""
        self.state.ends.discard(end)

    def changes(self, told: Mapping[int, int], now: Mapping[int, pa.Table]) -> dict[int, Changes]:
        """Compares the rows of windows with what had arrived when they were answered.

        Args:
            told: by the end of each window, ascending, what had arrived by when was said.
            now: their rows.
        """
        windows = self._plan.windows
        newest = dict(zip(told, self._panes.newest_arrivals(told, windows), strict=True))
        grown = [
            ((windows.begin(end), end), arrival) for end, arrival in told.items() if newest[end] > arrival
        ]
        found: dict[int, Changes] = {}
        for before, own in self._panes.told(grown):
            ends = [end for (_, end), _ in own]
            found.update(zip(ends, self._compared(before, [now[end] for end in ends]), strict=True))
        nothing = {end: now[end].slice(0, 0) for end in told if end not in found}
        return found | {end: Changes(empty, empty, now[end]) for end, empty in nothing.items()}

    def _compared(self, told: ToldWindows, now: Sequence[pa.Table]) -> Iterator[Changes]:
        """The changes of some windows; END is their number."""
        numbers = np.repeat(np.arange(len(now)), [rows.num_rows for rows in now])
        every = pa.concat_tables(now).append_column(END, pa.array(numbers))
        keys = [END, *self._keys]
        touched, others = by_touch(every, told.grown, keys)
        tables = [*differences(told.rows(self._plan), touched, keys), others]
        for parts in zip(*(by_number(table, END, len(now)) for table in tables), strict=True):
            yield Changes(*parts)

    def from_history(self, before: Content | None, now: Content) -> Changes:
        """The like of a final window, whose tuples are read again.

        Args:
            before: its tuples but for those that have just come, None where there were none.
            now: all of them.
        """
        rows = window_rows(self._plan, self._parts, now)
        nothing = rows.slice(0, 0)
        known = nothing if before is None else window_rows(self._plan, self._parts, before)
        return Changes(*differences(known, rows, self._keys), nothing)
