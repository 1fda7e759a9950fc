"""Values of any type as numbers in Spark's order."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Longs = npt.NDArray[np.int64]

_LARGEST = 2**63 - 1
#: decimals of so many digits fit 64 bits
_SHORT_DIGITS = 18


def ordered(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Floating point as int64 in Spark's order, NaN last and equal to itself, -0.0 equal to 0.0; the
    rest unchanged."""
    if not pa.types.is_floating(values.type):
        return values
    real = values.cast(pa.float64())
    numbers = pc.fill_null(real, 0.0).to_numpy() + 0.0
    numbers[np.isnan(numbers)] = np.nan
    bits = numbers.view(np.int64)
    bits = np.where(bits < 0, bits ^ _LARGEST, bits)
    return pa.chunked_array([pa.array(bits, mask=np.asarray(real.is_null().to_numpy(zero_copy_only=False)))])


def sortable(column: pa.ChunkedArray) -> Longs:
    """Numbers in Spark's order of the values of a column; that of NULL is any.

    Args:
        column: of a type that is not nested.
    """
    kind = column.type
    if pa.types.is_floating(kind):
        column = ordered(column)
    elif pa.types.is_decimal128(kind) and kind.precision <= _SHORT_DIGITS:
        whole = pc.fill_null(column, pa.scalar(0, kind)).combine_chunks()
        words = np.frombuffer(whole.buffers()[1], np.int64)[2 * whole.offset :][: 2 * len(whole)]
        return words[::2].copy()
    elif pa.types.is_date32(kind) or pa.types.is_time32(kind):
        column = column.cast(pa.int32())
    elif not (pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_temporal(kind)):
        return _numbered(column)
    numbers: Longs = pc.fill_null(column.cast(pa.int64()), 0).to_numpy()
    return numbers


def nulls_first(column: pa.ChunkedArray) -> list[Longs]:
    """What orders a column, NULL first."""
    numbers = [sortable(column)]
    return [column.is_valid().to_numpy().astype(np.int64), *numbers] if column.null_count else numbers


def _numbered(column: pa.ChunkedArray) -> Longs:
    """The rank of each value among those of its column."""
    encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
    ranks = np.empty(len(encoded.dictionary), np.int64)
    ranks[pc.sort_indices(encoded.dictionary).to_numpy()] = np.arange(len(ranks))
    found: Longs = ranks[encoded.indices.to_numpy(zero_copy_only=False)]
    return found
