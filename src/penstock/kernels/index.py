"""The batch index: terms checked against slices of a batch sorted by one of their attributes.

A batch holds tens of thousands of tuples at once. Sorting it by a p-attribute's region codes turns
every predicate on that attribute into a slice of the sorted order; only the slice's tuples are
candidates, and they are checked in sequence, 64 at a time, against the term's other predicates, whose
values have been gathered into that order. The 64 are compared as *bins*, one byte each: at most 256
runs of neighbouring codes, of about equal frequency. What the bins leave is checked on the codes.

Algorithm card. Ordering: counting sort by code, stable. Needs: at most 65,536 rows a call. Time: rows +
codes a sorted attribute, rows a gathered column, slice / 64 vector steps a predicate. Space: three bytes
a row and attribute, some 60 bytes an entry.
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
    """Terms as the index runs them: an access range, three vector checks, the rest one by one.

    Attributes:
        query: int32, the query answered.
        low, high: uint32, closed code range of the access attribute.
        column_a, column_b, column_c: int16, attributes of the vector checks.
        low_a, width_a, ...: uint32, a check holds where code - low <= width.
        bin_a, bins_a, ...: uint8, the same over bins, holds wherever the codes' check does.
        rest_start, rest_end: int64, the entry's further checks, within `rest`.
        rest: int64, predicate numbers.
    """

    query: npt.NDArray[np.int32]
    low: npt.NDArray[np.uint32]
    high: npt.NDArray[np.uint32]
    column_a: npt.NDArray[np.int16]
    low_a: npt.NDArray[np.uint32]
    width_a: npt.NDArray[np.uint32]
    bin_a: npt.NDArray[np.uint8]
    bins_a: npt.NDArray[np.uint8]
    column_b: npt.NDArray[np.int16]
    low_b: npt.NDArray[np.uint32]
    width_b: npt.NDArray[np.uint32]
    bin_b: npt.NDArray[np.uint8]
    bins_b: npt.NDArray[np.uint8]
    column_c: npt.NDArray[np.int16]
    low_c: npt.NDArray[np.uint32]
    width_c: npt.NDArray[np.uint32]
    bin_c: npt.NDArray[np.uint8]
    bins_c: npt.NDArray[np.uint8]
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
    values: npt.NDArray[np.uint8],
    positions: npt.NDArray[np.unsignedinteger],
    rows: int,
    out: npt.NDArray[np.uint8],
) -> None:
    """Writes values[positions[i]] to out[i] for the first `rows` positions."""
    for row in range(rows):
        out[row] = values[positions[row]]


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
def _grow(pairs: npt.NDArray[np.uint64], count: int, room: int) -> npt.NDArray[np.uint64]:
    grown = np.empty(2 * len(pairs) + room, np.uint64)
    for position in range(count):
        grown[position] = pairs[position]
    return grown


@numba.njit(cache=False, boundscheck=False, nogil=True)
def match_slices(
    entries: Entries,
    first: int,
    last: int,
    starts: npt.NDArray[np.int32],
    order: npt.NDArray[np.uint16],
    columns: npt.NDArray[np.uint8],
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
        columns: uint8[n, rows + 64 or more], bins in sorted order.
        codes: unsigned[n, rows or more], codes in the batch's order.
        predicates: for the further checks.
        pairs: uint64, matches so far as row << 32 | query; grows as needed.
        count: how many.

    Returns:
        The pairs, in a new array where they had outgrown it, and their number.
    """
    masks = np.empty(CHUNK_ROWS // LANES + 1, np.uint64)
    blocks = np.empty(CHUNK_ROWS // LANES + 1, np.int64)
    for entry in range(first, last):
        begin = np.int64(starts[entries.low[entry]])
        end = np.int64(starts[np.int64(entries.high[entry]) + 1])
        column_a = columns[entries.column_a[entry]]
        column_b = columns[entries.column_b[entry]]
        bin_a, bins_a = entries.bin_a[entry], entries.bins_a[entry]
        bin_b, bins_b = entries.bin_b[entry], entries.bins_b[entry]
        kept = 0
        for block in range(begin & ~(LANES - 1), end, LANES):
            mask = lane_mask(column_a, block, bin_a, bins_a) & lane_mask(column_b, block, bin_b, bins_b)
            masks[kept] = mask
            blocks[kept] = block
            kept += mask != 0
        query = np.uint64(entries.query[entry])
        column_c = columns[entries.column_c[entry]]
        bin_c, bins_c = entries.bin_c[entry], entries.bins_c[entry]
        codes_a, low_a, width_a = codes[entries.column_a[entry]], entries.low_a[entry], entries.width_a[entry]
        codes_b, low_b, width_b = codes[entries.column_b[entry]], entries.low_b[entry], entries.width_b[entry]
        codes_c, low_c, width_c = codes[entries.column_c[entry]], entries.low_c[entry], entries.width_c[entry]
        simple = entries.rest_start[entry] == entries.rest_end[entry]
        for position in range(kept):
            block = blocks[position]
            mask = masks[position]
            mask &= lane_mask(column_c, block, bin_c, bins_c)
            if block < begin:
                mask &= _ALL << np.uint64(begin - block)
            if block + LANES > end:
                mask &= _ALL >> np.uint64(block + LANES - end)
            if count + LANES > len(pairs):
                pairs = _grow(pairs, count, LANES)
            while mask != 0:
                row = np.int64(order[block + lowest_bit(mask)])
                mask &= mask - _ONE
                pairs[count] = (np.uint64(row) << np.uint64(32)) | query
                holds = (
                    (np.uint32(codes_a[row] - low_a) <= width_a)
                    & (np.uint32(codes_b[row] - low_b) <= width_b)
                    & (np.uint32(codes_c[row] - low_c) <= width_c)
                )
                if not simple:
                    holds &= _rest_holds(entries, entry, int(row), codes, predicates)
                count += int(holds)
    return pairs, count


@numba.njit(cache=False, boundscheck=False, nogil=True)
def match_probes(
    entries: Entries,
    bucket: npt.NDArray[np.int64],
    attribute: int,
    rows: int,
    codes: npt.NDArray[np.unsignedinteger],
    predicates: Predicates,
    hits: npt.NDArray[np.uint16],
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
        predicates: for the further checks.
        hits: uint16[rows or more], scratch.
        pairs: uint64, matches so far as row << 32 | query; grows as needed.
        count: how many.

    Returns:
        The pairs, in a new array where they had outgrown it, and their number.
    """
    access = codes[attribute]
    hit = 0
    for candidate in range(rows):
        hits[hit] = candidate
        hit += bucket[access[candidate]] != bucket[np.int64(access[candidate]) + 1]
    for position in range(hit):
        row = np.int64(hits[position])
        code = np.int64(access[row])
        first, last = bucket[code], bucket[code + 1]
        if count + (last - first) > len(pairs):
            pairs = _grow(pairs, count, int(last - first))
        for entry in range(first, last):
            if np.uint32(codes[entries.column_a[entry], row] - entries.low_a[entry]) > entries.width_a[entry]:
                continue
            if np.uint32(codes[entries.column_b[entry], row] - entries.low_b[entry]) > entries.width_b[entry]:
                continue
            if np.uint32(codes[entries.column_c[entry], row] - entries.low_c[entry]) > entries.width_c[entry]:
                continue
            if _rest_holds(entries, entry, int(row), codes, predicates):
                pairs[count] = (np.uint64(row) << np.uint64(32)) | np.uint64(entries.query[entry])
                count += 1
    return pairs, count
