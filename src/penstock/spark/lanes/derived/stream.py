"""The stream that the rows of a view are, and the views over it, as a run has them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from penstock.monitor.figures import counted
from penstock.spark.ingest.explaining import FROM_ALL_ROWS, FROM_LIVE_ROWS, explain_window
from penstock.spark.ingest.query import IngestQuery
from penstock.spark.lanes.derived.beneath import RowSource, RunningSource
from penstock.spark.lanes.derived.views import Answered, DerivedView
from penstock.spark.lanes.lane import Lane
from penstock.spark.publication.kinds import results_of, view_kind
from penstock.spark.publication.manifests import read_published
from penstock.spark.results.bound_views import store_views
from penstock.spark.results.window_schemas import earlier_operators, readable_view
from penstock.spark.storage.bindings import RegisteredWindow, WindowDefinition
from penstock.spark.storage.formats import WINDOW_STATE
from penstock.spark.storage.layout import Layout

#: of the list of a live lane's state: the operators that have some, by number
OPERATORS = "operators"


class DerivedStream:
    """The views over one view; one thread changes them, any reads.

    Args:
        layout: output and checkpoint folders.
        source: the view beneath.
    """

    def __init__(self, layout: Layout, source: RowSource | RunningSource) -> None:
        self.name = source.name
        self.source = source
        self._layout = layout
        #: replaced, never changed
        self._views: Mapping[str, tuple[DerivedView, Answered]] = {}
        #: views that were dropped in this run
        self._dropped: set[str] = set()

    @property
    def answered(self) -> list[Answered]:
        """The views that the next cut answers."""
        return [answered for _, answered in self._views.values()]

    @property
    def definitions(self) -> dict[str, WindowDefinition]:
        """The views by name."""
        return {name: view.definition for name, (view, _) in self._views.items()}

    def explain(self) -> list[str]:
        """What is computed of the rows, in lines."""
        if not self._views:
            return []
        how = FROM_LIVE_ROWS if isinstance(self.source, RunningSource) else FROM_ALL_ROWS
        views = [explain_window(view.bound, how) for view, _ in self._views.values()]
        names = [f"    {name}: " for name in self._views]
        head = f"rows of view {self.source.view}: {counted(len(views), 'view')}"
        return [head, *(name + view for name, view in zip(names, views, strict=True))]

    def change(self, add: Mapping[str, DerivedView], drop: Collection[str] = ()) -> None:
        """Adds or redefines views and drops others, from the next cut on.

        A view that is what it was goes on with its results; any other begins with new ones.
        """
        self._dropped.update(drop)
        kept = {name: known for name, known in self._views.items() if name not in drop}
        added = {
            name: (view, Answered(name, self._operator(view), view.below, view.beneath))
            for name, view in add.items()
        }
        self._views = {**kept, **added}

    def _operator(self, view: DerivedView) -> int:
        """The number under which a view's results are, stored if it is new."""
        name, layout = view.definition.name, self._layout
        newest = readable_view(layout, self.name, name)
        known = earlier_operators(layout, self.name, name, view.definition.id)
        is_known = newest is not None and known and known[-1][0] == newest.operator
        if newest is not None and is_known and self._goes_on(name, newest.operator):
            return newest.operator
        self._dropped.discard(name)
        number = 1 + max(
            [-1, *layout.result_views(self.name).numbers(), *layout.operators(self.name).numbers()]
        )
        registered = {name: RegisteredWindow(view.definition, number)}
        store_views(layout, self.name, number, [view.bound], registered)
        return number

    def _goes_on(self, name: str, operator: int) -> bool:
        """Whether what an operator has told is what its state says; a view whose state was dropped begins anew."""
        if not isinstance(self.source, RunningSource):
            return True
        if name in self._dropped:
            return False
        listed = WINDOW_STATE.read(self._layout.window_state(self.name)) or {"progress": {}}
        if str(operator) in listed["progress"].get(OPERATORS, {}):
            return True
        kind = view_kind(operator, name)
        published = read_published(self._layout, results_of(self.name)).files
        return all(file.kind != kind for file in published)


@dataclass(frozen=True, slots=True)
class LaneOutput:
    """The log of what a lane publishes of a view, for a lane that reads it.

    Attributes:
        stream: the log's name.
        lane: who publishes.
        view: the view.
    """

    stream: str
    lane: Lane
    view: str

    @property
    def ingest(self) -> IngestQuery:
        """The stream that the rows come from in the end."""
        return self.lane.streams[0].ingest

    @property
    def active(self) -> bool:
        """Whether entries may still come."""
        return self.lane.active

    @property
    def is_complete(self) -> bool:
        """Whether the lane has answered all that it will in this run."""
        return self.lane.is_complete_for(self.view)
