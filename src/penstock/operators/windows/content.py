"""Rows of panes and windows: partials of groups and the values kept of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.spreading import add_by_windows, list_window_pairs, number_window_cells
from penstock.operators.windows.aggregates import Longs, Parts, merge_values
from penstock.operators.windows.grouping import group_codes
from penstock.operators.windows.required_slack import ARRIVAL, END
from penstock.operators.windows.stored import packed, unpacked

_Share = TypeVar("_Share", int, tuple[int, int])


class Merging(Protocol):
    """What is kept of each group: `Parts`, or `RankedParts`."""

    def merge(self, partials: pa.Table, keys: Sequence[str]) -> pa.Table:
        """The partials of each group, from any number of partials of it."""


@dataclass(frozen=True, slots=True, eq=False)
class Content:
    """Rows by (keys, arrival) of one or several panes.

    Attributes:
        partials: keys, arrival and the columns of the parts.
        values: keys, arrival, value and rows, by argument; arguments that were never there may be missing.
    """

    partials: pa.Table
    values: Mapping[str, pa.Table]

    def until(self, arrival: int) -> Content:
        """What had arrived by then."""
        return Content(
            _until(self.partials, arrival),
            {name: _until(table, arrival) for name, table in self.values.items()},
        )

    def after(self, arrival: int) -> Content:
        """What has arrived since."""
        return Content(
            _after(self.partials, arrival),
            {name: _after(table, arrival) for name, table in self.values.items()},
        )

    def since(self, arrival: int) -> pa.Table:
        """The partials that have arrived since."""
        return _after(self.partials, arrival)

    def merged(self, parts: Merging, keys: Sequence[str]) -> Content:
        """A row for each group, without arrivals."""
        return Content(
            parts.merge(self.partials, keys),
            {name: merge_values(table, keys) for name, table in self.values.items()},
        )

    def by_arrival(self, parts: Merging, keys: Sequence[str]) -> Content:
        """A row for each (keys, arrival)."""
        return self.merged(parts, [*keys, ARRIVAL])

    def arrived(self, arrival: int, keys: Sequence[str]) -> Content:
        """The rows of a content without arrivals, as if they had arrived then."""

        def stamped(table: pa.Table) -> pa.Table:
            stamps = pa.array(np.full(table.num_rows, arrival))
            return table.add_column(len(keys), ARRIVAL, stamps)

        return Content(stamped(self.partials), {name: stamped(each) for name, each in self.values.items()})

    def without_arrivals(self) -> Content:
        """The rows, of which nothing asks when they arrived."""
        tables = {name: table.drop_columns([ARRIVAL]) for name, table in self.values.items()}
        return Content(self.partials.drop_columns([ARRIVAL]), tables)

    def in_one(self) -> Content:
        """The rows, each column in one piece of memory."""
        tables = {name: table.combine_chunks() for name, table in self.values.items()}
        return Content(self.partials.combine_chunks(), tables)

    @property
    def nbytes(self) -> int:
        """Size in memory."""
        return int(self.partials.nbytes + sum(table.nbytes for table in self.values.values()))

    @property
    def arrivals(self) -> dict[int, int]:
        """The number of rows, values included, of each arrival, ascending."""
        every = [self.partials, *self.values.values()]
        stamps = np.concatenate([table.column(ARRIVAL).to_numpy() for table in every])
        # rows of one arrival mostly lie together
        heads = np.flatnonzero(np.append(True, stamps[1:] != stamps[:-1])[: len(stamps)])
        found, runs = np.unique(stamps[heads], return_inverse=True)
        rows = np.zeros(len(found), np.int64)
        np.add.at(rows, runs, np.diff(heads, append=len(stamps)))
        return dict(zip(found.tolist(), rows.tolist(), strict=True))

    @classmethod
    def loaded(cls, stored: bytes) -> Content:
        """What `stored` gave."""
        tables = unpacked(stored).tables
        return cls(tables.pop(""), tables)

    def stored(self) -> bytes:
        """The rows in bytes."""
        return packed({"": self.partials, **self.values})

    def pieces(self, size: int) -> list[Content]:
        """The rows in parts of about `size` bytes."""
        number = min(max(1, -(-self.nbytes // size)), self.partials.num_rows or 1)

        def piece(table: pa.Table, which: int) -> pa.Table:
            first, last = (table.num_rows * place // number for place in (which, which + 1))
            return table.slice(first, last - first)

        return [
            Content(
                piece(self.partials, which),
                {name: piece(table, which) for name, table in self.values.items()},
            )
            for which in range(number)
        ]


def together(contents: Iterable[Content]) -> Content:
    """The rows of all, at least one."""
    every = list(contents)
    if len(every) == 1:
        return every[0]
    names = dict.fromkeys(name for each in every for name in each.values)
    return Content(
        pa.concat_tables([each.partials for each in every]),
        {name: pa.concat_tables([e.values[name] for e in every if name in e.values]) for name in names},
    )


def merged_windows(
    parts: Parts,
    contents: Mapping[_Share, Content],
    windows: Sequence[tuple[int, Sequence[_Share]]],
    keys: Sequence[str],
    bounds: Mapping[_Share, Longs] | None = None,
) -> Content:
    """The rows of some windows, merged by `keys`, END among them; those of a window together.

    Args:
        parts: what is kept of each group.
        contents: rows of panes, each once.
        windows: the end of each, ascending, and the contents it holds, in order.
        keys: see above.
        bounds: int64[portions + 1] for each content, where its portions begin, with the end: of each window the first portions
            are merged first. None: of one portion each.
    """
    offsets = np.cumsum([0, *(content.partials.num_rows for content in contents.values())])
    held = {
        share: offset + (np.array([0, content.partials.num_rows]) if bounds is None else bounds[share])
        for (share, content), offset in zip(contents.items(), offsets, strict=False)
    }
    ranges = [np.stack([held[share] for share in own]).T for _, own in windows]
    first, last = (
        np.concatenate([each[side].ravel() for each in ranges]) for side in (np.s_[:-1], np.s_[1:])
    )
    window = np.repeat(np.arange(len(windows)), [each[1:].size for each in ranges])
    partials = pa.concat_tables([content.partials for content in contents.values()]).combine_chunks()
    others = [name for name in keys if name != END]
    pairs = _WindowPairs(group_codes(partials, others), first, last, window)
    ends = pa.array(np.array([end for end, _ in windows])[pairs.windows])
    taken = partials.select(others).take(pa.array(pairs.first_rows))
    own = pa.table({END: ends, **dict(zip(others, taken.columns, strict=True))}).select(list(keys))
    names = dict.fromkeys(name for content in contents.values() for name in content.values)
    return Content(
        parts.merge_pairs(own, partials, pairs),
        {name: merge_values(_values(name, contents, windows), keys) for name in names},
    )


class _WindowPairs:
    """`Pairs` of rows and windows; a cell is a window and a group.

    Args:
        codes: int64[all rows], the group of each.
        first, last, windows: int64[ranges]: rows first, ..., last - 1 belong to the window; those of a window together.

    Attributes:
        first_rows, windows: int64[cells], one row and the window of each cell.
    """

    def __init__(self, codes: Longs, first: Longs, last: Longs, windows: Longs) -> None:
        self._ranges = codes, first, last, windows
        self._pairs = int((last - first).sum())
        self._groups = int(codes.max(initial=-1)) + 1
        most = min(self._pairs, self._groups * (int(windows.max(initial=-1)) + 1))
        first_rows, cell_windows = (np.empty(most, np.int64) for _ in range(2))
        self.count: int = number_window_cells(*self._ranges, self._no_cells, first_rows, cell_windows)
        self.first_rows, self.windows = first_rows[: self.count], cell_windows[: self.count]

    def add(self, values: npt.NDArray[Any], sums: npt.NDArray[Any]) -> None:
        """Adds the value of each row to the sum of its cell, in order."""
        add_by_windows(values, *self._ranges, self._no_cells, sums)

    @property
    def _no_cells(self) -> Longs:
        return np.full(self._groups, -1, np.int64)

    @cached_property
    def listed(self) -> tuple[Longs, Longs]:
        """int64[pairs] each, the rows and their cells."""
        rows, cells = (np.empty(self._pairs, np.int64) for _ in range(2))
        list_window_pairs(*self._ranges, self._no_cells, rows, cells)
        return rows, cells


def _values(
    name: str, contents: Mapping[_Share, Content], windows: Sequence[tuple[int, Sequence[_Share]]]
) -> pa.Table:
    """The values of an argument in some windows, with END."""
    held = [
        [each.values[name] for share in own if name in (each := contents[share]).values] for _, own in windows
    ]
    ends = np.repeat([end for end, _ in windows], [sum(table.num_rows for table in own) for own in held])
    return pa.concat_tables(chain.from_iterable(held)).append_column(END, pa.array(ends))


def _until(table: pa.Table, arrival: int) -> pa.Table:
    return table.filter(pa.array(table.column(ARRIVAL).to_numpy() <= arrival))


def _after(table: pa.Table, arrival: int) -> pa.Table:
    return table.filter(pa.array(table.column(ARRIVAL).to_numpy() > arrival))
