"""Partials of the tuples that satisfy the same conditions, spread over these conditions.

The tuples of a batch are aggregated once by the set of conditions that they satisfy; what is known of a condition is merged
from the sets that hold it. Source: Krishnamurthy, Wu, Franklin, "On-the-fly sharing for streamed aggregation", SIGMOD 2006
(shared data shards).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.compiled import filling
from penstock.kernels.spreading import (
    add_by_sets,
    list_set_pairs,
    number_set_cells,
    rows_by_query,
)
from penstock.operators.text.known_sets import KnownSets
from penstock.operators.windows.aggregates import (
    ROWS,
    SELECTION,
    VALUE,
    Parts,
    count_of,
    extreme_of,
    sum_of,
)
from penstock.operators.windows.content import Content, merged_windows
from penstock.operators.windows.grouping import added, group_codes
from penstock.operators.windows.required_slack import END

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]

#: the set of a row's conditions, in a table of partials that is not spread yet
SET = "set"
#: pairs of a row and a condition that are merged at a time, unless one group has more
_MOST_PAIRS = 1 << 20


def spread(parts: Parts, partials: pa.Table, sets: KnownSets, keys: Sequence[str]) -> pa.Table:
    """One row for each group and condition: SELECTION, keys, parts.

    Args:
        parts: what the partials hold.
        partials: SET, keys and parts.
        sets: of numbers of conditions.
        keys: columns that make a group.
    """
    found = [
        parts.merge_pairs(pairs.cells_of(partials, keys), partials, pairs)
        for pairs in _portions(partials, sets, keys)
    ]
    names = [SELECTION if name == SET else name for name in partials.column_names]
    return pa.concat_tables(found).select(names)


def spread_values(values: pa.Table, sets: KnownSets, keys: Sequence[str]) -> pa.Table:
    """The like for a table of values; see `aggregates.lift_values`."""
    groups = [*keys, VALUE]
    found = [
        pairs.cells_of(values, groups).append_column(ROWS, added(values.column(ROWS), pairs))
        for pairs in _portions(values, sets, groups)
    ]
    names = [SELECTION if name == SET else name for name in values.column_names]
    return pa.concat_tables(found).select(names)


class _SetPairs:
    """`Pairs` of rows and the conditions of their sets; a cell is a group and a condition.

    Args:
        order: the rows, those of a group together.
        groups: int64[all rows], the group of each.
        numbers: int32[all rows], the set of each.
        sets: the sets.
        count: of the groups.
        most: of the cells.
    """

    def __init__(
        self, order: Longs, groups: Longs, numbers: Ints, sets: KnownSets, count: int, most: int
    ) -> None:
        starts, pool, self._conditions = sets.table
        self._rows = order, groups, numbers, starts, pool
        self._selections, self._first_rows = np.empty(most, np.int32), np.empty(most, np.int64)
        self._bounds = np.zeros(count + 1, np.int64)
        self.count: int = number_set_cells(
            *self._rows, self._no_cells, self._selections, self._first_rows, self._bounds
        )

    def cells_of(self, table: pa.Table, keys: Sequence[str]) -> pa.Table:
        """SELECTION and keys of the cells."""
        own = table.select(list(keys)).take(pa.array(self._first_rows[: self.count]))
        return own.add_column(0, SELECTION, pa.array(self._selections[: self.count].copy()))

    def add(self, values: npt.NDArray[Any], sums: npt.NDArray[Any]) -> None:
        """Adds the value of each row to the sum of its cell, in order."""
        added = np.zeros(self._conditions, sums.dtype)
        add_by_sets(values, *self._rows, self._selections, self._bounds, added, sums)

    @property
    def _no_cells(self) -> Longs:
        return np.full(self._conditions, -1, np.int64)

    @cached_property
    def listed(self) -> tuple[Longs, Longs]:
        """int64[pairs] each, the rows and their cells."""
        order, _, numbers, starts, _ = self._rows
        pairs = int(np.diff(starts)[numbers[order]].sum())
        rows, cells = (np.empty(pairs, np.int64) for _ in range(2))
        list_set_pairs(*self._rows, self._no_cells, rows, cells)
        return rows, cells


def _portions(table: pa.Table, sets: KnownSets, keys: Sequence[str]) -> Iterator[_SetPairs]:
    """The pairs of some groups each."""
    numbers = table.column(SET).to_numpy()
    groups = group_codes(table, keys)
    order = np.argsort(groups, kind="stable")
    starts, _, conditions = sets.table
    so_far: Longs = np.cumsum(np.diff(starts)[numbers[order]])
    first_of_group = np.flatnonzero(np.append(True, np.diff(groups[order]) != 0)[: len(order)])
    ends = np.append(first_of_group[1:], len(order))
    first, group, done = 0, 0, 0
    while first < len(order) or not len(order):
        reached = int(np.searchsorted(so_far, done + _MOST_PAIRS, "right"))
        behind = max(group + 1, int(np.searchsorted(ends, reached, "right")))
        last = int(ends[behind - 1])
        pairs = int(so_far[last - 1]) - done if last else 0
        count = behind - group if last else 0
        yield _SetPairs(order[first:last], groups, numbers, sets, count, min(pairs, count * conditions))
        if not len(order):
            return
        first, group, done = last, behind, int(so_far[last - 1])


@filling()
def warm_up() -> None:
    """Compiles or loads the kernels, before a process forks or is timed."""
    sets = KnownSets()
    signatures = np.zeros(1, np.uint32)
    sets.number(np.zeros(1, np.int32), np.zeros(1, np.int32), signatures)
    some: Any = {SET: np.ones(1, np.int32), "pane": [0], ROWS: [1], count_of("f"): [1], count_of("i"): [1]}
    some |= {
        sum_of("f"): [0.0],
        sum_of("i"): pa.array([0], pa.decimal128(38, 0)),
        extreme_of("min", "i"): [1],
    }
    parts, partials = Parts(("f", "i"), (), (("min", "i"),)), pa.table(some)
    spread(parts, partials, sets, ["pane"])
    parts.merge(partials, ["pane"])
    merged_windows(parts, {0: Content(partials.drop_columns([SET]), {})}, [(1, [0])], [END, "pane"])
    rows_by_query(np.zeros(1, np.int64), np.zeros(0, np.int32), 0)
