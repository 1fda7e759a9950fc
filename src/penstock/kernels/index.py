"""The batch index: terms checked against slices of a batch sorted by one of their attributes.

A batch holds tens of thousands of tuples at once. Sorting it by a p-attribute's region codes turns
every predicate on that attribute into a slice of the sorted order; only the slice's tuples are
candidates, and they are checked in sequence, 64 at a time, against the term's other predicates, whose
values have been gathered into that order. The 64 are compared as *bins*, one byte each: at most 256
runs of neighbouring codes, of about equal frequency. What they leave in doubt, the bins at the ends of a
predicate's range, is checked on the codes.

Algorithm card. Ordering: counting sort by code, stable. Needs: at most 65,536 rows a call. Time: rows +
codes a sorted attribute, rows a gathered column, slice / 64 vector steps a predicate. Space: three bytes
a row and attribute, some 60 bytes an entry.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.kernels.compiled import compiled
from penstock.kernels.lanes import LANES, lane_mask, lowest_bit

#: rows of one call: row numbers fit 16 bits, a column of 16-bit codes fits half an L2 cache
CHUNK_ROWS = 1 << 16
#: the highest bin; a check of so many bins after its first one always holds
LAST_BIN = 255
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_ONE = np.uint64(1)


#: An entry: a term as the index runs it, by an access range, three vector checks and the rest one by one.
#: 64 bytes, a cache line: entries are read in sequence, as one stream and not as one a field.
#:
#: query: the query answered. low, high: closed code range of the access attribute. column_a, ...: attributes
#: of the vector checks. low_a, width_a, ...: a check holds where code - low <= width. bin_a, bins_a, ...: the
#: same over bins, holds wherever the codes' check does. core_a, cores_a, ...: the same over the bins all of
#: whose codes pass. cored: 1 where every check has such bins. rest_start, rest_end: further checks in `rest`.
ENTRY = np.dtype(
    [("query", np.int32), ("low", np.uint32), ("high", np.uint32)]
    + [(f"{part}_{check}", np.uint32) for check in "abc" for part in ("low", "width")]
    + [(f"column_{check}", np.int16) for check in "abc"]
    + [(f"{part}_{check}", np.uint8) for check in "abc" for part in ("bin", "bins", "core", "cores")]
    + [("cored", np.uint8), ("rest_start", np.uint32), ("rest_end", np.uint32)],
    align=True,
)


class Entries(NamedTuple):
    """Entries and their further checks.

    Attributes:
        table: ENTRY.
        rest: int64, predicate numbers.
    """

    table: npt.NDArray[np.void]
    rest: npt.NDArray[np.int64]


class Found(NamedTuple):
    """Matches as runs: the rows that one entry found, in any order.

    Attributes:
        rows: uint16, run after run: one less than its length, then its rows.
        runs: uint64, query << 32 | where the run begins in `rows`.
        used: int64[2], how much of `rows` and of `runs` is filled.
    """

    rows: npt.NDArray[np.uint16]
    runs: npt.NDArray[np.uint64]
    used: npt.NDArray[np.int64]

    @classmethod
    def empty(cls) -> Found:
        """No matches."""
        return cls(np.empty(1 << 12, np.uint16), np.empty(1 << 10, np.uint64), np.zeros(2, np.int64))


class Predicates(NamedTuple):
    """Predicates as unions of closed code ranges (see `CodedSelections`)."""

    attribute: npt.NDArray[np.int16]
    start: npt.NDArray[np.int64]
    low: npt.NDArray[np.uint32]
    high: npt.NDArray[np.uint32]


@compiled(nogil=True)
def count_codes(codes: npt.NDArray[np.unsignedinteger], counts: npt.NDArray[np.int64]) -> None:
    """Adds to counts[c] how often code c occurs."""
    for row in range(len(codes)):
        counts[codes[row]] += 1


@compiled(nogil=True)
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


@compiled(nogil=True)
def gather(
    values: npt.NDArray[np.uint8],
    positions: npt.NDArray[np.unsignedinteger],
    rows: int,
    out: npt.NDArray[np.uint8],
) -> None:
    """Writes values[positions[i]] to out[i] for the first `rows` positions."""
    for row in range(rows):
        out[row] = values[positions[row]]


@compiled(nogil=True)
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


@compiled(nogil=True)
def _rest_holds(
    entries: Entries,
    entry: int,
    row: int,
    codes: npt.NDArray[np.unsignedinteger],
    predicates: Predicates,
) -> bool:
    own = entries.table[entry]
    for position in range(own["rest_start"], own["rest_end"]):
        predicate = entries.rest[position]
        code = codes[predicates.attribute[predicate], row]
        first, last = predicates.start[predicate], predicates.start[predicate + 1]
        if not in_ranges(code, predicates.low, predicates.high, first, last):
            return False
    return True


@compiled(nogil=True)
def _grown(values: npt.NDArray[Any], used: int, room: int) -> npt.NDArray[Any]:
    """The first `used` values in a new array with room for more."""
    grown = np.empty(2 * (used + room), values.dtype)
    grown[:used] = values[:used]
    return grown


@compiled(nogil=True)
def match_slices(
    entries: Entries,
    first: int,
    last: int,
    starts: npt.NDArray[np.int32],
    order: npt.NDArray[np.uint16],
    columns: npt.NDArray[np.uint8],
    codes: npt.NDArray[np.unsignedinteger],
    predicates: Predicates,
    found: Found,
    most: int,
) -> Found:
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
        found: matches so far, added to.
        most: stops where `found.rows` holds more than this, which says that the answer is not whole.

    Returns:
        `found`, in new arrays where it had outgrown them.
    """
    rows, runs = found.rows, found.runs
    filled, ended = found.used
    stride = columns.shape[1]
    bins = columns.reshape(-1)
    masks = np.empty(CHUNK_ROWS // LANES + 1, np.uint64)
    blocks = np.empty(CHUNK_ROWS // LANES + 1, np.int64)
    doubtful = np.empty(CHUNK_ROWS, np.uint16)
    for entry in range(first, last):
        if filled > most:
            break
        own = entries.table[entry]
        begin = np.int64(starts[own["low"]])
        end = np.int64(starts[np.int64(own["high"]) + 1])
        a, b, c = np.int64(own["column_a"]), np.int64(own["column_b"]), np.int64(own["column_c"])
        bin_a, bins_a = own["bin_a"], own["bins_a"]
        bin_b, bins_b = own["bin_b"], own["bins_b"]
        kept = 0
        for block in range(begin & ~(LANES - 1), end, LANES):
            mask = lane_mask(bins, a * stride + block, bin_a, bins_a)
            mask &= lane_mask(bins, b * stride + block, bin_b, bins_b)
            masks[kept] = mask
            blocks[kept] = block
            kept += mask != 0
        if kept == 0:
            continue
        if filled + 1 + kept * LANES > len(rows):
            rows = _grown(rows, filled, 1 + kept * LANES)
        if ended == len(runs):
            runs = _grown(runs, ended, 1)
        head = filled + 1
        held = head
        doubts = 0
        bin_c, bins_c = own["bin_c"], own["bins_c"]
        third = own["cores_c"] < LAST_BIN
        for position in range(kept):
            block = blocks[position]
            mask = masks[position]
            if third:
                mask &= lane_mask(bins, c * stride + block, bin_c, bins_c)
            if block < begin:
                mask &= _ALL << np.uint64(begin - block)
            if block + LANES > end:
                mask &= _ALL >> np.uint64(block + LANES - end)
            sure = np.uint64(0)
            if own["cored"] != 0:
                sure = lane_mask(bins, a * stride + block, own["core_a"], own["cores_a"])
                sure &= lane_mask(bins, b * stride + block, own["core_b"], own["cores_b"])
                if third:
                    sure &= lane_mask(bins, c * stride + block, own["core_c"], own["cores_c"])
            while mask != 0:
                bit = lowest_bit(mask)
                mask &= mask - _ONE
                row = np.int64(order[block + bit])
                rows[held] = row
                doubtful[doubts] = row
                holds = np.int64((sure >> np.uint64(bit)) & _ONE)
                held += holds
                doubts += 1 - int(holds)
        low_a, width_a = own["low_a"], own["width_a"]
        low_b, width_b = own["low_b"], own["width_b"]
        low_c, width_c = own["low_c"], own["width_c"]
        for position in range(doubts):
            row = np.int64(doubtful[position])
            rows[held] = row
            held += int(
                (np.uint32(codes[a, row] - low_a) <= width_a)
                & (np.uint32(codes[b, row] - low_b) <= width_b)
                & (np.uint32(codes[c, row] - low_c) <= width_c)
            )
        if own["rest_start"] < own["rest_end"]:
            candidates, held = held, head
            for position in range(head, candidates):
                row = np.int64(rows[position])
                rows[held] = row
                held += int(_rest_holds(entries, entry, int(row), codes, predicates))
        if held > head:
            rows[filled] = held - head - 1
            runs[ended] = (np.uint64(own["query"]) << np.uint64(32)) | np.uint64(filled)
            filled = held
            ended += 1
    return Found(rows, runs, np.array([filled, ended], np.int64))


@compiled(nogil=True)
def match_probes(
    entries: Entries,
    bucket: npt.NDArray[np.int64],
    attribute: int,
    rows: int,
    codes: npt.NDArray[np.unsignedinteger],
    predicates: Predicates,
    hits: npt.NDArray[np.uint16],
    found: Found,
    most: int,
) -> Found:
    """Runs entries whose access is a single code, tuple by tuple: no sort, no gather.

    Args:
        entries: the terms.
        bucket: int64[codes + 1], the entries of code c are bucket[c] .. bucket[c + 1] - 1.
        attribute: the access attribute.
        rows: rows of the batch.
        codes: unsigned[n, rows or more].
        predicates: for the further checks.
        hits: uint16[rows or more], scratch.
        found: matches so far, added to.
        most: stops where `found.rows` holds more than this, which says that the answer is not whole.

    Returns:
        `found`, in new arrays where it had outgrown them.
    """
    found_rows, runs = found.rows, found.runs
    filled, ended = found.used
    access = codes[attribute]
    hit = 0
    for candidate in range(rows):
        hits[hit] = candidate
        hit += bucket[access[candidate]] != bucket[np.int64(access[candidate]) + 1]
    for position in range(hit):
        if filled > most:
            break
        row = np.int64(hits[position])
        code = np.int64(access[row])
        first, last = bucket[code], bucket[code + 1]
        if filled + 2 * (last - first) > len(found_rows):
            found_rows = _grown(found_rows, filled, 2 * (last - first))
        if ended + (last - first) > len(runs):
            runs = _grown(runs, ended, last - first)
        for entry in range(first, last):
            own = entries.table[entry]
            if np.uint32(codes[own["column_a"], row] - own["low_a"]) > own["width_a"]:
                continue
            if np.uint32(codes[own["column_b"], row] - own["low_b"]) > own["width_b"]:
                continue
            if np.uint32(codes[own["column_c"], row] - own["low_c"]) > own["width_c"]:
                continue
            if _rest_holds(entries, entry, int(row), codes, predicates):
                found_rows[filled] = 0
                found_rows[filled + 1] = row
                runs[ended] = (np.uint64(own["query"]) << np.uint64(32)) | np.uint64(filled)
                filled += 2
                ended += 1
    return Found(found_rows, runs, np.array([filled, ended], np.int64))
