"""Sinks of views: the view behind an `INSERT INTO`, and whether its columns fit the sink."""

from __future__ import annotations

import hashlib

import pyarrow as pa

from penstock.errors import InputError, TypeMismatchError
from penstock.monitor.figures import counted
from penstock.plan.rankings import ROW_NUMBER, RankedPlan
from penstock.plan.windows import ALL_TIME
from penstock.spark.analysis.schemas import arrow_schema
from penstock.spark.declaring.declared import Declared
from penstock.spark.declaring.definitions import column_names
from penstock.spark.lanes.deadlines.views import DeadlineDefinition
from penstock.spark.results.joined_rows import row_schema
from penstock.spark.results.read import BATCH, ORDINAL, SINK_DEFINITION
from penstock.spark.results.window_schemas import own_schema
from penstock.spark.sinks.declared import Sink, SinkView
from penstock.spark.storage.joins import JoinDefinition
from penstock.spark.storage.refreshed import RefreshedDefinition
from penstock.spark.storage.unions import UnionDefinition
from penstock.sql.script.statements import CreateTable, InsertInto, sources_of
from penstock.sql.script.views import flatten
from penstock.sql.text.query import SelectQuery
from penstock.sql.windows.bind import BoundWindow, bind_window
from penstock.sql.windows.query import WINDOW_NAME, WindowQuery, key_name


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


def view_of(declared: Declared, name: str) -> SinkView:
    """A view as a sink's declaration needs it."""
    view = declared.views[name]
    if isinstance(view.definition, JoinDefinition):
        plan = view.definition.plan
        return SinkView(name, row_schema(plan), None, has_windows=False, changes=plan.withdraws)
    if isinstance(view.definition, RefreshedDefinition):
        return SinkView(name, view.definition.schema, None, has_windows=False, changes=True)
    if isinstance(view.definition, UnionDefinition):
        return SinkView(name, view.definition.schema, None, has_windows=False, changes=False)
    bound = _window(declared, name)
    if bound is not None:
        has_sessions = bound.plan.gap is not None
        return SinkView(
            name,
            own_schema(bound),
            _key(bound),
            has_windows=has_sessions or bound.plan.windows != ALL_TIME,
            changes=True,
            has_sessions=has_sessions,
            needs=key_needs(bound),
        )
    stream = declared.streams[view.stream]
    flat = flatten(view.query, declared.queries)
    assert isinstance(flat, SelectQuery), "window and join views have been told apart"
    own = arrow_schema(stream.source.schema)
    if flat.projection is None:
        return SinkView(name, own, None, has_windows=False, changes=False)
    (items,) = column_names([flat], own.names, stream.host)
    fields: list[pa.Field] = []
    for output, names in zip(flat.projection, items, strict=True):
        kinds = (
            [own.field(each).type for each in names]
            if output.is_star
            else stream.host.types([output.expression])
        )
        fields += [pa.field(each, kind) for each, kind in zip(names, kinds, strict=True)]
    return SinkView(name, pa.schema(fields), None, has_windows=False, changes=False)


def _window(declared: Declared, name: str) -> BoundWindow | None:
    """A window view as it is bound; None of another view."""
    view = declared.views[name]
    if isinstance(view.definition, DeadlineDefinition):
        return view.definition.bound.window
    if view.derived is not None:
        return view.derived.bound
    flat = flatten(view.query, declared.queries)
    if not isinstance(flat, WindowQuery):
        return None
    stream = declared.streams[view.stream]
    return bind_window(flat, name, arrow_schema(stream.source.schema), stream.host)


def _key(bound: BoundWindow) -> tuple[str, ...] | None:
    """The columns of a window view that are its group keys and its window, of a running view its group keys and its session.

    None where the SELECT list lacks one, or there is none.
    """
    outputs = {each.expression: each.name for each in reversed(bound.outputs)}
    keys = [f"_k{number}" for number in range(len(bound.plan.keys))]
    if bound.plan.gap is not None:
        keys += [WINDOW_NAME] if WINDOW_NAME in outputs else [f"{WINDOW_NAME}.start", f"{WINDOW_NAME}.end"]
    if bound.plan.is_running:
        has_all = bool(keys) and all(each in outputs for each in keys)
        return tuple(outputs[each] for each in keys) if has_all else None
    names = [WINDOW_NAME, f"{WINDOW_NAME}.start", f"{WINDOW_NAME}.end"]
    if bound.plan.windows.is_cumulating:
        # several begin together
        names.remove(f"{WINDOW_NAME}.start")
    window = next((each for each in names if each in outputs), None)
    if window is None or any(each not in outputs for each in keys):
        return None
    return (*(outputs[each] for each in keys), outputs[window])


def key_needs(bound: BoundWindow) -> str | None:
    """What gives a ranking or a view with grouping sets a key, "" where it has one; None of other views."""
    plan = bound.plan
    if plan.sets:
        # rows of several sets may have the same keys: NULL is a value of theirs, or says that the set lacks the key
        window = "" if plan.is_running and plan.gap is None else ", its window"
        return "" if _key(bound) else f"select all of its keys{window} and grouping_id()"
    if not isinstance(plan, RankedPlan):
        return None
    function = plan.ranking.function.upper()
    if function != ROW_NUMBER.upper():
        return f"{function} gives equal rows one place. Use ROW_NUMBER"
    if not plan.keys:
        return "it is one row. Keep several, by their place"
    selected = {each.expression for each in bound.outputs}
    lacks_key = any(key_name(number) not in selected for number in range(len(plan.grouping)))
    lacks_place = not plan.ranking.is_one_row and key_name(len(plan.grouping)) not in selected
    missing = [*(["its PARTITION BY columns"] if lacks_key else []), *(["its place"] if lacks_place else [])]
    return f"select {' and '.join(missing)}" if missing else ""


def _columns(declared: Declared, name: str) -> list[str]:
    """The names of a view's columns."""
    return list(view_of(declared, name).columns.names)
