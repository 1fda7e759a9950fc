"""One pane: a log of what arrived when, in levels.

While no window that holds the pane has come to its end, nothing asks when its rows arrived but for answers given beforehand:
with a slack K >= 0 a window [start, end) is answered from what arrived before end + K. So the rows of such arrivals
become one row a group. They are merged in levels, as the runs of an LSM tree: the newest arrivals, once they hold as many
rows as the one before them. A group's rows are so fewer than twice the groups, and a row is merged a logarithmic number of times.

What is stored follows: a level that was merged is written anew, what lies before it stays. Which levels there are is a
function of the rows, so that a pane that was stored and read goes on as it would have.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count, groupby

import numpy as np
import pyarrow as pa

from penstock.operators.hashing import key_hashes
from penstock.operators.windows.aggregates import Parts
from penstock.operators.windows.content import Content, Merging, together
from penstock.operators.windows.group_index import GroupIndex, Hashes
from penstock.operators.windows.grouped_rows import GroupedRows
from penstock.operators.windows.sampling import GroupSample, TuplesByArrival
from penstock.plan.times import BEFORE_ALL

#: fewer rows are merged only when they are of more than so many arrivals
_LEAST_ROWS = 256
_MOST_ARRIVALS = 16
#: tables that are not stored are put together when there are so many
_LOOSE_TABLES = 32
#: a pane is stored in pieces of about so many bytes
_PIECE_BYTES = 4 << 20
#: a pane's pieces are written anew when they are so many more than twice those it needs
_LOOSE_PIECES = 32
#: tables below this size are stored in one piece
_SMALL_BYTES = 64 << 10
_REVISIONS = count()


@dataclass(frozen=True, slots=True)
class PaneChange:
    """How the stored pieces of a pane change.

    Attributes:
        kept: the first ones, which stay.
        pieces: those that follow; neither: the pane is gone.
    """

    kept: int
    pieces: list[Content]


@dataclass(slots=True, eq=False)
class PaneTable:
    """Rows of a pane, of one arrival or of several that follow each other.

    Attributes:
        content: the rows.
        arrivals: rows of each arrival, ascending.
        nbytes: size of the content.
        pieces: that it is stored in; 0: it is not stored.
    """

    content: Content
    arrivals: dict[int, int]
    nbytes: int
    pieces: int = 0
    #: by the name of the table and the columns that are searched
    _indexes: dict[tuple[str, tuple[str, ...]], GroupIndex] = field(default_factory=dict)

    def of_groups(self, hashes: Hashes, keys: Sequence[str]) -> Content:
        """The rows whose keys have one of some hashes, which ascend."""

        def chosen(name: str, table: pa.Table) -> pa.Table:
            place = name, tuple(keys)
            if place not in self._indexes:
                self._indexes[place] = GroupIndex(table, keys)
            return table.take(pa.array(self._indexes[place].find(hashes)))

        content = self.content
        values = {name: chosen(name, table) for name, table in content.values.items()}
        return Content(chosen("", content.partials), values)

    @classmethod
    def stored(cls, piece: Content) -> PaneTable:
        """The table of a stored piece."""
        return cls(piece, piece.arrivals, piece.nbytes, 1)

    @property
    def oldest(self) -> int:
        return next(iter(self.arrivals))

    @property
    def newest(self) -> int:
        return next(reversed(self.arrivals))


@dataclass(slots=True, eq=False)
class Pane:
    """The rows of a pane, in order of arrival.

    Attributes:
        newest: when the newest rows arrived.
        revision: another number whenever the rows change, and no other pane has it.
        is_ended: whether a window that holds the pane had come to its end when the newest rows arrived.
    """

    newest: int = BEFORE_ALL
    is_ended: bool = True
    revision: int = field(default_factory=lambda: next(_REVISIONS))
    _tables: list[PaneTable] = field(default_factory=list)
    #: rows of some of the groups, tuples by arrival and a row of each group, of the first tables; None: not asked for since those changed
    _sample: GroupSample | None = None
    _tuples: TuplesByArrival | None = None
    _grouped: GroupedRows | None = None
    _content: Content | None = None

    @classmethod
    def stored(cls, pieces: Sequence[Content]) -> Pane:
        """The pane that has these pieces."""
        return cls.of(map(PaneTable.stored, pieces))

    @classmethod
    def of(cls, tables: Iterable[PaneTable]) -> Pane:
        """The pane that is stored in these tables, a piece each."""
        own = list(tables)
        return cls(max(table.newest for table in own), _tables=own)

    @property
    def content(self) -> Content:
        """All rows, in one piece of memory where they are few."""
        if self._content is None:
            self._content = together(table.content for table in self._tables)
            if self._content.partials.num_rows <= _LEAST_ROWS:
                self._content = self._content.in_one()
        return self._content

    @property
    def nbytes(self) -> int:
        """Size in memory."""
        return sum(table.nbytes for table in self._tables)

    @property
    def rows(self) -> int:
        """How many rows there are, values aside."""
        return sum(table.content.partials.num_rows for table in self._tables)

    def of_groups(self, groups: pa.Table, keys: Sequence[str]) -> Content:
        """The rows of some groups, and seldom some of others; there are rows.

        Args:
            groups: their keys.
            keys: the grouping columns.
        """
        hashes = np.unique(key_hashes(groups, keys))
        return together(table.of_groups(hashes, keys) for table in self._tables)

    def sampled(self, keys: Sequence[str]) -> GroupSample:
        """The rows of some of the groups."""
        self._sample = self._sample or GroupSample(keys)
        if self._sample.tables < len(self._tables):
            more = together(table.content for table in self._tables[self._sample.tables :])
            self._sample.take_in(more.partials, more.values, len(self._tables))
        return self._sample

    def counted(self) -> TuplesByArrival:
        """The tuples by arrival."""
        self._tuples = self._tuples or TuplesByArrival()
        if self._tuples.tables < len(self._tables):
            more = together(table.content for table in self._tables[self._tuples.tables :])
            self._tuples.take_in(more.partials, len(self._tables))
        return self._tuples

    def grouped(self, parts: Parts, keys: Sequence[str]) -> Content:
        """One row of each group, without arrivals."""
        self._grouped = self._grouped or GroupedRows()
        tables = self._tables[self._grouped.tables :]
        if tables:
            more = together(table.content for table in tables)
            oldest, newest = tables[0].oldest, max(table.newest for table in tables)
            self._grouped.take_in(parts, keys, more, oldest, newest, len(self._tables))
        return self._grouped.content

    def grouped_by(self, arrival: int) -> Content | None:
        """What `grouped` gave when nothing later had arrived; None if it is not known."""
        if self._grouped is None:
            return None
        rest = self._tables[self._grouped.tables :]
        return None if rest and rest[0].oldest <= arrival else self._grouped.by(arrival)

    def forget_groups(self) -> None:
        """Frees what `grouped` remembers."""
        self._grouped = None

    @property
    def arrivals(self) -> dict[int, int]:
        """How many rows, values included, arrived when."""
        arrivals: dict[int, int] = {}
        for table in self._tables:
            for arrival, rows in table.arrivals.items():
                arrivals[arrival] = arrivals.get(arrival, 0) + rows
        return arrivals

    def append(self, content: Content, arrival: int) -> None:
        """Adds rows of one arrival, no earlier than those before."""
        rows = content.partials.num_rows + sum(table.num_rows for table in content.values.values())
        self._tables.append(PaneTable(content, {arrival: rows}, content.nbytes))
        self._content, self.revision = None, next(_REVISIONS)
        self.newest, self.is_ended = max(self.newest, arrival), True
        loose = self._first_loose
        if len(self._tables) > loose + _LOOSE_TABLES:
            self._join(loose, [_joined(self._tables[loose:])])

    def merge_arrivals(
        self,
        parts: Merging,
        keys: Sequence[str],
        apart: Sequence[int],
        merge: Callable[[Content], Content] | None = None,
    ) -> None:
        """Merges arrivals of a pane no window of which has come to its end.

        Args:
            parts: what is kept of each group.
            keys: the grouping columns.
            apart: arrivals, ascending; rows that arrived by one of them are kept apart from those that came later.
            merge: makes one row of the rows of each group; None: of rows with equal keys.
        """
        self.is_ended = False
        arrivals = self.arrivals
        for _, own in groupby(sorted(arrivals), lambda arrival: bisect_left(apart, arrival)):
            several = list(own)
            first = _first_merged([arrivals[each] for each in several])
            if first is None:
                continue
            low, high = self._place(several[first]), self._place(several[-1] + 1)
            held = together(table.content for table in self._tables[low:high])
            merged = held.merged(parts, keys) if merge is None else merge(held)
            content = merged.arrived(several[-1], keys)
            self._replace(low, high, [PaneTable(content, content.arrivals, content.nbytes)])

    def change(self, parts: Merging, keys: Sequence[str]) -> PaneChange:
        """What to store since the last call."""
        loose = self._first_loose
        kept = sum(table.pieces for table in self._tables[:loose])
        tables = _by_size(self._tables[loose:])
        pieces = [table.content.pieces(_PIECE_BYTES) for table in tables]
        if kept + sum(map(len, pieces)) > _LOOSE_PIECES + 2 * (self.nbytes // _PIECE_BYTES):
            content = self.content
            if self.is_ended:
                # no arrivals of the pane are merged any more; tasks of one batch have brought rows of one group
                content = content.by_arrival(parts, keys)
            content = content.in_one()
            kept, tables = 0, [PaneTable(content, content.arrivals, content.nbytes)]
            pieces = [content.pieces(_PIECE_BYTES)]
            self._replace(0, None, tables)
        elif tables != self._tables[loose:]:
            self._join(loose, tables)
        for table, own in zip(tables, pieces, strict=True):
            table.pieces = len(own)
        return PaneChange(kept, [piece for own in pieces for piece in own])

    def take_pieces(self, kept: int) -> Sequence[PaneTable]:
        """Makes a table of each stored piece, as of a pane that is read, and gives those behind the first ones.

        Args:
            kept: how many these are; nothing has changed since `change`.
        """
        tables: list[PaneTable] = []
        for table in self._tables:
            several = table.content.pieces(_PIECE_BYTES) if table.pieces > 1 else ()
            tables += map(PaneTable.stored, several) if several else [table]
        self._replace(0, None, tables)
        return tables[kept:]

    def _join(self, low: int, tables: Sequence[PaneTable]) -> None:
        """The same rows from a table on, in fewer tables: what has taken in all of them knows the rows."""
        revision = self.revision
        knowing = [each for each in self._taken_in if each and each.tables == len(self._tables)]
        for each in knowing:
            each.tables = low
        self._replace(low, None, tables)
        for each in knowing:
            each.tables = len(self._tables)
        self.revision = revision

    def _replace(self, low: int, high: int | None, tables: Sequence[PaneTable]) -> None:
        self._tables[low:high] = tables
        self._content, self.revision = None, next(_REVISIONS)
        if self._sample is not None and self._sample.tables > low:
            self._sample = None
        if self._tuples is not None and self._tuples.tables > low:
            self._tuples = None
        if self._grouped is not None and self._grouped.tables > low:
            self._grouped = None

    @property
    def _taken_in(self) -> tuple[GroupSample | TuplesByArrival | GroupedRows | None, ...]:
        return self._sample, self._tuples, self._grouped

    @property
    def _first_loose(self) -> int:
        """The first table that is not stored."""
        return next((n for n, table in enumerate(self._tables) if not table.pieces), len(self._tables))

    def _place(self, arrival: int) -> int:
        """The first table with rows of an arrival or later ones; a table that has older ones too is split."""
        place = next(
            (n for n, table in enumerate(self._tables) if table.newest >= arrival), len(self._tables)
        )
        mixed = self._tables[place:]
        if all(table.oldest >= arrival for table in mixed):
            return place
        content = together(table.content for table in mixed)
        parts = content.until(arrival - 1), content.after(arrival - 1)
        self._replace(place, None, [PaneTable(part, part.arrivals, part.nbytes) for part in parts])
        return place + 1


def _first_merged(rows: Sequence[int]) -> int | None:
    """The first of the newest levels that become one; None where they stay as they are.

    >>> _first_merged([2000, 600, 300, 310]), _first_merged([1000, 600, 300]), _first_merged([100, 50, 60])
    (1, None, None)
    """
    found, newer = None, 0
    for number in range(len(rows) - 1, -1, -1):
        if rows[number] <= newer and (newer >= _LEAST_ROWS or len(rows) - number > _MOST_ARRIVALS):
            found = number
        newer += rows[number]
    return found


def _by_size(tables: Sequence[PaneTable]) -> list[PaneTable]:
    """Tables that are stored apart: one is put together with the newer ones where those are as large, or it is small."""
    found: list[PaneTable] = []
    rest = list(tables)
    while rest:
        first, size = len(rest) - 1, rest[-1].nbytes
        while first and rest[first - 1].nbytes <= max(size, _SMALL_BYTES):
            first -= 1
            size += rest[first].nbytes
        found.append(_joined(rest[first:]))
        del rest[first:]
    return found[::-1]


def _joined(tables: Sequence[PaneTable]) -> PaneTable:
    if len(tables) == 1:
        return tables[0]
    content = together(table.content for table in tables).in_one()
    return PaneTable(content, content.arrivals, content.nbytes)
