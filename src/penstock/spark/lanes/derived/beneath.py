"""What derived views are over: rows of a window view, of which the newest revision counts, or of a join view or UNION ALL, which only come."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.types import StructType

from penstock.operators.windows.answers import Progress
from penstock.operators.windows.lifecycle import ends_of
from penstock.plan.times import AFTER_ALL, BEFORE_ALL, EARLIEST, LATEST
from penstock.plan.windows import Windows
from penstock.spark.analysis.schemas import arrow_schema, spark_schema
from penstock.spark.lanes.derived.revisions import Worth, worth_of
from penstock.spark.lanes.derived.views import Answered, JoinTime
from penstock.spark.publication.kinds import results_of, rows_of, stream_of_running, view_kind
from penstock.spark.publication.manifests import read_published
from penstock.spark.results.joined_rows import marks_of, row_schema
from penstock.spark.results.published_rows import PublishedRows, Spans, all_rows, moments
from penstock.spark.results.revisions import OPERATOR, newest_rows, parts_of, without_withdrawn
from penstock.spark.results.window_schemas import ROW, ReadableView, readable_definition
from penstock.spark.storage.joins import JoinDefinition
from penstock.spark.storage.lane_views import RegisteredView, lane_name
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.refreshed import RefreshedDefinition
from penstock.spark.storage.store_paths import StorePath
from penstock.spark.storage.unions import UnionDefinition
from penstock.sql.windows.query import Beneath

#: by which end of its window a row of a window view lies in time, and how far before that
_SIDES = {"start": ("start", 0), "end": ("end", 0), "last": ("end", 1)}


@dataclass(frozen=True, slots=True, eq=False)
class FoundRows:
    """Rows beneath that were read.

    Attributes:
        rows: those that are there, the columns of the view beneath.
        worth: of each window that holds rows that were read, those withdrawn among them, by its end.
    """

    rows: pa.Table
    worth: Mapping[int, Worth]


class RowsBeneath(Protocol):
    """The rows that a view is over, as far as they are published.

    Attributes:
        columns: of the view beneath.
        column: of its files, by which a row lies in time.
        back: how far before that, microseconds.
    """

    @property
    def columns(self) -> StructType: ...
    @property
    def column(self) -> str: ...
    @property
    def back(self) -> int: ...

    def told(self, progress: Progress, windows: Windows) -> Progress:
        """How far windows over the rows are known, given how far the view beneath is."""

    def read(self, spans: Spans, windows: Windows) -> FoundRows:
        """The rows whose times lie in some stretches, and perhaps others that the view beneath has withdrawn since.

        Raises:
            DamagedError: a file is missing or damaged.
        """

    def whole(self) -> pa.Table:
        """All rows that are there, the columns of the view beneath; raises as `read`."""


class ViewBeneath(Protocol):
    """A view that others are over.

    Attributes:
        name: of the log of its rows.
        view: its name.
        lane: who publishes its rows, as manifests and runs name it.
        streams: those that they come from in the end.
    """

    @property
    def name(self) -> str: ...
    @property
    def view(self) -> str: ...
    @property
    def lane(self) -> str: ...
    @property
    def streams(self) -> tuple[str, ...]: ...


class RowSource(ViewBeneath, Protocol):
    """A view whose rows are read again at each change of them."""

    def rows(self, over: Answered, progress: Progress, files: PublishedRows) -> RowsBeneath | None:
        """Its rows for a view over it; None where what the log says so far is not of the view as it is now, or nothing."""


@dataclass(frozen=True, slots=True)
class RunningSource:
    """A running view: views over it keep its live rows; see `ViewBeneath`.

    Attributes:
        layout: output and checkpoint folders.
        place: the name that the running views of its stream have their results under.
        view: its name.
    """

    layout: Layout
    place: str
    view: str

    @property
    def name(self) -> str:
        """See `ViewBeneath`."""
        return rows_of(self.place, self.view)

    @property
    def lane(self) -> str:
        """See `ViewBeneath`."""
        return results_of(self.place)

    @property
    def streams(self) -> tuple[str, ...]:
        """See `ViewBeneath`."""
        return (stream_of_running(self.place),)

    def readable(self, over: Answered, progress: Progress) -> ReadableView | None:
        """What its published rows look like; None where what the log says so far is not of the view as it is now, or nothing."""
        found = readable_definition(self.layout, self.place, self.view, over.below)
        return found if found is not None and found.operator == progress.operator else None

    def published(self, operator: int) -> tuple[int, list[StorePath]]:
        """The number of the newest publication of its lane, and the files of an operator's rows up to it."""
        published = read_published(self.layout, self.lane)
        return published.last, list(published.paths(self.layout, self.lane, view_kind(operator, self.view)))


@dataclass(frozen=True, slots=True)
class WindowSource:
    """A window view; see `RowSource`."""

    layout: Layout
    stream: str
    view: str

    @property
    def name(self) -> str:
        """See `RowSource`."""
        return rows_of(self.stream, self.view)

    @property
    def lane(self) -> str:
        """See `RowSource`."""
        return results_of(self.stream)

    @property
    def streams(self) -> tuple[str, ...]:
        """See `RowSource`."""
        return (self.stream,)

    def rows(self, over: Answered, progress: Progress, files: PublishedRows) -> RowsBeneath | None:
        """See `RowSource`."""
        readable = readable_definition(self.layout, self.stream, self.view, over.below)
        if readable is None or all(number != progress.operator for number, _ in readable.operators):
            return None
        assert isinstance(over.beneath, Beneath), "it is over a window view"
        return WindowRows(self, readable, over.beneath, files)


@dataclass(frozen=True, slots=True)
class LaneSource:
    """A join view, a UNION ALL or a view that Spark answers, which has a lane of its own; see `RowSource`."""

    layout: Layout
    answered: (
        RegisteredView[JoinDefinition] | RegisteredView[UnionDefinition] | RegisteredView[RefreshedDefinition]
    )

    @property
    def name(self) -> str:
        """See `RowSource`."""
        return rows_of(self.lane, self.view)

    @property
    def view(self) -> str:
        """See `RowSource`."""
        return self.answered.definition.name

    @property
    def lane(self) -> str:
        """See `RowSource`."""
        return self.answered.lane

    @property
    def streams(self) -> tuple[str, ...]:
        """See `RowSource`."""
        return self.answered.definition.streams

    def rows(self, over: Answered, progress: Progress, files: PublishedRows) -> RowsBeneath | None:
        """See `RowSource`."""
        if progress.operator != self.answered.number:
            return None
        assert isinstance(over.beneath, JoinTime), "it is over no window view"
        return LaneRows(self, over.beneath, progress, files)

    @property
    def schema(self) -> pa.Schema:
        """The columns of its rows."""
        definition = self.answered.definition
        return row_schema(definition.plan) if isinstance(definition, JoinDefinition) else definition.schema

    @property
    def withdraws(self) -> bool:
        """Whether a row may be withdrawn by a later one."""
        definition = self.answered.definition
        return isinstance(definition, RefreshedDefinition) or (
            isinstance(definition, JoinDefinition) and definition.plan.withdraws
        )

    @property
    def file_schema(self) -> pa.Schema:
        """The columns of its files."""
        own = self.schema
        return pa.schema([*own, *(marks_of(own.names) if self.withdraws else ())])

    @property
    def lanes(self) -> list[tuple[int, str]]:
        """Number and name of each lane whose rows are the view's."""
        begins_anew = isinstance(self.answered.definition, RefreshedDefinition)
        numbers = (*(() if begins_anew else self.answered.before), self.answered.number)
        return [(number, lane_name(self.answered.kind, number)) for number in numbers]


@dataclass(frozen=True, slots=True)
class WindowRows:
    """The newest rows of a window view; see `RowsBeneath`."""

    source: WindowSource
    readable: ReadableView
    beneath: Beneath
    files: PublishedRows

    @property
    def columns(self) -> StructType:
        """See `RowsBeneath`."""
        return self.readable.columns

    @property
    def column(self) -> str:
        """See `RowsBeneath`."""
        return f"{ROW}.{_SIDES[self.beneath.moment][0]}"

    @property
    def back(self) -> int:
        """See `RowsBeneath`."""
        return _SIDES[self.beneath.moment][1]

    def told(self, progress: Progress, windows: Windows) -> Progress:  # noqa: ARG002
        """The time of the first window beneath that ends later: of all rows before it is known what is of those that end by then."""
        return Progress(*map(self._time, (progress.closed, progress.beforehand, progress.final)))

    def read(self, spans: Spans, windows: Windows) -> FoundRows:
        """See `RowsBeneath`."""
        rows = self._newest([(first + self.back, last + self.back) for first, last in spans])
        times = moments(rows, self.column) - self.back
        of_row = dict(zip(moments(rows, f"{ROW}.end").tolist(), times.tolist(), strict=True))
        worth = worth_of(rows, {end: windows.ends(time) for end, time in of_row.items()})
        return FoundRows(without_withdrawn(rows).select(self.columns.names), worth)

    def whole(self) -> pa.Table:
        """See `RowsBeneath`."""
        rows = self._newest([(BEFORE_ALL, AFTER_ALL + 1)])
        return without_withdrawn(rows).select(self.columns.names)

    def _time(self, end: int) -> int:
        if end in (BEFORE_ALL, AFTER_ALL):
            return end
        windows = self.beneath.windows
        following = end + windows.slide - (end - windows.start - windows.size) % windows.slide
        return following - self.back - (windows.size if self.beneath.moment == "start" else 0)

    def _newest(self, spans: Spans) -> pa.Table:
        """The newest rows, those withdrawn among them."""
        source, schema = self.source, arrow_schema(self.readable.schema)
        parts = parts_of(source.layout, source.stream, source.view, self.readable)
        found = [part.own(self.files.read(part.files, schema, self.column, spans)) for part in parts]
        return newest_rows(pa.concat_tables(found)).drop_columns([OPERATOR])


@dataclass(frozen=True, slots=True)
class LaneRows:
    """The rows of a join view or UNION ALL, which are never withdrawn; see `RowsBeneath`."""

    source: LaneSource
    time: JoinTime
    progress: Progress
    files: PublishedRows

    @property
    def columns(self) -> StructType:
        """See `RowsBeneath`."""
        return spark_schema(self.source.schema)

    @property
    def column(self) -> str:
        """See `RowsBeneath`."""
        return self.time.column

    @property
    def back(self) -> int:
        """See `RowsBeneath`."""
        return 0

    def told(self, progress: Progress, windows: Windows) -> Progress:
        """As far as all streams have come beyond every partner of a row before, and final no sooner than a window's size behind."""
        final = progress.final
        if final != AFTER_ALL:
            final = min(final, _before(progress.closed, windows.size))
        return Progress(
            *(_before(each, self.time.ahead) for each in (progress.closed, progress.beforehand, final))
        )

    def read(self, spans: Spans, windows: Windows) -> FoundRows:
        """See `RowsBeneath`."""
        schema = self.source.schema
        spans = [(max(first, EARLIEST), min(last, LATEST + 1)) for first, last in spans]
        rows = pa.concat_tables(
            [self.files.read(paths, schema, self.column, spans) for paths in self._paths()]
        )
        worth = Worth(None, self._reached)
        return FoundRows(rows, dict.fromkeys(self._ends(rows, windows).tolist(), worth))

    def whole(self) -> pa.Table:
        """See `RowsBeneath`."""
        schema = self.source.schema
        return pa.concat_tables([all_rows(paths, schema) for paths in self._paths()])

    @property
    def _reached(self) -> int:
        """The event time that all streams have come to."""
        beforehand = self.progress.beforehand
        return self.progress.closed if beforehand == AFTER_ALL else max(self.progress.closed, beforehand)

    def _ends(self, rows: pa.Table, windows: Windows) -> npt.NDArray[np.int64]:
        return ends_of(windows, moments(rows, self.column))

    def _paths(self) -> Iterator[list[StorePath]]:
        """The files of each lane that has answered the view."""
        for number, lane in self.source.lanes:
            kind = view_kind(number, self.source.view)
            yield read_published(self.source.layout, lane).paths(self.source.layout, lane, kind)


def _before(moment: int, by: int) -> int:
    """So much before a moment; of those that stand for no time themselves."""
    return moment if moment in (BEFORE_ALL, AFTER_ALL) else moment - by
