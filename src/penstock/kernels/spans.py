"""Runs of consecutive numbers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


def spans(starts: Ints, lengths: Ints) -> Ints:
    """start, start + 1, ... for each (start, length), end to end.

    Args:
        starts, lengths: int64[n].
    """
    ends = np.cumsum(lengths)
    found: Ints = np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - lengths), lengths)
    return found
