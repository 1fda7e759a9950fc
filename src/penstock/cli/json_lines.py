"""Rows as JSON, written as Spark's `to_json` writes them, without Spark."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

Write = Callable[[Any], str]

_SHORT = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}
_ESCAPES = str.maketrans({**{chr(code): f"\\u{code:04X}" for code in range(32)}, **_SHORT})


def json_lines(rows: pa.Table) -> Iterator[str] | None:
    """A JSON object a row, moments in this machine's time zone; None where a type has no form here."""
    writers = [_writer(field.type) for field in rows.schema]
    if any(write is None for write in writers):
        return None
    return _lines(rows, [write for write in writers if write is not None])


def _lines(rows: pa.Table, writers: list[Write]) -> Iterator[str]:
    names = [_text(name) for name in rows.column_names]
    for batch in rows.to_batches():
        for values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield _object(
                (name, write(value)) for name, write, value in zip(names, writers, values, strict=True)
            )


def json_cells(column: pa.ChunkedArray) -> list[str | None] | None:
    """Each value of a nested column as JSON, NULL as None; None where the type has no form here."""
    write = _writer(column.type)
    if write is None:
        return None
    return [None if value is None else write(value) for value in column.to_pylist()]


def _writer(kind: pa.DataType) -> Write | None:
    write = _plain_writer(kind) or _nested_writer(kind)
    return None if write is None else lambda value: "null" if value is None else write(value)


def _plain_writer(kind: pa.DataType) -> Write | None:
    types = pa.types
    if types.is_boolean(kind):
        return lambda value: "true" if value else "false"
    if types.is_integer(kind):
        return str
    if types.is_float32(kind):
        return lambda value: _number(value, str(np.float32(value)))
    if types.is_float64(kind):
        return lambda value: _number(value, repr(value))
    if types.is_decimal(kind):
        return str
    if types.is_string(kind) or types.is_large_string(kind):
        return _text
    if types.is_binary(kind) or types.is_large_binary(kind):
        return lambda value: f'"{base64.b64encode(value).decode()}"'
    if types.is_date32(kind):
        return _date
    if types.is_timestamp(kind):
        return _moment if kind.tz is not None else _local
    return None


def _nested_writer(kind: pa.DataType) -> Write | None:
    types = pa.types
    if types.is_list(kind) or types.is_large_list(kind):
        item = _writer(kind.value_type)
        return None if item is None else lambda values: f"[{','.join(map(item, values))}]"
    if types.is_struct(kind):
        fields = [
            (kind.field(number).name, _writer(kind.field(number).type)) for number in range(kind.num_fields)
        ]
        parts = [(name, _text(name), write) for name, write in fields if write is not None]
        if len(parts) < len(fields):
            return None
        return lambda value: _object((key, write(value[name])) for name, key, write in parts)
    if types.is_map(kind):
        write_item = _writer(kind.item_type)
        # Spark writes other keys as it holds them: moments as numbers, binaries as addresses
        if write_item is None or not (types.is_string(kind.key_type) or types.is_integer(kind.key_type)):
            return None
        return lambda value: _object((_text(str(key)), write_item(each)) for key, each in value)
    return None


def _object(parts: Any) -> str:
    return "{" + ",".join(f"{key}:{value}" for key, value in parts) + "}"


def _text(value: str) -> str:
    return f'"{value.translate(_ESCAPES)}"'


def _number(value: float, shortest: str) -> str:
    """A floating point number as Java writes it."""
    if value != value or value in (float("inf"), float("-inf")):
        return '"NaN"' if value != value else '"Infinity"' if value > 0 else '"-Infinity"'
    sign, digits, exponent = Decimal(shortest).as_tuple()
    text = "".join(map(str, digits)).rstrip("0") or "0"
    assert isinstance(exponent, int)
    point = len(digits) + exponent
    minus = "-" if sign else ""
    if value == 0:
        return f"{minus}0.0"
    if 1e-3 <= abs(value) < 1e7:
        padded = text.rjust(len(text) + max(0, 1 - point), "0") if point < 1 else text.ljust(point + 1, "0")
        whole, fraction = padded[: max(point, 1)], padded[max(point, 1) :]
        return f"{minus}{whole}.{fraction or '0'}"
    return f"{minus}{text[0]}.{text[1:] or '0'}E{point - 1}"


def _date(value: date) -> str:
    return f'"{value.isoformat()}"'


def _local(value: datetime) -> str:
    return f'"{value.isoformat(timespec="microseconds")}"'


def _moment(value: datetime) -> str:
    there = value.astimezone()
    offset = there.utcoffset()
    seconds = 0 if offset is None else round(offset.total_seconds())
    minutes = abs(seconds) // 60
    zone = f"{'-' if seconds < 0 else '+'}{minutes // 60:02}:{minutes % 60:02}" if minutes else "Z"
    return f'"{there.replace(tzinfo=None).isoformat(timespec="microseconds")}{zone}"'
