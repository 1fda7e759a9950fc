"""The refreshed views of a run: what they ask of streams, where each begins, the lane that answers each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from penstock.spark.lanes.composed.lane import ComposedLane
from penstock.spark.lanes.derived.beneath import ViewBeneath
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

    def lanes(self) -> Iterator[LanePlan]:
        """The lane of each view that reads streams; see `over_rows`."""
        return (self.lane(each) for each in self.views if not each.definition.views)

    def over_rows(self) -> Iterator[RegisteredView[RefreshedDefinition]]:
        """The views that read rows of other views, whose lanes begin behind those that publish these."""
        return (each for each in self.views if each.definition.views)

    def lane_over(
        self, registered: RegisteredView[RefreshedDefinition], sources: Sequence[ViewBeneath]
    ) -> LanePlan:
        """The lane of such a view, given who publishes the rows that it reads, in the order of its definition."""
        make = partial(ComposedLane, registered, sources, self.tables)
        return LanePlan(registered.lane, tuple(each.name for each in sources), make)

    def logs(self, gone: RegisteredView[RefreshedDefinition]) -> Sequence[str]:
        """See `LaneViews`."""
        if not gone.definition.views:
            return super().logs(gone)
        logs = ((name, LogReader(self._layout.log(name))) for name in self._layout.logs())
        return [name for name, log in logs if log.mark(gone.lane) is not None]

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
