"""The UNION ALL views of a run: what they ask of streams, and the lane that answers each."""

from __future__ import annotations

from functools import partial
from typing import Any

from penstock.spark.lanes.lane import LanePlan
from penstock.spark.lanes.lane_views import LaneViews
from penstock.spark.lanes.unions.lane import UnionLane
from penstock.spark.results.joined_rows import union_entry
from penstock.spark.storage.demands import TupleDemand
from penstock.spark.storage.lane_views import RegisteredView
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.unions import UNIONS, UnionDefinition


class UnionViews(LaneViews[UnionDefinition]):
    """See `LaneViews`."""

    kind = "union"
    reads_again = False

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout, UNIONS)

    def demands(self, registered: RegisteredView[UnionDefinition], stream: str) -> list[TupleDemand]:
        """See `LaneViews`."""
        return [branch.demand for branch in registered.definition.branches if branch.stream == stream]

    def lane(self, registered: RegisteredView[UnionDefinition]) -> LanePlan:
        """See `LaneViews`."""
        return LanePlan(registered.lane, registered.definition.streams, partial(UnionLane, registered))

    def entry(self, registered: RegisteredView[UnionDefinition]) -> dict[str, Any]:
        """See `LaneViews`."""
        return union_entry(registered)
