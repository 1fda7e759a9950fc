"""Columns of a view as columns of PostgreSQL, and rows as text for COPY."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

_PLAIN = (
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_int8, "smallint"),
    (pa.types.is_int16, "smallint"),
    (pa.types.is_int32, "integer"),
    (pa.types.is_int64, "bigint"),
    (pa.types.is_float32, "real"),
    (pa.types.is_float64, "double precision"),
    (pa.types.is_string, "text"),
    (pa.types.is_large_string, "text"),
    (pa.types.is_binary, "bytea"),
    (pa.types.is_large_binary, "bytea"),
    (pa.types.is_date32, "date"),
)


@dataclass(frozen=True, slots=True)
class PostgresColumn:
    """A column of a table.

    Attributes:
        name: its name.
        type: its type as SQL writes it.
        path: the column of the view, then the field of its struct.
    """

    name: str
    type: str
    path: tuple[str, ...]


def postgres_columns(field: pa.Field) -> list[PostgresColumn] | None:
    """The columns of a table for a column of a view: two for a window; None where PostgreSQL has no such type here."""
    kind = field.type
    if pa.types.is_struct(kind) and [each.name for each in kind] == ["start", "end"]:
        return [
            PostgresColumn(f"{field.name}_{each.name}", _moment(each.type), (field.name, each.name))
            for each in kind
        ]
    named = _type(kind)
    return None if named is None else [PostgresColumn(field.name, named, (field.name,))]


def _type(kind: pa.DataType) -> str | None:
    if pa.types.is_timestamp(kind):
        return _moment(kind)
    if pa.types.is_decimal(kind):
        return f"numeric({kind.precision},{kind.scale})"
    return next((name for has, name in _PLAIN if has(kind)), None)


def _moment(kind: pa.DataType) -> str:
    return "timestamp" if kind.tz is None else "timestamptz"


def all_columns(schema: pa.Schema) -> list[PostgresColumn]:
    """The columns for those of a view, all of which have a type."""
    return [column for field in schema for column in postgres_columns(field) or ()]


def copy_texts(rows: pa.Table, columns: Sequence[PostgresColumn]) -> Iterator[bytes]:
    """Rows as CSV for COPY: NULL as nothing, texts in quotes."""
    arrays = [_as_text(_column(rows, column.path)) for column in columns]
    table = pa.table(arrays, [f"c{number}" for number in range(len(arrays))])
    for batch in table.to_batches(max_chunksize=65_536):
        text = io.BytesIO()
        csv.write_csv(batch, text, csv.WriteOptions(include_header=False, quoting_style="needed"))
        yield text.getvalue()


def _column(rows: pa.Table, path: tuple[str, ...]) -> pa.ChunkedArray:
    column = rows.column(path[0])
    return pc.struct_field(column, path[1]) if len(path) > 1 else column


def _as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return pa.chunked_array(
            [
                pa.array(
                    [None if each is None else f"\\x{each.hex()}" for each in column.to_pylist()], pa.string()
                )
            ]
        )
    return column
