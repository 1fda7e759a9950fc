"""From column values to region codes.

The code of a value is a step function: it changes at the constants only. Steps are kept as ascending
`starts` (first value of each step, int64) with their `codes`. Where the starts span few values a table
holds the code of every value of the span (one load a value); else a table over the leading bits narrows
a binary search to the few steps that share them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.kernels.compiled import compiled


@compiled(nogil=True)
def encode_direct(
    values: npt.NDArray[np.signedinteger],
    least: int,
    table: npt.NDArray[np.unsignedinteger],
    out: npt.NDArray[np.unsignedinteger],
) -> None:
    """Codes `values` by a table of the codes of least, least + 1, ...; without a branch that data could mislead.

    Args:
        values: int32[rows] or int64[rows].
        least: first value of the table; smaller ones have its code.
        table: code of each value; larger values have the last one.
        out: unsigned[rows], written.
    """
    most = least + len(table) - 1
    for row in range(len(values)):
        value = np.int64(values[row])
        value = value if value > least else np.int64(least)
        value = value if value < most else np.int64(most)
        out[row] = table[value - least]


@compiled(nogil=True)
def encode_bucketed(
    values: npt.NDArray[np.signedinteger],
    starts: npt.NDArray[np.int64],
    codes: npt.NDArray[np.unsignedinteger],
    first: npt.NDArray[np.int32],
    shift: int,
    below: int,
    out: npt.NDArray[np.unsignedinteger],
) -> None:
    """Codes `values` by a search among the steps of the value's bucket.

    Args:
        values: int32[rows] or int64[rows].
        starts: int64[steps], ascending.
        codes: code of each step.
        first: int32[buckets + 1], the first step of each bucket; bucket b holds the values from
            starts[0] + (b << shift) on.
        shift: bits of a value that its bucket does not tell.
        below: code of values smaller than starts[0].
        out: unsigned[rows], written.
    """
    base = starts[0]
    last = starts[len(starts) - 1]
    for row in range(len(values)):
        value = np.int64(values[row])
        within = value if value > base else base
        within = within if within < last else last
        bucket = (np.uint64(within) - np.uint64(base)) >> np.uint64(shift)
        low = first[bucket]
        high = first[bucket + np.uint64(1)]
        while low < high:
            middle = (low + high) >> 1
            if starts[middle] <= within:
                low = middle + 1
            else:
                high = middle
        code = codes[low - 1]
        out[row] = code if value >= base else below


@compiled(nogil=True)
def order_floats(bits: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Maps the bits of doubles to integers in Spark's order: NaN one value and last, -0.0 as 0.0."""
    keys = np.empty(len(bits), np.int64)
    infinity = np.int64(0x7FF0000000000000)
    for row in range(len(bits)):
        magnitude = bits[row] & np.int64(0x7FFFFFFFFFFFFFFF)
        key = magnitude if bits[row] >= 0 else -magnitude
        keys[row] = np.int64(0x7FFFFFFFFFFFFFFF) if magnitude > infinity else key
    return keys


@compiled(nogil=True)
def _compare(
    data: npt.NDArray[np.uint8],
    start: int,
    end: int,
    other: npt.NDArray[np.uint8],
    other_start: int,
    other_end: int,
) -> int:
    shared = min(end - start, other_end - other_start)
    for position in range(shared):
        left = data[start + position]
        right = other[other_start + position]
        if left != right:
            return -1 if left < right else 1
    return (end - start) - (other_end - other_start)


@compiled(nogil=True)
def encode_bytes(
    data: npt.NDArray[np.uint8],
    offsets: npt.NDArray[np.int64],
    constant_data: npt.NDArray[np.uint8],
    constant_offsets: npt.NDArray[np.int64],
    out: npt.NDArray[np.unsignedinteger],
) -> None:
    """Codes byte strings, ordered bytewise, by binary search among the constants.

    Args:
        data: the strings' bytes.
        offsets: int64[strings + 1], string i is data[offsets[i]:offsets[i + 1]].
        constant_data: the constants' bytes.
        constant_offsets: int64[m + 1], ascending constants.
        out: unsigned[strings], written.
    """
    constants = len(constant_offsets) - 1
    for row in range(len(offsets) - 1):
        low = 0
        high = constants
        code = -1
        while low < high:
            middle = (low + high) >> 1
            order = _compare(
                data,
                offsets[row],
                offsets[row + 1],
                constant_data,
                constant_offsets[middle],
                constant_offsets[middle + 1],
            )
            if order == 0:
                code = 2 * middle + 1
                break
            if order > 0:
                low = middle + 1
            else:
                high = middle
        out[row] = code if code >= 0 else 2 * low
