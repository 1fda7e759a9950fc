"""Avro's binary encoding, many records of one schema at a time: wanted fields to columns, all else skipped.

A schema is a program (`operators/wire/avro_programs.py`); this is its interpreter. It reads no byte beyond a record's end, whatever the bytes say.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.kernels.compiled import compiled

#: instructions: rows (instruction, slot, a, b) of int32
(
    END,
    NOTHING,
    BOOLEAN,
    LONG,
    FLOAT,
    DOUBLE,
    BYTES,
    FIXED,
    ENUM,
    UNION,
    JUMP,
    BLOCKS,
    NEXT,
    CALL,
    RETURN,
) = range(15)
#: what is wrong with a record
FINE, ENDS_EARLY, IS_LONGER, NO_BRANCH, NO_LENGTH, NO_NUMBER, TOO_DEEP, NO_SYMBOL, NO_BOOLEAN = range(9)
#: most levels of lists and of records within themselves
LEVELS = 64


@compiled(nogil=True)
def read_avro(
    data: npt.NDArray[np.uint8],
    begins: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
    code: npt.NDArray[np.int32],
    branches: npt.NDArray[np.int32],
    values: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int32],
    has_value: npt.NDArray[np.bool_],
    faults: npt.NDArray[np.int8],
) -> None:
    """Reads records; linear in their bytes, constant space.

    Args:
        data: uint8[bytes].
        begins, ends: int64[records], where each is.
        code: int32[instructions, 4].
        branches: int32[branches of all unions], the instruction of each.
        values: int64[slots, records], written: numbers, bits of reals, or where bytes begin.
        lengths: int32[slots, records], written: of bytes.
        has_value: bool[slots, records], written: false at first.
        faults: int8[records], written: FINE or what is wrong.
    """
    left = np.empty(LEVELS, np.int64)
    bodies = np.empty(LEVELS, np.int32)
    callers = np.empty(LEVELS, np.int32)
    for row in range(len(begins)):
        place, end = begins[row], ends[row]
        step = lists = calls = 0
        fault = FINE
        while True:
            kind, slot = code[step, 0], code[step, 1]
            if kind == END:
                fault = FINE if place == end else IS_LONGER
                break
            if kind in (LONG, BYTES, UNION, ENUM, BLOCKS):
                # most numbers have one byte
                number = np.uint64(0)
                shift = np.uint64(0)
                is_ended = place < end and data[place] < 128
                if is_ended:
                    number = np.uint64(data[place])
                    place += 1
                while not is_ended and place < end and shift < np.uint64(70):
                    byte = np.uint64(data[place])
                    place += 1
                    number |= (byte & np.uint64(127)) << shift
                    shift += np.uint64(7)
                    is_ended = byte < np.uint64(128)
                if not is_ended:
                    fault = ENDS_EARLY if place >= end else NO_NUMBER
                    break
                whole = np.int64(number >> np.uint64(1)) ^ -np.int64(number & np.uint64(1))
                if kind == LONG:
                    if slot >= 0:
                        values[slot, row] = whole
                        has_value[slot, row] = True
                elif kind == BYTES:
                    if whole < 0:
                        fault = NO_LENGTH
                        break
                    if whole > end - place:
                        fault = ENDS_EARLY
                        break
                    if slot >= 0:
                        values[slot, row] = place
                        lengths[slot, row] = np.int32(whole)
                        has_value[slot, row] = True
                    place += whole
                elif kind == UNION:
                    if whole < 0 or whole >= code[step, 2]:
                        fault = NO_BRANCH
                        break
                    step = branches[code[step, 3] + whole]
                    continue
                elif kind == ENUM:
                    if whole < 0 or whole >= code[step, 2]:
                        fault = NO_SYMBOL
                        break
                    if slot >= 0:
                        values[slot, row] = whole
                        has_value[slot, row] = True
                elif whole == 0:
                    step = code[step, 2]
                    continue
                elif whole < 0:
                    # the block's size in bytes follows
                    number = np.uint64(0)
                    shift = np.uint64(0)
                    is_ended = False
                    while place < end and shift < np.uint64(70):
                        byte = np.uint64(data[place])
                        place += 1
                        number |= (byte & np.uint64(127)) << shift
                        shift += np.uint64(7)
                        if byte < np.uint64(128):
                            is_ended = True
                            break
                    size = np.int64(number >> np.uint64(1)) ^ -np.int64(number & np.uint64(1))
                    if not is_ended or size < 0 or size > end - place:
                        fault = NO_LENGTH if is_ended and size < 0 else ENDS_EARLY
                        break
                    place += size
                    continue
                else:
                    # elements without a byte each would be as many as the bytes say
                    if lists == LEVELS or (whole > end - place and code[step, 3]):
                        fault = TOO_DEEP if lists == LEVELS else ENDS_EARLY
                        break
                    if not code[step, 3]:
                        continue
                    left[lists] = whole
                    bodies[lists] = step
                    lists += 1
            elif kind in (DOUBLE, FLOAT, FIXED):
                width = 8 if kind == DOUBLE else 4 if kind == FLOAT else code[step, 2]
                if width > end - place:
                    fault = ENDS_EARLY
                    break
                if slot >= 0:
                    if kind == FIXED:
                        values[slot, row] = place
                        lengths[slot, row] = np.int32(width)
                    else:
                        bits = np.uint64(0)
                        for at in range(width):
                            bits |= np.uint64(data[place + at]) << np.uint64(8 * at)
                        values[slot, row] = np.int64(bits)
                    has_value[slot, row] = True
                place += width
            elif kind == BOOLEAN:
                if place >= end:
                    fault = ENDS_EARLY
                    break
                if data[place] > 1:
                    fault = NO_BOOLEAN
                    break
                if slot >= 0:
                    values[slot, row] = data[place]
                    has_value[slot, row] = True
                place += 1
            elif kind == JUMP:
                step = code[step, 2]
                continue
            elif kind == NEXT:
                left[lists - 1] -= 1
                if left[lists - 1] > 0:
                    step = bodies[lists - 1] + 1
                else:
                    lists -= 1
                    step = bodies[lists]
                continue
            elif kind == CALL:
                if calls == LEVELS:
                    fault = TOO_DEEP
                    break
                callers[calls] = step
                calls += 1
                step = code[step, 2]
                continue
            elif kind == RETURN:
                calls -= 1
                step = callers[calls]
            step += 1
        faults[row] = fault
