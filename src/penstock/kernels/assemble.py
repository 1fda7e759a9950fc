"""From matching (row, query) pairs to compressed sparse rows."""

from __future__ import annotations

import numba
import numpy as np
import numpy.typing as npt

#: rows of more queries than this are sorted by numpy's sort, shorter ones by insertion
_SHORT = 24


@numba.njit(cache=False, boundscheck=False, nogil=True)
def _sort(queries: npt.NDArray[np.int32], start: int, end: int) -> None:
    if end - start > _SHORT:
        queries[start:end].sort()
        return
    for position in range(start + 1, end):
        query = queries[position]
        place = position
        while place > start and queries[place - 1] > query:
            queries[place] = queries[place - 1]
            place -= 1
        queries[place] = query


@numba.njit(cache=False, boundscheck=False, nogil=True)
def assemble_rows(
    pairs: npt.NDArray[np.uint64],
    count: int,
    rows: int,
    always: npt.NDArray[np.int32],
    repeats: bool,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """Sorts pairs into rows, queries ascending and each once.

    Args:
        pairs: row << 32 | query, in any order.
        count: how many.
        rows: rows of the batch.
        always: int32, queries that every row satisfies.
        repeats: whether a row may hold a query more than once.

    Returns:
        offsets int64[rows + 1] and queries int32, as in `Matches`.
    """
    offsets = np.zeros(rows + 2, np.int64)
    for pair in range(count):
        offsets[np.int64(pairs[pair] >> np.uint64(32)) + 2] += 1
    for row in range(2, rows + 2):
        offsets[row] += offsets[row - 1] + len(always)
    queries = np.empty(offsets[rows + 1], np.int32)
    if len(always) > 0:
        for row in range(rows):
            start = offsets[row + 1]
            queries[start : start + len(always)] = always
            offsets[row + 1] = start + len(always)
    for pair in range(count):
        row = np.int64(pairs[pair] >> np.uint64(32)) + 1
        queries[offsets[row]] = np.int32(pairs[pair] & np.uint64(0xFFFFFFFF))
        offsets[row] += 1
    for row in range(rows):
        if offsets[row + 1] - offsets[row] > len(always):
            _sort(queries, offsets[row], offsets[row + 1])
    if repeats:
        queries = _drop_repeats(queries, offsets, rows)
    return offsets[: rows + 1], queries


@numba.njit(cache=False, boundscheck=False, nogil=True)
def _drop_repeats(
    queries: npt.NDArray[np.int32], offsets: npt.NDArray[np.int64], rows: int
) -> npt.NDArray[np.int32]:
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
    return queries[:kept].copy()
