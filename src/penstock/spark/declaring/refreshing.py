"""Refreshed views as they are declared: what they read of everything else that is declared."""

from __future__ import annotations

import re

from pyspark.sql import SparkSession

from penstock.errors import InputError, SqlError, UnsupportedError
from penstock.spark.analysis.schemas import arrow_schema
from penstock.spark.declaring.declared import Declared, View
from penstock.spark.ingest.tuple_demands import compile_demands, only
from penstock.spark.lanes.refreshed.archive import demand_of
from penstock.spark.lanes.refreshed.defining import define_refreshed
from penstock.spark.storage.names import check_length
from penstock.sql.refreshed.parsing import REMEDY, ended, may_be_refreshed, refreshable
from penstock.sql.refreshed.query import RefreshedQuery
from penstock.sql.script.statements import Query, sources_of

#: what a message has that says it itself
_HINT = re.compile(r"hint (/\*\+ )?REFRESH")


def refreshed_view(
    spark: SparkSession, declared: Declared, name: str, query: RefreshedQuery, text: str
) -> View:
    """A refreshed view, which Spark has found that it can answer.

    Args:
        spark: the session.
        declared: what is declared; it is not changed.
        name: the view's name.
        query: its query.
        text: the query as written.

    Raises:
        SqlError: it names what does not exist, or no stream, or Spark cannot answer it.
        InputError: a reserved name is used, or a stream cannot be asked for its tuples.
    """
    check_length("view", name)
    beneath, relations = _read_by(declared, query)
    streams = {each: declared.streams[each] for each in declared.streams if each.upper() in relations}
    tables = {each: table.schema for each, table in declared.statics.items() if each.upper() in relations}
    if not streams:
        message = "A view needs a stream; this query reads static tables only. Join a stream with them."
        place = query.sources[0][1]
        raise place.error(UnsupportedError, message)
    definition = define_refreshed(
        name,
        query,
        text,
        beneath,
        {each: (stream.source.schema, stream.source.event_time) for each, stream in streams.items()},
        tables,
        spark,
    )
    for read in definition.inputs:
        source, host = streams[read.name].source, streams[read.name].host
        compile_demands(only(demand_of(read)), arrow_schema(source.schema), host)
    return View(definition.streams[0], query, definition)


def with_remedy(spark: SparkSession, declared: Declared, error: InputError) -> InputError:
    """A refusal that says that the view can be refreshed, where that is true; any other mistake as it is.

    Args:
        spark: the session.
        declared: what is declared.
        error: the mistake.
    """
    if not may_be_refreshed(error) or _HINT.search(str(error)):
        return error
    assert isinstance(error, SqlError)
    query = refreshable(error.text, error.start)
    assert query is not None
    try:
        refreshed_view(spark, declared, "refused", query, query.text)
    except InputError:
        return error
    return UnsupportedError(f"{ended(error.message)} {REMEDY}", error.text, error.start, error.end)


def _read_by(declared: Declared, query: Query) -> tuple[list[tuple[str, str]], set[str]]:
    """The views beneath, each after those that it reads, and the names of all streams and tables, in upper case.

    Raises:
        UnknownNameError: a name is none of these.
    """
    beneath: dict[str, str] = {}
    relations: set[str] = set()
    known = {each.upper() for each in (*declared.streams, *declared.statics)}

    def visit(each: Query) -> None:
        for source, clause in sources_of(each):
            if source.upper() in known:
                relations.add(source.upper())
                continue
            if source.upper() not in declared.spelled:
                raise clause.at(declared.unknown(source))
            name = declared.view_name(source)
            if name not in beneath:
                visit(declared.views[name].query)
                beneath[name] = declared.views[name].definition.sql

    visit(query)
    return list(beneath.items()), relations
