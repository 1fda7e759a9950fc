"""The rows of a pane without arrivals: merged anew only with what has come since."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.operators.windows.aggregates import Parts
from penstock.operators.windows.content import Content, together
from penstock.plan.times import AFTER_ALL

#: windows that are corrected together were mostly answered together, with the rows before
_REMEMBERED = 2


@dataclass(slots=True, eq=False)
class _Grouped:
    """The rows that had arrived by some moment.

    Attributes:
        content: one row of each group, without arrivals.
        newest: when the newest of them arrived.
        until: nothing else arrived until before this.
    """

    content: Content
    newest: int
    until: int = AFTER_ALL


@dataclass(slots=True, eq=False)
class GroupedRows:
    """One row of each group of a pane, taken in table by table.

    Attributes:
        tables: how many of the pane's tables were taken in.
    """

    tables: int = 0
    _known: deque[_Grouped] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))

    @property
    def content(self) -> Content:
        """All rows that were taken in, at least one table."""
        return self._known[-1].content

    def take_in(
        self, parts: Parts, keys: Sequence[str], more: Content, oldest: int, newest: int, tables: int
    ) -> None:
        """Takes in rows.

        Args:
            parts: what is kept of each group.
            keys: the grouping columns.
            more: the rows, by arrival, no earlier than those before.
            oldest, newest: when the first and the last of them arrived.
            tables: how many of the pane's have been taken in with these.
        """
        self.tables = tables
        every = [more.without_arrivals()]
        if self._known:
            self._known[-1].until = oldest
            every.insert(0, self.content)
        self._known.append(_Grouped(together(every).merged(parts, keys), newest))

    def by(self, arrival: int) -> Content | None:
        """The rows that had arrived by a moment; None if they are not known any more."""
        return next((each.content for each in self._known if each.newest <= arrival < each.until), None)
