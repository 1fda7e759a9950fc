"""The join views of a run: what they ask of streams, where each begins, the lane that answers each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import Any

from penstock.plan.expressions import ExpressionHost
from penstock.plan.joins import JoinPlan
from penstock.spark.analysis.schemas import arrow_schema
from penstock.spark.ingest.tuple_demands import compile_demands, only
from penstock.spark.lanes.joins.grid import demand_of, grid_of, kept_runs, shares_of
from penstock.spark.lanes.joins.lane import JoinLane
from penstock.spark.lanes.joins.static_runs import forget_static_tables
from penstock.spark.lanes.lane import LanePlan
from penstock.spark.lanes.lane_views import LaneViews
from penstock.spark.lanes.shared_jobs import SharedJobs
from penstock.spark.log.stream_log import LogReader
from penstock.spark.results.joined_rows import join_entry
from penstock.spark.sources.source import Source
from penstock.spark.storage.demands import TupleDemand
from penstock.spark.storage.joins import JOINS, JoinDefinition
from penstock.spark.storage.lane_views import RegisteredView, StreamBeginning
from penstock.spark.storage.layout import Layout


class JoinViews(LaneViews[JoinDefinition]):
    """See `LaneViews`.

    Args:
        layout: output and checkpoint folders.
        cells: how many cells the grid of a new view has.
    """

    kind = "join"
    reads_again = True

    def __init__(self, layout: Layout, cells: int) -> None:
        super().__init__(layout, JOINS)
        self._cells = cells
        #: by the streams that views are over: their lanes share jobs
        self._shared_jobs: defaultdict[frozenset[str], SharedJobs] = defaultdict(SharedJobs)

    def beginnings(self, definition: JoinDefinition) -> list[StreamBeginning]:
        """See `LaneViews`."""
        found = []
        for stream in definition.streams:
            entry = LogReader(self._layout.log(stream)).newest()
            begun = (-1, None) if entry is None else (entry.number, entry.clock)
            found.append(StreamBeginning(stream, *begun))
        return found

    def shares(self, definition: JoinDefinition) -> Sequence[int]:
        """See `LaneViews`."""
        return shares_of(definition.plan, self._cells)

    def forget(self, gone: RegisteredView[JoinDefinition]) -> None:
        """See `LaneViews`."""
        # before the lane itself: a kill between leaves it to be forgotten once more
        forget_static_tables(self._layout, gone.lane)
        super().forget(gone)
        self._layout.plan_statistics[gone.lane].remove()

    def demands(self, registered: RegisteredView[JoinDefinition], stream: str) -> list[TupleDemand]:
        """See `LaneViews`."""
        return demands_on(registered, stream)

    def lane(self, registered: RegisteredView[JoinDefinition]) -> LanePlan:
        """See `LaneViews`."""
        streams = registered.definition.streams
        shared = self._shared_jobs[frozenset(streams)]
        return LanePlan(registered.lane, streams, partial(JoinLane, registered, self.tables, shared=shared))

    def entry(self, registered: RegisteredView[JoinDefinition]) -> dict[str, Any]:
        """See `LaneViews`."""
        return join_entry(registered)


def demands_on(registered: RegisteredView[JoinDefinition], stream: str) -> list[TupleDemand]:
    """What a view asks of a stream."""
    plan = registered.definition.plan
    grid = grid_of(plan, registered.shares)
    return [
        demand_of(plan, grid, runs)
        for runs in kept_runs(plan)
        if plan.inputs[runs.input].relation == stream and not plan.inputs[runs.input].is_static
    ]


def check_demands(plan: JoinPlan, stream: str, source: Source, host: ExpressionHost) -> None:
    """Makes sure that a stream can be asked for what a join needs of it.

    Raises:
        InputError: it cannot.
    """
    grid = grid_of(plan, (1,) * len(plan.keys))
    schema = arrow_schema(source.schema)
    for runs in kept_runs(plan):
        asked = plan.inputs[runs.input]
        if asked.relation == stream and not asked.is_static:
            compile_demands(only(demand_of(plan, grid, runs)), schema, host)
