"""The refreshed views of a run: what they ask of streams, where each begins, the lane that answers each."""

from __future__ import annotations

from functools import partial
from typing import Any

from penstock.spark.lanes.lane import LanePlan
from penstock.spark.lanes.lane_views import LaneViews
from penstock.spark.lanes.refreshed.archive import demand_of
from penstock.spark.lanes.refreshed.lane import RefreshedLane
from penstock.spark.log.stream_log import LogReader
from penstock.spark.results.joined_rows import refreshed_entry
from penstock.spark.storage.demands import TupleDemand
from penstock.spark.storage.lane_views import RegisteredView, StreamBeginning
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.refreshed import REFRESHED, ReadStream, RefreshedDefinition


class RefreshedViews(LaneViews[RefreshedDefinition]):
    """See `LaneViews`.

    Where another view, or the same one as it was before, has asked for the same tuples of a stream, a view begins where that one does.
    """

    kind = "refreshed"
    reads_again = True

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout, REFRESHED)

    def is_same(self, known: RefreshedDefinition, wanted: RefreshedDefinition | None) -> bool:
        """See `LaneViews`; a stream with more columns makes another view of the same text."""
        return known == wanted

    def beginnings(self, definition: RefreshedDefinition) -> list[StreamBeginning]:
        """See `LaneViews`."""
        return list(map(self._beginning, definition.inputs))

    def demands(self, registered: RegisteredView[RefreshedDefinition], stream: str) -> list[TupleDemand]:
        """See `LaneViews`."""
        return [demand_of(read) for read in registered.definition.inputs if read.name == stream]

    def lane(self, registered: RegisteredView[RefreshedDefinition]) -> LanePlan:
        """See `LaneViews`."""
        make = partial(RefreshedLane, registered, self.tables)
        return LanePlan(registered.lane, registered.definition.streams, make)

    def entry(self, registered: RegisteredView[RefreshedDefinition]) -> dict[str, Any]:
        """See `LaneViews`."""
        return refreshed_entry(registered)

    def _beginning(self, read: ReadStream) -> StreamBeginning:
        held = [
            begun.entry
            for view in self.views
            if any(each == read for each in view.definition.inputs)
            for begun in view.beginnings
            if begun.stream == read.name
        ]
        return StreamBeginning(read.name, min([LogReader(self._layout.log(read.name)).last, *held]))
