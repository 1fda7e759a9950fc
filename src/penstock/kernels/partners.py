"""Partners of tuples: searched for by key and event time, and listed in pieces.

A search finds *ranges*: of a tuple the place of its first possible partner and how many follow it. However many pairs
there are, ranges are no more than tuples and parts; pairs are made of them piece by piece.

Algorithm card. `search`: both sides ascending by (number, time); galloping (Bentley and Yao, "An almost optimal algorithm for
unbounded searching", 1976) from the place of the last number, then among the rows of the number. Time: log of the rows
that are passed over, a tuple; a merge where both sides are of one size, a search in the index that the order is where
one is small. Space: 16 bytes a range. `bucket_ranges`: a hash table whose buckets lie behind each other.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.kernels.compiled import compiled
from penstock.kernels.gather import SLOT_SHIFT, Addresses, Ids
from penstock.kernels.memory import load

Times = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int64]

_ROW = np.int64((1 << SLOT_SHIFT) - 1)
_OLDEST, _NEWEST = np.int64(-(2**63)), np.int64(2**63 - 1)
_ODD = np.uint64(0x9E3779B97F4A7C15)
_ENTRY = np.int32(0)


class Ranges(NamedTuple):
    """Possible partners of tuples.

    Attributes:
        tuples: int32, number of the tuple.
        begins: int64, the first partner: an id, or a place in a table.
        counts: int32, so many places from there on.
    """

    tuples: npt.NDArray[np.int32]
    begins: Ids
    counts: npt.NDArray[np.int32]


@compiled(nogil=True)
def narrow(times: Times, lower: int, upper: int, low: Times, high: Times) -> None:
    """Narrows the times of partners, int64[tuples] each, to [time + lower, time + upper]; nothing where that overflows."""
    for each in range(len(times)):
        time = times[each]
        if (lower > 0 and time > _NEWEST - lower) or (upper < 0 and time < _OLDEST - upper):
            low[each], high[each] = _NEWEST, _OLDEST
            continue
        first = _OLDEST if lower < 0 and time < _OLDEST - lower else time + lower
        last = _NEWEST if upper > 0 and time > _NEWEST - upper else time + upper
        low[each] = max(low[each], first)
        high[each] = min(high[each], last)


@compiled(nogil=True)
def search(
    numbers: Numbers,
    low: Times,
    high: Times,
    keys: npt.NDArray[Any],
    times: Times,
    base: int,
    ranges: Ranges,
    used: int,
) -> int:
    """Finds partners in one part.

    Args:
        numbers: int64[tuples], what is searched for, ascending.
        low, high: int64[tuples], the times of partners, both inclusive.
        keys, times: the rows of the part, ascending by both.
        base: what is added to a row to make its `begins`.
        ranges: has room for one more range a tuple.
        used: number of ranges so far.

    Returns:
        The number of ranges.
    """
    begin = first = 0
    number, oldest = np.int64(0), _NEWEST
    for each in range(len(numbers)):
        if each == 0 or numbers[each] != number:
            number = numbers[each]
            first = _first_of(keys, number, begin)
            if first == len(keys):
                break
            begin = first
        elif low[each] < oldest:
            begin = first
        if keys[first] != number:
            continue
        oldest = low[each]
        begin = _behind(keys, times, number, oldest, False, begin)
        end = _behind(keys, times, number, high[each], True, begin)
        if end > begin:
            ranges.tuples[used] = each
            ranges.begins[used] = base + begin
            ranges.counts[used] = end - begin
            used += 1
    return used


@compiled(nogil=True)
def _first_of(keys: npt.NDArray[Any], number: int, row: int) -> int:
    """The first row at or behind one whose key is not smaller."""
    step = 1
    end = row
    while end < len(keys) and keys[end] < number:
        row = end + 1
        end += step
        step += step
    end = min(end, len(keys))
    while row < end:
        middle = (row + end) >> 1
        if keys[middle] < number:
            row = middle + 1
        else:
            end = middle
    return row


@compiled(nogil=True)
def _behind(
    keys: npt.NDArray[Any], times: Times, number: np.int64, time: np.int64, inclusive: bool, row: int
) -> int:
    """The first row at or behind one that is not of a key and before a time (or at it)."""
    step = 1
    end = row
    while (
        end < len(keys) and keys[end] == number and (times[end] < time or (inclusive and times[end] == time))
    ):
        row = end + 1
        end += step
        step += step
    end = min(end, len(keys))
    while row < end:
        middle = (row + end) >> 1
        if keys[middle] == number and (times[middle] < time or (inclusive and times[middle] == time)):
            row = middle + 1
        else:
            end = middle
    return row


@compiled(nogil=True)
def list_rows(
    ranges: Ranges,
    used: int,
    cursor: npt.NDArray[np.int64],
    entries: Addresses,
    after: npt.NDArray[np.int64],
    until: npt.NDArray[np.int64],
    tuples: npt.NDArray[np.int32],
    ids: Ids,
) -> int:
    """Lists the pairs of ranges of rows until there is no room for more.

    Args:
        ranges: begins are ids.
        used: number of ranges.
        cursor: int64[3]: the range to go on with, the place in it, and pairs looked at so far; moved on.
        entries: of each slot where the entries of its rows lie, int32; 0 where all rows are meant.
        after, until: int64[slots], the entries that are meant: behind one and up to another.
        tuples: int32[room], written: the tuple of each pair.
        ids: int64[room], written: its partner.

    Returns:
        The number of pairs.
    """
    room = len(ids)
    filled = 0
    while cursor[0] < used and filled < room:
        each, place = cursor[0], cursor[1]
        begin, count = ranges.begins[each], np.int64(ranges.counts[each])
        slot = begin >> SLOT_SHIFT
        listed = min(count - place, room - filled)
        if entries[slot] == 0:
            for pair in range(listed):
                tuples[filled + pair] = ranges.tuples[each]
                ids[filled + pair] = begin + place + pair
            filled += listed
        else:
            for pair in range(listed):
                row = np.uint64((begin + place + pair) & _ROW)
                entry = np.int64(load(entries[slot] + row * np.uint64(4), _ENTRY))
                tuples[filled] = ranges.tuples[each]
                ids[filled] = begin + place + pair
                filled += (entry > after[slot]) & (entry <= until[slot])
        cursor[2] += listed
        cursor[1] += listed
        if cursor[1] == count:
            cursor[0] += 1
            cursor[1] = 0
    return filled


@compiled(nogil=True)
def step_back(
    ranges: Ranges,
    used: int,
    most: int,
    entries: Addresses,
    after: npt.NDArray[np.int64],
    until: npt.NDArray[np.int64],
    which: npt.NDArray[np.int32],
    ids: Ids,
) -> int:
    """Lists the last rows of each range, and shortens the ranges to the rows before them.

    Args:
        ranges: begins are ids.
        used: number of ranges.
        most: so many rows of each range, fewer where it has no more that are meant.
        entries, after, until: as for `list_rows`.
        which: int32[used * most], written: the range of each row.
        ids: int64[used * most], written: the row.

    Returns:
        The number of rows; those of a range are the later ones first.
    """
    filled = 0
    for each in range(used):
        begin, count = ranges.begins[each], np.int64(ranges.counts[each])
        slot = begin >> SLOT_SHIFT
        listed = 0
        while count > 0 and listed < most:
            count -= 1
            is_meant = True
            if entries[slot] != 0:
                row = np.uint64((begin + count) & _ROW)
                entry = np.int64(load(entries[slot] + row * np.uint64(4), _ENTRY))
                is_meant = (entry > after[slot]) & (entry <= until[slot])
            if is_meant:
                which[filled] = each
                ids[filled] = begin + count
                filled += 1
                listed += 1
        ranges.counts[each] = count
    return filled


class Table(NamedTuple):
    """Tuples of an input, copied so that they can be searched in another order than they lie.

    Attributes:
        ids: int64[rows], the rows.
        numbers: int64[rows], their keys' numbers.
        times: int64[rows], their event times.
        starts: int64[buckets + 1], where each bucket begins; buckets are a power of two.
    """

    ids: Ids
    numbers: Numbers
    times: Times
    starts: npt.NDArray[np.int64]


@compiled(nogil=True)
def bucketed(ids: Ids, numbers: Numbers, times: Times, bits: int) -> Table:
    """A hash table of 2^bits buckets."""
    shift = np.uint64(64 - bits)
    starts = np.zeros((1 << bits) + 2, np.int64)
    for row in range(len(ids)):
        starts[_bucket(numbers[row], shift) + 2] += 1
    for bucket in range(2, len(starts)):
        starts[bucket] += starts[bucket - 1]
    table = Table(np.empty_like(ids), np.empty_like(numbers), np.empty_like(times), starts[:-1])
    for row in range(len(ids)):
        own = _bucket(numbers[row], shift) + 1
        place = starts[own]
        starts[own] = place + 1
        table.ids[place] = ids[row]
        table.numbers[place] = numbers[row]
        table.times[place] = times[row]
    return table


@compiled(nogil=True)
def bucket_ranges(table: Table, numbers: Numbers, ranges: Ranges) -> int:
    """Finds the bucket of each tuple's number; the number of ranges, their begins are places in the table."""
    buckets = len(table.starts) - 1
    bits = 0
    while 1 << bits < buckets:
        bits += 1
    shift = np.uint64(64 - bits)
    used = 0
    for each in range(len(numbers)):
        bucket = _bucket(numbers[each], shift)
        count = table.starts[bucket + 1] - table.starts[bucket]
        ranges.tuples[used] = each
        ranges.begins[used] = table.starts[bucket]
        ranges.counts[used] = count
        used += count > 0
    return used


@compiled(nogil=True)
def _bucket(number: np.int64, shift: np.uint64) -> np.int64:
    """The bucket of a number, by multiplication (Knuth, volume 3, 6.4)."""
    return np.int64((np.uint64(number) * _ODD) >> shift)


@compiled(nogil=True)
def list_places(
    ranges: Ranges,
    used: int,
    cursor: npt.NDArray[np.int64],
    table: Table,
    numbers: Numbers,
    low: Times,
    high: Times,
    tuples: npt.NDArray[np.int32],
    ids: Ids,
) -> int:
    """Lists the pairs of ranges in a table that agree in number and are in time, until there is no room for more.

    Args:
        ranges: begins are places in the table.
        used: number of ranges.
        cursor: int64[3]: the range to go on with, the place in it, and pairs looked at so far; moved on.
        table: the tuples of the input.
        numbers, low, high: int64[tuples], what is searched for.
        tuples: int32[room], written: the tuple of each pair.
        ids: int64[room], written: its partner.

    Returns:
        The number of pairs.
    """
    room = len(ids)
    filled = 0
    while cursor[0] < used and filled < room:
        each, place = cursor[0], cursor[1]
        begin, count = ranges.begins[each], np.int64(ranges.counts[each])
        own = ranges.tuples[each]
        number, oldest, newest = numbers[own], low[own], high[own]
        looked = min(count - place, room - filled)
        for pair in range(begin + place, begin + place + looked):
            tuples[filled] = own
            ids[filled] = table.ids[pair]
            time = table.times[pair]
            filled += (table.numbers[pair] == number) & (time >= oldest) & (time <= newest)
        cursor[2] += looked
        cursor[1] += looked
        if cursor[1] == count:
            cursor[0] += 1
            cursor[1] = 0
    return filled
