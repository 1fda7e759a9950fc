"""Rows that were published of a window view, of some stretches of event time.

Row groups are passed over by their statistics, which are read once a file: a lane that corrects a window reads what lies
about it, however long the results are.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.spark.results.window_schemas import ROW
from penstock.spark.storage.columns import conform

#: [from, to) in microseconds, ascending, none touching another
Spans = Sequence[tuple[int, int]]
_Found = TypeVar("_Found")
_KEPT_FILES = 10_000
#: how often files are looked up again that a compaction removed meanwhile
_TRIES = 20


def joined(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Stretches in order, those that touch as one; empty ones left out."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(span for span in spans if span[0] < span[1]):
        if found and first <= found[-1][1]:
            found[-1] = found[-1][0], max(last, found[-1][1])
        else:
            found.append((first, last))
    return found


def moments(rows: pa.Table, side: str) -> npt.NDArray[np.int64]:
    """The starts or the ends of the rows' windows, microseconds."""
    window: npt.NDArray[np.int64] = _moments(rows.column(ROW).combine_chunks(), side)
    return window


def still_there(read: Callable[[], _Found]) -> _Found:
    """What is read of published files, looked up again where a compaction has removed one of them meanwhile."""
    for _ in range(_TRIES):
        try:
            return read()
        except FileNotFoundError:
            continue
    return read()


class PublishedRows:
    """Reads published files of window views; one thread owns it."""

    def __init__(self) -> None:
        #: file -> the least and the largest start, and end, of each row group
        self._bounds: OrderedDict[Path, dict[str, list[tuple[int, int]]]] = OrderedDict()

    def read(self, files: Sequence[Path], schema: pa.Schema, side: str, spans: Spans) -> pa.Table:
        """The rows whose window starts, or ends, in some stretches of time, in the order of the files.

        Args:
            files: published ones.
            schema: the columns that are wanted, ROW among them.
            side: `start` or `end`.
            spans: the stretches.

        Raises:
            FileNotFoundError: a file is gone.
        """
        return pa.Table.from_batches(self._batches(files, schema, side, spans), schema)

    def _batches(
        self, files: Sequence[Path], schema: pa.Schema, side: str, spans: Spans
    ) -> Iterator[pa.RecordBatch]:
        for path in files if spans else ():
            bounds = self._of(path)[side]
            groups = [number for number, each in enumerate(bounds) if _overlap(each, spans)]
            if not groups:
                continue
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(row_groups=groups, columns=schema.names):
                    own = conform(batch, schema)
                    inside = _inside(_moments(own.column(ROW), side), spans)
                    yield own if inside.all() else own.filter(pa.array(inside))

    def _of(self, path: Path) -> dict[str, list[tuple[int, int]]]:
        if path not in self._bounds:
            with pq.ParquetFile(path) as file:
                self._bounds[path] = {side: _bounds(file.metadata, side) for side in ("start", "end")}
            if len(self._bounds) > _KEPT_FILES:
                self._bounds.popitem(last=False)
        self._bounds.move_to_end(path)
        return self._bounds[path]


def _bounds(metadata: pq.FileMetaData, side: str) -> list[tuple[int, int]]:
    found = []
    column = next(
        number
        for number in range(metadata.num_columns)
        if metadata.schema.column(number).path == f"{ROW}.{side}"
    )
    for group in range(metadata.num_row_groups):
        statistics = metadata.row_group(group).column(column).statistics
        found.append((statistics.min_raw, statistics.max_raw))
    return found


def _overlap(bounds: tuple[int, int], spans: Spans) -> bool:
    least, largest = bounds
    return any(first <= largest and least < last for first, last in spans)


def _moments(row: pa.StructArray, side: str) -> npt.NDArray[np.int64]:
    numbers: npt.NDArray[np.int64] = row.field(side).cast(pa.int64()).to_numpy(zero_copy_only=False)
    return numbers


def _inside(moments: npt.NDArray[np.int64], spans: Spans) -> npt.NDArray[np.bool_]:
    firsts = np.array([first for first, _ in spans], np.int64)
    lasts = np.array([last for _, last in spans], np.int64)
    place = np.searchsorted(firsts, moments, "right") - 1
    inside: npt.NDArray[np.bool_] = (place >= 0) & (moments < lasts[place])
    return inside
