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
    base: int,
    table: npt.NDArray[np.unsignedinteger],
    below: int,
    above: int,
    out: npt.NDArray[np.unsignedinteger],
) -> None:
    """Codes `values` by a table of the codes of base, base + 1, ...

    Args:
        values: int32[rows] or int64[rows].
        base: first value of the table.
        table: code of each value of the span.
        below: code of smaller values.
        above: code of larger values.
        out: unsigned[rows], written.
    """
    span = np.uint64(len(table))
    for row in range(len(values)):
        value = np.int64(values[row])
        position = np.uint64(value) - np.uint64(base)
        if position < span:
            out[row] = table[position]
        elif value < base:
            out[row] = below
        else:
            out[row] = above


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
    buckets = np.uint64(len(first) - 1)
    top = codes[len(codes) - 1]
    for row in range(len(values)):
        value = np.int64(values[row])
        if value < base:
            out[row] = below
            continue
        bucket = (np.uint64(value) - np.uint64(base)) >> np.uint64(shift)
        if bucket >= buckets:
            out[row] = top
            continue
        low = first[bucket]
        high = first[bucket + np.uint64(1)]
        while low < high:
            middle = (low + high) >> 1
            if starts[middle] <= value:
                low = middle + 1
            else:
                high = middle
        out[row] = codes[low - 1]


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
