"""The answers to /api/rows: the rows of a view, paged, searched, and as a file."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import InputError
from penstock.page.answers import encoded
from penstock.page.cells import Cell, cells_of, places_with, texts_of
from penstock.page.folder import Snapshot
from penstock.spark.results.json_columns import json_lines
from penstock.spark.results.read_plain import plain_rows, stored_rows
from penstock.spark.results.stored_rows import Part, StoredRows
from penstock.spark.results.texts import csv_line, csv_lines, has_form
from penstock.spark.storage.layout import Layout

#: rows of one answer, and of a file
MOST_LIMIT, MOST_DOWNLOADED = 1_000, 100_000
#: stored rows that are looked at for one answer
_MOST_LOOKED = 1_000_000
#: rows that are taken from a table at a time
_PART = 10_000
#: by format of a file its media type
FORMATS = {
    "csv": "text/csv; charset=utf-8",
    "json": "application/x-ndjson",
    "parquet": "application/vnd.apache.parquet",
}
ORDERS = ("newest", "oldest")


@dataclass(frozen=True, slots=True)
class Asked:
    """Which rows of a view are asked for.

    Attributes:
        limit: rows at the most.
        search: text that a cell must have, in any case; "" for all rows.
        order: one of ORDERS.
        at: the place where they begin: how many stored rows are older; None: where the order begins.
        is_back: whether the rows before that place are asked for, those nearest to it.
    """

    limit: int
    search: str = ""
    order: str = ORDERS[0]
    at: int | None = None
    is_back: bool = False


def rows_answer(layout: Layout, snapshot: Snapshot, view: str, asked: Asked) -> bytes:
    """Some rows of a view; at most _MOST_LOOKED stored rows are looked at for them.

    `stored` says how many rows are stored, those of other views in the same files too. `begin` and `end` are places like `at`: all
    rows between them that are asked for are given. `is_whole` says whether no older revisions of windows are left out.

    Args:
        layout: of the results folder.
        snapshot: of the folder.
        view: the view's name, whole or as lists show it.
        asked: which rows.

    Raises:
        UnknownNameError: there is no such view, or it has no results yet.
        InputError: only Spark computes its columns, or a file is damaged (`DamagedError`).
    """
    name = snapshot.views.index.named(view)
    stored, is_whole = _stored(layout, name)
    count = stored.count
    is_newest_first = asked.order == "newest"
    start = count if is_newest_first else 0
    at = start if asked.at is None else min(asked.at, count)
    rows, end = _looked_at(stored, at, asked, is_newest_first != asked.is_back)
    begin = at
    if asked.is_back:
        rows, begin, end = rows[::-1], end, at
        if begin == start and len(rows) < asked.limit:
            # a page that is not full is the last one, never the first
            rows, end = _looked_at(stored, start, asked, is_newest_first)
    return encoded(
        {
            "view": name,
            "columns": [{"name": field.name, "type": str(field.type)} for field in stored.schema],
            "rows": rows,
            "count": snapshot.views.line(name)["rows"],
            "stored": count,
            "begin": begin,
            "end": end,
            "is_whole": is_whole,
        }
    )


def _looked_at(
    stored: StoredRows | _TableRows, at: int, asked: Asked, newest_first: bool
) -> tuple[list[list[Cell]], int]:
    """The rows that are asked for from a place on, as cells, and the place where the search for them ended."""
    taken: list[pa.RecordBatch] = []
    left, end = asked.limit, at
    for part in stored.parts(at, newest_first=newest_first):
        rows, numbers, end = part.rows, part.numbers, part.end
        if asked.search:
            places = places_with(rows, asked.search)
            rows, numbers = rows.take(places), numbers[places.to_numpy()]
        is_full = rows.num_rows >= left
        if is_full:
            rows = rows.slice(0, left)
            # what follows the last row, in the order of reading
            end = int(numbers[left - 1]) + (not newest_first) if left else at
        taken.append(rows)
        left -= rows.num_rows
        if is_full or abs(end - at) >= _MOST_LOOKED:
            break
    columns = [cells_of(column) for column in pa.Table.from_batches(taken, stored.schema).columns]
    return [list(row) for row in zip(*columns, strict=True)], end


def rows_file(layout: Layout, snapshot: Snapshot, asked: str, file_format: str, search: str) -> IO[bytes]:
    """The newest rows of a view as a file, MOST_DOWNLOADED of them at the most; raises what `rows_answer` raises.

    Args:
        layout: of the results folder.
        snapshot: of the folder.
        asked: the view's name, whole or as lists show it.
        file_format: one of FORMATS.
        search: text that a cell must have, in any case; "" for all rows.
    """
    stored, _ = _stored(layout, snapshot.views.index.named(asked))
    schema, chosen = stored.schema, _newest(stored, search)
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


@dataclass(frozen=True, slots=True, eq=False)
class _TableRows:
    """Rows that are in memory, all of them a view's; members as of `StoredRows`."""

    table: pa.Table

    @property
    def schema(self) -> pa.Schema:
        return self.table.schema

    @property
    def count(self) -> int:
        return int(self.table.num_rows)

    def parts(self, begin: int = 0, *, newest_first: bool = False) -> Iterator[Part]:
        numbers = np.arange(begin)[::-1] if newest_first else np.arange(begin, self.count)
        for first in range(0, len(numbers), _PART):
            part = numbers[first : first + _PART]
            (rows,) = self.table.take(pa.array(part)).combine_chunks().to_batches()
            yield Part(rows, part, int(part[-1]) + (not newest_first))


def _stored(layout: Layout, view: str) -> tuple[StoredRows | _TableRows, bool]:
    """The rows of a view, and whether none is left out: a window view has those of its newest revisions."""
    try:
        found = stored_rows(layout, view)
        if found is not None:
            return found, True
        plain = plain_rows(layout, view, 0, most_read=_MOST_LOOKED)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        plain = None
    if plain is None:
        raise InputError(
            f"The page cannot show the rows of {view[:100]}: Spark computes its columns. "
            f"Use `penstock results {layout.output} {view[:100]}`."
        )
    return _TableRows(plain.rows), plain.is_whole


def _newest(stored: StoredRows | _TableRows, search: str) -> Iterator[pa.RecordBatch]:
    found, count = 0, stored.count
    for part in stored.parts(count, newest_first=True):
        rows = part.rows.take(places_with(part.rows, search)) if search else part.rows
        rows = rows.slice(0, MOST_DOWNLOADED - found)
        found += rows.num_rows
        yield rows
        if found >= MOST_DOWNLOADED or count - part.end >= _MOST_LOOKED:
            return


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
