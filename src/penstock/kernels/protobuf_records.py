"""Protobuf's binary encoding, many messages of one type at a time: wanted fields to columns, all else skipped.

A type is a table of wanted fields (`operators/wire/protobuf_programs.py`). No byte beyond a record's end is read, whatever the bytes say.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.kernels.compiled import compiled

#: how a wanted field is encoded
VARINT, ZIGZAG, FIXED32, FIXED64, BYTES, MESSAGE = range(6)
#: what is wrong with a record
FINE, ENDS_EARLY, NO_NUMBER, NO_FIELD, TOO_DEEP = range(5)
#: most levels of wanted messages in one another
LEVELS = 64
_VARINT, _I64, _LEN, _GROUP, _GROUP_END, _I32 = range(6)


@compiled(nogil=True)
def read_protobuf(
    data: npt.NDArray[np.uint8],
    begins: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
    firsts: npt.NDArray[np.int32],
    fields: npt.NDArray[np.int32],
    clears: npt.NDArray[np.int32],
    values: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int32],
    has_value: npt.NDArray[np.bool_],
    faults: npt.NDArray[np.int8],
) -> None:
    """Reads records; linear in their bytes, constant space.

    Args:
        data: uint8[bytes].
        begins, ends: int64[records], where each is.
        firsts: int32[messages + 1], where the wanted fields of each message begin; the record itself is message 0.
        fields: int32[wanted fields, 6]: number, encoding, slot, message, and where its part of `clears` begins and ends.
        clears: int32, slots that lose their values where a field of the same oneof comes.
        values, lengths, has_value: as of `read_avro`; of a message only whether it is there.
        faults: int8[records], written: FINE or what is wrong.
    """
    outer_ends = np.empty(LEVELS, np.int64)
    outer_messages = np.empty(LEVELS, np.int32)
    for row in range(len(begins)):
        place, end = begins[row], ends[row]
        message = level = groups = 0
        next_field = firsts[0]
        fault = FINE
        while True:
            if place >= end:
                if groups:
                    fault = ENDS_EARLY
                    break
                if level == 0:
                    break
                level -= 1
                end = outer_ends[level]
                message = outer_messages[level]
                next_field = firsts[message]
                continue
            # most numbers have one byte
            if data[place] < 128:
                tag = np.uint64(data[place])
                place += 1
            else:
                tag, place = _varint(data, place, end)
                if place < 0:
                    fault = ENDS_EARLY if place == -1 else NO_NUMBER
                    break
            number, wire = np.int64(tag >> np.uint64(3)), np.int64(tag & np.uint64(7))
            if number < 1 or number > 536_870_911:
                fault = NO_FIELD
                break
            found = -1
            if groups == 0:
                # fields come in the order of their numbers, mostly
                first, last = firsts[message], firsts[message + 1]
                for step in range(last - first):
                    each = next_field + step
                    if each >= last:
                        each -= last - first
                    if fields[each, 0] == number:
                        found = each
                        next_field = each
                        break
            encoding = fields[found, 1] if found >= 0 else -1
            slot = fields[found, 2] if found >= 0 else -1
            if found >= 0 and fields[found, 4] < fields[found, 5] and _is_encoded(encoding, int(wire)):
                for at in range(fields[found, 4], fields[found, 5]):
                    values[clears[at], row] = 0
                    lengths[clears[at], row] = 0
                    has_value[clears[at], row] = False
            if wire == _VARINT:
                if place < end and data[place] < 128:
                    value = np.uint64(data[place])
                    place += 1
                else:
                    value, place = _varint(data, place, end)
                if place < 0:
                    fault = ENDS_EARLY if place == -1 else NO_NUMBER
                    break
                if encoding == VARINT:
                    values[slot, row] = np.int64(value)
                    has_value[slot, row] = True
                elif encoding == ZIGZAG:
                    values[slot, row] = np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1))
                    has_value[slot, row] = True
            elif wire in (_I64, _I32):
                size = 8 if wire == _I64 else 4
                if size > end - place:
                    fault = ENDS_EARLY
                    break
                if (encoding == FIXED64 and wire == _I64) or (encoding == FIXED32 and wire == _I32):
                    bits = np.uint64(0)
                    for at in range(size):
                        bits |= np.uint64(data[place + at]) << np.uint64(8 * at)
                    values[slot, row] = np.int64(bits)
                    has_value[slot, row] = True
                place += size
            elif wire == _LEN:
                if place < end and data[place] < 128:
                    length = np.uint64(data[place])
                    place += 1
                else:
                    length, place = _varint(data, place, end)
                if place < 0 or length > np.uint64(end - place):
                    fault = NO_NUMBER if place == -2 else ENDS_EARLY
                    break
                if encoding == BYTES:
                    values[slot, row] = place
                    lengths[slot, row] = np.int32(length)
                    has_value[slot, row] = True
                elif encoding == MESSAGE:
                    if level == LEVELS:
                        fault = TOO_DEEP
                        break
                    has_value[slot, row] = True
                    outer_ends[level] = end
                    outer_messages[level] = message
                    level += 1
                    message = fields[found, 3]
                    next_field = firsts[message]
                    end = place + np.int64(length)
                    continue
                place += np.int64(length)
            elif wire == _GROUP:
                groups += 1
            elif wire == _GROUP_END and groups:
                groups -= 1
            else:
                fault = NO_FIELD
                break
        faults[row] = fault


@compiled(nogil=True)
def _is_encoded(encoding: int, wire: int) -> bool:
    """Whether a field is as its type has it; another one counts as unknown."""
    if wire == _VARINT:
        return encoding in (VARINT, ZIGZAG)
    if wire == _LEN:
        return encoding in (BYTES, MESSAGE)
    return (wire == _I64 and encoding == FIXED64) or (wire == _I32 and encoding == FIXED32)


@compiled(nogil=True)
def _varint(data: npt.NDArray[np.uint8], place: int, end: int) -> tuple[np.uint64, int]:
    """A number and the place behind it; -1 where the bytes end before, -2 where it has more than ten bytes."""
    number = np.uint64(0)
    shift = np.uint64(0)
    while place < end:
        byte = np.uint64(data[place])
        place += 1
        number |= (byte & np.uint64(127)) << shift
        if byte < np.uint64(128):
            return number, place
        shift += np.uint64(7)
        if shift >= np.uint64(70):
            return number, -2
    return number, -1
