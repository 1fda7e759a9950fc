"""The engine's matcher for any Python service: conditions against Arrow batches, without Spark."""

from __future__ import annotations

import threading
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InputError
from penstock.operators.selection.matches import Matches
from penstock.operators.selection.selector import Selector, compile_selections
from penstock.sql.conditions.bind import bind_selections
from penstock.sql.text.literals import time_zone


class Matcher:
    """Tells for every tuple which of many conditions it satisfies, exactly as Spark SQL does.

    May be used from several threads, which take turns: its scratch space serves one batch at a time. Threads
    that are to match at the same time need a matcher each.

    Args:
        conditions: name -> text of a WHERE clause over the schema's columns.
        schema: the columns; timestamps with a time zone are Spark's TIMESTAMP, without one
            TIMESTAMP_NTZ, in any unit.
        timezone: what timestamps in literals are local to where they name no zone, as Spark spells zones
            (`Europe/Berlin`, `+08:00`, `GMT+8`).

    Raises:
        SqlError: with the place underlined: no condition, an unknown or ambiguous column, values that do
            not compare, or an expression that only Spark can compute (`UnsupportedError`).
        InputError: no such time zone.

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
        try:
            time_zone(timezone)
        except ValueError as error:
            raise InputError(
                f"timezone: {error}; write a name such as Europe/Berlin, +08:00 or GMT+8"
            ) from None
        bound = bind_selections(conditions, _spark_schema(schema), None, timezone)
        self._columns = {column.name: column.type for column in bound.columns}
        plan = compile_selections(bound.selections)
        self._attributes = plan.columns
        self._selector = Selector(plan)
        self._turn = threading.Lock()
        self._made_of = dict(conditions), schema, timezone

    def __reduce__(self) -> tuple[type[Matcher], tuple[dict[str, str], pa.Schema, str]]:
        return type(self), self._made_of

    def match(self, batch: pa.RecordBatch | pa.Table) -> Matches:
        """The conditions each row satisfies.

        Raises:
            InputError: a column of the conditions is missing, is there twice, is of another type family than
                the schema's (decimals and integers, dates and timestamps, timestamps with and without time
                zone are families apart), or holds a value that the schema's type does not.
        """
        fitting = {name: _fitting(batch, name, kind) for name, kind in self._columns.items()}
        columns = [fitting[name] for name in self._attributes]
        with self._turn:
            try:
                return self._selector.match(columns, batch.num_rows)
            except TypeError as error:
                raise InputError(f"The batch does not fit the matcher's schema: {_ended(error)}") from error


def _ended(error: Exception) -> str:
    """An error's message with one full stop at its end."""
    return f"{str(error).removesuffix('.')}."


def _fitting(
    batch: pa.RecordBatch | pa.Table, name: str, declared: pa.DataType
) -> pa.Array | pa.ChunkedArray:
    """A column of a batch, in a type whose values are all values of the declared one.

    Raises:
        InputError: it is missing, there twice, or does not fit.
    """
    places = batch.schema.get_all_field_indices(name)
    if len(places) != 1:
        told = "no column" if not places else f"{len(places)} columns"
        raise InputError(f"The batch has {told} {name}. Its columns: {', '.join(batch.schema.names)}")
    column = batch.column(places[0])
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_timestamp(kind) and pa.types.is_timestamp(declared):
        if (kind.tz is None) is not (declared.tz is None):
            with_zone, without = ("schema", "batch") if kind.tz is None else ("batch", "schema")
            raise InputError(
                f"The batch does not fit the matcher's schema: column {name!r} has a time zone in the {with_zone} "
                f"and none in the {without}."
            )
    elif not _is_within(kind, declared):
        try:
            return _cast(column, kind, declared)
        except pa.ArrowInvalid as error:
            raise InputError(
                f"The batch does not fit the matcher's schema: column {name!r} is of type {kind}; some of its values do "
                f"not fit {declared}: {_ended(error)}"
            ) from error
    return column


def _cast(
    column: pa.Array | pa.ChunkedArray, kind: pa.DataType, declared: pa.DataType
) -> pa.Array | pa.ChunkedArray:
    """A column in the declared type; raises ArrowInvalid where a value is none of that type's."""
    cast = column.cast(declared)
    if pa.types.is_floating(kind):
        wide = column.cast(kind)
        lost = pc.and_(pc.not_equal(cast.cast(kind), wide), pc.invert(pc.is_nan(wide)))
        if (first := pc.index(lost, True).as_py()) >= 0:
            raise pa.ArrowInvalid(f"{wide[first].as_py()!r} would become {cast[first].as_py()!r}")
    return cast


def _is_within(kind: pa.DataType, declared: pa.DataType) -> bool:
    """Whether every value of a type is one of the declared type; True for another family, which is refused later."""
    if pa.types.is_integer(kind) and pa.types.is_integer(declared):
        widened = pa.types.is_unsigned_integer(kind) and pa.types.is_signed_integer(declared)
        return bool(kind.bit_width + widened <= declared.bit_width)
    if pa.types.is_floating(kind) and pa.types.is_floating(declared):
        return bool(kind.bit_width <= declared.bit_width)
    if pa.types.is_decimal(kind) and pa.types.is_decimal(declared):
        whole, declared_whole = kind.precision - kind.scale, declared.precision - declared.scale
        return bool(whole <= declared_whole and kind.scale <= declared.scale)
    return True


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
