"""The batch index: terms checked against slices of a batch sorted by one of their attributes.

A batch holds tens of thousands of tuples at once. Sorting it by a p-attribute's region codes turns
every predicate on that attribute into a slice of the sorted order; only the slice's tuples are
candidates, and they are checked in sequence, 64 at a time, against the term's other predicates, whose
codes have been gathered into that order.

Algorithm card. Ordering: counting sort by code, stable. Needs: codes below 2^16 or 2^32, at most 65,536
rows a call. Time: rows + codes a sorted attribute, rows a gathered column, slice / 64 vector steps a
predicate. Space: two columns' worth a gathered attribute, 16-60 bytes an entry.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from penstock.kernels.lanes import LANES, lane_mask, lowest_bit

#: rows of one call: row numbers fit 16 bits, a column of 16-bit codes fits half an L2 cache
CHUNK_ROWS = 1 << 16
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_ONE = np.uint64(1)


class Entries(NamedTuple):
    """Terms as the index runs them: an access range, two vector checks, the rest exactly.

    Attributes:
        query: int32, the query answered.
        low, high: uint32, closed code range of the access attribute.
        column_a, column_b: int16, attributes of the vector checks.
        low_a, width_a, low_b, width_b: unsigned codes; a check holds where code - low <= width.
        rest_start, rest_end: int64, the entry's exact checks on what is left, within `rest`.
        rest: int64, predicate numbers.
    """

    query: npt.NDArray[np.int32]
    low: npt.NDArray[np.uint32]
    high: npt.NDArray[np.uint32]
    column_a: npt.NDArray[np.int16]
    low_a: npt.NDArray[np.unsignedinteger]
    width_a: npt.NDArray[np.unsignedinteger]
    column_b: npt.NDArray[np.int16]
    low_b: npt.NDArray[np.unsignedinteger]
    width_b: npt.NDArray[np.unsignedinteger]
    rest_start: npt.NDArray[np.int64]
    rest_end: npt.NDArray[np.int64]
    rest: npt.NDArray[np.int64]


class Predicates(NamedTuple):
    """Predicates as unions of closed code ranges (see `CodedSelections`)."""

    attribute: npt.NDArray[np.int16]
    start: npt.NDArray[np.int64]
    low: npt.NDArray[np.uint32]
    high: npt.NDArray[np.uint32]


@numba.njit(cache=False, boundscheck=False, nogil=True)
def count_codes(codes: npt.NDArray[np.unsignedinteger], counts: npt.NDArray[np.int64]) -> None:
    """Adds to counts[c] how often code c occurs."""
    for row in range(len(codes)):
        counts[codes[row]] += 1


@numba.njit(cache=False, boundscheck=False, nogil=True)
def sort_by_code(
    codes: npt.NDArray[np.unsignedinteger], starts: npt.NDArray[np.int32], order: npt.NDArray[np.uint16]
) -> None:
    """Counting sort of at most 65,536 rows by their codes.

    Args:
        codes: unsigned[rows].
        starts: int32[codes + 2], written: the rows of code c are order[starts[c]:starts[c + 1]].
        order: uint16[>= rows], written.
    """
    starts[:] = 0
    for row in range(len(codes)):
        starts[np.int64(codes[row]) + 2] += 1
    for code in range(2, len(starts)):
        starts[code] += starts[code - 1]
    for row in range(len(codes)):
        position = starts[np.int64(codes[row]) + 1]
        order[position] = row
        starts[np.int64(codes[row]) + 1] = position + 1


@numba.njit(cache=False, boundscheck=False, nogil=True)
def gather(
    codes: npt.NDArray[np.unsignedinteger],
    order: npt.NDArray[np.uint16],
    rows: int,
    out: npt.NDArray[np.unsignedinteger],
) -> None:
    """Writes codes[order[i]] to out[i] for the first `rows` positions."""
    for position in range(rows):
        out[position] = codes[order[position]]


@numba.njit(cache=False, boundscheck=False, nogil=True)
def in_ranges(
    code: int, low: npt.NDArray[np.uint32], high: npt.NDArray[np.uint32], first: int, last: int
) -> bool:
    """Whether a code lies in one of the ascending ranges first .. last - 1."""
    while first < last:
        middle = (first + last) >> 1
        if high[middle] < code:
            first = middle + 1
        elif low[middle] > code:
            last = middle
        else:
            return True
    return False


@numba.njit(cache=False, boundscheck=False, nogil=True)
def _rest_holds(
    entries: Entries,
    entry: int,
    row: int,
    codes: npt.NDArray[np.unsignedinteger],
    predicates: Predicates,
) -> bool:
    for position in range(entries.rest_start[entry], entries.rest_end[entry]):
        predicate = entries.rest[position]
        code = codes[predicates.attribute[predicate], row]
        first, last = predicates.start[predicate], predicates.start[predicate + 1]
        if not in_ranges(code, predicates.low, predicates.high, first, last):
            return False
    return True


@numba.njit(cache=False, boundscheck=False, nogil=True)
def match_slices(
    entries: Entries,
    first: int,
    last: int,
    starts: npt.NDArray[np.int32],
    order: npt.NDArray[np.uint16],
    columns: npt.NDArray[np.unsignedinteger],
    codes: npt.NDArray[np.unsignedinteger],
    predicates: Predicates,
    pairs: npt.NDArray[np.uint64],
    count: int,
) -> tuple[npt.NDArray[np.uint64], int]:
    """Runs entries first .. last - 1, each over its slice of a sorted batch.

    Args:
        entries: the terms.
        first: first entry.
        last: entry after the last one.
        starts: where each code's rows begin in `order`.
        order: row at each sorted position.
        columns: unsigned[n, rows + 64 or more], codes in sorted order.
        codes: unsigned[n, rows or more], codes in the batch's order.
        predicates: for the exact checks.
        pairs: uint64, matches so far as row << 32 | query; grows as needed.
        count: how many.

    Returns:
        The pairs, in a new array where they had outgrown it, and their number.
    """
    for entry in range(first, last):
        begin = np.int64(starts[entries.low[entry]])
        end = np.int64(starts[np.int64(entries.high[entry]) + 1])
        if begin >= end:
            continue
        query = np.uint64(entries.query[entry])
        column_a = columns[entries.column_a[entry]]
        column_b = columns[entries.column_b[entry]]
        low_a, width_a = entries.low_a[entry], entries.width_a[entry]
        low_b, width_b = entries.low_b[entry], entries.width_b[entry]
        exact = entries.rest_start[entry] < entries.rest_end[entry]
        for block in range(begin & ~(LANES - 1), end, LANES):
            mask = lane_mask(column_a, block, low_a, width_a) & lane_mask(column_b, block, low_b, width_b)
            if mask == 0:
                continue
            if block < begin:
                mask &= _ALL << np.uint64(begin - block)
            if block + LANES > end:
                mask &= _ALL >> np.uint64(block + LANES - end)
            if count + LANES > len(pairs):
                grown = np.empty(2 * len(pairs) + LANES, np.uint64)
                grown[:count] = pairs[:count]
                pairs = grown
            while mask != 0:
                row = np.int64(order[block + lowest_bit(mask)])
                mask &= mask - _ONE
                if not exact or _rest_holds(entries, entry, row, codes, predicates):
                    pairs[count] = (np.uint64(row) << np.uint64(32)) | query
                    count += 1
    return pairs, count


@numba.njit(cache=False, boundscheck=False, nogil=True)
def match_probes(
    entries: Entries,
    bucket: npt.NDArray[np.int64],
    attribute: int,
    rows: int,
    codes: npt.NDArray[np.unsignedinteger],
    predicates: Predicates,
    pairs: npt.NDArray[np.uint64],
    count: int,
) -> tuple[npt.NDArray[np.uint64], int]:
    """Runs entries whose access is a single code, tuple by tuple: no sort, no gather.

    Args:
        entries: the terms.
        bucket: int64[codes + 1], the entries of code c are bucket[c] .. bucket[c + 1] - 1.
        attribute: the access attribute.
        rows: rows of the batch.
        codes: unsigned[n, rows or more].
        predicates: for the exact checks.
        pairs: uint64, matches so far as row << 32 | query; grows as needed.
        count: how many.

    Returns:
        The pairs, in a new array where they had outgrown it, and their number.
    """
    access = codes[attribute]
    for row in range(rows):
        code = np.int64(access[row])
        first, last = bucket[code], bucket[code + 1]
        if first == last:
            continue
        if count + (last - first) > len(pairs):
            grown = np.empty(2 * len(pairs) + (last - first), np.uint64)
            grown[:count] = pairs[:count]
            pairs = grown
        for entry in range(first, last):
            code_a = np.int64(codes[entries.column_a[entry], row]) - np.int64(entries.low_a[entry])
            if np.uint64(code_a) > entries.width_a[entry]:
                continue
            code_b = np.int64(codes[entries.column_b[entry], row]) - np.int64(entries.low_b[entry])
            if np.uint64(code_b) > entries.width_b[entry]:
                continue
            if _rest_holds(entries, entry, row, codes, predicates):
                pairs[count] = (np.uint64(row) << np.uint64(32)) | np.uint64(entries.query[entry])
                count += 1
    return pairs, count
