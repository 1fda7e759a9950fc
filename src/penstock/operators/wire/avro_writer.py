"""Rows as Avro: the schema of their columns, and each row in Avro's binary encoding (`kernels/avro_encoding.py`)."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.kernels import avro_encoding as kernels

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DECIMAL_BYTES = 16
_EMPTY = np.zeros(0, np.int64)

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]


class AvroColumnError(ValueError):
    """A column cannot be written as Avro; the message says why."""


def avro_schema(columns: pa.Schema, name: str) -> str:
    """The schema of rows: a record whose fields may all be NULL, so that columns may come and go.

    Args:
        columns: of the rows.
        name: of the record; what names in Avro cannot have becomes `_`.

    Returns:
        JSON.

    Raises:
        AvroColumnError: a column has a name or a type that Avro has not.
    """
    return json.dumps(_record(columns, _plain(name)), separators=(",", ":"))


def _record(fields: Any, name: str) -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [
            {"name": _checked(each.name), "type": ["null", _type(each, name)], "default": None}
            for each in fields
        ],
    }


def _plain(name: str) -> str:
    plain = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return plain if _NAME.fullmatch(plain) else f"_{plain}"


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise AvroColumnError(f"Avro cannot have a field named '{name}'. Rename it with AS.")
    return name


def _type(field: pa.Field, record: str) -> Any:
    kind, types = field.type, pa.types
    if types.is_struct(kind):
        return _record(list(kind), f"{record}_{field.name}")
    if types.is_timestamp(kind):
        local = "local-" if kind.tz is None else ""
        return {"type": "long", "logicalType": f"{local}timestamp-micros"}
    if types.is_decimal128(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if types.is_date32(kind):
        return {"type": "int", "logicalType": "date"}
    named = (
        (types.is_boolean, "boolean"),
        (types.is_int64, "long"),
        (types.is_signed_integer, "int"),
        (types.is_float32, "float"),
        (types.is_float64, "double"),
        (_is_text, "string"),
        (_is_binary, "bytes"),
    )
    for has, name in named:
        if has(kind):
            return name
    raise AvroColumnError(
        f"column {field.name} is {kind}, which has no Avro type here. Select its parts, CAST it, or use to_json."
    )


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


@dataclass(frozen=True, slots=True)
class _Part:
    """What is written of one column, or of a struct's own branch.

    Attributes:
        states: uint8[rows].
        numbers: int64[rows] of variable length; else empty.
        offsets: int64[rows + 1], of bytes; else empty.
        data: uint8[bytes], or uint8[rows, width] of values of one width.
    """

    states: Bytes
    numbers: Ints
    offsets: Ints
    data: Bytes

    def add_sizes(self, sizes: Ints) -> None:
        if self.data.ndim > 1:
            sizes += (self.states != kernels.NOTHING) + (self.states == kernels.VALUE) * self.data.shape[1]
        else:
            kernels.add_lengths(self.numbers, self.offsets, self.states, sizes)

    def put(self, out: Bytes, places: Ints) -> None:
        if self.data.ndim > 1:
            kernels.put_fixed(self.data, self.states, out, places)
        elif len(self.offsets):
            kernels.put_bytes(self.data, self.offsets, self.states, out, places)
        else:
            kernels.put_numbers(self.numbers, self.states, out, places)


def avro_values(rows: pa.Table, prefix: bytes = b"") -> list[bytes]:
    """Each row in Avro's binary encoding, by `avro_schema` of its columns.

    Args:
        rows: of types that `avro_schema` takes.
        prefix: put before each.
    """
    count = rows.num_rows
    everywhere = np.ones(count, np.bool_)
    parts = [part for each in rows.columns for part in _parts(each.combine_chunks(), everywhere)]
    sizes = np.full(count, len(prefix), np.int64)
    for part in parts:
        part.add_sizes(sizes)
    ends = np.cumsum(sizes)
    out = np.empty(int(ends[-1]) if count else 0, np.uint8)
    places = ends - sizes
    for at, byte in enumerate(prefix):
        out[places + at] = byte
    places += len(prefix)
    for part in parts:
        part.put(out, places)
    whole = out.tobytes()
    begins = [0, *ends.tolist()]
    return [whole[begin:end] for begin, end in itertools.pairwise(begins)]


def _parts(column: pa.Array, is_around: npt.NDArray[np.bool_]) -> Iterator[_Part]:
    """What is written of a column, in the order of its fields."""
    kind, types = column.type, pa.types
    has_value = column.is_valid().to_numpy(zero_copy_only=False) & is_around
    states = np.where(has_value, kernels.VALUE, np.where(is_around, kernels.NULL, kernels.NOTHING))
    states = states.astype(np.uint8)
    if types.is_struct(kind):
        yield _Part(states, _EMPTY, _EMPTY, np.zeros((len(column), 0), np.uint8))
        for each in column.flatten():
            yield from _parts(each, has_value)
        return
    if _is_text(kind) or _is_binary(kind):
        yield _Part(states, _EMPTY, *_bytes(column))
        return
    if types.is_decimal128(kind):
        # the least significant byte is the first in Arrow, the last in Avro, behind the length of 16
        fixed = np.frombuffer(column.buffers()[1], np.uint8).reshape(-1, _DECIMAL_BYTES)
        fixed = fixed[column.offset : column.offset + len(column), ::-1]
        length = np.full((len(column), 1), 2 * _DECIMAL_BYTES, np.uint8)
        yield _Part(states, _EMPTY, _EMPTY, np.ascontiguousarray(np.hstack([length, fixed])))
        return
    if types.is_floating(kind) or types.is_boolean(kind):
        plain = pc.fill_null(column, pa.scalar(0).cast(kind)).to_numpy(zero_copy_only=False)
        plain = plain.astype(np.uint8 if types.is_boolean(kind) else plain.dtype.newbyteorder("<"))
        width = plain.dtype.itemsize
        yield _Part(states, _EMPTY, _EMPTY, plain.view(np.uint8).reshape(-1, width))
        return
    if types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
    elif types.is_date32(kind):
        column = column.cast(pa.int32())
    numbers = pc.fill_null(column.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    yield _Part(states, numbers.astype(np.int64), _EMPTY, np.zeros(0, np.uint8))


def _bytes(column: pa.Array) -> tuple[Ints, Bytes]:
    """Where the bytes of each value begin and end, and all of them."""
    large = column.cast(pa.large_binary())
    _, offsets, data = large.buffers()
    ends = np.frombuffer(offsets, np.int64)[large.offset : large.offset + len(large) + 1]
    return ends, np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
