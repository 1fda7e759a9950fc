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
