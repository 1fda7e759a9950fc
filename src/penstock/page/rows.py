"""The answers to /api/rows: the rows of a view, paged, searched, and as a file."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import InputError
from penstock.page.answers import encoded
from penstock.page.cells import cells_of, rows_with, texts_of
from penstock.page.folder import Snapshot
from penstock.spark.results.read_plain import plain_batches, plain_rows
from penstock.spark.results.texts import csv_line, csv_lines, has_form, json_lines
from penstock.spark.storage.layout import Layout

#: rows of one answer, and of a file
MOST_LIMIT, MOST_DOWNLOADED = 1_000, 100_000
#: rows that are looked through for one answer
_MOST_LOOKED = 1_000_000
#: by format of a file its media type
FORMATS = {
    "csv": "text/csv; charset=utf-8",
    "json": "application/x-ndjson",
    "parquet": "application/vnd.apache.parquet",
}
ORDERS = ("newest", "oldest")


def rows_answer(
    layout: Layout, snapshot: Snapshot, asked: str, *, offset: int, limit: int, search: str, order: str
) -> bytes:
    """Some rows of a view, among the first _MOST_LOOKED in this order.

    `looked` says how many were looked at, `is_whole` whether none that is asked for was left out for that bound.

    Args:
        layout: of the results folder.
        snapshot: of the folder.
        asked: the view's name, whole or as lists show it.
        offset, limit: which of the rows found.
        search: text that a cell must have, in any case; "" for all rows.
        order: one of ORDERS.

    Raises:
        UnknownNameError: there is no such view, or it has no results yet.
        InputError: only Spark computes its columns, or a file is damaged (`DamagedError`).
    """
    name = snapshot.views.index.named(asked)
    known = snapshot.views.line(name)["rows"]
    schema, batches, is_whole = _batches(layout, name, newest_first=order == "newest")
    taken: list[pa.RecordBatch] = []
    found = looked = 0
    is_counted = True
    for batch in batches:
        if not search and known is not None and found >= offset + limit:
            is_counted = False
            break
        if looked >= _MOST_LOOKED:
            is_counted = is_whole = False
            break
        looked += batch.num_rows
        rows = rows_with(batch, search) if search else batch
        begin, end = max(0, offset - found), max(0, offset + limit - found)
        if begin < min(end, rows.num_rows):
            taken.append(rows.slice(begin, end - begin))
        found += rows.num_rows
    table = pa.Table.from_batches(taken, schema)
    columns = [cells_of(column) for column in table.columns]
    return encoded(
        {
            "view": name,
            "columns": [{"name": field.name, "type": str(field.type)} for field in schema],
            "rows": [list(row) for row in zip(*columns, strict=True)],
            # rows may have come since the snapshot
            "count": found if is_counted or search or known is None else max(found, known),
            "offset": offset,
            "looked": looked,
            "is_whole": is_whole,
        }
    )


def rows_file(layout: Layout, snapshot: Snapshot, asked: str, file_format: str, search: str) -> IO[bytes]:
    """The newest rows of a view as a file, MOST_DOWNLOADED of them at the most; raises what `rows_answer` raises.

    Args:
        layout: of the results folder.
        snapshot: of the folder.
        asked: the view's name, whole or as lists show it.
        file_format: one of FORMATS.
        search: text that a cell must have, in any case; "" for all rows.
    """
    schema, batches, _ = _batches(layout, snapshot.views.index.named(asked), newest_first=True)
    chosen = _first(batches, search)
    file = tempfile.TemporaryFile()  # noqa: SIM115 - whoever sends it closes it
    try:
        if file_format == "parquet":
            with pq.ParquetWriter(file, schema) as writer:
                for batch in chosen:
                    writer.write_batch(batch)
        else:
            file.writelines(f"{line}\n".encode() for line in _lines(schema, chosen, file_format))
    except BaseException:
        file.close()
        raise
    file.seek(0)
    return file


def file_name(view: str, file_format: str) -> str:
    """What a file with the rows of a view is called: letters, digits, `_`, `-` and points."""
    return f"{re.sub(r'[^A-Za-z0-9_.-]+', '_', view)[:80]}.{file_format}"


def _batches(
    layout: Layout, view: str, *, newest_first: bool
) -> tuple[pa.Schema, Iterator[pa.RecordBatch], bool]:
    """The columns of a view, its rows, and whether none is left out: a window view has those of its newest revisions."""
    try:
        found = plain_batches(layout, view, newest_first=newest_first)
        if found is not None:
            return *found, True
        plain = plain_rows(layout, view, 0, most_read=_MOST_LOOKED)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        plain = None
    if plain is None:
        raise InputError(
            f"The page cannot show the rows of {view[:100]}: Spark computes its columns. "
            f"Use `penstock results {layout.output} {view[:100]}`."
        )
    rows = plain.rows
    if newest_first:
        rows = rows.take(pa.array(range(rows.num_rows - 1, -1, -1)))
    return rows.schema, iter(rows.to_batches()), plain.is_whole


def _first(batches: Iterator[pa.RecordBatch], search: str) -> Iterator[pa.RecordBatch]:
    found = looked = 0
    for batch in batches:
        if found >= MOST_DOWNLOADED or looked >= _MOST_LOOKED:
            return
        looked += batch.num_rows
        rows = (rows_with(batch, search) if search else batch).slice(0, MOST_DOWNLOADED - found)
        found += rows.num_rows
        yield rows


def _lines(schema: pa.Schema, batches: Iterator[pa.RecordBatch], file_format: str) -> Iterator[str]:
    if file_format == "csv":
        yield csv_line(schema.names)
    write = csv_lines if file_format == "csv" else json_lines
    for batch in batches:
        yield from write(_with_forms(batch))


def _with_forms(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch whose columns of other types are texts."""
    columns = [
        column if has_form(column.type) else pa.array(texts_of(column), pa.string())
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
