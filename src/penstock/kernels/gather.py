"""Columns of rows that lie in many parts, gathered where the parts lie.

A row is named by an *id*: slot << 32 | row, the slot being the number of its part among those at hand. What a column is
made of (values, offsets, bits) is given by the address of its first row in each slot.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.kernels.compiled import compiled
from penstock.kernels.memory import load, store

Ids = npt.NDArray[np.int64]
Addresses = npt.NDArray[np.uint64]

#: where the slot begins in an id
SLOT_SHIFT = 32
_ROW = np.int64((1 << SLOT_SHIFT) - 1)
_BYTE, _HALF, _WORD, _LONG = np.uint8(0), np.uint16(0), np.uint32(0), np.uint64(0)


@compiled(nogil=True)
def pick(ids: Ids, places: npt.NDArray[np.int32]) -> Ids:
    """The ids at some places."""
    found = np.empty(len(places), np.int64)
    for each in range(len(places)):
        found[each] = ids[places[each]]
    return found


@compiled(nogil=True)
def gather_values(addresses: Addresses, ids: Ids, out: npt.NDArray[Any]) -> None:
    """Writes the value of each row; values are as wide as those of `out`."""
    like = out.dtype.type(0)
    width = np.uint64(out.itemsize)
    for place in range(len(ids)):
        row = np.uint64(ids[place] & _ROW)
        out[place] = load(addresses[ids[place] >> SLOT_SHIFT] + row * width, like)


@compiled(nogil=True)
def gather_double_words(addresses: Addresses, ids: Ids, out: npt.NDArray[np.uint64]) -> None:
    """Writes the 16 bytes of each row, uint64[rows, 2]."""
    for place in range(len(ids)):
        address = addresses[ids[place] >> SLOT_SHIFT] + np.uint64(ids[place] & _ROW) * np.uint64(16)
        out[place, 0] = load(address, _LONG)
        out[place, 1] = load(address + np.uint64(8), _LONG)


@compiled(nogil=True)
def gather_bits(
    addresses: Addresses, shifts: npt.NDArray[np.int64], ids: Ids, out: npt.NDArray[np.bool_]
) -> int:
    """Writes the bit of each row.

    Args:
        addresses: of the slots' bits; 0 where all of them are set.
        shifts: int64[slots], the bit of a slot's first row.
        ids: the rows.
        out: bool[rows], written.

    Returns:
        The number of bits that are not set.
    """
    unset = 0
    for place in range(len(ids)):
        slot = ids[place] >> SLOT_SHIFT
        address = addresses[slot]
        if address == 0:
            out[place] = True
            continue
        bit = np.uint64((ids[place] & _ROW) + shifts[slot])
        is_set = (load(address + (bit >> np.uint64(3)), _BYTE) >> (bit & np.uint64(7))) & 1 != 0
        out[place] = is_set
        unset += not is_set
    return unset


@compiled(nogil=True)
def gather_ends(offsets: Addresses, width: int, ids: Ids, ends: npt.NDArray[np.int64]) -> None:
    """Where the text of each row ends if they lie behind each other from 0.

    Args:
        offsets: of the slots' offsets.
        width: bytes of an offset, 4 or 8.
        ids: the rows.
        ends: int64[rows], written.
    """
    end = np.int64(0)
    for place in range(len(ids)):
        begin, behind = _text(offsets[ids[place] >> SLOT_SHIFT], width, ids[place] & _ROW)
        end += behind - begin
        ends[place] = end


@compiled(nogil=True)
def gather_texts(
    offsets: Addresses, width: int, data: Addresses, ids: Ids, out: npt.NDArray[np.uint8]
) -> None:
    """Writes the texts of the rows behind each other.

    Args:
        offsets: of the slots' offsets.
        width: bytes of an offset, 4 or 8.
        data: of the slots' bytes.
        ids: the rows.
        out: uint8[all their bytes], written.
    """
    target = np.uint64(out.ctypes.data)
    for place in range(len(ids)):
        slot = ids[place] >> SLOT_SHIFT
        begin, behind = _text(offsets[slot], width, ids[place] & _ROW)
        length = np.uint64(behind - begin)
        _copy(data[slot] + np.uint64(begin), target, length)
        target += length


@compiled(nogil=True)
def same_texts(
    offsets: Addresses,
    data: Addresses,
    ids: Ids,
    other_offsets: Addresses,
    other_data: Addresses,
    other_ids: Ids,
    width: int,
    same: npt.NDArray[np.bool_],
) -> None:
    """Whether the texts of rows of two inputs are equal, bool[rows], written; offsets of both have `width` bytes."""
    for place in range(len(ids)):
        slot, other = ids[place] >> SLOT_SHIFT, other_ids[place] >> SLOT_SHIFT
        begin, behind = _text(offsets[slot], width, ids[place] & _ROW)
        other_begin, other_behind = _text(other_offsets[other], width, other_ids[place] & _ROW)
        length = behind - begin
        same[place] = length == other_behind - other_begin and _equal(
            data[slot] + np.uint64(begin), other_data[other] + np.uint64(other_begin), np.uint64(length)
        )


@compiled(nogil=True)
def _text(offsets: np.uint64, width: int, row: np.int64) -> tuple[np.int64, np.int64]:
    """Where the text of a row begins and ends among the bytes of its part."""
    address = offsets + np.uint64(row * width)
    if width == 4:
        return np.int64(load(address, _WORD)), np.int64(load(address + np.uint64(4), _WORD))
    return np.int64(load(address, _LONG)), np.int64(load(address + np.uint64(8), _LONG))


@compiled(nogil=True)
def _copy(source: np.uint64, target: np.uint64, length: np.uint64) -> None:
    """Copies bytes in words, the last of which overlaps the one before."""
    eight, four, two = np.uint64(8), np.uint64(4), np.uint64(2)
    if length >= eight:
        last = length - eight
        done = np.uint64(0)
        while done < last:
            store(target + done, load(source + done, _LONG))
            done += eight
        store(target + last, load(source + last, _LONG))
    elif length >= four:
        store(target, load(source, _WORD))
        store(target + length - four, load(source + length - four, _WORD))
    elif length >= two:
        store(target, load(source, _HALF))
        store(target + length - two, load(source + length - two, _HALF))
    elif length == np.uint64(1):
        store(target, load(source, _BYTE))


@compiled(nogil=True)
def _equal(one: np.uint64, other: np.uint64, length: np.uint64) -> Any:
    """Whether as many bytes are equal, compared in words, the last of which overlaps the one before."""
    eight, four, two = np.uint64(8), np.uint64(4), np.uint64(2)
    if length >= eight:
        last = length - eight
        done = np.uint64(0)
        while done < last:
            if load(one + done, _LONG) != load(other + done, _LONG):
                return False
            done += eight
        return load(one + last, _LONG) == load(other + last, _LONG)
    if length >= four:
        behind = length - four
        return (load(one, _WORD) == load(other, _WORD)) & (
            load(one + behind, _WORD) == load(other + behind, _WORD)
        )
    if length >= two:
        behind = length - two
        return (load(one, _HALF) == load(other, _HALF)) & (
            load(one + behind, _HALF) == load(other + behind, _HALF)
        )
    return length == np.uint64(0) or load(one, _BYTE) == load(other, _BYTE)
