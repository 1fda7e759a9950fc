"""Hashes of values and keys, the same on every machine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pandas.util import hash_array

_NULL_HASH = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xFF51AFD7ED558CCD)


def canonical(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Floating-point values with one zero and one NaN."""
    added = pc.add(values, pa.scalar(0.0, values.type))
    return pc.if_else(pc.is_nan(added), pa.scalar(float("nan"), values.type), added)


def canonical_columns(table: pa.Table, names: Iterable[str]) -> pa.Table:
    """A table some of whose columns are `canonical` where they are floating-point: those that values are told apart by."""
    for name in names:
        if pa.types.is_floating(table.schema.field(name).type):
            place = table.schema.get_field_index(name)
            table = table.set_column(place, name, canonical(table.column(place)))
    return table


def key_hashes(table: pa.Table, keys: Sequence[str]) -> npt.NDArray[np.uint64]:
    """A hash of the keys of each row, the same on every machine; floating-point keys are `canonical`."""
    total: npt.NDArray[np.uint64] = np.zeros(table.num_rows, np.uint64)
    for name in keys:
        total = (total ^ _row_hashes(table.column(name).combine_chunks())) * _MIX
    return total ^ (total >> np.uint64(32))


def _row_hashes(column: pa.Array) -> npt.NDArray[np.uint64]:
    kind = column.type
    if pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        return value_hashes(column)
    encoded = column.dictionary_encode(null_encoding="encode")
    codes: npt.NDArray[np.int32] = encoded.indices.to_numpy(zero_copy_only=False)
    return value_hashes(encoded.dictionary)[codes]


def value_hashes(values: pa.Array) -> npt.NDArray[np.uint64]:
    """A hash of each value, the same on every machine; floating-point values are `canonical`."""
    kind = values.type
    missing = values.is_null().to_numpy(zero_copy_only=False)
    if pa.types.is_floating(kind):
        found = hash_array(pc.fill_null(values.cast(pa.float64()), 0.0).to_numpy())
    elif pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_temporal(kind):
        if pa.types.is_date32(kind) or pa.types.is_time32(kind):
            values = values.cast(pa.int32())
        found = hash_array(pc.fill_null(values.cast(pa.int64()), 0).to_numpy())
    else:
        if not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
            values = values.cast(pa.string())
        empty = b"" if pa.types.is_binary(values.type) else ""
        found = hash_array(pc.fill_null(values, empty).to_numpy(zero_copy_only=False), categorize=False)
    hashes: npt.NDArray[np.uint64] = np.where(missing, _NULL_HASH, found.astype(np.uint64))
    return hashes
