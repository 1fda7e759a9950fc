"""Tables of texts and of sets of numbers: what was seen before has a number.

Hash tables with linear probing, whole comparison and numbers in the order of entry: expected constant time an entry beside its
bytes (0.3 ns a byte hashed, as much compared).

Addresses are uint64; nothing is checked against the ends of buffers but what arguments say.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.kernels.compiled import compiled
from penstock.kernels.memory import load

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Signatures = npt.NDArray[np.uint32]
Hashes = npt.NDArray[np.uint64]

#: what is read from an address is of their types
_BYTE, _WORD = np.uint8(0), np.uint64(0)
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_SECOND = np.uint64(0xD6E8FEB86659FD93)


@compiled(nogil=True)
def hash_bytes(data: np.uint64, size: int) -> np.uint64:
    """A hash of the bytes at an address."""
    found = np.uint64(size) * _SECOND
    at = 0
    while at + 8 <= size:
        found = (found ^ load(data + np.uint64(at), _WORD)) * _MULTIPLIER
        found ^= found >> np.uint64(29)
        at += 8
    if at < size:
        rest = np.uint64(0)
        while at < size:
            rest = (rest << np.uint64(8)) | np.uint64(load(data + np.uint64(at), _BYTE))
            at += 1
        found = (found ^ rest) * _MULTIPLIER
    found = (found ^ (found >> np.uint64(32))) * _SECOND
    return found ^ (found >> np.uint64(29))


@compiled(nogil=True)
def _same_bytes(one: np.uint64, other: np.uint64, size: int) -> bool:
    at = 0
    while at + 8 <= size:
        if load(one + np.uint64(at), _WORD) != load(other + np.uint64(at), _WORD):
            return False
        at += 8
    while at < size:
        if load(one + np.uint64(at), _BYTE) != load(other + np.uint64(at), _BYTE):
            return False
        at += 1
    return True


@compiled(nogil=True)
def find_value(
    data: np.uint64, size: int, hashed: np.uint64, slots: Ints, hashes: Hashes, starts: Longs, pool: np.uint64
) -> tuple[int, int]:
    """The entry of a value, -1: none; and the slot at which the search ended."""
    mask = len(slots) - 1
    slot = int(np.int64(hashed)) & mask
    while slots[slot] >= 0:
        entry = int(slots[slot])
        if hashes[entry] == hashed:
            begin = starts[entry]
            if starts[entry + 1] - begin == size and _same_bytes(data, pool + np.uint64(begin), size):
                return entry, slot
        slot = (slot + 1) & mask
    return -1, slot


@compiled(nogil=True)
def look_up(
    data: np.uint64,
    begins: Longs,
    ends: Longs,
    from_value: int,
    longest: int,
    slots: Ints,
    hashes: Hashes,
    starts: Longs,
    pool: Bytes,
    signatures: Signatures,
    entries: int,
    old_slots: Ints,
    old_hashes: Hashes,
    old_starts: Longs,
    old_pool: Bytes,
    old_signatures: Signatures,
    pending: int,
    entry_of: Ints,
    fresh: Ints,
) -> tuple[int, int, int]:
    """Finds values among the known ones, and enters those that are new.

    Args:
        data: the address of the values' bytes; `begins`, `ends`: int64[values].
        from_value: the first value to look up.
        longest: longer values are not entered.
        slots: int32[a power of two], entries or -1; `hashes`: uint64[most entries]; `starts`: int64[most entries + 1] into
            `pool`; `signatures`: uint32[most entries]; `entries`: how many there are.
        old_slots: the same of an older table, which is only read; what is found there is entered with its signature.
        pending: the signature of what is entered anew.
        entry_of: int32[values], written; -1 of values that are too long.
        fresh: int32[values], written: the values that need a signature, each once.

    Returns:
        The value to go on from, as the table is full, or the number of values; how many are fresh; how many entries.
    """
    count = 0
    most = len(hashes)
    address, old_address = np.uint64(pool.ctypes.data), np.uint64(old_pool.ctypes.data)
    for value in range(from_value, len(begins)):
        place = data + np.uint64(begins[value])
        size = ends[value] - begins[value]
        if size > longest:
            entry_of[value] = -1
            fresh[count] = value
            count += 1
            continue
        hashed = hash_bytes(place, size)
        entry, slot = find_value(place, size, hashed, slots, hashes, starts, address)
        if entry < 0:
            used = starts[entries]
            if entries == most or used + size > len(pool):
                return value, count, entries
            entry = entries
            entries += 1
            slots[slot] = entry
            hashes[entry] = hashed
            for step in range(size):
                pool[used + step] = load(place + np.uint64(step), _BYTE)
            starts[entries] = used + size
            known, _ = find_value(place, size, hashed, old_slots, old_hashes, old_starts, old_address)
            if known >= 0:
                signatures[entry] = old_signatures[known]
            else:
                signatures[entry] = pending
                fresh[count] = value
                count += 1
        entry_of[value] = entry
    return len(begins), count, entries


@compiled(nogil=True)
def enter(slots: Ints, hashes: Hashes, entries: int) -> None:
    """Fills empty slots with entries that differ."""
    mask = len(slots) - 1
    for entry in range(entries):
        slot = np.int64(hashes[entry]) & mask
        while slots[slot] >= 0:
            slot = (slot + 1) & mask
        slots[slot] = entry


@compiled(nogil=True)
def number_sets(
    members: Ints,
    values: Ints,
    begin: int,
    slots: Ints,
    hashes: Hashes,
    starts: Longs,
    pool: Ints,
    sets: int,
    signatures: Signatures,
) -> tuple[int, int]:
    """Numbers the sets of patterns of some values; equal sets have one number.

    Args:
        members: int32[hits], patterns; those of a value are together; they are sorted in place, one may occur twice.
        values: int32[hits], whose they are.
        begin: the hit to begin with, the first of a value.
        slots: int32[a power of two], sets or -1; `hashes`: uint64[most sets]; `starts`: int64[most sets + 1] into `pool`:
            int32[].
        sets: how many are known.
        signatures: uint32[values], written where a value has hits: the set's number and 1.

    Returns:
        How many sets are known now; the hit to go on with, as the table is full, or the number of hits.
    """
    mask = len(slots) - 1
    while begin < len(members):
        end = begin + 1
        while end < len(members) and values[end] == values[begin]:
            end += 1
        ascending = begin + 1
        while ascending < end and members[ascending - 1] <= members[ascending]:
            ascending += 1
        if end - begin > 32 and ascending < end:
            members[begin:end].sort()
        elif ascending < end:
            for place in range(begin + 1, end):
                member = members[place]
                other = place
                while other > begin and members[other - 1] > member:
                    members[other] = members[other - 1]
                    other -= 1
                members[other] = member
        size = 0
        hashed = np.uint64(0)
        for place in range(begin, end):
            member = members[place]
            if size == 0 or members[begin + size - 1] != member:
                members[begin + size] = member
                size += 1
                hashed = (hashed ^ np.uint64(member + 1)) * _MULTIPLIER
                hashed ^= hashed >> np.uint64(31)
        slot = np.int64(hashed) & mask
        found = -1
        while slots[slot] >= 0 and found < 0:
            known = int(slots[slot])
            if hashes[known] == hashed and starts[known + 1] - starts[known] == size:
                found = known
                for step in range(size):
                    if pool[starts[known] + step] != members[begin + step]:
                        found = -1
                        break
            if found < 0:
                slot = (slot + 1) & mask
        if found < 0:
            if sets == len(hashes) or starts[sets] + size > len(pool):
                return sets, begin
            found = sets
            slots[slot] = found
            hashes[found] = hashed
            for step in range(size):
                pool[starts[found] + step] = members[begin + step]
            sets += 1
            starts[sets] = starts[found] + size
        signatures[values[begin]] = found + 1
        begin = end
    return sets, begin
