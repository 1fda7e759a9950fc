"""UNION ALL views as registered."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from penstock.spark.storage.codec import Codec
from penstock.spark.storage.demands import TupleDemand
from penstock.spark.storage.lane_views import LaneViewsKind, LaneViewsRegister


@dataclass(frozen=True, slots=True)
class UnionBranch:
    """A selection of a UNION ALL.

    Attributes:
        stream: the stream that it selects from.
        demand: its condition and its SELECT list, as the stream is asked for them; the n-th column of the view is `column_name(n)`.
    """

    stream: str
    demand: TupleDemand


def column_name(number: int) -> str:
    """The name of a view's column among those of a branch's demand."""
    return f"c{number}"


@dataclass(frozen=True, slots=True)
class UnitedColumn:
    """A column of a UNION ALL view.

    Attributes:
        name: the column's.
        type: the type that all branches are cast to.
        is_time: whether it is the event time of the stream in every branch.
    """

    name: str
    type: pa.DataType
    is_time: bool


@dataclass(frozen=True, slots=True)
class UnionDefinition:
    """A UNION ALL view as registered.

    Attributes:
        name: the view's name.
        id: identifies this definition; redefining a view gives a new one.
        sql: the whole text of its query.
        branches: the selections, in order.
        outputs: its columns.
        beneath: (name, text) of the views that it selects from, directly or through others.
    """

    name: str
    id: str
    sql: str
    branches: tuple[UnionBranch, ...]
    outputs: tuple[UnitedColumn, ...]
    beneath: tuple[tuple[str, str], ...] = ()

    @property
    def streams(self) -> tuple[str, ...]:
        """The names of the streams, each once."""
        return tuple(dict.fromkeys(each.stream for each in self.branches))

    @property
    def schema(self) -> pa.Schema:
        """Its columns."""
        return pa.schema([(each.name, each.type) for each in self.outputs])


UNIONS: LaneViewsKind[UnionDefinition] = LaneViewsKind("unions", Codec(LaneViewsRegister[UnionDefinition]))
