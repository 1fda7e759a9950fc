"""What a view over rows of views reads: the current rows of each, all of them or those of some windows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from penstock.operators.joins.changes import DELETE
from penstock.operators.windows.answers import Progress
from penstock.operators.windows.lifecycle import ends_of, held
from penstock.plan.times import AFTER_ALL, BEFORE_ALL, EARLIEST, LATEST
from penstock.plan.windows import Windows
from penstock.spark.analysis.schemas import arrow_schema, spark_schema
from penstock.spark.lanes.derived.beneath import LaneSource, ViewBeneath
from penstock.spark.publication.kinds import view_kind
from penstock.spark.publication.manifests import read_published
from penstock.spark.results.joined_rows import file_schema, marks_of
from penstock.spark.results.published_rows import PublishedRows, Spans, all_rows, joined, moments, timed
from penstock.spark.results.revisions import OPERATOR, newest_rows, parts_of, without_withdrawn
from penstock.spark.results.window_schemas import ROW, ReadableView, readable_definition
from penstock.spark.storage.columns import batches_of
from penstock.spark.storage.joins import JoinDefinition
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.refreshed import ReadView
from penstock.spark.storage.store_paths import StorePath

_END = f"{ROW}.end"


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

    def touched(self, paths: Iterable[StorePath], windows: Windows) -> set[int]:
        """Ends of the windows that published rows are of.

        Args:
            paths: their files.
            windows: by which the rows are read.
        """
        column, found = self.read.time or _END, set[int]()
        for path in paths:
            for rows in batches_of(path, [self.read.time or ROW]):
                times = moments(timed(rows, column), column)
                found.update((ends_of(windows, held(times)) if self.read.time else times).tolist())
        return found

    def rows(self, wanted: WantedWindows | None) -> pa.Table | None:
        """The current rows, the view's columns; None: it has not been answered yet.

        Args:
            wanted: the windows whose rows are wanted; perhaps others are among them. None: all.

        Raises:
            DamagedError: a file is missing or damaged.
        """
        if isinstance(self.source, LaneSource):
            return self._of_lane(self.source, wanted)
        readable = self._readable()
        if readable is None:
            return None
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

    def _of_lane(self, source: LaneSource, wanted: WantedWindows | None) -> pa.Table:
        """The rows of a join view or a UNION ALL."""
        definition = source.answered.definition
        schema = file_schema(definition.plan) if isinstance(definition, JoinDefinition) else source.schema
        found = []
        for number, lane in source.lanes:
            paths = read_published(self.layout, lane).paths(
                self.layout, lane, view_kind(number, self.read.view)
            )
            if wanted is None:
                found.append(all_rows(paths, schema))
            else:
                found.append(self._files.read(paths, schema, self.read.time, wanted.by_time))
        return _standing(pa.concat_tables(found), source.schema.names)

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
