"""Columns in Avro's binary encoding, a column at a time: each row has a place in the output, which moves on behind what is written."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.kernels.compiled import compiled

#: what is written of a row's value: nothing where what is around it is NULL, the branch of NULL, or the other branch and the value
NOTHING, NULL, VALUE = range(3)
#: the branches of ["null", type] as Avro writes them
_NULL_BRANCH, _VALUE_BRANCH = 0, 2

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]


@compiled(nogil=True)
def _zigzag(number: int) -> np.uint64:
    return np.uint64((number << 1) ^ (number >> 63))


@compiled(nogil=True)
def _length(number: int) -> int:
    rest, size = _zigzag(number), 1
    while rest >= np.uint64(128):
        rest >>= np.uint64(7)
        size += 1
    return size


@compiled(nogil=True)
def _put_number(out: Bytes, place: int, number: int) -> int:
    """Writes a number of variable length; returns the place behind it."""
    rest = _zigzag(number)
    while rest >= np.uint64(128):
        out[place] = np.uint8((rest & np.uint64(127)) | np.uint64(128))
        rest >>= np.uint64(7)
        place += 1
    out[place] = np.uint8(rest)
    return place + 1


@compiled(nogil=True)
def add_lengths(values: Ints, offsets: Ints, states: Bytes, sizes: Ints) -> None:
    """Adds what each row's value takes, its branch included; linear in rows.

    Args:
        values: int64[rows], numbers; of bytes empty.
        offsets: int64[rows + 1], where bytes begin; of numbers empty.
        states: uint8[rows], NOTHING, NULL or VALUE.
        sizes: int64[rows], added to.
    """
    for row in range(len(states)):
        if states[row] == NOTHING:
            continue
        size = 1
        if states[row] == VALUE:
            if len(offsets):
                many = offsets[row + 1] - offsets[row]
                size += _length(many) + many
            else:
                size += _length(values[row])
        sizes[row] += size


@compiled(nogil=True)
def put_numbers(values: Ints, states: Bytes, out: Bytes, places: Ints) -> None:
    """Writes numbers of variable length; linear in rows.

    Args:
        values: int64[rows].
        states: uint8[rows], as above.
        out: uint8[bytes], written.
        places: int64[rows], where each row's next byte goes; moved on.
    """
    for row in range(len(states)):
        if states[row] == VALUE:
            out[places[row]] = _VALUE_BRANCH
            places[row] = _put_number(out, places[row] + 1, values[row])
        elif states[row] == NULL:
            out[places[row]] = _NULL_BRANCH
            places[row] += 1


@compiled(nogil=True)
def put_fixed(values: npt.NDArray[np.uint8], states: Bytes, out: Bytes, places: Ints) -> None:
    """Writes values of one width, and the branch alone where they have none; linear in bytes.

    Args:
        values: uint8[rows, width].
        states, out, places: as above.
    """
    width = values.shape[1]
    for row in range(len(states)):
        place = places[row]
        if states[row] == VALUE:
            out[place] = _VALUE_BRANCH
            for at in range(width):
                out[place + 1 + at] = values[row, at]
            places[row] = place + 1 + width
        elif states[row] == NULL:
            out[place] = _NULL_BRANCH
            places[row] = place + 1


@compiled(nogil=True)
def put_bytes(data: Bytes, offsets: Ints, states: Bytes, out: Bytes, places: Ints) -> None:
    """Writes bytes behind their number; linear in bytes.

    Args:
        data: uint8[bytes].
        offsets: int64[rows + 1].
        states, out, places: as above.
    """
    for row in range(len(states)):
        place = places[row]
        if states[row] == VALUE:
            out[place] = _VALUE_BRANCH
            begin, end = offsets[row], offsets[row + 1]
            place = _put_number(out, place + 1, end - begin)
            for at in range(begin, end):
                out[place] = data[at]
                place += 1
            places[row] = place
        elif states[row] == NULL:
            out[place] = _NULL_BRANCH
            places[row] = place + 1
