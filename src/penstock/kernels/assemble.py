"""From runs of matching rows to compressed sparse rows, by counting sorts alone."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.kernels.compiled import compiled
from penstock.kernels.index import Found

#: bits of a query number sorted by in one pass, at most: as many write positions as fit a cache
_DIGIT_BITS = 9


@compiled(nogil=True)
def _sort_by_digit(
    source: npt.NDArray[np.uint64], target: npt.NDArray[np.uint64], count: int, shift: int, bits: int
) -> None:
    starts = np.zeros((1 << bits) + 1, np.int64)
    mask = np.uint64((1 << bits) - 1)
    for item in range(count):
        starts[np.int64((source[item] >> np.uint64(shift)) & mask) + 1] += 1
    for digit in range(1 << bits):
        starts[digit + 1] += starts[digit]
    for item in range(count):
        own = np.int64((source[item] >> np.uint64(shift)) & mask)
        target[starts[own]] = source[item]
        starts[own] += 1


@compiled(nogil=True)
def assemble_rows(
    found: Found,
    spare: npt.NDArray[np.uint64],
    rows: int,
    query_bits: int,
    always: npt.NDArray[np.int32],
    repeats: bool,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """Puts matches into rows, queries ascending and each once.

    Only the runs are sorted, by query; handing them out in that order leaves every row ascending.

    Args:
        found: the matches; the runs are left in another order.
        spare: as long as `found.runs`, overwritten.
        rows: rows of the batch; at most 2**32 - 1 matches, `always` among them, are found in them.
        query_bits: bits of the highest query number.
        always: int32, ascending; queries that every row satisfies, in none of the runs.
        repeats: whether a row may hold a query more than once.

    Returns:
        offsets int64[rows + 1] and queries int32, as in `Matches`.
    """
    filled, count = found.used
    runs = found.runs
    passes = -(-query_bits // _DIGIT_BITS)
    for digit in range(passes):
        bits = -(-query_bits // passes)
        _sort_by_digit(runs, spare, count, 32 + digit * bits, bits)
        runs, spare = spare, runs
    # where the next query of each row goes: 32 bits, so that half as much cache is written to at random;
    # room for the row's share of `always` is left before it
    constant = len(always)
    places = np.zeros(rows + 2, np.uint32)
    places[1] = constant
    place = 0
    while place < filled:
        length = 1 + int(found.rows[place])
        for position in range(place + 1, place + 1 + length):
            places[np.int64(found.rows[position]) + 2] += 1
        place += 1 + length
    for row in range(2, rows + 2):
        places[row] += places[row - 1] + constant
    queries = np.empty(np.int64(places[rows + 1]) - constant, np.int32)
    for run in range(count):
        query = np.int32(runs[run] >> np.uint64(32))
        begin = int(runs[run] & np.uint64(0xFFFFFFFF))
        length = 1 + int(found.rows[begin])
        for position in range(begin + 1, begin + 1 + length):
            own = np.int64(found.rows[position]) + 1
            queries[places[own]] = query
            places[own] += 1
    offsets = places[: rows + 1].astype(np.int64)
    if constant > 0:
        for row in range(rows):
            _merge(queries, offsets[row], offsets[row + 1], always)
    kept = _drop_repeats(queries, offsets, rows) if repeats else len(queries)
    return offsets, queries[:kept]


@compiled(nogil=True)
def _merge(queries: npt.NDArray[np.int32], start: int, end: int, always: npt.NDArray[np.int32]) -> None:
    """Fills the room at the start of a row, queries[start:end], so that the row ascends."""
    place = start
    position = start + len(always)
    for query in always:
        while position < end and queries[position] < query:
            queries[place] = queries[position]
            place += 1
            position += 1
        queries[place] = query
        place += 1


@compiled(nogil=True)
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
