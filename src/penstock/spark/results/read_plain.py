"""Rows of views whose files hold them as they are: window and join views, selections of plain columns. Needs no JVM."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.operators.joins.changes import DELETE, INSERT
from penstock.operators.selection.matches import queries_name
from penstock.spark.analysis.gate import stored_schema
from penstock.spark.analysis.schemas import arrow_schema
from penstock.spark.publication.kinds import results_of, view_kind
from penstock.spark.publication.manifests import published_paths
from penstock.spark.reporting.catalog import find_view, read_catalog
from penstock.spark.results.joined_rows import LANES, joined_paths, joined_schema, marks_of, withdraws
from penstock.spark.results.newest import newest_rows
from penstock.spark.results.window_schemas import (
    OP,
    ROW,
    UPSERT,
    described_view,
    marks_in,
    result_parts,
)
from penstock.spark.storage.columns import batches_of, conform, metadata_of
from penstock.spark.storage.layout import Layout

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_QUOTED = re.compile(r"`((?:[^`]|``)+)`")
#: words that Spark reads as values where a column's name could stand
_VALUES = frozenset({"null", "true", "false"})


@dataclass(frozen=True, slots=True)
class PlainRows:
    """Rows of a view, read from the published files.

    Attributes:
        name: the view's name as declared.
        rows: the first of them.
        count: how many there are.
    """

    name: str
    rows: pa.Table
    count: int


def plain_rows(layout: Layout, view: str, limit: int, revisions: bool = False) -> PlainRows | None:
    """The rows of a view as `results` or `changes` would give them; None where it takes Spark to compute them.

    Args:
        layout: the results folder.
        view: the view's name.
        limit: rows at the most; 0 for all of them.
        revisions: whether every revision of a window view is wanted, or what was told and withdrawn of a join view.

    Raises:
        InputError: the folder is none of Penstock's, or is damaged (`DamagedError`).
        UnknownNameError: there is no such view, or it has no revisions.
    """
    name, definition = find_view(layout, view, revisions)
    try:
        if LANES in definition:
            return _joined_rows(layout, name, definition, limit, revisions)
        if "projection" not in definition:
            return _window_rows(layout, definition["stream"], name, limit, revisions)
        return _selected(layout, definition["stream"], name, definition["projection"], limit)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        return None


def plain_batches(layout: Layout, view: str) -> tuple[pa.Schema, Iterator[pa.RecordBatch]] | None:
    """All rows of a join view or a selection of plain columns, read as they are asked for; None of any other view.

    Args:
        layout: the results folder.
        view: the view's name.

    Returns:
        Their columns and the rows.

    Raises:
        InputError: the folder is none of Penstock's, or is damaged (`DamagedError`).
        UnknownNameError: there is no such view.
    """
    name, definition = find_view(layout, view, False)
    if LANES in definition:
        schema = arrow_schema(joined_schema(definition))
        return schema, _joined(list(joined_paths(layout, definition)), schema, definition)
    if "projection" not in definition:
        return None
    selected = _columns(layout, definition["stream"], definition["projection"])
    if selected is None:
        return None
    own, columns = selected
    files = list(published_paths(layout, definition["stream"]))
    return _named(own, columns), _rows(files, own, columns, name)


def _selected(
    layout: Layout, stream: str, view: str, projection: Sequence[tuple[str, str | None]] | None, limit: int
) -> PlainRows | None:
    selected = _columns(layout, stream, projection)
    if selected is None:
        return None
    own, columns = selected
    files = list(published_paths(layout, stream))
    taken, held = [], 0
    for batch in _rows(files, own, columns, view):
        rows = batch.slice(0, limit - held) if limit else batch
        held += rows.num_rows
        taken.append(rows)
        if limit and held >= limit:
            break
    full = bool(limit) and held >= limit
    queries = pa.schema([_queries(own)])
    count = sum(len(_matching(batch, view)) for batch in _read(files, queries)) if full else held
    return PlainRows(view, pa.Table.from_batches(taken, _named(own, columns)), count)


def _joined_rows(
    layout: Layout, view: str, entry: Mapping[str, Any], limit: int, revisions: bool
) -> PlainRows:
    files, schema = list(joined_paths(layout, entry)), arrow_schema(joined_schema(entry))
    if revisions:
        schema = schema.append(marks_of(schema.names).field(0))
    batches = _read(files, schema) if revisions else _joined(files, schema, entry)
    taken: list[pa.RecordBatch] = []
    held = 0
    for batch in batches:
        if limit and held >= limit:
            break
        taken.append(batch.slice(0, limit - held) if limit else batch)
        held += taken[-1].num_rows
    if withdraws(entry) and not revisions:
        count = sum(batch.num_rows for batch in _joined(files, marks_of(schema.names), entry))
    else:
        count = sum(metadata_of(path).num_rows for path in files)
    return PlainRows(view, pa.Table.from_batches(taken, schema), count)


def _joined(files: Sequence[Path], schema: pa.Schema, entry: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
    """The rows of a join view with some of its files' columns, those withdrawn left out."""
    if not withdraws(entry):
        yield from _read(files, schema)
        return
    marks = marks_of(joined_schema(entry).fieldNames())
    op, row = marks.names
    deleted = [each.filter(pc.equal(each.column(op), DELETE)).column(row) for each in _read(files, marks)]
    gone = pa.chunked_array(deleted, marks.field(row).type)
    for batch in _read(files, pa.unify_schemas([schema, marks])):
        is_told = pc.equal(batch.column(op), INSERT)
        is_gone = pc.is_in(batch.column(row), value_set=gone)
        yield batch.filter(pc.and_not(is_told, is_gone)).select(schema.names)


def _columns(
    layout: Layout, stream: str, projection: Sequence[tuple[str, str | None]] | None
) -> tuple[pa.Schema, Mapping[str, str]] | None:
    """The stream's columns, and of each output its column; None where an output is none."""
    own = arrow_schema(stored_schema(read_catalog(layout)["streams"][stream]))
    columns = {name: name for name in own.names} if projection is None else _plain(projection, own.names)
    return None if columns is None else (own, columns)


def _queries(own: pa.Schema) -> pa.Field:
    """The column of matches that names the queries, beside a stream's own columns."""
    return pa.field(queries_name(own.names), pa.list_(pa.string()))


def _named(own: pa.Schema, columns: Mapping[str, str]) -> pa.Schema:
    return pa.schema([own.field(column).with_name(name) for name, column in columns.items()])


def _rows(
    files: Sequence[Path], own: pa.Schema, columns: Mapping[str, str], view: str
) -> Iterator[pa.RecordBatch]:
    """The rows of a view with its own columns."""
    schema = _named(own, columns)
    wanted = pa.schema([*(own.field(name) for name in dict.fromkeys(columns.values())), _queries(own)])
    for batch in _read(files, wanted):
        rows = batch.take(_matching(batch, view))
        arrays = [rows.column(column) for column in columns.values()]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _plain(projection: Sequence[tuple[str, str | None]], names: Sequence[str]) -> Mapping[str, str] | None:
    """Output name -> column, where every item is the name of one column, and all outputs have names of their own."""
    columns: dict[str, str] = {}
    for text, name in projection:
        spelt = text.strip()
        quoted = _QUOTED.fullmatch(spelt)
        if quoted is not None:
            spelt = quoted[1].replace("``", "`")
        elif not _NAME.fullmatch(spelt) or spelt.lower() in _VALUES:
            return None
        found = [column for column in names if column.lower() == spelt.lower()]
        if len(found) != 1 or name is None or name in columns:
            return None
        columns[name] = found[0]
    return columns


def _matching(batch: pa.RecordBatch, view: str) -> pa.Array:
    """The rows whose queries, the last column, name a view."""
    queries = batch.column(batch.num_columns - 1)
    rows = pc.list_parent_indices(queries).filter(pc.equal(pc.list_flatten(queries), view))
    return pc.unique(rows)


def _window_rows(layout: Layout, stream: str, view: str, limit: int, revisions: bool) -> PlainRows | None:
    readable = described_view(layout, stream, view)
    if not revisions and len(result_parts(layout, stream, readable)) > 1:
        return None
    whole = arrow_schema(readable.schema)
    names = [name for name in whole.names if name != ROW] if revisions else readable.columns.names
    schema = pa.schema([whole.field(name) for name in names])
    files = list(published_paths(layout, results_of(stream), view_kind(readable.operator, view)))
    table = pa.Table.from_batches(_read(files, whole), whole)
    rows = table if revisions else _newest(table)
    kept = rows.select(names).cast(schema)
    return PlainRows(view, kept.slice(0, limit) if limit else kept, kept.num_rows)


def _read(files: Sequence[Path], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of files with the columns of a schema; a column that a file lacks is NULL."""
    for path in files:
        for batch in batches_of(path, schema.names):
            yield conform(batch, schema)


def _newest(table: pa.Table) -> pa.Table:
    """The newest revision of each row, a final one before others; those withdrawn left out."""
    newest = newest_rows(table)
    return newest.filter(pc.equal(newest.column(marks_in(newest.column_names)[OP]), UPSERT))
