"""Refreshed views as registered."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from penstock.plan.windows import Windows
from penstock.spark.storage.codec import Codec
from penstock.spark.storage.lane_views import LaneViewsKind, LaneViewsRegister


@dataclass(frozen=True, slots=True)
class ReadStream:
    """A stream that a refreshed view reads.

    Attributes:
        name: the stream's.
        columns: those that the view may read, in the order of the stream.
        time: the event time column; None: the stream has none.
    """

    name: str
    columns: tuple[str, ...]
    time: str | None


@dataclass(frozen=True, slots=True)
class ReadView:
    """A view whose rows another one reads.

    Attributes:
        name: what the text of the other one calls it.
        view: the view's name.
        place: its stream, of a running view as `running_of` names it; `JOINS.name` of a join view, `UNIONS.name` of a UNION ALL.
        id: identifies its definition.
        streams: the streams that its rows come from.
        windows: those of a window view.
        time: of a UNION ALL that is read by windows, the column of the event time; "" where there is none.
    """

    name: str
    view: str
    place: str
    id: str
    streams: tuple[str, ...]
    windows: Windows | None = None
    time: str = ""


@dataclass(frozen=True, slots=True)
class OutputColumn:
    """A column of a refreshed view."""

    name: str
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class RefreshedDefinition:
    """A refreshed view as registered.

    Attributes:
        name: the view's name.
        id: identifies this definition; redefining a view gives a new one.
        sql: the whole text of its query.
        seconds: the least time between two answers.
        inputs: the streams that it reads, directly or through views.
        tables: the static tables that it reads.
        outputs: its columns.
        beneath: (name, text) of the views that it selects from, directly or through others; each after those that it selects from.
        views: the views whose rows it reads instead of the tuples of streams.
        rest: the query over the names of these; "" where it reads streams.
        by_window: the same with the end of the window of each row; "" where the answer is none for each window.
    """

    name: str
    id: str
    sql: str
    seconds: float
    inputs: tuple[ReadStream, ...]
    tables: tuple[str, ...]
    outputs: tuple[OutputColumn, ...]
    beneath: tuple[tuple[str, str], ...] = ()
    views: tuple[ReadView, ...] = ()
    rest: str = ""
    by_window: str = ""

    @property
    def streams(self) -> tuple[str, ...]:
        """The names of the streams."""
        own = (each.name for each in self.inputs)
        return tuple(dict.fromkeys((*own, *(stream for each in self.views for stream in each.streams))))

    @property
    def windows(self) -> Windows | None:
        """The windows by which it is answered."""
        return next((each.windows for each in self.views if each.windows), None) if self.by_window else None

    @property
    def schema(self) -> pa.Schema:
        """Its columns."""
        return pa.schema([(each.name, each.type) for each in self.outputs])


REFRESHED: LaneViewsKind[RefreshedDefinition] = LaneViewsKind(
    "refreshed", Codec(LaneViewsRegister[RefreshedDefinition])
)
