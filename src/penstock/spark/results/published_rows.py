"""Rows of published files as Arrow tables: all, the newest, or those of some stretches of event time. Needs no JVM."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.plan.times import AFTER_ALL, BEFORE_ALL
from penstock.spark.results.window_schemas import ROW
from penstock.spark.storage.columns import metadata_of, rows_of
from penstock.spark.storage.store_paths import StorePath

#: [from, to) in microseconds, ascending, none touching another
Spans = Sequence[tuple[int, int]]
_KEPT_FILES = 10_000


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A part of a published file.

    Attributes:
        least, largest: of the times of its rows, microseconds; where it has none, the later and the earlier than all.
        rows: how many.
    """

    least: int
    largest: int
    rows: int

    def overlaps(self, spans: Spans) -> bool:
        """Whether it may have rows of some stretches."""
        return any(first <= self.largest and self.least < last for first, last in spans)


def joined(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Stretches in order, those that touch as one; empty ones left out."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(span for span in spans if span[0] < span[1]):
        if found and first <= found[-1][1]:
            found[-1] = found[-1][0], max(last, found[-1][1])
        else:
            found.append((first, last))
    return found


def moments(rows: pa.Table | pa.RecordBatch, column: str) -> npt.NDArray[np.int64]:
    """The times in a column, microseconds.

    Args:
        rows: any.
        column: its name, or `_row.start`, `_row.end`; without NULL.
    """
    whole, _, part = column.partition(".") if column.startswith(f"{ROW}.") else (column, "", "")
    times = rows.column(whole)
    times = pc.struct_field(times, part) if part else times
    numbers: npt.NDArray[np.int64] = times.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return numbers


def timed(rows: pa.RecordBatch, column: str) -> pa.RecordBatch:
    """The rows that have a time, see `moments`: a UNION ALL has others too."""
    if column.startswith(f"{ROW}.") or not rows.column(column).null_count:
        return rows
    return rows.filter(pc.is_valid(rows.column(column)))


def all_rows(files: Iterable[StorePath], schema: pa.Schema) -> pa.Table:
    """All rows of files in their order; a column that a file lacks is NULL.

    Raises:
        DamagedError: a file is missing or damaged.
    """
    return pa.Table.from_batches((batch for path in files for batch in rows_of(path, schema)), schema)


def newest_rows_of(files: Sequence[StorePath], schema: pa.Schema, most: int) -> tuple[pa.Table, bool]:
    """The last rows of files, `most` at the most, and whether these are all; other row groups are not read."""
    groups: list[tuple[StorePath, int]] = []
    rows = 0
    for path in reversed(files):
        if rows > most:
            break
        metadata = metadata_of(path)
        for group in reversed(range(metadata.num_row_groups)):
            if rows > most:
                break
            groups.append((path, group))
            rows += metadata.row_group(group).num_rows
    batches = (batch for path, group in reversed(groups) for batch in rows_of(path, schema, [group]))
    table = pa.Table.from_batches(batches, schema)
    return table.slice(max(0, rows - most)), rows <= most


class PublishedRows:
    """Reads the rows of published files whose times lie in some stretches; one thread owns it.

    Row groups are passed over by their statistics, which are read once a file: a lane that corrects a window reads what lies
    about it, however long the results are.
    """

    def __init__(self) -> None:
        #: by file and column of times
        self._groups: OrderedDict[tuple[StorePath, str], list[RowGroup]] = OrderedDict()

    def read(self, files: Sequence[StorePath], schema: pa.Schema, column: str, spans: Spans) -> pa.Table:
        """The rows whose times lie in some stretches, in the order of the files.

        Args:
            files: published ones.
            schema: the columns that are wanted, that of the times among them.
            column: that one, see `moments`.
            spans: the stretches.

        Raises:
            DamagedError: a file is missing or damaged.
        """
        return pa.Table.from_batches(self._batches(files, schema, column, spans), schema)

    def most(self, path: StorePath, column: str, spans: Spans) -> int:
        """How many rows are read of a published file at the most, see `read`."""
        return sum(group.rows for group in self._of(path, column) if group.overlaps(spans))

    def _batches(
        self, files: Sequence[StorePath], schema: pa.Schema, column: str, spans: Spans
    ) -> Iterator[pa.RecordBatch]:
        for path in files if spans else ():
            groups = [number for number, each in enumerate(self._of(path, column)) if each.overlaps(spans)]
            if not groups:
                continue
            for batch in rows_of(path, schema, groups):
                own = timed(batch, column)
                inside = _inside(moments(own, column), spans)
                yield own if inside.all() else own.filter(pa.array(inside))

    def _of(self, path: StorePath, column: str) -> list[RowGroup]:
        place = path, column
        if place not in self._groups:
            self._groups[place] = _groups(metadata_of(path), column)
            if len(self._groups) > _KEPT_FILES:
                self._groups.popitem(last=False)
        self._groups.move_to_end(place)
        return self._groups[place]


def _groups(metadata: pq.FileMetaData, column: str) -> list[RowGroup]:
    found = []
    place = next(
        number for number in range(metadata.num_columns) if metadata.schema.column(number).path == column
    )
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        statistics = group.column(place).statistics
        is_empty = statistics is None or not statistics.has_min_max
        least, largest = (AFTER_ALL, BEFORE_ALL) if is_empty else (statistics.min_raw, statistics.max_raw)
        found.append(RowGroup(least, largest, group.num_rows))
    return found


def _inside(moments: npt.NDArray[np.int64], spans: Spans) -> npt.NDArray[np.bool_]:
    firsts = np.array([first for first, _ in spans], np.int64)
    lasts = np.array([last for _, last in spans], np.int64)
    place = np.searchsorted(firsts, moments, "right") - 1
    inside: npt.NDArray[np.bool_] = (place >= 0) & (moments < lasts[place])
    return inside
