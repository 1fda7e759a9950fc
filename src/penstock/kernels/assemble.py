"""From matching (row, query) pairs to compressed sparse rows, by counting sorts alone."""

from __future__ import annotations

import numba
import numpy as np
import numpy.typing as npt

#: bits of a query number sorted by in one pass, at most: as many write positions as fit a cache
_DIGIT_BITS = 9


@numba.njit(cache=False, boundscheck=False, nogil=True)
def _sort_by_digit(
    source: npt.NDArray[np.uint64], target: npt.NDArray[np.uint64], count: int, shift: int, bits: int
) -> None:
    starts = np.zeros((1 << bits) + 1, np.int64)
    mask = np.uint64((1 << bits) - 1)
    for pair in range(count):
        starts[np.int64((source[pair] >> np.uint64(shift)) & mask) + 1] += 1
    for digit in range(1 << bits):
        starts[digit + 1] += starts[digit]
    for pair in range(count):
        own = np.int64((source[pair] >> np.uint64(shift)) & mask)
        target[starts[own]] = source[pair]
        starts[own] += 1


@numba.njit(cache=False, boundscheck=False, nogil=True)
def assemble_rows(
    pairs: npt.NDArray[np.uint64],
    spare: npt.NDArray[np.uint64],
    count: int,
    rows: int,
    query_bits: int,
    always: npt.NDArray[np.int32],
    repeats: bool,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """Sorts pairs into rows, queries ascending and each once.

    Args:
        pairs: row << 32 | query, in any order; left in another one.
        spare: as long, overwritten.
        count: how many.
        rows: rows of the batch.
        query_bits: bits of the highest query number.
        always: int32, ascending; queries that every row satisfies, in none of the pairs.
        repeats: whether a row may hold a query more than once.

    Returns:
        offsets int64[rows + 1] and queries int32, as in `Matches`.
    """
    passes = -(-query_bits // _DIGIT_BITS)
    for digit in range(passes):
        bits = -(-query_bits // passes)
        _sort_by_digit(pairs, spare, count, digit * bits, bits)
        pairs, spare = spare, pairs
    offsets = np.zeros(rows + 2, np.int64)
    for pair in range(count):
        offsets[np.int64(pairs[pair] >> np.uint64(32)) + 2] += 1
    for row in range(2, rows + 2):
        offsets[row] += offsets[row - 1] + len(always)
    queries = np.empty(offsets[rows + 1], np.int32)
    for pair in range(count):
        own = np.int64(pairs[pair] >> np.uint64(32)) + 1
        queries[offsets[own]] = np.int32(pairs[pair] & np.uint64(0xFFFFFFFF))
        offsets[own] += 1
    if len(always) > 0:
        for row in range(rows):
            first, end = offsets[row], offsets[row + 1]
            for query in always:
                place = end
                while place > first and queries[place - 1] > query:
                    queries[place] = queries[place - 1]
                    place -= 1
                queries[place] = query
                end += 1
            offsets[row + 1] = end
    kept = _drop_repeats(queries, offsets, rows) if repeats else len(queries)
    return offsets[: rows + 1], queries[:kept]


@numba.njit(cache=False, boundscheck=False, nogil=True)
def _drop_repeats(queries: npt.NDArray[np.int32], offsets: npt.NDArray[np.int64], rows: int) -> int:
    kept = 0
    start = 0
    for row in range(rows):
        end = offsets[row + 1]
        first = kept
        for position in range(start, end):
            if kept == first or queries[position] != queries[kept - 1]:
                queries[kept] = queries[position]
                kept += 1
        start = end
        offsets[row + 1] = kept
    return kept
