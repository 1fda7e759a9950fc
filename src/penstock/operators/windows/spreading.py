"""Partials of the tuples that satisfy the same conditions, spread over these conditions.

The tuples of a batch are aggregated once by the set of conditions that they satisfy; what is known of a condition is merged
from the sets that hold it. Source: Krishnamurthy, Wu, Franklin, "On-the-fly sharing for streamed aggregation", SIGMOD 2006
(shared data shards).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.compiled import filling
from penstock.kernels.spreading import number_cells, rows_by_query, spread_rows
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
from penstock.operators.windows.grouping import added, group_codes

Longs = npt.NDArray[np.int64]

#: the set of a row's conditions, in a table of partials that is not spread yet
SET = "set"
#: pairs of a row and a condition that are merged at a time, unless one group has more
_MOST_PAIRS = 1 << 18


def spread(parts: Parts, partials: pa.Table, sets: KnownSets, keys: Sequence[str]) -> pa.Table:
    """One row for each group and condition: SELECTION, keys, parts.

    Args:
        parts: what the partials hold.
        partials: SET, keys and parts.
        sets: of numbers of conditions.
        keys: columns that make a group.
    """
    found = [
        parts.merge_pairs(own, partials, rows, cells) for own, rows, cells, _ in _pairs(partials, sets, keys)
    ]
    names = [SELECTION if name == SET else name for name in partials.column_names]
    return pa.concat_tables(found).select(names)


def spread_values(values: pa.Table, sets: KnownSets, keys: Sequence[str]) -> pa.Table:
    """The like for a table of values; see `aggregates.lift_values`."""
    found = []
    for own, rows, cells, count in _pairs(values, sets, [*keys, VALUE]):
        found.append(own.append_column(ROWS, added(values.column(ROWS), rows, cells, count)))
    names = [SELECTION if name == SET else name for name in values.column_names]
    return pa.concat_tables(found).select(names)


def _pairs(
    table: pa.Table, sets: KnownSets, keys: Sequence[str]
) -> Iterator[tuple[pa.Table, Longs, Longs, int]]:
    """Of some groups each: SELECTION and keys of the cells, and of each pair of a row and a condition its row and its cell."""
    numbers = table.column(SET).to_numpy()
    groups = group_codes(table, keys)
    order = np.argsort(groups, kind="stable")
    starts, pool, conditions = sets.table
    sizes: Longs = np.diff(starts)
    so_far: Longs = np.cumsum(sizes[numbers[order]])
    first_of_group = np.flatnonzero(np.append(True, np.diff(groups[order]) != 0)[: len(order)])
    first, done, room = 0, 0, -1
    while first < len(order) or not len(order):
        reached = int(np.searchsorted(so_far, done + _MOST_PAIRS, "right"))
        ends = np.append(first_of_group[first_of_group > first], len(order))
        place = int(np.searchsorted(ends, reached, "right")) - 1
        last = int(ends[max(0, place)])
        pairs = int(so_far[last - 1]) - done if last else 0
        if pairs > room:
            # the same memory for all groups: fresh one costs more than what is written to it
            room = pairs
            rows, cells, first_rows = (np.empty(room, np.int64) for _ in range(3))
            selections = np.empty(room, np.int32)
        cell_of = np.full(conditions, -1, np.int64)
        _, count = spread_rows(
            order[first:last], groups, numbers, starts, pool, cell_of, rows, cells, selections, first_rows
        )
        own = table.select(list(keys)).take(pa.array(first_rows[:count]))
        yield (
            own.add_column(0, SELECTION, pa.array(selections[:count].copy())),
            rows[:pairs],
            cells[:pairs],
            count,
        )
        if not len(order):
            return
        first, done = last, int(so_far[last - 1])


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
    spread(Parts(("f", "i"), (), (("min", "i"),)), pa.table(some), sets, ["pane"])
    rows_by_query(np.zeros(1, np.int64), np.zeros(0, np.int32), 0)
    nothing = np.zeros(0, np.int64)
    number_cells(*[nothing] * 9)
