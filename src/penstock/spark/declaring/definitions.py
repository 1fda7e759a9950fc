"""Definitions of views over a stream, checked before anything is declared."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from penstock.errors import DuplicateNameError, InputError, SqlError, UnsupportedError
from penstock.operators.windows.aggregates import FUNCTIONS, Parts, lift_values, lower
from penstock.plan.deadlines import AggregateSignature
from penstock.plan.spark_types import spark_name
from penstock.plan.windows import Aggregate
from penstock.spark.analysis.expressions import SparkExpressionHost
from penstock.spark.analysis.joins import SparkJoinHost
from penstock.spark.analysis.schemas import arrow_schema, spark_schema
from penstock.spark.ingest.tuple_demands import compile_demands, only
from penstock.spark.lanes.deadlines.views import DeadlineDefinition, demand_of
from penstock.spark.recovery.messages import quoted
from penstock.spark.results.joined_rows import row_schema
from penstock.spark.results.window_schemas import ROW, own_schema
from penstock.spark.sources.source import Source
from penstock.spark.storage.bindings import RunningDefinition, ViewDefinition, WindowDefinition
from penstock.spark.storage.joins import JoinDefinition
from penstock.sql.joins.bind import bind_join
from penstock.sql.joins.inputs import Relation
from penstock.sql.joins.lookups import only_spark_computes, with_lookups
from penstock.sql.joins.query import JoinQuery, JoinWord
from penstock.sql.text.lexing import enclosed
from penstock.sql.text.named_columns import named_columns
from penstock.sql.text.query import Output, SelectQuery
from penstock.sql.windows.aggregate_calls import AggregateCall
from penstock.sql.windows.bind import BoundWindow, bind_window
from penstock.sql.windows.deadlines import bind_deadline
from penstock.sql.windows.query import WINDOW_NAME, WindowQuery

#: by which Spark knows a column that `window` made
_WINDOW_MARK = {"spark.timeWindow": True}


def define_selection(name: str, text: str, flat: SelectQuery, source: Source) -> ViewDefinition:
    """A selection view's definition; its SELECT list is checked by `check_projections`.

    Args:
        name: the view's name.
        text: its query as written.
        flat: the query over the stream.
        source: the stream's source.
    """
    projection = _projection(flat, source)
    condition = flat.where or "TRUE"
    columns = (
        None
        if projection is None
        else named_columns((expression for expression, _ in projection), source.schema.fieldNames())
    )
    return ViewDefinition(
        name, identity_of(name, text, condition, projection), text, condition, projection, columns=columns
    )


def check_projections(
    queries: Sequence[SelectQuery], columns: Sequence[str], host: SparkExpressionHost
) -> None:
    """Makes sure that Spark can compute the SELECT lists of queries, and that no column's name stands twice in one.

    It looks at all of them in one go.

    Args:
        queries: over the stream.
        columns: the stream's.
        host: Spark's analysis of expressions over them.

    Raises:
        DuplicateNameError: two columns of one name, in whatever case.
        SqlError: another mistake in a SELECT list.
    """
    check_expressions(queries, host)
    for query, names in zip(queries, column_names(queries, columns, host), strict=True):
        _refuse_repeated(query.projection or (), names)


def check_expressions(queries: Sequence[SelectQuery], host: SparkExpressionHost) -> None:
    """Makes sure that Spark can compute the SELECT lists of queries; see `check_projections`."""
    outputs = [output for query in queries for output in query.projection or () if not output.is_star]
    try:
        host.types([output.expression for output in outputs])
    except SqlError as mistake:
        text = mistake.text
        for output in sorted(outputs, key=lambda each: each.expression != text):
            try:
                host.types([output.expression])
            except SqlError as error:
                start = max(0, output.clause.text.find(output.expression))
                end = start + max(error.end, error.start + 1)
                raise output.clause.at(error, start + error.start, end) from None
        raise


def column_names(
    queries: Sequence[SelectQuery], columns: Sequence[str], host: SparkExpressionHost
) -> list[list[list[str]]]:
    """The names of the columns that each item of each query's SELECT list stands for; arguments as of `check_projections`."""
    lists = [query.projection or () for query in queries]
    unnamed = [
        output.expression
        for outputs in lists
        for output in outputs
        if output.name is None and not output.is_star
    ]
    by_spark = dict(zip(unnamed, host.names(unnamed), strict=True))
    return [
        [
            list(columns) if output.is_star else [output.name or by_spark[output.expression]]
            for output in outputs
        ]
        for outputs in lists
    ]


def _refuse_repeated(outputs: Sequence[Output], names: Sequence[Sequence[str]]) -> None:
    taken: set[str] = set()
    for output, own in zip(outputs, names, strict=True):
        for name in own:
            if name.upper() in taken:
                message = (
                    f"Two columns have the name {name}. List the columns to select, and rename one with AS."
                )
                raise output.clause.error(DuplicateNameError, message)
            taken.add(name.upper())


def define_window(
    name: str,
    text: str,
    flat: WindowQuery,
    below: tuple[tuple[str, str], ...],
    source: Source,
    host: SparkExpressionHost,
) -> WindowDefinition:
    """The definition of a window view or a running view.

    Args:
        name: the view's name.
        text: its query as written.
        flat: the query over the stream.
        below: (name, text) of the views it selects from, directly or through others.
        source: the stream's source.
        host: Spark's analysis of its expressions.

    Raises:
        SqlError: a mistake in the query.
        InputError: the stream's event time is another column, or a reserved name is used.
    """
    schema = arrow_schema(source.schema)
    _check_window(name, flat, bind_window(flat, name, schema, host), source)
    if not flat.is_running:
        return WindowDefinition(name, identity_of(name, text, below), text, below)
    columns = tuple((each.name, spark_name(each.type)) for each in schema) if flat.has_open_star else ()
    return RunningDefinition(name, identity_of(name, text, (*below, *columns)), text, below, columns)


def define_deadline(
    name: str,
    text: str,
    flat: WindowQuery,
    below: tuple[tuple[str, str], ...],
    source: Source,
    host: SparkExpressionHost,
    users: Mapping[str, AggregateSignature],
) -> DeadlineDefinition:
    """The definition of a window view with a deadline.

    Args:
        name: the view's name.
        text: its query as written.
        flat: the query over the stream.
        below: (name, text) of the views it selects from, directly or through others.
        source: the stream's source.
        host: Spark's analysis of its expressions.
        users: the user's aggregates by name in upper case.

    Raises:
        SqlError: a mistake in the query.
        InputError: the stream's event time is another column, or a reserved name is used.
    """
    schema = arrow_schema(source.schema)
    bound = bind_deadline(flat, name, schema, host, users)
    _check_window(name, flat, bound.window, source)
    compile_demands(only(demand_of(bound)), schema, host)
    return DeadlineDefinition(name, identity_of(name, text, below), text, bound, below)


def _check_window(name: str, flat: WindowQuery, bound: BoundWindow, source: Source) -> None:
    """Makes sure that a window view on a stream can be answered: Spark's aggregates, the names of columns, its time."""
    check_aggregates(flat, bound, arrow_schema(source.schema))
    refuse_reserved(name, [output.name for output in bound.outputs])
    if flat.is_running:
        _check_state_ttl(flat, source)
        return
    if source.event_time is None or bound.plan.time.lower() != source.event_time.lower():
        declared = f" ({source.event_time})" if source.event_time else ", but none is declared"
        raise flat.time_clause.error(
            UnsupportedError,
            f"A window needs the event time column of the stream{declared}. "
            "Set the table option event_time 'column'. If the column is a number or text, also set event_time_format, such "
            "as 'millis'; queries then see a TIMESTAMP.",
            0,
            len(flat.time_clause.text),
        )


def check_aggregates(flat: WindowQuery, bound: BoundWindow, schema: pa.Schema) -> None:
    """Makes sure that Penstock computes the aggregates of a view.

    Args:
        flat: the view.
        bound: the same, bound.
        schema: the columns that it is over.

    Raises:
        UnsupportedError: an aggregate that only Spark computes, or of a type that has no order or no sum here.
    """
    calls = [call for call in flat.aggregates if not call.is_users and flat.ranking is None]
    # error bounds follow those that are called
    for call, aggregate in zip(calls, bound.plan.aggregates, strict=False):
        if aggregate.function not in FUNCTIONS:
            allowed = ", ".join(sorted(FUNCTIONS))
            raise call.clause.error(
                UnsupportedError, f"{aggregate.function} is not supported yet. Supported: {allowed}"
            )
        _check_computable(call, aggregate, bound, schema)


def _check_state_ttl(flat: WindowQuery, source: Source) -> None:
    if flat.hints.state_ttl is None or source.event_time is not None:
        return
    message = "STATE_TTL is by event time, but the stream declares none. Set the table option event_time 'column', or remove the hint."
    raise SqlError(message, flat.source_clause.script, *flat.hints.places["STATE_TTL"])


def define_join(
    name: str,
    text: str,
    flat: JoinQuery,
    below: tuple[tuple[str, str], ...],
    schemas: Mapping[str, StructType],
    relations: Sequence[Relation],
    spark: SparkSession,
    functions: Collection[str],
) -> tuple[JoinDefinition, list[str]]:
    """A join view's definition, and what is allowed in it and seldom meant, a text each.

    Args:
        name: the view's name.
        text: its query as written.
        flat: the query over streams and static tables.
        below: (name, text) of the views it selects from, directly or through others.
        schemas: the columns of streams and static tables, by name.
        relations: these streams and static tables.
        spark: the session.
        functions: names of the users' functions that take arrays and return one.

    Raises:
        SqlError: a mistake in the query.
        InputError: a reserved name is used.
    """
    used = {source.relation.upper() for source in flat.sources}
    host = SparkJoinHost(spark, {each: schema for each, schema in schemas.items() if each.upper() in used})
    known = {each.name.upper(): each for each in relations}
    plan, warnings = bind_join(flat, name, known, host, functions, is_judged=True)
    if plan.optional and plan.residual:
        # WHERE may have made an inner join of the first LEFT JOIN
        aliases = {plan.inputs[number].alias for number in plan.optional}
        own = (each for each in flat.sources if each.word is not JoinWord.INNER and each.alias in aliases)
        source = next(own, with_lookups(flat, known).outer)
        assert source is not None, "it has an optional input"
        raise only_spark_computes(source.word, source.on or source.clause)
    refuse_reserved(name, [output.name for output in plan.outputs])
    outputs = tuple((output.name, str(output.type)) for output in plan.outputs)
    kept = ((column.text, str(column.type)) for each in plan.relations for column in each.columns)
    identity = identity_of(name, text, below, (*outputs, *kept))
    return JoinDefinition(name, identity, text, plan, below), warnings


def joined_columns(definition: JoinDefinition) -> StructType:
    """The columns of a join view."""
    return spark_schema(row_schema(definition.plan))


def rows_schema(flat: WindowQuery, name: str, source: Source, host: SparkExpressionHost) -> StructType:
    """The columns of a window view on a stream, the windows among them marked as such for Spark.

    Args:
        flat: the view over its stream.
        name: the view's name.
        source: the stream's source.
        host: Spark's analysis of its expressions.
    """
    bound = bind_window(flat, name, arrow_schema(source.schema), host)
    columns = spark_schema(own_schema(bound))
    for field, output in zip(columns.fields, bound.outputs, strict=True):
        if output.expression == WINDOW_NAME:
            field.metadata = dict(_WINDOW_MARK)
    return columns


def refuse_reserved(name: str, columns: Iterable[str]) -> None:
    """Make sure that no column of a view has a name that its rows have for themselves.

    Raises:
        InputError: one has.
    """
    for column in columns:
        if column.lower() == ROW:
            raise InputError(
                f"view {name}: the column name {column} is reserved for results; give the column another name with AS"
            )


def _check_computable(
    call: AggregateCall, aggregate: Aggregate, bound: BoundWindow, schema: pa.Schema
) -> None:
    """Computes an aggregate over no tuples: some types have no order or no sum here."""
    name = aggregate.argument
    if name is None:
        return
    derived = {each.name: each.type for each in bound.derived}
    every = {
        each: derived[each] if each in derived else schema.field(each).type for each in aggregate.arguments
    }
    kind = every[name if aggregate.by is None else aggregate.by]
    nothing = {each: pa.array([None], own) for each, own in every.items()}
    tuples = pa.table({"key": pa.array([0], pa.int64()), **nothing})
    parts = Parts.of([aggregate])
    try:
        values = lift_values(tuples, ["key"], name) if parts.values else None
        lower(aggregate, parts.merge(parts.lift(tuples, ["key"]), ["key"]), values, ["key"])
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        message = f"{aggregate.function} of {spark_name(kind)} is not supported yet."
        if aggregate.by is not None:
            message = f"{aggregate.function} by {spark_name(kind)} is not supported yet."
            if pa.types.is_struct(kind) and kind.num_fields:
                field = f"{enclosed(call.arguments[1])}.{quoted(kind.field(0).name)}"
                message += (
                    f" Name the field that decides: {aggregate.function}({call.arguments[0]}, {field})."
                )
        elif pa.types.is_struct(kind) and kind.num_fields:
            field = f"{enclosed(call.arguments[0])}.{quoted(kind.field(0).name)}"
            message += f" Take it of each field, or of the one that decides: {aggregate.function}({field})."
        raise call.clause.error(UnsupportedError, message) from None


def identity_of(name: str, *parts: object) -> str:
    """Return what identifies a definition: the view's name, and all that its answer depends on."""
    return f"{name}:{hashlib.sha256(repr(parts).encode()).hexdigest()[:12]}"


def _projection(query: SelectQuery, source: Source) -> tuple[tuple[str, str | None], ...] | None:
    """A query's SELECT list over the stream's columns, `*` among other items written out."""
    if query.projection is None:
        return None
    items: list[tuple[str, str | None]] = []
    for output in query.projection:
        if output.is_star:
            items += [(quoted(name), name) for name in source.schema.fieldNames()]
        else:
            items.append((output.expression, output.name))
    return tuple(items)
