"""Final windows answered again: the rows of their panes are taken from the batches of a stream's history in one pass.

Source: the HPM paper, section 1.4, its batch module.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.operators.windows.aggregates import SELECTION
from penstock.operators.windows.answers import Answer
from penstock.operators.windows.content import Content, together
from penstock.operators.windows.operator import PaneBatch, WindowOperator
from penstock.operators.windows.panes import PANE, split_by_pane
from penstock.plan.windows import WindowPlan

#: so many pieces of a pane are merged to one
_MOST_PIECES = 32


@dataclass(frozen=True, slots=True, order=True)
class Beyond:
    """A final window that got tuples.

    Attributes:
        operator, view, start: which; `start` is a length of the windows before its end.
        entry: the first entry of the log with such tuples.
    """

    operator: int
    view: str
    start: int
    entry: int


class FinalWindows:
    """Final windows of one operator, and of the tuples that were read so far what they hold.

    Of the entries that all windows have taken in before, a few rows are kept for each pane and group.

    Args:
        operator: the operator; its own panes are not looked at.
        windows: of its views.
    """

    def __init__(self, operator: WindowOperator, windows: Sequence[Beyond]) -> None:
        self._operator = operator
        self._windows = [window for window in windows if window.view in operator.views]
        starts = [np.array(self._panes_of(window), np.int64) for window in self._windows]
        self._panes = np.unique(np.concatenate(starts)) if starts else np.zeros(0, np.int64)
        #: entries before are known to all windows
        self._first = min((window.entry for window in self._windows), default=0)
        self._known: dict[int, list[Content]] = {}
        self._new: dict[int, list[tuple[int, Content]]] = {}

    def add(self, entry: int, batch: PaneBatch) -> None:
        """Take in the rows of a batch; entries come in order.

        Args:
            entry: number of the entry that names it.
            batch: the operator's rows.
        """
        if batch.partials is None:
            return
        values = {
            name: split_by_pane(self._needed(batch.values[name]))
            for name in self._operator.parts.values
            if name in batch.values
        }
        for pane, rows in split_by_pane(self._needed(batch.partials)).items():
            own = {name: split[pane] for name, split in values.items() if pane in split}
            content = Content(rows, own).arrived(0, self._operator.panes.keys)
            if entry < self._first:
                self._add_known(pane, content)
            else:
                self._new.setdefault(pane, []).append((entry, content))

    def answers(self, revision: int) -> Iterator[tuple[Beyond, Answer]]:
        """Give the corrections of the windows that differ from what was said of them.

        Args:
            revision: of the corrections.
        """
        for window in self._windows:
            known, new = self._contents(window)
            every = [*known, *new]
            if every:
                before = together(known) if known else None
                view = self._operator.views[window.view]
                answer = view.answer_from_history(window.start, before, together(every), revision)
                if answer is not None:
                    yield window, answer

    def _add_known(self, pane: int, content: Content) -> None:
        own = self._known.setdefault(pane, [])
        own.append(content)
        # sketches may say something else where they are merged twice
        if len(own) >= _MOST_PIECES and not self._operator.parts.sketches:
            own[:] = [together(own).by_arrival(self._operator.parts, self._operator.panes.keys)]

    def _contents(self, window: Beyond) -> tuple[list[Content], list[Content]]:
        """What a window held before the entry that brought tuples, and what it got since."""
        plan = self._plan(window)
        known: list[Content] = []
        new: list[Content] = []
        for pane in self._panes_of(window):
            known += self._known.get(pane, ())
            for entry, content in self._new.get(pane, ()):
                (new if entry >= window.entry else known).append(content)
        return _of_selection(known, plan.selection), _of_selection(new, plan.selection)

    def _panes_of(self, window: Beyond) -> range:
        windows = self._plan(window).windows
        end = window.start + windows.size
        return range(windows.begin(end), end, self._operator.pane)

    def _plan(self, window: Beyond) -> WindowPlan:
        return self._operator.views[window.view].plan

    def _needed(self, rows: pa.Table) -> pa.Table:
        """The rows of the panes that are needed."""
        mask = np.isin(rows.column(PANE).to_numpy(), self._panes)
        return rows if mask.all() else rows.filter(pa.array(mask))


def _of_selection(contents: Sequence[Content], selection: int | None) -> list[Content]:
    """The rows of a selection, or all."""
    if selection is None:
        return list(contents)
    found = (_selected(content, pc.field(SELECTION) == selection) for content in contents)
    return [content for content in found if content.partials.num_rows]


def _selected(content: Content, condition: pc.Expression) -> Content:
    values: Mapping[str, pa.Table] = content.values
    return Content(
        content.partials.filter(condition), {name: table.filter(condition) for name, table in values.items()}
    )
