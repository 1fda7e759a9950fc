"""Reading the results folder: published matches, and the rows of one view with its own projection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, MapType, StringType, StructType

from penstock.errors import CheckpointError, InputError, UnknownNameError, UnsupportedError
from penstock.operators.ingest.map_stage import QUERIES
from penstock.spark.analysis.catalyst import empty_frame
from penstock.spark.analysis.gate import changing, computed, stored_schema, tried
from penstock.spark.analysis.schemas import spark_schema
from penstock.spark.publication.kinds import rows_of, view_kind
from penstock.spark.publication.manifests import published_paths
from penstock.spark.recovery.messages import quoted
from penstock.spark.reporting.catalog import find_view, read_catalog
from penstock.spark.results.joined_rows import (
    LANES,
    catalog_entry,
    file_schema,
    joined_changes,
    joined_results,
)
from penstock.spark.results.misses import LATE, MISSES, missed_paths
from penstock.spark.results.published import published_frame
from penstock.spark.results.window_rows import window_changes, window_results
from penstock.spark.results.window_schemas import ROW, readable_view
from penstock.spark.storage.bindings import ViewDefinition, WindowDefinition
from penstock.spark.storage.formats import CATALOG
from penstock.spark.storage.joins import JOINS_NAME, RegisteredJoin
from penstock.spark.storage.layout import Layout

#: where a row of a sink came from: the batch's number, and its place in the batch
BATCH, ORDINAL = "penstock_batch", "penstock_ordinal"

#: of Spark's to_json, which cuts moments to milliseconds
_TO_JSON = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}

Projection = Sequence[tuple[str, str | None]]


def write_catalog(
    layout: Layout,
    streams: Mapping[str, StructType],
    views: Mapping[str, Mapping[str, ViewDefinition | WindowDefinition]],
    joins: Sequence[RegisteredJoin] = (),
) -> None:
    """Tells readers of the folder which streams and views there are; dropped views stay readable."""
    known = CATALOG.read(layout.catalog) or {"streams": {}, "views": {}}
    for name, schema in streams.items():
        known["streams"][name] = schema.jsonValue()
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    # views over window views and joins, all of which are gone
    over = tuple(rows_of(stream, "") for stream in (*streams, JOINS_NAME))
    for entry in known["views"].values():
        stream = entry.get("stream", "")
        if stream.startswith(over) and stream not in views:
            entry.setdefault("dropped", now)
    for stream, definitions in views.items():
        for name, entry in known["views"].items():
            if entry.get("stream") == stream and name not in definitions:
                entry.setdefault("dropped", now)
        for name, definition in definitions.items():
            known["views"][name] = {**asdict(definition), "stream": stream}
    answered = {each.definition.name: catalog_entry(each) for each in joins}
    for name, entry in known["views"].items():
        if LANES in entry and name not in answered:
            entry.setdefault("dropped", now)
    known["views"].update(answered)
    CATALOG.replace(layout.catalog, known)


def matches(spark: SparkSession, layout: Layout, stream: str) -> DataFrame:
    """The published matches of a stream: the tuple's columns and `queries`.

    Raises:
        UnknownNameError: there is no such stream.
    """
    catalog = read_catalog(layout)
    if stream not in catalog["streams"]:
        raise UnknownNameError(
            f"no stream {stream}; existing streams: {', '.join(catalog['streams']) or 'none'}"
        )
    schema = stored_schema(catalog["streams"][stream])
    return read_matches(spark, schema, list(published_paths(layout, stream)))


def read_matches(spark: SparkSession, schema: StructType, paths: Sequence[Path]) -> DataFrame:
    """Files of matches as a frame of the tuple's columns and `queries`."""
    wide = StructType([*schema.fields]).add(QUERIES, ArrayType(StringType(), containsNull=False))
    return published_frame(spark, wide, paths)


def open_results(spark: SparkSession, folder: Path, view: str, revisions: bool = False) -> DataFrame:
    """The rows of a view in a results folder, with no run beside it.

    Args:
        spark: the session.
        folder: the results folder.
        view: the view's name.
        revisions: whether every revision of a window view is wanted; see `changes`.

    Raises:
        InputError: the folder is none of Penstock's.
        UnknownNameError: there is no such view.
    """
    read = changes if revisions else results
    return read(spark, Layout(folder, folder), view)


def results(spark: SparkSession, layout: Layout, view: str) -> DataFrame:
    """The rows of a view, with its own projection; of a window view the newest revision of each.

    Raises:
        UnknownNameError: there is no such view.
    """
    name, definition = find_view(layout, view)
    try:
        if LANES in definition:
            return joined_results(spark, layout, definition)
        if "projection" not in definition:
            return window_results(spark, layout, definition["stream"], name)
        frame = matches(spark, layout, definition["stream"])
        return project(frame, name, definition["projection"])
    except UnsupportedError as error:
        raise InputError(
            f"{layout.output / '_penstock'} says of view {name} what Penstock never writes. Somebody else did: trust nothing "
            f"in this folder. {error}"
        ) from None


def changes(spark: SparkSession, layout: Layout, view: str) -> DataFrame:
    """Every revision of every row of a window view; of a LEFT JOIN rows as they were told and withdrawn.

    Raises:
        UnknownNameError: there is no such view, or it is a selection or another join, whose rows never change.
    """
    name, definition = find_view(layout, view, revisions=True)
    if LANES in definition:
        return joined_changes(spark, layout, definition)
    return window_changes(spark, layout, definition["stream"], name)


def misses(spark: SparkSession, layout: Layout, view: str) -> DataFrame:
    """The windows of a view with a deadline that were not released in time: what became of each, and why; has it been answered since.

    Raises:
        UnknownNameError: there is no such view, or it has no deadline.
    """
    paths = missed_paths(layout, view)
    schema = spark_schema(MISSES)
    if not paths:
        return empty_frame(spark, schema)
    told = published_frame(spark, schema, paths)
    late = told.where(F.col("outcome") == LATE).groupBy("window").agg(F.max("answered").alias("answered"))
    missed = told.where(F.col("outcome") != LATE).drop("answered")
    return missed.join(late, "window", "left").select(*MISSES.names)


def project(
    frame: DataFrame, view: str, projection: Projection | None, keep: Sequence[str] = ()
) -> DataFrame:
    """One view's rows of a frame of matches, with the view's projection.

    An expression that raises for a row gives NULL there: the row is a match all the same, and a
    batch that cannot be projected would stop its sinks at every restart.

    Args:
        frame: tuples with `queries`.
        view: the view's name.
        projection: (SQL text, output name or None) pairs, or None for `*`.
        keep: further columns to keep.
    """
    rows = frame.where(F.array_contains(F.col(QUERIES), view))
    if projection is None:
        return rows.drop(QUERIES)
    spark = frame.sparkSession
    if (reason := changing(rows.select(*(computed(spark, sql) for sql, _ in projection)))) is not None:
        raise UnsupportedError(f"{reason} cannot be used here.")
    columns = [
        computed(spark, sql) if name is None else tried(spark, sql).alias(name) for sql, name in projection
    ]
    return rows.select(*columns, *keep)


def nested_as_json(frame: DataFrame) -> DataFrame:
    """A frame with its arrays, maps and structs as JSON texts."""
    nested = (ArrayType, MapType, StructType)
    columns = [
        F.to_json(F.col(quoted(field.name)), _TO_JSON).alias(field.name)
        if isinstance(field.dataType, nested)
        else F.col(quoted(field.name))
        for field in frame.schema
    ]
    return frame.select(*columns)


def rows_as_json(frame: DataFrame) -> DataFrame:
    """Each row of a frame as a JSON object, in the column `line`."""
    return frame.select(F.to_json(F.struct("*"), _TO_JSON).alias("line"))


def added_columns(layout: Layout, stream: str, schema: StructType) -> list[str]:
    """The columns that were added to a stream since its results were last written to; earlier rows have NULL there.

    Raises:
        CheckpointError: a column that the results have is gone, or is of another type.
    """
    document = (CATALOG.read(layout.catalog) or {"streams": {}})["streams"].get(stream)
    if document is None:
        return []
    known = _columns(stored_schema(document))
    now = _columns(schema)
    lost = [
        f"column {name} was {kind} and is {now.get(name, 'gone')}"
        for name, kind in known.items()
        if now.get(name) != kind
    ]
    if lost:
        raise CheckpointError(
            f"stream {stream}: {'; '.join(lost)}. The results in {layout.output} have the columns "
            f"{', '.join(f'{name} {kind}' for name, kind in known.items())}: columns may be added, not dropped, renamed "
            "or given another type. Put them back, or start with a new output folder and checkpoint"
        )
    return [name for name in now if name not in known]


def _columns(schema: StructType) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in schema}


def batch_rows(
    spark: SparkSession, layout: Layout, stream: str, schema: StructType, batch: int, files: Sequence[str]
) -> DataFrame:
    """The matches of one published batch, with the columns BATCH and ORDINAL."""
    folder = layout.matches(stream)
    frame = read_matches(spark, schema, [folder / name for name in files])
    if not files:
        return frame.withColumn(BATCH, F.lit(batch)).withColumn(ORDINAL, F.lit(""))
    return _numbered(frame, batch)


def batch_changes(
    spark: SparkSession,
    layout: Layout,
    stream: str,
    view: str,
    batch: int,
    files: Sequence[Mapping[str, Any]],
) -> DataFrame | None:
    """What one published batch of results says of a window view, as `window_changes`, with BATCH and ORDINAL.

    Args:
        files: the batch's, as its manifest lists them.

    Returns:
        None where it says nothing of the view as it is defined now.
    """
    readable = readable_view(layout, stream, view)
    if readable is None:
        return None
    kind = view_kind(readable.operator, view)
    paths = [str(layout.results(view) / file["name"]) for file in files if file["kind"] == kind]
    return _numbered(published_frame(spark, readable.schema, paths), batch).drop(ROW) if paths else None


def batch_joined(
    spark: SparkSession, layout: Layout, joined: RegisteredJoin, cut: int, files: Sequence[Mapping[str, Any]]
) -> DataFrame:
    """The rows of a join view in one published cut, with BATCH and ORDINAL; OP before these where rows may be withdrawn.

    Args:
        files: the cut's, as its manifest lists them; one at least.
    """
    folder = layout.results(joined.definition.name)
    schema = spark_schema(file_schema(joined.definition.plan))
    rows = published_frame(spark, schema, [folder / file["name"] for file in files])
    return _numbered(rows, cut).drop(ROW)


def _numbered(frame: DataFrame, batch: int) -> DataFrame:
    """Rows of a batch's files with BATCH and ORDINAL, the same when the batch is repeated."""
    task = F.regexp_extract(F.col("_metadata.file_name"), r"^\d+-(.*)\.parquet$", 1)
    ordinal = F.concat_ws("-", task, F.col("_metadata.row_index").cast("string"))
    return frame.withColumn(ORDINAL, ordinal).withColumn(BATCH, F.lit(batch))
