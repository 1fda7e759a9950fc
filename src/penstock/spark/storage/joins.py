"""Join views as registered."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.plan.joins import JoinPlan
from penstock.spark.storage.codec import Codec
from penstock.spark.storage.lane_views import LaneViewsKind, LaneViewsRegister


@dataclass(frozen=True, slots=True)
class JoinDefinition:
    """A join view as registered.

    Attributes:
        name: the view's name.
        id: identifies this definition; redefining a view gives a new one.
        sql: the whole text of its query.
        plan: the query bound to the columns of its inputs.
        beneath: (name, text) of the views that it selects from, directly or through others.
    """

    name: str
    id: str
    sql: str
    plan: JoinPlan
    beneath: tuple[tuple[str, str], ...] = ()

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams among its inputs, each once."""
        return tuple(dict.fromkeys(each.relation for each in self.plan.inputs if not each.is_static))

    @property
    def tables(self) -> tuple[str, ...]:
        """The static tables among them, each once."""
        return tuple(dict.fromkeys(each.relation for each in self.plan.relations if each.is_static))


JOINS: LaneViewsKind[JoinDefinition] = LaneViewsKind("joins", Codec(LaneViewsRegister[JoinDefinition]))
