"""Sinks of views: the view behind an `INSERT INTO`, and whether its columns fit the sink."""

from __future__ import annotations

import hashlib

from penstock.errors import InputError, TypeMismatchError
from penstock.monitor.figures import counted
from penstock.spark.declared import Declared
from penstock.spark.definitions import column_names, rows_schema
from penstock.spark.lanes.deadlines.views import DeadlineDefinition
from penstock.spark.results.read import BATCH, ORDINAL, SINK_DEFINITION
from penstock.spark.sinks import Sink
from penstock.spark.storage.joins import JoinDefinition
from penstock.sql.script.statements import CreateTable, InsertInto, sources_of
from penstock.sql.script.views import flatten
from penstock.sql.text.query import SelectQuery
from penstock.sql.windows.query import WindowQuery


def insert_view(insert: InsertInto) -> str:
    """Name of the view behind an INSERT INTO with a condition or projection of its own."""
    digest = hashlib.sha256(insert.text.encode()).hexdigest()[:6]
    return f"insert_into_{insert.table.lower()}_{digest}"


def check_width(declared: Declared, insert: InsertInto, table: CreateTable, view: str) -> None:
    """Makes sure that a view has as many columns as the sink's table declares, if it declares any.

    Raises:
        TypeMismatchError: it has not.
    """
    wanted = [column.name for column in table.columns]
    given = _columns(declared, view) if wanted else []
    if len(wanted) == len(given):
        return
    _, place = sources_of(insert.query)[0]
    message = (
        f"Table {table.name} has {counted(len(wanted), 'column')} ({', '.join(wanted)}), the query has {len(given)} "
        f"({', '.join(given)}). Select {len(wanted)}, or declare {table.name} without columns."
    )
    raise TypeMismatchError(message, place.script, insert.start, insert.end)


def refuse_reserved(declared: Declared, sink: Sink) -> None:
    """Makes sure that no column of a view has the name of one that sinks receive beside them.

    Raises:
        InputError: one has.
    """
    reserved = (BATCH, ORDINAL, SINK_DEFINITION)
    for name in _columns(declared, sink.view):
        if name.lower() in reserved:
            raise InputError(
                f"view {sink.view}: sink {sink.name} receives a column {name.lower()} from Penstock; give the view's column {name} "
                f"another alias (reserved in views with a sink: {', '.join(reserved)})"
            )


def _columns(declared: Declared, name: str) -> list[str]:
    """The names of a view's columns."""
    view = declared.views[name]
    if isinstance(view.definition, JoinDefinition):
        return [output.name for output in view.definition.plan.outputs]
    if isinstance(view.definition, DeadlineDefinition):
        return [output.name for output in view.definition.bound.window.outputs]
    if view.derived is not None:
        return [output.name for output in view.derived.bound.outputs]
    stream = declared.streams[view.stream]
    flat = flatten(view.query, declared.queries)
    if isinstance(flat, WindowQuery):
        return list(rows_schema(flat, name, stream.source, stream.host).fieldNames())
    assert isinstance(flat, SelectQuery), "a join view has been told apart"
    columns = stream.source.schema.fieldNames()
    if flat.projection is None:
        return list(columns)
    (items,) = column_names([flat], columns, stream.host)
    return [each for item in items for each in item]
