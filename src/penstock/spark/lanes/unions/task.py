"""What a task of a UNION ALL lane does in a cut: copies tuples of runs into a file of the view."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.operators.runs.run import Part
from penstock.spark.log.run_files import FoundRuns, OpenRun
from penstock.spark.publication.staged import BatchFiles, StagedFile, WrittenFile
from penstock.spark.storage.unions import column_name

#: rows of a row group
_GROUP_ROWS = 1 << 20


@dataclass(frozen=True, slots=True)
class UnionPiece:
    """What a task copies.

    Attributes:
        number: of the task.
        runs: where the tuples lie, for each branch that has some.
    """

    number: int
    runs: tuple[FoundRuns, ...]


@dataclass(frozen=True, slots=True)
class UnionReport:
    """What a task stored.

    Attributes:
        job: number of the lane.
        partition: number of the task.
        files: one file, or none where there are no tuples.
        seconds: processor time.
    """

    job: int
    partition: int
    files: Sequence[StagedFile] = ()
    seconds: float = 0.0

    @property
    def rows(self) -> int:
        """Rows of the files."""
        return sum(file.rows for file in self.files)


@dataclass(frozen=True, slots=True)
class UnionTask:
    """Copies the tuples of branches into a file.

    Attributes:
        number: of the lane.
        kind: of the file.
        columns: those of the view.
        store: stores the file.
    """

    number: int
    kind: str
    columns: pa.Schema
    store: BatchFiles

    def __call__(self, piece: UnionPiece) -> UnionReport:
        """Copies the tuples of a piece."""
        began = time.thread_time()
        path: Path | None = None
        writer: pq.ParquetWriter | None = None
        rows = 0
        for group in _grouped(self._batches(piece)):
            if writer is None:
                path = self.store.staging(self.kind)
                writer = pq.ParquetWriter(
                    path,
                    self.columns,
                    compression="zstd",
                    compression_level=1,
                    store_schema=False,
                    write_page_checksum=True,
                )
            writer.write_table(group, row_group_size=_GROUP_ROWS)
            rows += group.num_rows
        files: Sequence[StagedFile] = ()
        if writer is not None and path is not None:
            writer.close()
            files = self.store.put(self.number, piece.number, [WrittenFile(self.kind, path, rows)])
        return UnionReport(self.number, piece.number, files, time.thread_time() - began)

    def _batches(self, piece: UnionPiece) -> Iterator[pa.RecordBatch]:
        names = [column_name(number) for number in range(len(self.columns))]
        for runs in piece.runs:
            with runs.named():
                for opened in runs.open():
                    for part in parts_of(opened):
                        tuples = _wanted(part, opened)
                        if tuples.num_rows:
                            columns = [tuples.column(name) for name in names]
                            yield pa.RecordBatch.from_arrays(columns, schema=self.columns)


def dealt(found: Sequence[FoundRuns], tasks: int) -> list[UnionPiece]:
    """Deals the files of branches out to tasks.

    Args:
        found: where the tuples of each branch lie.
        tasks: how many tasks there are at most; at least 1.
    """
    files = sum(len(runs.files) for runs in found)
    pieces = []
    for number in range(min(files, tasks)):
        own, first = [], 0
        for runs in found:
            # counted through, so that short lists do not all begin with the first task
            mine = tuple(file for place, file in enumerate(runs.files, first) if place % tasks == number)
            first += len(runs.files)
            if mine:
                own.append(replace(runs, files=mine))
        pieces.append(UnionPiece(number, tuple(own)))
    return pieces


def parts_of(opened: OpenRun) -> Iterator[Part]:
    """The parts of a run."""
    for number in opened.run.parts:
        part = opened.run.part(number)
        assert part is not None, "it is in the directory"
        yield part


def _grouped(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The rows in tables of a row group or more, but for the last one."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(each.num_rows for each in held) >= _GROUP_ROWS:
            yield pa.Table.from_batches(held)
            held = []
    if held:
        yield pa.Table.from_batches(held)


def _wanted(part: Part, opened: OpenRun) -> pa.RecordBatch:
    wanted = part.rows_of(opened.after, opened.until)
    return part.tuples if wanted is None or wanted.all() else part.tuples.filter(pa.array(wanted))
