"""Columns of a view as columns of a table, and rows as the class in Java takes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.plan.spark_types import spark_name
from penstock.spark.sinks.flat_columns import FlatColumn, flat_columns

_MICROSECONDS = pa.timestamp("us")
#: by the kind of a value in Java: which types have it, and as what they are sent
_KINDS: tuple[tuple[str, Callable[[pa.DataType], bool], pa.DataType | None], ...] = (
    ("b", pa.types.is_boolean, None),
    ("h", pa.types.is_int8, pa.int16()),
    ("h", pa.types.is_int16, None),
    ("i", pa.types.is_int32, None),
    ("l", pa.types.is_int64, None),
    ("f", pa.types.is_float32, None),
    ("d", pa.types.is_float64, None),
    ("s", pa.types.is_string, None),
    ("s", pa.types.is_large_string, pa.string()),
    ("x", pa.types.is_binary, None),
    ("x", pa.types.is_large_binary, pa.binary()),
    ("m", pa.types.is_decimal128, None),
    ("D", pa.types.is_date32, pa.int32()),
    ("T", pa.types.is_timestamp, pa.int64()),
)


@dataclass(frozen=True, slots=True)
class JdbcColumn(FlatColumn):
    """A column of a table behind a JDBC driver."""

    @property
    def kind(self) -> str | None:
        """The kind of its values in Java; None where it has none."""
        return next((kind for kind, has, _ in _KINDS if has(self.type)), None)

    @property
    def spark_type(self) -> str:
        """The type of its values as Spark names it."""
        return spark_name(self.type)


def jdbc_columns(schema: pa.Schema) -> list[JdbcColumn]:
    """The columns for those of a view."""
    return [JdbcColumn(each.name, each.type, each.path) for each in flat_columns(schema)]


def flat_rows(rows: pa.Table, columns: Sequence[JdbcColumn]) -> pa.Table:
    """Rows with the columns of the table, each as it is sent."""
    return pa.table([_sent(each.values(rows)) for each in columns], [each.name for each in columns])


def _sent(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp(_MICROSECONDS.unit, kind.tz))
    wanted = next((sent for _, has, sent in _KINDS if has(kind)), None)
    return column if wanted is None else column.cast(wanted)
