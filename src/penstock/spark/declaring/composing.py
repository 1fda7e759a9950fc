"""Views over the rows of other views: the inner queries that are views of their own, and what Spark computes over their rows."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import replace

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from penstock.errors import InputError, UnsupportedError
from penstock.spark.analysis.catalyst import empty_frame, unlogged
from penstock.spark.analysis.expressions import translated
from penstock.spark.analysis.schemas import arrow_schema, spark_schema
from penstock.spark.declaring.beneath import columns_beneath
from penstock.spark.declaring.declared import Declared, View
from penstock.spark.lanes.deadlines.views import DeadlineDefinition
from penstock.spark.lanes.refreshed.defining import check_columns, frame_of, session_beside
from penstock.spark.storage.bindings import WindowDefinition
from penstock.spark.storage.joins import JoinDefinition
from penstock.spark.storage.names import check_length
from penstock.spark.storage.refreshed import REFRESHED, OutputColumn, ReadView, RefreshedDefinition
from penstock.spark.storage.unions import UnionDefinition
from penstock.sql.joins.query import JoinQuery
from penstock.sql.refreshed.composing import apart
from penstock.sql.refreshed.query import RefreshedQuery
from penstock.sql.refreshed.windowed import END, START, WINDOW, Leaf, by_windows
from penstock.sql.script.queries import parse_query
from penstock.sql.script.statements import Query
from penstock.sql.script.views import flatten
from penstock.sql.text.clauses import Clause
from penstock.sql.text.lexing import quote
from penstock.sql.text.query import SelectQuery
from penstock.sql.unions.query import UnionQuery, union_name
from penstock.sql.windows.query import WINDOW_NAME, WindowQuery

#: what an expression over groups says of their window
_KINDS = {WINDOW_NAME: WINDOW, f"{WINDOW_NAME}.start": START, f"{WINDOW_NAME}.end": END}
#: how a stream is read beside window views
_BESIDE_WINDOWS = (
    "It is a stream. Compare its event time with a window, as in time >= w.start AND time < w.end, and group by that window; "
    "or aggregate the stream in a view, and name that."
)
#: in a plan that Spark has analysed, an aggregation
_AGGREGATE = re.compile(r"^[\s:+|-]*Aggregate \[", re.MULTILINE)


def set_apart(declared: Declared, query: Query, found: dict[str, tuple[Query, str]]) -> Query:
    """A query with the names of those of its inner queries that are views of their own.

    Args:
        declared: what is declared.
        query: as it was parsed.
        found: takes these, each with its text, behind those that it reads.

    Raises:
        UnsupportedError: it was to be answered over the rows of views, and names none.
    """
    if isinstance(query, SelectQuery) and query.inner is not None:
        return replace(query, inner=set_apart(declared, query.inner, found))
    if isinstance(query, WindowQuery) and isinstance(query.inner, UnionQuery | WindowQuery | JoinQuery):
        found[query.source] = set_apart(declared, query.inner, found), query.inner_text
        return replace(query, inner=None, inner_text="")
    if isinstance(query, RefreshedQuery) and query.rest is not None:
        relations = {each.upper() for each in (*declared.streams, *declared.statics)}
        query.refuse_without_views(lambda name: name.upper() not in relations)
        for each in query.inner:
            found[each.name] = set_apart(declared, each.query, found), each.text
        return apart(query, _streams_as_views(declared, query, found))
    return query


def _streams_as_views(
    declared: Declared, query: RefreshedQuery, found: dict[str, tuple[Query, str]]
) -> dict[str, str]:
    """The views that have the tuples of the streams which a query reads beside its inner queries, by the name in the query, in upper case."""
    named: dict[str, str] = {}
    for name, _ in query.sources:
        stream = next((each for each in declared.streams if each.upper() == name.upper()), None)
        if stream is None:
            continue
        source = declared.streams[stream].source
        wanted = [
            quote(each)
            for each in source.schema.fieldNames()
            if query.names is None or each.upper() in query.names or each == source.event_time
        ]
        text = f"SELECT {', '.join(wanted)} FROM {quote(stream)}"
        branch = parse_query(text)
        assert isinstance(branch, SelectQuery), "it is written as one"
        named[name.upper()] = union_name(text)
        found[named[name.upper()]] = UnionQuery((branch,), Clause.alone(text)), text
    return named


def composed_view(
    spark: SparkSession, declared: Declared, name: str, query: RefreshedQuery, text: str
) -> View:
    """A view over the rows of views that are declared, which Spark has found that it can answer.

    Args:
        spark: the session.
        declared: what is declared; it is not changed.
        name: the view's name.
        query: its query, see `set_apart`.
        text: the query as written.

    Raises:
        SqlError: it names what does not exist, or Spark cannot answer it.
        UnsupportedError: it reads what has no rows to be read; why lanes do not answer it.
        InputError: a reserved name is used.
    """
    assert query.rest is not None, "it is over rows"
    check_length("view", name)
    read, leaves, columns = dict[str, ReadView](), dict[str, Leaf](), dict[str, StructType]()
    tables: list[str] = []
    streams = {view: source for source, view in query.streams}
    for source, clause in query.sources:
        static = next((each for each in declared.statics if each.upper() == source.upper()), None)
        if static is not None:
            tables.append(static)
            columns[static], leaves[static.upper()] = declared.statics[static].schema, Leaf(is_static=True)
            continue
        if source.upper() not in declared.spelled:
            raise clause.at(declared.unknown(source))
        view = declared.view_name(source)
        called = streams.get(view, source)
        found = _read(declared, view, called, is_stream=view in streams)
        if found is None:
            is_beside_rows = query.by_names or _names_rows(declared, query)
            raise _refusal(query, clause, source, _instead_of(declared.views[view]), is_beside_rows)
        read[called], leaves[called.upper()], columns[called] = found
    session = session_beside(spark)
    try:
        with unlogged():
            frame = frame_of(session, query.text, _empty(session, columns), ())
            schema = frame.schema
    except PySparkException as error:
        known = [column for each in columns.values() for column in each.names]
        raise query.rest.placed(translated(error, query.text, known, 0)) from None
    check_columns(name, schema, query.clause)
    by_window = _by_window(session, query.text, frame, read, leaves, columns)
    if not by_window and any(view in streams for view in (each.view for each in read.values())):
        # all tuples of a stream would be read at each answer
        source, clause = next(each for each in query.sources if each[0] in streams)
        raise _refusal(query, clause, streams[source], _BESIDE_WINDOWS, query.by_names)
    views = tuple(read.values()) if by_window else tuple(replace(each, time="") for each in read.values())
    outputs = tuple(OutputColumn(each.name, each.type) for each in arrow_schema(schema))
    beneath = declared.beneath(query)
    parts = (text, query.text, by_window, views, beneath, tables, [(o.name, str(o.type)) for o in outputs])
    identity = f"{name}:{hashlib.sha256(repr(parts).encode()).hexdigest()[:12]}"
    definition = RefreshedDefinition(
        name, identity, text, 0.0, (), tuple(tables), outputs, beneath, views, query.text, by_window
    )
    return View(definition.streams[0], query, definition)


def _refusal(
    query: RefreshedQuery, clause: Clause, source: str, instead: str, is_beside_rows: bool
) -> UnsupportedError:
    """Why a query is not answered over rows, given one of its names that has no rows to be read, and what to write.

    Where it is not beside rows that can be read, lanes know best what is missing.
    """
    assert query.refused is not None, "lanes have refused it"
    if not is_beside_rows:
        return query.refused
    return clause.error(
        UnsupportedError, f"{source} cannot be read in this query beside rows of views. {instead}"
    )


def _names_rows(declared: Declared, query: RefreshedQuery) -> bool:
    """Whether a query names a view, or has an inner query, whose rows can be read."""
    streams = {view for _, view in query.streams}
    views = (declared.spelled.get(name.upper()) for name, _ in query.sources)
    return any(
        _read(declared, each, each, is_stream=False)
        for each in views
        if each is not None and each not in streams
    )


def _instead_of(view: View) -> str:
    """What to write in place of a view that has no rows to be read beside others."""
    if isinstance(view.definition, DeadlineDefinition):
        return "It has a deadline. Declare a view like it without DEADLINE, and name that."
    if view.derived is not None:
        return "It aggregates rows of another view. Write its query in FROM, in its place."
    return "It selects tuples of a stream. Aggregate or join them in a view, and name that."


def _read(
    declared: Declared, view: str, called: str, *, is_stream: bool
) -> tuple[ReadView, Leaf, StructType] | None:
    """A view whose rows are read, what they say of windows, and their columns; None: a view of its kind has no rows to be read."""
    known = declared.views[view]
    definition = known.definition
    if isinstance(definition, RefreshedDefinition):
        own = ReadView(called, view, REFRESHED.name, definition.id, definition.streams)
        return own, Leaf(), spark_schema(definition.schema)
    if known.derived is not None or not isinstance(
        definition, UnionDefinition | JoinDefinition | WindowDefinition
    ):
        return None
    place, columns = columns_beneath(declared, view)
    if isinstance(definition, UnionDefinition | JoinDefinition):
        times = definition.outputs if isinstance(definition, UnionDefinition) and is_stream else ()
        time = next((each.name for each in times if each.is_time), "")
        own = ReadView(called, view, place, definition.id, definition.streams, time=time)
        return own, Leaf(time=time.upper() or None), columns
    flat = flatten(known.query, declared.queries)
    assert isinstance(flat, WindowQuery), "it is a window view"
    has_windows = not flat.is_running and not flat.windows.is_cumulating
    windows = flat.windows if has_windows else None
    said = zip(columns.names, flat.outputs, strict=True) if has_windows else ()
    kinds = {column.upper(): _KINDS[each.expression] for column, each in said if each.expression in _KINDS}
    return ReadView(called, view, place, definition.id, (known.stream,), windows), Leaf(kinds), columns


def _by_window(
    session: SparkSession,
    text: str,
    frame: DataFrame,
    read: Mapping[str, ReadView],
    leaves: Mapping[str, Leaf],
    columns: Mapping[str, StructType],
) -> str:
    """The query with the end of each row's window; "" where its answer is none for each window."""
    windows = {each.windows for each in read.values() if each.windows is not None}
    if len(windows) != 1:
        return ""
    found = by_windows(text, leaves)
    if found is None:
        return ""
    by_window, groups = found
    try:
        with unlogged():
            frame_of(session, by_window, _empty(session, columns), ())
    except (PySparkException, InputError):
        return ""
    # functions that the parser does not know may aggregate
    analysed = frame._jdf.queryExecution().analyzed().toString()
    return by_window if len(_AGGREGATE.findall(analysed)) == groups else ""


def _empty(session: SparkSession, columns: Mapping[str, StructType]) -> dict[str, DataFrame]:
    return {name: empty_frame(session, each) for name, each in columns.items()}
