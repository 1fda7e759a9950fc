"""Running sums and extremes of segments: rows of one group that lie together, each segment by itself."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.kernels.compiled import compiled

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@compiled()
def sums_before(amounts: Floats, bounds: Ints) -> tuple[Floats, Floats]:
    """Sums of the earlier rows of a row's segment, and of the whole segment, both for each row.

    Args:
        amounts: float64[rows].
        bounds: int64[segments + 1], first row of each segment, and the end.
    """
    before, final = np.empty(len(amounts)), np.empty(len(amounts))
    for segment in range(len(bounds) - 1):
        total = 0.0
        for row in range(bounds[segment], bounds[segment + 1]):
            before[row] = total
            total += amounts[row]
        final[bounds[segment] : bounds[segment + 1]] = total
    return before, final


@compiled()
def extremes_before(numbers: Floats, bounds: Ints, least: bool) -> tuple[Floats, Floats]:
    """The like for the least or the largest number, NaN left out; infinity where there is none yet.

    Args:
        numbers: float64[rows].
        bounds: int64[segments + 1], first row of each segment, and the end.
        least: whether the least is wanted.
    """
    before, final = np.empty(len(numbers)), np.empty(len(numbers))
    for segment in range(len(bounds) - 1):
        found = np.inf if least else -np.inf
        for row in range(bounds[segment], bounds[segment + 1]):
            before[row] = found
            number = numbers[row]
            if (least and number < found) or (not least and number > found):
                found = number
        final[bounds[segment] : bounds[segment + 1]] = found
    return before, final


@compiled()
def percentiles_before(
    numbers: Floats, places: Ints, counts: Ints, bounds: Ints, fraction: float
) -> tuple[Floats, Floats]:
    """The like for an exact percentile, interpolated linearly; NaN where there is none yet, or a NaN among the numbers.

    The numbers seen are counted in a Fenwick tree over the segment's numbers in order: a row costs O(log rows).
    Source: Fenwick, A new data structure for cumulative frequency tables, 1994.

    Args:
        numbers: float64[rows], those of each segment ascending, NaN last.
        places: int64[rows], where each row's number is among them.
        counts: int64[rows], how often each row's number occurs in it.
        bounds: int64[segments + 1], first row of each segment, and the end.
        fraction: in [0, 1].
    """
    before, final = np.empty(len(numbers)), np.empty(len(numbers))
    tree = np.zeros(len(numbers) + 1, np.int64)
    for segment in range(len(bounds) - 1):
        first, end = bounds[segment], bounds[segment + 1]
        size = end - first
        tree[: size + 1] = 0
        total = 0
        undefined = False
        for row in range(first, end):
            before[row] = (
                np.nan if undefined else _percentile(tree[: size + 1], numbers[first:end], total, fraction)
            )
            place = places[row] - first
            undefined = undefined or np.isnan(numbers[first + place])
            total += counts[row]
            node = place + 1
            while node <= size:
                tree[node] += counts[row]
                node += node & -node
        final[first:end] = (
            np.nan if undefined else _percentile(tree[: size + 1], numbers[first:end], total, fraction)
        )
    return before, final


@compiled()
def _percentile(tree: Ints, numbers: Floats, total: int, fraction: float) -> float:
    if total == 0:
        return np.nan
    position = (total - 1) * fraction
    rank = int(np.floor(position))
    share = position - rank
    low: float = numbers[_place_of(tree, rank)]
    if share == 0:
        return low
    high: float = numbers[_place_of(tree, rank + 1)]
    if low == high:
        return low
    # so rounded as numpy's quantile
    return low + (high - low) * share if share < 0.5 else high - (high - low) * (1 - share)


@compiled()
def _place_of(tree: Ints, rank: int) -> int:
    """Where the number lies that `rank` counted ones come before."""
    step = 1
    while 2 * step < len(tree):
        step *= 2
    place = 0
    while step:
        if place + step < len(tree) and tree[place + step] <= rank:
            place += step
            rank -= tree[place]
        step //= 2
    return place
