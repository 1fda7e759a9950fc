"""Reading the results folder: published matches, and the rows of one view with its own projection."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, IntegerType, MapType, StringType, StructType

from penstock.errors import InputError, UnknownNameError, UnsupportedError
from penstock.operators.selection.matches import DEFINITIONS, queries_name
from penstock.plan.names import free_name
from penstock.spark.analysis.catalyst import unlogged
from penstock.spark.analysis.functions import refusal
from penstock.spark.analysis.gate import changing, computed, stored_schema, tried
from penstock.spark.analysis.schemas import spark_schema
from penstock.spark.publication.manifests import published_paths
from penstock.spark.recovery.messages import quoted
from penstock.spark.reporting.catalog import find_rows, find_view, read_catalog
from penstock.spark.reporting.definitions import DEFINITION, OTHERS, is_selection, number_of, stored_columns
from penstock.spark.results.frames import published_frame
from penstock.spark.results.joined_rows import LANES, joined_changes, joined_results
from penstock.spark.results.misses import LATE, MISSES, missed_paths
from penstock.spark.results.window_rows import window_changes, window_results
from penstock.spark.sessions.store_access import configure
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.store_paths import StorePath, address_of

#: where a row of a sink came from: the batch's number, and its place in the batch
BATCH, ORDINAL = "penstock_batch", "penstock_ordinal"
#: and, of a selection, by which definition it is one
SINK_DEFINITION = "penstock_definition"

#: how commands and sinks write rows as JSON; without them Spark cuts moments to milliseconds and leaves NULL fields out
TO_JSON = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}

Projection = Sequence[tuple[str, str | None]]
#: beside columns of tuples, whose names do not begin like that
_NUMBER = "__penstock_number"


def matches(spark: SparkSession, layout: Layout, stream: str, all_definitions: bool = False) -> DataFrame:
    """The published matches of a stream: those columns of the tuple that its selections read, and `queries`.

    A tuple has NULL in a column that none of the selections which matched it reads.

    Args:
        spark: the session.
        layout: the results folder.
        stream: the stream's name.
        all_definitions: whether `queries` names views by definitions that they no more have too; DEFINITIONS then says which.

    Raises:
        UnknownNameError: there is no such stream.
    """
    catalog = read_catalog(layout)
    rows = _all_matches(spark, layout, catalog, stream)
    stored = stored_columns(catalog["views"], stream)
    if stored is not None:
        unread = {*stored_schema(catalog["streams"][stream]).fieldNames()} - stored
        rows = rows.select(*(quoted(name) for name in rows.columns if name not in unread))
    if all_definitions:
        return rows.withColumn(DEFINITIONS, _definitions(_queries_of(rows)))
    return _of_now(rows, catalog["views"], stream).drop(DEFINITIONS)


def _all_matches(spark: SparkSession, layout: Layout, catalog: Mapping[str, Any], stream: str) -> DataFrame:
    """The published matches of a stream as their files have them."""
    if stream not in catalog["streams"]:
        raise UnknownNameError.among("Stream", stream, catalog["streams"], "Existing streams")
    schema = stored_schema(catalog["streams"][stream])
    return read_matches(spark, schema, list(published_paths(layout, stream)))


def read_matches(spark: SparkSession, schema: StructType, paths: Sequence[StorePath]) -> DataFrame:
    """Files of matches as a frame of the tuple's columns, the names of queries (`queries_name`), and DEFINITIONS as the files have it."""
    queries = queries_name(schema.fieldNames())
    wide = StructType([*schema.fields]).add(queries, ArrayType(StringType(), containsNull=False))
    wide.add(DEFINITIONS, ArrayType(IntegerType()))
    return published_frame(spark, wide, paths)


def _queries_of(frame: DataFrame) -> str:
    """The column of a frame of `read_matches` that names the queries."""
    return frame.columns[frame.columns.index(DEFINITIONS) - 1]


def _definitions(queries: str) -> Column:
    """The number of the definition by which each query names a tuple."""
    return F.coalesce(F.col(DEFINITIONS), F.transform(queries, lambda _: F.lit(1)))


def _of_now(rows: DataFrame, views: Mapping[str, Any], stream: str) -> DataFrame:
    """Rows of matches with the views whose conditions as they are now named them, and no others."""
    numbers = {
        name: number_of(entry) if is_selection(entry) and entry.get("stream") == stream else 0
        for name, entry in views.items()
        if OTHERS in entry
    }
    if not numbers:
        return rows
    queries = _queries_of(rows)
    now = F.create_map(*(F.lit(each) for pair in numbers.items() for each in pair))
    told = F.filter(
        F.arrays_zip(F.col(queries).alias("name"), _definitions(queries).alias("number")),
        lambda each: F.coalesce(F.try_element_at(now, each["name"]), each["number"]) == each["number"],
    )
    return rows.withColumn(queries, F.transform(told, lambda each: each["name"])).where(F.size(queries) > 0)


def open_results(
    spark: SparkSession,
    folder: str | StorePath,
    view: str,
    revisions: bool = False,
    definition: int | None = None,
    all_definitions: bool = False,
    final_only: bool = False,
) -> DataFrame:
    """The rows of a view in a results folder, with no run beside it.

    Args:
        spark: the session.
        folder: the results folder.
        view: the view's name.
        revisions: whether every revision of a window view is wanted; see `changes`.
        definition, all_definitions, final_only: see `results`.

    Raises:
        InputError: the folder is none of Penstock's, or what is asked for does not go together.
        UnknownNameError: there is no such view.
    """
    layout = Layout.of(folder, folder)
    configure(spark, address_of(layout.output))
    if revisions:
        return changes(spark, layout, view, definition)
    return results(spark, layout, view, definition, all_definitions, final_only)


def results(
    spark: SparkSession,
    layout: Layout,
    view: str,
    definition: int | None = None,
    all_definitions: bool = False,
    final_only: bool = False,
) -> DataFrame:
    """The rows of a view, with its own projection; of a window view the newest revision of each.

    Args:
        spark: the session.
        layout: the results folder.
        view: the view's name.
        definition: the number of one of its definitions, whose rows are wanted; None: the one it has now.
        all_definitions: whether those of all definitions of a selection are wanted, with a last column that tells the number.
        final_only: whether only the final rows of a window view are wanted, with a last column, CORRECTED, that tells which of them
            have replaced rows that were final before: a tuple later than the horizon corrects a final row all the same.

    Raises:
        UnknownNameError: there is no such view or definition.
        InputError: all definitions of a view that is no selection, or of one definition; final rows of a view without windows; a
            function that the view's SELECT list calls is not registered in the session.
    """
    name, entry = find_rows(layout, view, definition, all_definitions, final_only)
    try:
        if LANES in entry:
            return joined_results(spark, layout, entry)
        if not is_selection(entry):
            return window_results(spark, layout, entry["stream"], name, entry["id"], final_only)
        with unlogged():
            return _selected(spark, layout, name, entry, definition, all_definitions)
    except AnalysisException as error:
        if error.getCondition() != "UNRESOLVED_ROUTINE":
            raise
        function = (error.getMessageParameters() or {}).get("routineName", "").strip("`")
        raise InputError(
            f"The rows of {name} are computed when they are read, and the session does not have the function {function}. Name the Python "
            f"file of the run: `penstock results {layout.output} {name} --functions FILE`. In Python, register it with `Engine.function` first."
        ) from None
    except UnsupportedError as error:
        raise InputError(
            f"{layout.output / '_penstock'} has a text of view {name} that Penstock never writes. Another program changed this "
            f"folder: do not trust it. {error}"
        ) from None


def _selected(
    spark: SparkSession,
    layout: Layout,
    view: str,
    entry: Mapping[str, Any],
    definition: int | None,
    all_definitions: bool,
) -> DataFrame:
    """The rows of a selection; see `results`."""
    frame = _all_matches(spark, layout, read_catalog(layout), entry["stream"])
    place = F.array_position(F.col(_queries_of(frame)), view) - 1
    number = F.coalesce(F.get(DEFINITIONS, place.cast("int")), F.lit(1))
    if all_definitions:
        chosen = project(frame.withColumn(_NUMBER, number), view, entry["projection"], [_NUMBER])
        return chosen.toDF(*chosen.columns[:-1], free_name(DEFINITION, chosen.columns[:-1]))
    has_others = definition is not None or OTHERS in entry
    own = frame.where(number == number_of(entry)) if has_others else frame
    return project(own, view, entry["projection"])


def changes(spark: SparkSession, layout: Layout, view: str, definition: int | None = None) -> DataFrame:
    """Every revision of every row of a window view; of a LEFT JOIN rows as they were told and withdrawn.

    Args:
        spark: the session.
        layout: the results folder.
        view: the view's name.
        definition: the number of one of its definitions; None: the one it has now.

    Raises:
        UnknownNameError: there is no such view or definition, or it is a selection or another join, whose rows never change.
    """
    name, entry = find_view(layout, view, True, definition)
    if LANES in entry:
        return joined_changes(spark, layout, entry)
    return window_changes(spark, layout, entry["stream"], name, entry["id"])


def misses(spark: SparkSession, layout: Layout, view: str) -> DataFrame:
    """The windows of a view with a deadline that were not released in time: what became of each, and why; has it been answered since.

    Raises:
        UnknownNameError: there is no such view, or it has no deadline.
    """
    told = published_frame(spark, spark_schema(MISSES), missed_paths(layout, view))
    late = told.where(F.col("outcome") == LATE).groupBy("window").agg(F.max("answered").alias("answered"))
    missed = told.where(F.col("outcome") != LATE).drop("answered")
    return missed.join(late, "window", "left").select(*MISSES.names)


def project(
    frame: DataFrame,
    view: str,
    projection: Projection | None,
    keep: Sequence[str] = (),
) -> DataFrame:
    """One view's rows of a frame of matches, with the view's projection.

    An expression that raises for a row gives NULL there: the row is a match all the same, and a
    batch that cannot be projected would stop its sinks at every restart.

    Args:
        frame: of `read_matches`, with or without further columns behind.
        view: the view's name.
        projection: (SQL text, output name or None) pairs, or None for `*`.
        keep: further columns to keep.
    """
    queries = _queries_of(frame)
    rows = frame.where(F.array_contains(F.col(queries), view))
    if projection is None:
        return rows.drop(queries, DEFINITIONS)
    spark = frame.sparkSession
    if (reason := changing(rows.select(*(computed(spark, sql) for sql, _ in projection)))) is not None:
        raise UnsupportedError(refusal(reason))
    columns = [
        computed(spark, sql) if name is None else tried(spark, sql).alias(name) for sql, name in projection
    ]
    return rows.select(*columns, *keep)


def as_texts(frame: DataFrame, names: Collection[str]) -> DataFrame:
    """A frame with some of its columns as Spark writes them: arrays, maps and structs as JSON."""
    nested = (ArrayType, MapType, StructType)
    columns = {
        field.name: F.to_json(field.name, TO_JSON)
        if isinstance(field.dataType, nested)
        else F.col(field.name).cast("string")
        for field in frame.schema
        if field.name in names
    }
    return frame.withColumns(columns)


def rows_as_json(frame: DataFrame) -> DataFrame:
    """Each row of a frame as a JSON object, in the column `line`."""
    return frame.select(F.to_json(F.struct("*"), TO_JSON).alias("line"))
