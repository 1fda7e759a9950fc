"""Results of aggregates that keep the single values of their argument: percentiles, modes, collected values."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.plan.windows import Aggregate

Longs = npt.NDArray[np.int64]

#: aggregates of columns whose single values must be kept
KEEPING_VALUES = frozenset(
    {"count_distinct", "sum_distinct", "avg_distinct", "percentile", "mode", "collect_set", "collect_list"}
)


def places(values: pa.ChunkedArray) -> Longs:
    """int64[rows]: the place of each value among those that differ, in Spark's order, NaN last."""
    found: Longs = pc.rank(values, tiebreaker="dense").to_numpy().astype(np.int64)
    return found


def without_values(aggregate: Aggregate, groups: int) -> pa.Array:
    """The result of that many groups that have no value."""
    nothing: object = None
    if aggregate.function == "count_distinct":
        nothing = 0
    elif aggregate.function.startswith("collect"):
        nothing = []
    return pa.array([nothing] * groups, aggregate.type)


def from_values(
    aggregate: Aggregate, values: pa.ChunkedArray, rows: Longs, own: Longs, groups: int
) -> pa.Array:
    """The result of each group; of distinct counts, percentiles, modes and collected values.

    Args:
        aggregate: which one.
        values: of any type that has an order; those of one group differ.
        rows: int64[values], how often each occurs.
        own: int64[values], the group of each.
        groups: how many there are.
    """
    match aggregate.function:
        case "count_distinct":
            return pa.array(np.bincount(own, minlength=groups), aggregate.type)
        case "percentile":
            # beyond 2^53 whole numbers are rounded, as Spark does
            numbers = values.cast(pa.float64(), safe=False).to_numpy()
            order = np.lexsort((numbers, own))
            return _percentiles(own[order], numbers[order], rows[order], groups, aggregate.parameter or 0.0)
        case "mode":
            # the most frequent of a group first; of equally frequent ones the least
            order = np.lexsort((places(values), -rows, own))
            there, first = np.unique(own[order], return_index=True)
            chosen = np.full(groups, -1)
            chosen[there] = order[first]
            found = values.take(pa.array(chosen, mask=chosen < 0))
            return _combined(found.cast(aggregate.type))
        case _:
            order = np.lexsort((places(values), own))
            often = rows[order] if aggregate.function == "collect_list" else np.ones(len(order), np.int64)
            collected = _combined(values.take(pa.array(np.repeat(order, often))))
            ends = np.cumsum(np.bincount(own[order], often, groups).astype(np.int64))
            offsets = pa.array(np.append(0, ends).astype(np.int32))
            return pa.ListArray.from_arrays(
                offsets, collected.cast(aggregate.type.value_type), type=aggregate.type
            )


def _combined(values: pa.ChunkedArray) -> pa.Array:
    found = values.combine_chunks()
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def _percentiles(
    codes: Longs,
    numbers: npt.NDArray[np.float64],
    counts: Longs,
    groups: int,
    fraction: float,
) -> pa.Array:
    """Exact percentiles with linear interpolation, as Spark's `percentile`; codes and numbers ascend."""
    total = np.bincount(codes, counts, groups).astype(np.int64)
    own = np.flatnonzero(total)
    reached = np.cumsum(counts)
    before = np.append(0, np.cumsum(total))[own]
    position = (total[own] - 1) * fraction
    low, high = (
        numbers[np.searchsorted(reached, before + end(position).astype(np.int64), "right")]
        for end in (np.floor, np.ceil)
    )
    share = position - np.floor(position)
    with np.errstate(invalid="ignore"):
        between = low + share * (high - low)
    found = np.zeros(groups)
    found[own] = np.where((low == high) | (share == 0), low, between)
    return pa.array(found, mask=total == 0)
