"""Values of columns as Python's, but for moments: a `datetime` has no year before 1 and none after 9999, a column has."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

#: microseconds of the first and the last moment that is spelled, 0001-01-01 and 9999-12-31
_SPELLED_MICROS = (-62_135_596_800_000_000, 253_402_300_799_999_999)
#: days likewise
_SPELLED_DAYS = (-719_162, 2_932_896)


def python_values(values: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values of a column, none of which is a moment of Python's.

    Timestamps (in microseconds) and dates of the years 1 to 9999 are text. Others, times of day and lengths of time are the numbers
    that they are stored as.
    """
    if isinstance(values, pa.ChunkedArray):
        return [value for chunk in values.chunks for value in python_values(chunk)]
    kind, types = values.type, pa.types
    if types.is_struct(kind):
        names = [field.name for field in kind]
        columns = [python_values(column) for column in values.flatten()]
        rows = zip(*columns, strict=True) if columns else [()] * len(values)
        return _where_valid(values, [dict(zip(names, row, strict=True)) for row in rows])
    if types.is_list(kind) or types.is_large_list(kind):
        return _where_valid(values, _parts(values, python_values(values.values)))
    if types.is_map(kind):
        keys, items = python_values(values.keys), python_values(values.items)
        return _where_valid(values, _parts(values, list(zip(keys, items, strict=True))))
    if types.is_timestamp(kind) and kind.unit == "us":
        return _spelled(values, values.cast(pa.int64()), _SPELLED_MICROS)
    if types.is_date32(kind):
        return _spelled(values, values.cast(pa.int32()), _SPELLED_DAYS)
    if types.is_time32(kind):
        values = values.cast(pa.int32())
    elif types.is_temporal(kind) and not types.is_interval(kind):
        values = values.cast(pa.int64())
    return list(values.to_pylist())


def _spelled(values: pa.Array, numbers: pa.Array, spelled: tuple[int, int]) -> list[Any]:
    first, last = spelled
    has_text = pc.and_(pc.greater_equal(numbers, first), pc.less_equal(numbers, last))
    texts = pc.if_else(has_text, values, pa.scalar(None, values.type)).cast(pa.string())
    return [
        number if text is None else text
        for text, number in zip(texts.to_pylist(), numbers.to_pylist(), strict=True)
    ]


def _parts(values: pa.Array, inner: list[Any]) -> list[Any]:
    return [inner[begin:end] for begin, end in pairwise(values.offsets.to_pylist())]


def _where_valid(values: pa.Array, rows: list[Any]) -> list[Any]:
    return [row if valid else None for row, valid in zip(rows, values.is_valid().to_pylist(), strict=True)]
