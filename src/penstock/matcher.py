"""The engine's matcher for any Python service: conditions against Arrow batches, without Spark."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from penstock.errors import InputError
from penstock.operators.matches import Matches
from penstock.operators.selection import Selector, compile_selections
from penstock.sql.bind import bind_selections


class Matcher:
    """Tells for every tuple which of many conditions it satisfies, exactly as Spark SQL does.

    Holds scratch space: use one a thread.

    Args:
        conditions: name -> text of a WHERE clause over the schema's columns.
        schema: the columns; timestamps with a time zone are Spark's TIMESTAMP, without one
            TIMESTAMP_NTZ, in any unit.
        timezone: what timestamps in literals are local to where they name no zone.

    Raises:
        SqlError: with the place underlined: no condition, an unknown column, values that do not
            compare, or an expression that only Spark can compute (`UnsupportedError`).

    Example:
        >>> import pyarrow as pa
        >>> schema = pa.schema({"distance": pa.int32(), "carrier": pa.string()})
        >>> matcher = Matcher({"far": "distance > 2000", "ua": "carrier LIKE 'U%'"}, schema)
        >>> batch = pa.record_batch({"distance": [2500, 100], "carrier": ["UA", None]}, schema)
        >>> matches = matcher.match(batch)
        >>> matches.names, matches.offsets.tolist(), matches.queries.tolist()
        (['far', 'ua'], [0, 2, 2], [0, 1])
    """

    def __init__(self, conditions: Mapping[str, str], schema: pa.Schema, timezone: str = "UTC") -> None:
        bound = bind_selections(conditions, _spark_schema(schema), None, timezone)
        self._columns = [attribute.name for attribute in bound.selections.attributes]
        self._selector = Selector(compile_selections(bound.selections))

    def match(self, batch: pa.RecordBatch | pa.Table) -> Matches:
        """The conditions each row satisfies.

        Raises:
            InputError: a column of the conditions is missing, or of another kind than the schema's.
        """
        missing = [name for name in self._columns if name not in batch.schema.names]
        if missing:
            raise InputError(
                f"The batch has no column {', '.join(missing)}. Its columns: {', '.join(batch.schema.names)}"
            )
        try:
            return self._selector.match([batch.column(name) for name in self._columns], batch.num_rows)
        except TypeError as error:
            raise InputError(f"The batch does not fit the matcher's schema: {error}.") from error


def _spark_schema(schema: pa.Schema) -> pa.Schema:
    """The schema as Spark types it: dates in days, timestamps in microseconds, plain strings."""
    fields = []
    for column in schema:
        kind = column.type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        if pa.types.is_timestamp(kind):
            kind = pa.timestamp("us", kind.tz)
        elif pa.types.is_date(kind):
            kind = pa.date32()
        fields.append(pa.field(column.name, kind))
    return pa.schema(fields)
