"""Definitions of views over window views, running views, join views and UNION ALL, checked before anything is declared."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import StructType

from penstock.errors import UnsupportedError
from penstock.spark.analysis.expressions import SparkExpressionHost
from penstock.spark.analysis.schemas import arrow_schema
from penstock.spark.declaring.definitions import check_aggregates, identity_of, refuse_reserved
from penstock.spark.lanes.derived.views import DerivedView, JoinTime
from penstock.spark.storage.bindings import RunningDefinition, WindowDefinition
from penstock.spark.storage.joins import JoinDefinition
from penstock.spark.storage.unions import UnionDefinition
from penstock.sql.windows.bind import BoundWindow, bind_window
from penstock.sql.windows.query import Beneath, WindowQuery


def define_derived(
    name: str,
    text: str,
    flat: WindowQuery,
    below: tuple[tuple[str, str], ...],
    beneath: tuple[str, WindowDefinition | JoinDefinition | UnionDefinition],
    columns: StructType,
    host: SparkExpressionHost,
) -> DerivedView:
    """The definition of a window view over a window, running or join view or a UNION ALL.

    Args:
        name: the view's name.
        text: its query as written.
        flat: the query over the view beneath.
        below: (name, text) of the views it selects from, directly or through others.
        beneath: the stream of the view beneath, of a running view as `running_of` names it, `JOINS.name` of a join view, `UNIONS.name` of a UNION ALL, and its definition.
        columns: of the view beneath, see `rows_schema`.
        host: Spark's analysis of expressions over them.

    Raises:
        SqlError: a mistake in the query; or the windows of one over a join view or UNION ALL are over no event time of its rows.
        InputError: a reserved name is used.
    """
    assert flat.over is not None, "it is over another view"
    schema = arrow_schema(columns)
    bound = bind_window(flat, name, schema, host)
    if flat.is_over_running:
        check_aggregates(flat, bound, schema)
    else:
        _refuse_unordered(flat, bound, schema)
    refuse_reserved(name, [output.name for output in bound.outputs])
    kind = RunningDefinition if flat.is_running else WindowDefinition
    known = kind(name, identity_of(name, text, below), text, below)
    stream, definition = beneath
    over: Beneath | JoinTime
    if isinstance(flat.over, Beneath):
        over = flat.over
    elif isinstance(definition, UnionDefinition):
        over = _united_time(flat, flat.over.column, definition)
    else:
        over = _join_time(flat, flat.over.column, definition)
    return DerivedView(known, bound, stream, definition.name, over, definition.id)


def _refuse_unordered(flat: WindowQuery, bound: BoundWindow, schema: pa.Schema) -> None:
    """Makes sure that Spark orders the arguments of MAX_BY and MIN_BY, of which the largest counts where several tuples decide."""
    types = {column.name: column.type for column in schema} | {each.name: each.type for each in bound.derived}
    # error bounds and the columns of a ranking have one column at most
    for call, aggregate in zip(flat.aggregates, bound.plan.aggregates, strict=False):
        if aggregate.by is not None and _has_map(types[aggregate.argument or ""]):
            message = (
                f"{aggregate.function} of a MAP is not supported over another view: Spark has no order of maps. "
                "Take it of one entry, or of map_entries()."
            )
            raise call.clause.error(UnsupportedError, message)


def _has_map(kind: pa.DataType) -> bool:
    parts = (kind.field(number).type for number in range(kind.num_fields))
    return pa.types.is_map(kind) or any(map(_has_map, parts))


def _united_time(flat: WindowQuery, column: str, definition: UnionDefinition) -> JoinTime:
    """What a window over a UNION ALL is over."""
    if flat.is_running:
        return JoinTime("", 0)
    times = [each.name for each in definition.outputs if each.is_time]
    own = next((name for name in times if name.upper() == column.upper()), None)
    if own is None:
        allowed = ", ".join(times) or "none; select the event time of each stream in the same place"
        message = (
            "A window over a UNION ALL is over a column that is the event time of the stream in every branch. "
            f"Columns that are one: {allowed}"
        )
        raise flat.time_clause.error(UnsupportedError, message)
    return JoinTime(own, 0)


def _join_time(flat: WindowQuery, column: str, definition: WindowDefinition | JoinDefinition) -> JoinTime:
    """What a window over a join view is over."""
    assert isinstance(definition, JoinDefinition), "it is over a join view"
    plan, place = definition.plan, flat.time_clause
    if plan.withdraws:
        message = (
            f"{definition.name} has a {plan.kind} with a stream; a window view over one is not supported yet."
        )
        raise flat.source_clause.error(UnsupportedError, message)
    if flat.is_running:
        return JoinTime("", 0)
    times = {each.time: number for number, each in enumerate(plan.inputs) if each.time is not None}
    inputs = {output.name: times[output.column] for output in plan.outputs if output.column in times}
    own = next((name for name in inputs if name.upper() == column.upper()), None)
    if own is None:
        allowed = ", ".join(inputs) or f"none; add one to the SELECT list of {definition.name}"
        message = f"A window over a join view is over the event time of a stream that it joins. Columns that are one: {allowed}"
        raise place.error(UnsupportedError, message)
    return JoinTime(own, plan.ahead_of(inputs[own]))
