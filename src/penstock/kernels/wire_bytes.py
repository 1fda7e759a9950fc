"""Bytes of values that a reader has found in a buffer: copied together, and decimals read from them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.kernels.compiled import compiled

#: most bytes of a decimal
DECIMAL_BYTES = 16
#: bytes before a framed value: zero, and four of a schema's number
FRAME_BYTES = 5


@compiled(nogil=True)
def copied(
    data: npt.NDArray[np.uint8],
    begins: npt.NDArray[np.int64],
    places: npt.NDArray[np.int32],
    target: npt.NDArray[np.uint8],
) -> None:
    """Copies values one behind the other; linear in their bytes.

    Args:
        data: uint8[bytes].
        begins: int64[values], where each begins.
        places: int32[values + 1], where each begins in the target, and the target's end.
        target: uint8[places[-1]], written.
    """
    for value in range(len(begins)):
        begin, place = begins[value], places[value]
        for at in range(places[value + 1] - place):
            target[place + at] = data[begin + at]


@compiled(nogil=True)
def decimals(
    data: npt.NDArray[np.uint8],
    begins: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int32],
    has_value: npt.NDArray[np.bool_],
    target: npt.NDArray[np.uint8],
) -> None:
    """Reads whole numbers of many bytes, most significant first in two's complement; linear.

    Args:
        data: uint8[bytes].
        begins, lengths, has_value: [values], where each is; one of more than DECIMAL_BYTES loses its value.
        target: uint8[values * DECIMAL_BYTES], written: least significant byte first.
    """
    for value in range(len(begins)):
        length, first = lengths[value], value * DECIMAL_BYTES
        if not has_value[value] or length > DECIMAL_BYTES:
            has_value[value] = False
            target[first : first + DECIMAL_BYTES] = 0
            continue
        fill = np.uint8(255) if length and data[begins[value]] > 127 else np.uint8(0)
        for at in range(DECIMAL_BYTES):
            target[first + at] = data[begins[value] + length - 1 - at] if at < length else fill


@compiled(nogil=True)
def frames(
    data: npt.NDArray[np.uint8],
    begins: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
    has_path: bool,
    schemas: npt.NDArray[np.int64],
    paths: npt.NDArray[np.int64],
) -> None:
    """Reads what stands before framed values, and moves their begins behind it; linear.

    Args:
        data: uint8[bytes].
        begins: int64[values], changed.
        ends: int64[values].
        has_path: whether the path of a message within its file follows, as in Protobuf.
        schemas: int64[values], written: the schema's number; -1 where there is no frame.
        paths: int64[values], written: up to four numbers of 15 bits, each plus one, the outermost lowest; -1 where there is no path.
    """
    for value in range(len(begins)):
        place, end = begins[value], ends[value]
        schemas[value] = -1
        paths[value] = 0
        if end - place < FRAME_BYTES or data[place] != 0:
            continue
        number = 0
        for at in range(1, FRAME_BYTES):
            number = (number << 8) | int(data[place + at])
        schemas[value] = number
        place += FRAME_BYTES
        if has_path:
            count, place = _small(data, place, end)
            path = 0
            if count == 0:
                path = 1
            elif count < 0 or count > 4:
                path = -1
            else:
                for each in range(count):
                    number, place = _small(data, place, end)
                    if number < 0 or number > 32_000:
                        path = -1
                        break
                    path |= (number + 1) << (15 * each)
            paths[value] = path
        begins[value] = place


@compiled(nogil=True)
def _small(data: npt.NDArray[np.uint8], place: int, end: int) -> tuple[int, int]:
    """A number of at most three bytes, zigzag, and the place behind it; -1 where there is none."""
    number = 0
    for at in range(3):
        if place + at >= end:
            break
        byte = int(data[place + at])
        number |= (byte & 127) << (7 * at)
        if byte < 128:
            return (number >> 1) ^ -(number & 1), place + at + 1
    return -1, place
