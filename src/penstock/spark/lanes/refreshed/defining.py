"""Declaring refreshed views: what they read, and whether Spark can answer them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    AnsiIntervalType,
    CalendarIntervalType,
    DataType,
    NullType,
    StructType,
    VariantType,
)

from penstock.errors import DuplicateNameError, InputError, SqlError
from penstock.operators.joins.changes import ROW
from penstock.spark.analysis.catalyst import empty_frame, unlogged
from penstock.spark.analysis.expressions import translated
from penstock.spark.analysis.gate import answered
from penstock.spark.analysis.regular_expressions import refuse_patterns_of_query
from penstock.spark.analysis.schemas import arrow_schema
from penstock.spark.storage.refreshed import OutputColumn, ReadStream, RefreshedDefinition
from penstock.sql.refreshed.parsing import names_read
from penstock.sql.refreshed.query import RefreshedQuery
from penstock.sql.text.clauses import Clause

#: types that no results folder holds
_UNSTORABLE = (AnsiIntervalType, CalendarIntervalType, NullType, VariantType)


def session_beside(spark: SparkSession) -> SparkSession:
    """A session with the same functions and settings, whose temporary views are its own."""
    return SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())


def frame_of(
    spark: SparkSession,
    query: str,
    tables: Mapping[str, DataFrame],
    beneath: Iterable[tuple[str, str]],
) -> DataFrame:
    """A query over tables and views by their names.

    Args:
        spark: a session of `session_beside`; its temporary views are replaced.
        query: the text.
        tables: frames of the same session.
        beneath: (name, text) of the views that it reads, each after those that it reads itself.

    Raises:
        UnsupportedError: something in a text may not be used.
        PySparkException: Spark cannot answer it.
    """
    for name, table in tables.items():
        table.createOrReplaceTempView(name)
    for name, text in beneath:
        answered(spark, text).createOrReplaceTempView(name)
    return answered(spark, query)


def define_refreshed(
    name: str,
    query: RefreshedQuery,
    text: str,
    beneath: Sequence[tuple[str, str]],
    streams: Mapping[str, tuple[StructType, str | None]],
    tables: Mapping[str, StructType],
    spark: SparkSession,
) -> RefreshedDefinition:
    """A refreshed view's definition.

    Args:
        name: the view's name.
        query: its query.
        text: the query as written.
        beneath: (name, text) of the views that it reads, directly or through others, each after those that it reads itself.
        streams: the columns and the event time of the streams that it reads, by name.
        tables: the columns of the static tables that it reads, by name.
        spark: the session.

    Raises:
        SqlError: Spark cannot answer the query, or a column has no name of its own, or a type that cannot be stored.
        InputError: a reserved name is used.
    """
    every = {each: columns for each, (columns, _) in streams.items()} | dict(tables)
    try:
        session = session_beside(spark)
        with unlogged():
            frames = {each: empty_frame(session, columns) for each, columns in every.items()}
            frame = frame_of(session, query.text, frames, beneath)
    except PySparkException as error:
        columns = [column for each in every.values() for column in each.names]
        raise query.clause.placed(translated(error, query.text, columns, 0)) from None
    except SqlError as error:
        if error.text != query.text:
            raise
        raise query.clause.placed(error) from None
    try:
        refuse_patterns_of_query(query.text, frame)
    except SqlError as error:
        raise query.clause.placed(error) from None
    schema = frame.schema
    check_columns(name, schema, query.clause)
    names = _names(query, beneath)
    inputs = tuple(
        ReadStream(each, _wanted(columns, names), time) for each, (columns, time) in streams.items()
    )
    outputs = tuple(OutputColumn(each.name, each.type) for each in arrow_schema(schema))
    parts = (
        text,
        query.seconds,
        tuple(beneath),
        inputs,
        tuple(tables),
        [(o.name, str(o.type)) for o in outputs],
    )
    identity = f"{name}:{hashlib.sha256(repr(parts).encode()).hexdigest()[:12]}"
    return RefreshedDefinition(
        name, identity, text, query.seconds, inputs, tuple(tables), outputs, tuple(beneath)
    )


def _names(query: RefreshedQuery, beneath: Iterable[tuple[str, str]]) -> frozenset[str] | None:
    """The names in all of the texts; None where one may read all columns."""
    every = [query.names, *(names_read(text) for _, text in beneath)]
    return None if None in every else frozenset().union(*(each for each in every if each is not None))


def _wanted(columns: StructType, names: frozenset[str] | None) -> tuple[str, ...]:
    """The columns that may be read."""
    return tuple(each for each in columns.names if names is None or each.upper() in names)


def check_columns(name: str, schema: StructType, clause: Clause) -> None:
    """Make sure that results can have the columns of a query.

    Args:
        name: the view's name.
        schema: the columns.
        clause: the query.

    Raises:
        SqlError: two have one name, or one is of a type that cannot be stored.
        InputError: a reserved name is used.
    """
    place = clause.script, clause.start, clause.start + len(clause.text)
    taken: set[str] = set()
    for field in schema:
        if field.name.upper() in taken:
            message = f"Two columns have the name {field.name}. Rename one with AS."
            raise DuplicateNameError(message, *place)
        taken.add(field.name.upper())
        if field.name.lower() == ROW:
            raise InputError(
                f"view {name}: the column name {field.name} is reserved for results; give the column another name with AS"
            )
        if _is_unstorable(field.dataType):
            kind = field.dataType.simpleString()
            message = f"Column {field.name} is of type {kind}, which results cannot hold. CAST it, to STRING for example."
            raise SqlError(message, *place)
    try:
        arrow_schema(schema)
    except (TypeError, ValueError, pa.ArrowException, PySparkException) as error:
        raise SqlError(f"A column is of a type that results cannot hold: {error}", *place) from None


def _is_unstorable(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return any(_is_unstorable(each.dataType) for each in kind)
    inner = (getattr(kind, name, None) for name in ("elementType", "keyType", "valueType"))
    return isinstance(kind, _UNSTORABLE) or any(isinstance(i, DataType) and _is_unstorable(i) for i in inner)
