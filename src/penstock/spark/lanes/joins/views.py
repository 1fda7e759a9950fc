"""The join views of a run: which there are, what they ask of streams, where each begins."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from penstock.plan.expressions import ExpressionHost
from penstock.plan.joins import JoinPlan
from penstock.spark.analysis.schemas import arrow_schema
from penstock.spark.ingest.tuple_demands import compile_demands, only
from penstock.spark.lanes.asking import Asked
from penstock.spark.lanes.cuts import forget_lane
from penstock.spark.lanes.joins.grid import demand_of, grid_of, kept_runs, shares_of
from penstock.spark.lanes.joins.static_runs import forget_static_tables
from penstock.spark.lanes.shared_jobs import SharedJobs
from penstock.spark.log.stream_log import LogReader
from penstock.spark.sources.source import Source
from penstock.spark.sources.static_tables import StaticTable
from penstock.spark.storage.demands import TupleDemand
from penstock.spark.storage.joins import (
    JoinBeginning,
    JoinDefinition,
    RegisteredJoin,
    read_joins,
    store_joins,
)
from penstock.spark.storage.layout import Layout


class JoinViews:
    """Keeps the register of join views; one thread changes it at a time.

    A view begins with what comes to its streams after it was declared: tuples before that were not kept for it.

    Args:
        layout: output and checkpoint folders.
        cells: how many cells the grid of a new view has.
    """

    def __init__(self, layout: Layout, cells: int) -> None:
        self._layout = layout
        self._cells = cells
        #: replaced as a whole, as the next
        self.register = read_joins(layout)
        #: by the streams that views are over: their lanes share jobs
        self.shared_jobs: defaultdict[frozenset[str], SharedJobs] = defaultdict(SharedJobs)
        #: static tables by name
        self.tables: Mapping[str, StaticTable] = {}

    @property
    def joins(self) -> tuple[RegisteredJoin, ...]:
        """The views that are answered."""
        return self.register.joins

    def settle(
        self, wanted: Mapping[str, JoinDefinition], tables: Mapping[str, StaticTable]
    ) -> tuple[RegisteredJoin, ...]:
        """Makes the register hold these views and no others, durable on return.

        Args:
            wanted: the views by name.
            tables: static tables by name.

        Returns:
            Those that are answered no more and have left something; see `forget`.
        """
        dropped = [
            each.definition.name
            for each in self.joins
            if not _is_same(each.definition, wanted.get(each.definition.name))
        ]
        self.tables = dict(tables)
        register = self.register.without(dropped) if dropped else self.register
        register = replace(register, joins=tuple(_renewed(each, wanted) for each in register.joins))
        for name, definition in wanted.items():
            if register.of(name) is None:
                beginnings = tuple(self._beginning(stream) for stream in definition.streams)
                register = register.with_join(definition, shares_of(definition.plan, self._cells), beginnings)
        if register != self.register:
            store_joins(self._layout, register)
            self.register = register
        return tuple(each for each in register.gone if self._layout.lanes[each.lane].exists())

    def forget(self, gone: RegisteredJoin) -> None:
        """Removes what the lane of a dropped view has left beside its results; the lane does not run."""
        # before the lane itself: a kill between leaves it to be forgotten once more
        forget_static_tables(self._layout, gone.lane)
        forget_lane(self._layout, gone.lane, gone.definition.streams)
        self._layout.plan_statistics[gone.lane].remove()

    def asked(self, stream: str) -> list[Asked]:
        """What the views ask of a stream."""
        return [
            Asked(each.lane, each.definition.name, tuple(demands_on(each, stream)), reads_again=True)
            for each in self.joins
        ]

    def _beginning(self, stream: str) -> JoinBeginning:
        entry = LogReader(self._layout.log(stream)).newest()
        if entry is None:
            return JoinBeginning(stream, -1, None)
        return JoinBeginning(stream, entry.number, entry.clock)


def _is_same(known: JoinDefinition, wanted: JoinDefinition | None) -> bool:
    """Whether a view is wanted as it is known; ids of earlier versions told apart names of one time zone."""
    return wanted is not None and (known.id == wanted.id or replace(known, id=wanted.id) == wanted)


def _renewed(known: RegisteredJoin, wanted: Mapping[str, JoinDefinition]) -> RegisteredJoin:
    """A view that stays, under the id that it has now."""
    now = wanted[known.definition.name]
    return known if now.id == known.definition.id else replace(known, definition=now)


def demands_on(registered: RegisteredJoin, stream: str) -> list[TupleDemand]:
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
