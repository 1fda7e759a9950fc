"""Columns of a view as columns of PostgreSQL, and rows as text for COPY."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import csv

from penstock.spark.sinks.flat_columns import FlatColumn, flat_columns

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
class PostgresColumn(FlatColumn):
    """A column of a table in PostgreSQL."""

    @property
    def sql_type(self) -> str:
        """The type as SQL writes it."""
        found = postgres_type(self.type)
        assert found is not None, "refused as the sink was declared"
        return found


def postgres_columns(schema: pa.Schema) -> list[PostgresColumn]:
    """The columns for those of a view."""
    return [PostgresColumn(each.name, each.type, each.path) for each in flat_columns(schema)]


def postgres_type(kind: pa.DataType) -> str | None:
    """The type as SQL writes it; None where PostgreSQL has none here."""
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz is None else "timestamptz"
    if pa.types.is_decimal(kind):
        return f"numeric({kind.precision},{kind.scale})"
    return next((name for has, name in _PLAIN if has(kind)), None)


def copy_texts(rows: pa.Table, columns: Sequence[PostgresColumn]) -> Iterator[bytes]:
    """Rows as CSV for COPY: NULL as nothing, texts in quotes."""
    arrays = [_as_text(column.values(rows)) for column in columns]
    table = pa.table(arrays, [f"c{number}" for number in range(len(arrays))])
    for batch in table.to_batches(max_chunksize=65_536):
        text = io.BytesIO()
        csv.write_csv(batch, text, csv.WriteOptions(include_header=False, quoting_style="needed"))
        yield text.getvalue()


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
