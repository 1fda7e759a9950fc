"""Rows of views whose files hold them as they are: window and join views, selections of plain columns. Needs no JVM."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import UnknownNameError
from penstock.operators.joins.changes import DELETE, INSERT
from penstock.operators.selection.matches import DEFINITIONS, queries_name
from penstock.plan.names import free_name
from penstock.spark.analysis.gate import stored_schema
from penstock.spark.analysis.schemas import arrow_schema
from penstock.spark.publication.manifests import published_files
from penstock.spark.reporting.catalog import find_rows, find_view, read_catalog
from penstock.spark.reporting.definitions import DEFINITION, is_selection, number_of
from penstock.spark.results.joined_rows import LANES, joined_files, joined_schema, marks_of, withdraws
from penstock.spark.results.published_rows import all_rows, newest_rows_of
from penstock.spark.results.revisions import Part, parts_of, standing_rows
from penstock.spark.results.stored_rows import Ints, StoredRows
from penstock.spark.results.window_schemas import (
    CORRECTED,
    FINAL,
    FIRST_REVISION,
    REVISION,
    ROW,
    MarkNames,
    require_readable,
)
from penstock.spark.storage.columns import metadata_of, rows_of
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.store_paths import StorePath

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PART = re.compile(rf"{_NAME.pattern}|`(?:[^`]|``)+`")
#: words that Spark reads as values where a column's name could stand
_VALUES = frozenset({"null", "true", "false"})
#: a column, then the fields of its structs
FieldPath = tuple[str, ...]
_DEFINITIONS = pa.field(DEFINITIONS, pa.list_(pa.int32()))


@dataclass(frozen=True, slots=True)
class PlainRows:
    """Rows of a view, read from the published files.

    Attributes:
        rows: the first of them.
        count: how many there are.
        is_whole: whether none was left out because more revisions are published than `most_read`.
    """

    rows: pa.Table
    count: int
    is_whole: bool = True


def plain_rows(
    layout: Layout,
    view: str,
    limit: int,
    revisions: bool = False,
    definition: int | None = None,
    all_definitions: bool = False,
    final_only: bool = False,
    most_read: int | None = None,
) -> PlainRows | None:
    """The rows of a view as `results` or `changes` would give them; None where it takes Spark to compute them.

    Args:
        layout: the results folder.
        view: the view's name.
        limit: rows at the most; 0 for all of them.
        revisions: whether every revision of a window view is wanted, or what was told and withdrawn of a join view.
        definition, all_definitions, final_only: see `read.results`.
        most_read: revisions of a window view's rows that are read at the most, the newest; None: all.

    Raises:
        InputError: the folder is none of Penstock's or is damaged (`DamagedError`), or what is asked for does not go together.
        UnknownNameError: there is no such view or definition, or it has no revisions.
    """
    if revisions:
        name, entry = find_view(layout, view, revisions, definition)
    else:
        name, entry = find_rows(layout, view, definition, all_definitions, final_only)
    try:
        if LANES in entry:
            return _joined_rows(layout, entry, limit, revisions)
        if not is_selection(entry):
            return _window_rows(layout, name, entry, limit, revisions, final_only, most_read)
        return _selected(layout, name, entry, limit, all_definitions)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        return None


def plain_batches(
    layout: Layout, view: str, definition: int | None = None, all_definitions: bool = False
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]] | None:
    """All rows of a join view or a selection of plain columns, read as they are asked for; None of any other view.

    Args:
        layout: the results folder.
        view: the view's name.
        definition, all_definitions: see `read.results`.

    Returns:
        Their columns and the rows.

    Raises:
        InputError: the folder is none of Penstock's, or is damaged (`DamagedError`).
        UnknownNameError: there is no such view.
    """
    found = stored_rows(layout, view, definition, all_definitions)
    return None if found is None else (found.schema, (part.rows for part in found.parts()))


def stored_rows(
    layout: Layout, view: str, definition: int | None = None, all_definitions: bool = False
) -> StoredRows | None:
    """The stored rows of a view, and which are its own; arguments and errors as of `plain_batches`."""
    name, entry = find_rows(layout, view, definition, all_definitions, final_only=False)
    if LANES in entry:
        return _joined(list(joined_files(layout, entry)), arrow_schema(joined_schema(entry)), entry)
    if not is_selection(entry):
        return None
    selected = _columns(layout, entry)
    if selected is None:
        return None
    chosen = Chosen(name, None if all_definitions else number_of(entry))
    return chosen.stored(published_files(layout, entry["stream"]), *selected)


def window_revisions(layout: Layout, view: str, most: int) -> tuple[pa.Table, MarkNames, bool]:
    """The newest revisions of the rows of a window view, as its newest definition has published them.

    Args:
        layout: the results folder.
        view: the view's name.
        most: revisions at the most.

    Returns:
        The view's own columns, MARKS and ROW (`window_schemas`), how MARKS are called, and whether these are all revisions.

    Raises:
        InputError: the folder is none of Penstock's, or is damaged (`DamagedError`).
        UnknownNameError: there is no such view, it has no revisions, or it has not answered yet.
    """
    name, entry = find_view(layout, view, revisions=True)
    if LANES in entry:
        raise UnknownNameError(f"View {name} has no windows.")
    readable = require_readable(layout, entry["stream"], name, entry["id"])
    newest, *_ = parts_of(layout, entry["stream"], name, readable)
    table, is_whole = newest_rows_of(newest.files, arrow_schema(readable.schema), most)
    return table, readable.marks, is_whole


def _published(parts: Sequence[Part], schema: pa.Schema, most: int | None) -> tuple[pa.Table, bool]:
    """The newest revisions of a window view's rows, of each part those that count, and whether these are all; `most` None: all."""
    found: list[pa.Table] = []
    is_whole = True
    for part in parts:
        if most is None:
            rows = all_rows(part.files, schema)
        else:
            rows, is_all = newest_rows_of(part.files, schema, most)
            most, is_whole = most - rows.num_rows, is_whole and is_all
        found.append(part.own(rows))
    return pa.concat_tables(found[::-1]), is_whole


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which rows of matches are wanted.

    Attributes:
        view: of which view.
        number: by which definition; None: by any, with a last column that tells which.
    """

    view: str
    number: int | None

    def schema(self, own: pa.Schema, columns: Mapping[str, FieldPath]) -> pa.Schema:
        """The columns of the rows."""
        fields = [_field(own, place).with_name(name) for name, place in columns.items()]
        if self.number is None:
            fields.append(pa.field(free_name(DEFINITION, list(columns)), pa.int32()))
        return pa.schema(fields)

    def places(self, batch: pa.RecordBatch) -> tuple[pa.Array, pa.Array]:
        """Where the rows are, and by which definition each is one; the last columns are those of `told_columns`."""
        queries, told = batch.columns[-2:]
        parents = pc.list_parent_indices(queries).to_numpy()
        numbers = np.ones(len(parents), np.int32)
        if told.null_count < len(told):
            # rows whose views all had their first definitions say none
            is_told = told.is_valid().to_numpy(zero_copy_only=False)
            numbers[is_told[parents]] = pc.list_flatten(told).to_numpy()
        wanted = pc.equal(pc.list_flatten(queries), self.view).to_numpy(zero_copy_only=False)
        if self.number is not None:
            wanted &= numbers == self.number
        return pa.array(parents[wanted]), pa.array(numbers[wanted])

    def stored(
        self, files: Sequence[tuple[StorePath, int]], own: pa.Schema, columns: Mapping[str, FieldPath]
    ) -> StoredRows:
        """The rows of the view in files of matches.

        Args:
            files: the files, each with its number of rows.
            own: the columns of the stream.
            columns: of the view, each with its place, see `places_of`.
        """
        schema = self.schema(own, columns)
        names = dict.fromkeys(name for name, *_ in columns.values())
        wanted = pa.schema([*map(own.field, names), *told_columns(own)])

        def pick(batch: pa.RecordBatch) -> tuple[Ints, pa.RecordBatch]:
            places, numbers = self.places(batch)
            rows = batch.select(list(names))
            if not np.array_equal(places, np.arange(batch.num_rows)):
                rows = rows.take(places)
            arrays = [
                pc.struct_field(rows.column(name), fields) if fields else rows.column(name)
                for name, *fields in columns.values()
            ]
            if self.number is None:
                arrays.append(numbers)
            return places.to_numpy().astype(np.int64), pa.RecordBatch.from_arrays(arrays, schema=schema)

        return StoredRows(schema, files, wanted, pick)


def _selected(
    layout: Layout, view: str, entry: Mapping[str, Any], limit: int, all_definitions: bool
) -> PlainRows | None:
    selected = _columns(layout, entry)
    if selected is None:
        return None
    chosen = Chosen(view, None if all_definitions else number_of(entry))
    files = published_files(layout, entry["stream"])
    taken, held = [], 0
    for part in chosen.stored(files, *selected).parts():
        rows = part.rows.slice(0, limit - held) if limit else part.rows
        held += rows.num_rows
        taken.append(rows)
        if limit and held >= limit:
            break
    full = bool(limit) and held >= limit
    told = told_columns(selected[0])
    count = (
        sum(len(chosen.places(batch)[0]) for path, _ in files for batch in rows_of(path, told))
        if full
        else held
    )
    return PlainRows(pa.Table.from_batches(taken, chosen.schema(*selected)), count)


def _joined_rows(layout: Layout, entry: Mapping[str, Any], limit: int, revisions: bool) -> PlainRows:
    files, schema = list(joined_files(layout, entry)), arrow_schema(joined_schema(entry))
    if revisions:
        schema = schema.append(marks_of(schema.names).field(0))
        batches = (batch for path, _ in files for batch in rows_of(path, schema))
    else:
        batches = (part.rows for part in _joined(files, schema, entry).parts())
    taken: list[pa.RecordBatch] = []
    held = 0
    for batch in batches:
        if limit and held >= limit:
            break
        taken.append(batch.slice(0, limit - held) if limit else batch)
        held += taken[-1].num_rows
    if withdraws(entry) and not revisions:
        marks = _joined(files, marks_of(schema.names), entry)
        count = sum(part.rows.num_rows for part in marks.parts())
    else:
        count = sum(metadata_of(path).num_rows for path, _ in files)
    return PlainRows(pa.Table.from_batches(taken, schema), count)


def _joined(
    files: Sequence[tuple[StorePath, int]], schema: pa.Schema, entry: Mapping[str, Any]
) -> StoredRows:
    """The rows of a join view with some of its files' columns, those withdrawn left out."""
    if not withdraws(entry):
        return StoredRows(schema, files, schema, lambda batch: (np.arange(batch.num_rows), batch))
    marks = marks_of(joined_schema(entry).fieldNames())
    op, row = marks.names

    @cache
    def gone() -> pa.ChunkedArray:
        told = all_rows((path for path, _ in files), marks)
        return told.filter(pc.equal(told.column(op), DELETE)).column(row)

    def pick(batch: pa.RecordBatch) -> tuple[Ints, pa.RecordBatch]:
        is_told = pc.equal(batch.column(op), INSERT)
        is_gone = pc.is_in(batch.column(row), value_set=gone())
        places = pc.indices_nonzero(pc.and_not(is_told, is_gone))
        return places.to_numpy().astype(np.int64), batch.take(places).select(schema.names)

    return StoredRows(schema, files, pa.unify_schemas([schema, marks]), pick)


def _columns(layout: Layout, entry: Mapping[str, Any]) -> tuple[pa.Schema, Mapping[str, FieldPath]] | None:
    """The columns of a selection's stream, and of each output its place; None where an output has none."""
    own = arrow_schema(stored_schema(read_catalog(layout)["streams"][entry["stream"]]))
    columns = places_of(entry["projection"], own)
    return None if columns is None else (own, columns)


def told_columns(own: pa.Schema) -> pa.Schema:
    """What matches say of the queries, beside a stream's own columns: their names and definitions."""
    return pa.schema([pa.field(queries_name(own.names), pa.list_(pa.string())), _DEFINITIONS])


def places_of(
    projection: Sequence[tuple[str, str | None]] | None, own: pa.Schema
) -> Mapping[str, FieldPath] | None:
    """Output name -> place, where every item names a column or a field of a struct, and all outputs have names of their own.

    Args:
        projection: (SQL text, output name or None) pairs; None: `*`.
        own: the columns of the stream.

    Returns:
        None where an item is computed.
    """
    if projection is None:
        return {name: (name,) for name in own.names}
    columns: dict[str, FieldPath] = {}
    for text, name in projection:
        place = _place(text.strip(), own)
        if place is None or name is None or name in columns:
            return None
        columns[name] = place
    return columns


def _place(text: str, own: pa.Schema) -> FieldPath | None:
    """The place that a text names, in the case in which its parts are spelt."""
    parts = _PART.findall(text)
    if ".".join(parts) != text or text.lower() in _VALUES:
        return None
    found: list[str] = []
    kind: pa.Schema | pa.DataType = own
    for part in parts:
        if not isinstance(kind, pa.Schema) and not pa.types.is_struct(kind):
            return None
        wanted = part[1:-1].replace("``", "`") if part.startswith("`") else part
        fields = [field for field in kind if field.name.lower() == wanted.lower()]
        if len(fields) != 1:
            return None
        found.append(fields[0].name)
        kind = fields[0].type
    return tuple(found)


def _field(own: pa.Schema, place: FieldPath) -> pa.Field:
    name, *fields = place
    field = own.field(name)
    for each in fields:
        field = field.type.field(each)
    return field


def _window_rows(
    layout: Layout,
    view: str,
    entry: Mapping[str, Any],
    limit: int,
    revisions: bool,
    final_only: bool,
    most_read: int | None,
) -> PlainRows:
    stream = entry["stream"]
    readable = require_readable(layout, stream, view, entry["id"])
    parts = parts_of(layout, stream, view, readable)
    whole = arrow_schema(readable.schema)
    names = [name for name in whole.names if name != ROW] if revisions else readable.columns.names
    schema = pa.schema([whole.field(name) for name in names])
    table, is_whole = _published(parts[:1] if revisions else parts, whole, most_read)
    rows = table if revisions else standing_rows(table)
    if final_only:
        marks = readable.marks
        rows = rows.filter(pc.field(marks[FINAL]))
        corrected = pc.greater_equal(rows.column(marks[REVISION]), FIRST_REVISION)
        added = free_name(CORRECTED, names)
        rows, names = rows.append_column(added, corrected), [*names, added]
        schema = schema.append(pa.field(added, pa.bool_()))
    kept = _ordered(rows.select(names).cast(schema))
    return PlainRows(kept.slice(0, limit) if limit else kept, kept.num_rows, is_whole)


def _ordered(rows: pa.Table) -> pa.Table:
    """Rows by window, then by the other columns; as they are where no column is a window."""
    window = next((name for name in rows.column_names if _is_window(rows.schema.field(name).type)), None)
    if window is None or not rows.num_rows:
        return rows
    others = [name for name in rows.column_names if _is_sortable(rows.schema.field(name).type)]
    # texts are keys more often than numbers, most of which are aggregates
    others.sort(key=lambda name: not pa.types.is_string(rows.schema.field(name).type))
    keys = pa.table(
        [
            pc.struct_field(rows.column(window), "start"),
            pc.struct_field(rows.column(window), "end"),
            *map(rows.column, others),
        ],
        [str(number) for number in range(len(others) + 2)],
    )
    return rows.take(pc.sort_indices(keys, [(name, "ascending") for name in keys.column_names]))


def _is_window(kind: pa.DataType) -> bool:
    return pa.types.is_struct(kind) and [field.name for field in kind] == ["start", "end"]


def _is_sortable(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_integer(kind) or types.is_string(kind) or types.is_date(kind) or types.is_timestamp(kind)
    )
