"""The map stage in the scan: Spark hands over paths, the worker reads Parquet with pyarrow.

Spark keeps its file log, rate limits and exactly-once; the tuples never cross from the JVM to
Python. Row groups whose statistics rule out every query are not read, and columns that no query
compares are decoded only where a row group holds a match.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlparse

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from penstock.operators.encode import ColumnEncoder
from penstock.operators.pruning import CodeBounds, code_bounds, could_match
from penstock.spark.messages import first_line
from penstock.spark.worker import REPORT_SCHEMA, Task, TaskContextData, TaskReport, run_partition

#: which Spark wrote a file; those before the other version had the Julian calendar before 1582
_VERSION, _GREGORIAN_SINCE = b"org.apache.spark.version", b"3.0.0"
#: marks of files of later versions whose old dates and timestamps Spark shifts between calendars
_REBASED = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")


class _UnreadableError(Exception):
    """The file's own bytes are at fault; anything else fails the task, and Spark tries again."""


@dataclass(frozen=True, slots=True)
class RowGroups:
    """Some row groups of one file.

    Attributes:
        path: the URI Spark gave.
        groups: numbers of the row groups.
        rows: rows in them.
    """

    path: str
    groups: tuple[int, ...]
    rows: int


def open_parquet(uri: str) -> pq.ParquetFile:
    """Opens a Parquet file by the URI Spark gave.

    Raises:
        OSError, pyarrow.ArrowInvalid: it cannot be opened or is no Parquet file.
    """
    parsed = urlparse(uri)
    if parsed.scheme in ("", "file"):
        return pq.ParquetFile(unquote(parsed.path), memory_map=True)
    filesystem, path = pafs.FileSystem.from_uri(uri)
    return pq.ParquetFile(path, filesystem=filesystem)


def readable_in_scan(file: pq.ParquetFile, schema: pa.Schema, *, others_as_they_are: bool = True) -> bool:
    """Whether the scan reads what Spark reads.

    The file's columns are exactly the stream's (no widening, no missing column, no INT96), and Spark does not
    shift its dates and timestamps from the calendar of Spark 2 to today's.

    Args:
        file: the file.
        schema: the stream's columns.
        others_as_they_are: whether Spark takes dates of files that Spark has not written as they are.
    """
    stored = file.schema_arrow
    if any(map(_has_moments, schema.types)) and _is_rebased(file, others_as_they_are):
        return False
    return all(
        stored.get_field_index(field.name) >= 0 and stored.field(field.name).type == field.type
        for field in schema
    )


def _has_moments(kind: pa.DataType) -> bool:
    inner = (kind.field(number).type for number in range(kind.num_fields))
    return pa.types.is_date(kind) or pa.types.is_timestamp(kind) or any(map(_has_moments, inner))


def _is_rebased(file: pq.ParquetFile, others_as_they_are: bool) -> bool:
    """As Spark's DataSourceUtils has it, texts of versions compared as texts."""
    told = file.metadata.metadata or {}
    version = told.get(_VERSION)
    if version is None:
        return not others_as_they_are
    return version < _GREGORIAN_SINCE or any(key in told for key in _REBASED)


def split(files: Sequence[tuple[str, pq.FileMetaData]], tasks: int) -> list[list[RowGroups]]:
    """Spreads row groups over tasks so that each gets about the same number of rows, file order kept."""
    pieces = [
        RowGroups(path, (group,), metadata.row_group(group).num_rows)
        for path, metadata in files
        for group in range(metadata.num_row_groups)
    ]
    total = sum(piece.rows for piece in pieces)
    splits: list[list[RowGroups]] = [[] for _ in range(max(1, min(tasks, len(pieces))))]
    taken = 0
    for piece in pieces:
        number = min(len(splits) - 1, taken * len(splits) // max(1, total))
        splits[number].append(piece)
        taken += piece.rows
    return [part for part in splits if part]


def run_in_scan(
    spark: SparkSession, splits: list[list[RowGroups]], context: TaskContextData
) -> list[TaskReport]:
    """Runs one job whose tasks read the row groups themselves.

    Returns:
        One report a task.
    """

    def read(task: Task, numbers: pa.RecordBatch) -> None:
        for piece in (piece for number in numbers.column(0).to_pylist() for piece in splits[number]):
            for group in piece.groups:
                try:
                    file = open_parquet(piece.path)
                    _run_row_group(task, file, group)
                except _UnreadableError as error:
                    _set_aside(task, f"{piece.path}#{group}", error)

    def stage(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return run_partition(context, numbers, read)

    # a partition a split; by way of mapInArrow, so that one worker daemon serves every kind of job
    rows = spark.range(0, len(splits), 1, len(splits)).mapInArrow(stage, REPORT_SCHEMA).collect()
    return [pickle.loads(row.report) for row in rows]


def _set_aside(task: Task, origin: str, error: Exception) -> None:
    reason = f"unreadable row group: {first_line(error)}"
    task.quarantine(pa.array([None], pa.binary()), pa.array([origin]), pa.array([reason]))


def _run_row_group(task: Task, file: pq.ParquetFile, group: int) -> None:
    program = task.stage.program
    columns, windows, batch_rows = program.columns, program.windows, program.settings.batch_rows
    is_matched = could_match(program.plan, _bounds(file, group, task.stage.encoders))
    if not is_matched and not (windows and windows.wants_every_tuple):
        task.stage.skip(file.metadata.row_group(group).num_rows)
        observed = windows.time if windows else program.event_time
        if observed is not None:
            for batch in _batches(file, group, [observed], batch_rows):
                task.stage.observe_times(batch)
        return
    first = program.needed if is_matched or windows is None else list(windows.columns)
    rest = [name for name in columns if name not in first]
    late = _LateColumns(file, group, columns, rest)
    offset = 0
    for batch in _batches(file, group, first or [columns[0]], batch_rows):
        late.at(batch, offset)
        offset += batch.num_rows
        task.process(batch, late.tuples, is_matched=is_matched)


def _batches(file: pq.ParquetFile, group: int, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
    try:
        yield from file.iter_batches(
            batch_size=rows, row_groups=[group], columns=list(columns), use_threads=False
        )
    except pa.ArrowInvalid as error:
        raise _UnreadableError(first_line(error)) from error


def _read_columns(file: pq.ParquetFile, group: int, columns: Sequence[str]) -> pa.Table:
    try:
        return file.read_row_group(group, columns=list(columns), use_threads=False)
    except pa.ArrowInvalid as error:
        raise _UnreadableError(first_line(error)) from error


class _LateColumns:
    """Decodes the columns no query compares when a batch of the row group first has a match."""

    def __init__(self, file: pq.ParquetFile, group: int, columns: Sequence[str], rest: Sequence[str]) -> None:
        self._file = file
        self._group = group
        self._columns = columns
        self._rest = list(rest)
        self._read: pa.Table | None = None

    def at(self, batch: pa.RecordBatch, offset: int) -> None:
        """Moves to a batch that starts at a row of the row group."""
        self._batch = batch
        self._offset = offset

    def tuples(self, mask: npt.NDArray[np.bool_]) -> pa.RecordBatch:
        """The tuple's columns of the rows where the mask is true."""
        rows = np.flatnonzero(mask)
        matched = self._batch.take(pa.array(rows))
        if not self._rest:
            return pa.record_batch(
                [matched.column(name) for name in self._columns], names=list(self._columns)
            )
        if self._read is None:
            self._read = _read_columns(self._file, self._group, self._rest)
        late = self._read.take(pa.array(rows + self._offset)).combine_chunks()
        found: dict[str, Any] = {name: matched.column(name) for name in matched.schema.names}
        for name in self._rest:
            column = late.column(name)
            found[name] = column.chunk(0) if column.num_chunks else pa.array([], column.type)
        return pa.record_batch([found[name] for name in self._columns], names=list(self._columns))


def _bounds(file: pq.ParquetFile, group: int, encoders: Sequence[ColumnEncoder]) -> list[CodeBounds | None]:
    """What the row group's statistics say of each p-attribute."""
    metadata = file.metadata.row_group(group)
    found = {}
    for index in range(metadata.num_columns):
        column = metadata.column(index)
        # a dot may stand for a field of a nested column
        if column.is_stats_set and column.statistics.has_min_max and "." not in column.path_in_schema:
            found[column.path_in_schema] = column.statistics
    bounds: list[CodeBounds | None] = []
    for encoder in encoders:
        statistics = found.get(encoder.coding.name)
        if statistics is None:
            bounds.append(None)
            continue
        may_be_null = not statistics.has_null_count or statistics.null_count > 0
        try:
            low, high = statistics.min, statistics.max
        except (OverflowError, ValueError):  # a date Python does not know, text cut within a character
            bounds.append(None)
            continue
        known = low == low and high == high
        bounds.append(code_bounds(encoder, low, high, may_be_null) if known else None)
    return bounds
