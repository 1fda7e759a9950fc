"""The map stage in the scan: Spark hands over paths, the worker reads Parquet with pyarrow.

Spark keeps its file log, rate limits and exactly-once; the tuples never cross from the JVM to
Python. Row groups whose statistics rule out every query are not read, and columns that no query
compares are decoded only where a row group holds a match. A row group is answered whole or, where something
that its answer needs cannot be read, set aside whole.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from penstock.operators.coding.encode import ColumnEncoder
from penstock.operators.selection.pruning import CodeBounds, code_bounds, could_match
from penstock.spark.sessions.numbered_tasks import run_numbered
from penstock.spark.tasks.parquet_files import RowGroup, RowGroupReader, UnreadableError, reason_of
from penstock.spark.tasks.worker import (
    Mask,
    SetAside,
    Task,
    TaskContextData,
    TaskReport,
)

#: times that a row group may fail and then be read before the task gives up
_MOST_PASSING = 5


def split(row_groups: Sequence[RowGroup], tasks: int) -> list[list[RowGroup]]:
    """Spreads row groups over tasks so that each gets about the same number of rows, order kept."""
    total = sum(group.rows for group in row_groups)
    splits: list[list[RowGroup]] = [[] for _ in range(max(1, min(tasks, len(row_groups))))]
    taken = 0
    for group in row_groups:
        number = min(len(splits) - 1, taken * len(splits) // max(1, total))
        splits[number].append(group)
        taken += group.rows
    return [part for part in splits if part]


def run_in_scan(
    spark: SparkSession, splits: list[list[RowGroup]], context: TaskContextData
) -> list[TaskReport]:
    """Runs one job whose tasks read the row groups themselves.

    Returns:
        One report a task.
    """
    return run_numbered(
        spark.sparkContext, lambda number: run_row_groups(context, number, splits[number]), len(splits)
    )


def run_row_groups(context: TaskContextData, partition: int, groups: Sequence[RowGroup]) -> TaskReport:
    """Answers the row groups that can be read and sets the others aside.

    A row group that fails after some of its tuples were taken in spoils the task: the others are still
    gone through, so that all that fail are known, and the task begins anew without them.

    Raises:
        OSError, MemoryError: a file system or the memory fails: no fault of the files.
        UnreadableError: row groups that can be read fail again and again.
    """
    aside: dict[RowGroup, str] = {}
    passing = 0
    while True:
        task = Task(context, partition)
        is_spoiled = False
        for group in groups:
            while group not in aside:
                before = task.stage.counts.tuples
                try:
                    _run_row_group(task, group)
                    break
                except UnreadableError as error:
                    reason = reason_of(group, error.columns)
                    if reason is not None:
                        aside[group] = reason
                    elif (passing := passing + 1) > _MOST_PASSING:
                        raise
                    if task.stage.counts.tuples != before:
                        is_spoiled = True
                        break
        if not is_spoiled:
            break
        task.abandon()
    for group, reason in aside.items():
        task.set_aside(SetAside(group.path, group.number, group.rows, f"unreadable row group: {reason}"))
    return task.report()


def _run_row_group(task: Task, group: RowGroup) -> None:
    program = task.stage.program
    reader = RowGroupReader(group, program.dictionaries)
    columns, batch_rows = program.columns, program.settings.batch_rows
    is_matched = could_match(
        program.plan, _bounds(group, reader.metadata, task.stage.bounding_encoders, columns)
    )
    arrived = None if group.stamp is None else group.stamp.modified_ns // 1_000
    ends = reader.ends(program.observed[0]) if program.only_counts_times else None
    if ends is not None and not task.stage.are_enough(ends):
        ends = None
    if not is_matched and not program.wants_every_tuple:
        task.stage.skip(group.rows)
        if program.observed and ends is None:
            for batch in reader.batches(program.observed, batch_rows):
                task.stage.observe_times(batch, task.steps_of(batch, group.step), arrived)
    else:
        first = program.gathered
        if is_matched:
            first = program.needed if ends is None else program.needed_untimed
        late = _LateColumns(reader)
        offset = 0
        for batch in reader.batches(first or [columns[0]], batch_rows):
            late.at(batch, offset)
            offset += batch.num_rows
            steps = task.steps_of(batch, group.step)
            task.process(
                batch,
                late.tuples,
                is_matched=is_matched,
                is_timed=ends is None,
                steps=steps,
                arrived=arrived,
            )
    if ends is not None:
        task.stage.observe_times(ends)


class _LateColumns:
    """Decodes columns that no query compares when a batch of the row group first has a tuple that needs them."""

    def __init__(self, reader: RowGroupReader) -> None:
        self._reader = reader
        self._read: dict[str, pa.ChunkedArray] = {}

    def at(self, batch: pa.RecordBatch, offset: int) -> None:
        """Moves to a batch that starts at a row of the row group."""
        self._batch = batch
        self._offset = offset

    def tuples(self, mask: Mask, columns: Sequence[str]) -> pa.RecordBatch:
        """Some of the tuple's columns, of the rows where the mask is true."""
        decoded = set(self._batch.schema.names)
        early = [name for name in columns if name in decoded]
        missing = [name for name in columns if name not in decoded and name not in self._read]
        if missing:
            table = self._reader.table(missing)
            self._read |= {name: table.column(name) for name in missing}
        rows = None if mask.all() else pa.array(np.flatnonzero(mask))
        batch = self._batch.select(early)
        found = dict(zip(early, (batch if rows is None else batch.take(rows)).columns, strict=True))
        for name in columns:
            if name not in found:
                late = self._read[name].slice(self._offset, len(mask))
                found[name] = _whole(late if rows is None else late.take(rows))
        return pa.record_batch([_plain(found[name]) for name in columns], names=list(columns))


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _plain(column: pa.Array) -> pa.Array:
    """A column with the values of its dictionary, where it has one."""
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _bounds(
    group: RowGroup,
    metadata: pq.RowGroupMetaData,
    encoders: Sequence[ColumnEncoder | None],
    columns: Sequence[str],
) -> list[CodeBounds | None]:
    """What the row group's statistics say of each attribute; nothing of those without an encoder, or that are no columns of the stream."""
    found = {}
    for index in range(metadata.num_columns):
        column = metadata.column(index)
        # a dot may stand for a field of a nested column
        name = column.path_in_schema
        if column.is_stats_set and column.statistics.has_min_max and "." not in name and name in columns:
            found[name] = column.statistics
    bounds: list[CodeBounds | None] = []
    for encoder in encoders:
        statistics = None if encoder is None else found.get(encoder.coding.name)
        if encoder is None or statistics is None:
            bounds.append(None)
            continue
        may_be_null = not statistics.has_null_count or statistics.null_count > 0
        try:
            low, high = statistics.min, statistics.max
            if group.times is not None and encoder.coding.name == group.times.column:
                # NaN is no moment, so that it is NULL, and statistics leave it out
                may_be_null = may_be_null or isinstance(low, float)
                low, high = group.times.moments(pa.array([low, high])).to_pylist()
        except (OverflowError, ValueError):  # a date Python does not know, text cut within a character
            bounds.append(None)
            continue
        known = low == low and high == high and None not in (low, high)
        bounds.append(code_bounds(encoder, low, high, may_be_null) if known else None)
    return bounds
