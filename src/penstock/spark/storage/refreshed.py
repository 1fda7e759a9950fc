"""Refreshed views as registered."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

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
    """

    name: str
    id: str
    sql: str
    seconds: float
    inputs: tuple[ReadStream, ...]
    tables: tuple[str, ...]
    outputs: tuple[OutputColumn, ...]
    beneath: tuple[tuple[str, str], ...] = ()

    @property
    def streams(self) -> tuple[str, ...]:
        """The names of the streams."""
        return tuple(each.name for each in self.inputs)

    @property
    def schema(self) -> pa.Schema:
        """Its columns."""
        return pa.schema([(each.name, each.type) for each in self.outputs])


REFRESHED: LaneViewsKind[RefreshedDefinition] = LaneViewsKind(
    "refreshed", Codec(LaneViewsRegister[RefreshedDefinition])
)
