"""What a view over rows of views reads: the current rows of each, all of them or those of some windows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field
from functools import reduce
from math import ceil
from operator import or_
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from penstock.operators.joins.changes import DELETE
from penstock.operators.windows.answers import Progress
from penstock.operators.windows.lifecycle import ends_of, held
from penstock.plan.times import AFTER_ALL, BEFORE_ALL, EARLIEST, LATEST
from penstock.plan.windows import Windows
from penstock.spark.analysis.catalyst import empty_frame
from penstock.spark.analysis.schemas import arrow_schema, spark_schema
from penstock.spark.lanes.derived.beneath import LaneSource, ViewBeneath
from penstock.spark.publication.kinds import view_kind
from penstock.spark.publication.manifests import ListedFile, located, read_published
from penstock.spark.results.frames import moment, published_frame
from penstock.spark.results.joined_rows import marks_of
from penstock.spark.results.published_rows import PublishedRows, Spans, all_rows, joined, moments, timed
from penstock.spark.results.revisions import OPERATOR, newest_rows, parts_of, without_withdrawn
from penstock.spark.results.window_schemas import ROW, ReadableView, readable_definition
from penstock.spark.results.window_staging import written
from penstock.spark.storage.columns import batches_of
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.refreshed import ReadView
from penstock.spark.storage.store_paths import StorePath
from penstock.sql.text.lexing import quote

_END = f"{ROW}.end"
#: fewer rows are computed by one task: dividing them takes longer
_ONE_TASK_ROWS = 200_000
#: stretches of time that a condition of Spark's has
_MOST_SPANS = 50


@dataclass(frozen=True, slots=True)
class WantedWindows:
    """Windows that a cut answers.

    Attributes:
        windows: of which they are.
        due: their ends lie in these stretches.
        ends: and their ends.
    """

    windows: Windows
    due: Spans
    ends: Set[int]

    @property
    def by_end(self) -> list[tuple[int, int]]:
        """Stretches in which their ends lie."""
        return joined([*self.due, *((end, end + 1) for end in self.ends)])

    @property
    def by_time(self) -> list[tuple[int, int]]:
        """Stretches in which the times of all of their tuples lie."""
        size = self.windows.size
        found = [
            *((first - size, last - 1) for first, last in self.due),
            *((end - size, end) for end in self.ends),
        ]
        return joined([(max(first, EARLIEST), min(last, LATEST + 1)) for first, last in found])


class Frame(NamedTuple):
    """Rows that Spark reads.

    Attributes:
        frame: the rows.
        size: their bytes.
    """

    frame: DataFrame
    size: int


@dataclass(eq=False, slots=True)
class RowsOf:
    """The rows of a view that another one reads; one thread owns it.

    Attributes:
        read: the view.
        source: who publishes it.
        layout: output and checkpoint folders.
    """

    read: ReadView
    source: ViewBeneath
    layout: Layout
    _files: PublishedRows = field(default_factory=PublishedRows)

    @property
    def columns(self) -> StructType | None:
        """The view's columns; None: it has not been answered yet."""
        if isinstance(self.source, LaneSource):
            return spark_schema(self.source.schema)
        readable = self._readable()
        return None if readable is None else readable.columns

    def reached(self, progress: Progress) -> int:
        """Windows that end by then have been told, given how far the view has come."""
        if self._is_other(progress):
            return BEFORE_ALL
        return max(progress.closed, progress.beforehand)

    def touched(self, paths: Iterable[StorePath], windows: Windows, until: int) -> set[int]:
        """Ends of the windows that published rows are of.

        Args:
            paths: their files.
            windows: by which the rows are read.
            until: later ends are left out.
        """
        column, found = self.read.time or _END, set[int]()
        for path in paths:
            if not self._files.most(path, column, [(BEFORE_ALL, until + 1)]):
                continue
            for rows in batches_of(path, [column]):
                times = moments(timed(rows, column), column)
                found.update((ends_of(windows, held(times)) if self.read.time else times).tolist())
        return {end for end in found if end <= until}

    def frame(self, session: SparkSession, wanted: WantedWindows | None, scratch: StorePath) -> Frame | None:
        """The current rows, the view's columns; None: it has not been answered yet.

        Args:
            session: the session that reads them.
            wanted: the windows whose rows are wanted; perhaps others are among them. None: all.
            scratch: what has to be settled first is left here.

        Raises:
            DamagedError: a file is missing or damaged.
        """
        columns = self.columns
        if columns is None:
            return None
        if isinstance(self.source, LaneSource):
            found = self._as_published(session, columns, self.source, wanted)
            if found is not None:
                return found
            rows = self._of_lane(self.source, wanted)
        else:
            rows = self._newest(wanted)
        if not rows.num_rows:
            return Frame(empty_frame(session, columns), 0)
        tasks = min(session.sparkContext.defaultParallelism, ceil(rows.num_rows / _ONE_TASK_ROWS))
        size = ceil(rows.num_rows / tasks)
        parts = (rows.slice(first, size) for first in range(0, rows.num_rows, size))
        paths = [written("", part, is_brief=True).left(scratch).path for part in parts]
        return Frame(published_frame(session, columns, paths), rows.nbytes)

    def _newest(self, wanted: WantedWindows | None) -> pa.Table:
        """The rows of a window view or another whose rows have revisions."""
        readable = self._readable()
        assert readable is not None, "it has been answered"
        schema = arrow_schema(readable.schema)
        found = []
        for part in parts_of(self.layout, self.read.place, self.read.view, readable):
            if wanted is None:
                rows = all_rows(part.files, schema)
            else:
                rows = self._files.read(part.files, schema, _END, wanted.by_end)
            found.append(part.own(rows))
        newest = newest_rows(pa.concat_tables(found)).drop_columns([OPERATOR])
        return without_withdrawn(newest).select(readable.columns.names)

    def _as_published(
        self, session: SparkSession, columns: StructType, source: LaneSource, wanted: WantedWindows | None
    ) -> Frame | None:
        """The rows of a view with a lane that Spark can read as they are published; None where they may be withdrawn, or are few."""
        if source.withdraws:
            return None
        spans, rows = [] if wanted is None else wanted.by_time, 0
        files = list[tuple[StorePath, ListedFile]]()
        for path, listed in self._published(source):
            own = listed.rows if wanted is None else self._files.most(path, self.read.time, spans)
            if own:
                files.append((path, listed))
                rows += own
        if rows < _ONE_TASK_ROWS or len(spans) > _MOST_SPANS:
            return None
        frame = published_frame(session, columns, [path for path, _ in files])
        if wanted is not None:
            time, kind = F.col(quote(self.read.time)), columns[self.read.time].dataType
            inside = ((time >= moment(first, kind)) & (time < moment(last, kind)) for first, last in spans)
            frame = frame.where(reduce(or_, inside))
        return Frame(frame, sum(listed.size for _, listed in files))

    def _of_lane(self, source: LaneSource, wanted: WantedWindows | None) -> pa.Table:
        """The rows of a view with a lane."""
        schema = source.file_schema
        paths = [path for path, _ in self._published(source)]
        if wanted is None:
            rows = all_rows(paths, schema)
        else:
            rows = self._files.read(paths, schema, self.read.time, wanted.by_time)
        return _standing(rows, source.schema.names)

    def _published(self, source: LaneSource) -> list[tuple[StorePath, ListedFile]]:
        """The files of a view with a lane, and where they lie."""
        found = []
        for number, lane in source.lanes:
            kind = view_kind(number, self.read.view)
            own = (file for file in read_published(self.layout, lane).files if file.kind == kind)
            found += [(located(self.layout, lane, file), file) for file in own]
        return found

    def _readable(self) -> ReadableView | None:
        return readable_definition(self.layout, self.read.place, self.read.view, self.read.id)

    def _is_other(self, progress: Progress) -> bool:
        """Whether what is known of the view is not of what answers it now."""
        if isinstance(self.source, LaneSource):
            return progress.operator != self.source.answered.number
        readable = self._readable()
        return readable is None or all(number != progress.operator for number, _ in readable.operators)


def ahead(before: int, now: int) -> list[tuple[int, int]]:
    """The stretch of ends of windows that are told now and were not before."""
    return joined([(max(before, BEFORE_ALL) + 1, min(now, AFTER_ALL) + 1)])


def _standing(rows: pa.Table, own: Sequence[str]) -> pa.Table:
    """Rows of a join view that no row withdraws."""
    op, name = marks_of(own).names
    if op not in rows.column_names:
        return rows.select(own)
    deletes = pc.equal(rows.column(op), DELETE)
    gone = rows.filter(deletes).column(name)
    stays = pc.and_(pc.invert(deletes), pc.invert(pc.is_in(rows.column(name), gone.drop_null())))
    return rows.filter(stays).select(own)
