"""The lane of a join view: what is new in the logs of its streams, joined with what they hold.

A cut is one stateless job, a task a cell of the grid, or several of a heavy one. Runs in the logs are the only state; the
cut says by which order they are joined and which version of each static table takes part, so a replay says the same and a
change of order moves nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from penstock.control.actions import Action
from penstock.monitor.book import StatusBook
from penstock.monitor.joins import standing_lines
from penstock.operators.joins.changes import Due
from penstock.operators.joins.tuples import InputRuns, RunSlice
from penstock.plan.times import AFTER_ALL
from penstock.spark.ingest.log_keeper import LogKeeper
from penstock.spark.lanes.cut_lane import CutAnswer, CutLane
from penstock.spark.lanes.cuts import Cut, Reach
from penstock.spark.lanes.joins.balance import TASKS, CellBalance, new_tuples, tasks_told
from penstock.spark.lanes.joins.beginnings import ViewBeginnings
from penstock.spark.lanes.joins.computed import (
    computed_frame,
    computed_rows,
    is_computed,
    needed_columns,
    reports_of,
)
from penstock.spark.lanes.joins.due import OuterDueTimes, due_document, dues_of
from penstock.spark.lanes.joins.explaining import explain_join, standing_document, told_orders
from penstock.spark.lanes.joins.explosions import Explosions
from penstock.spark.lanes.joins.grid import KeptRuns, demand_of, grid_of, kept_runs, lookup_runs
from penstock.spark.lanes.joins.needed import (
    Span,
    needed_outer,
    needed_spans,
    reaching_beyond,
    span_of,
    untimed,
)
from penstock.spark.lanes.joins.orders import ORDERS
from penstock.spark.lanes.joins.planning import JoinPlanner
from penstock.spark.lanes.joins.predicates import PredicatePlanner
from penstock.spark.lanes.joins.progress import STREAMS, StreamProgress, followed, progress_of
from penstock.spark.lanes.joins.static_runs import StaticRuns
from penstock.spark.lanes.joins.statistics import PlanStatistics
from penstock.spark.lanes.joins.task import CellReport, CellTask, StreamRuns, TableRuns
from penstock.spark.lanes.joins.versions import VERSIONS, VersionBases, base_of
from penstock.spark.lanes.lane import LaneContext
from penstock.spark.lanes.shared_jobs import SharedJobs
from penstock.spark.log.row_log import PROGRESS
from penstock.spark.log.run_files import RunFiles
from penstock.spark.log.stream_log import SINCE
from penstock.spark.publication.kinds import view_kind
from penstock.spark.publication.manifests import read_published
from penstock.spark.publication.staged import BatchFiles
from penstock.spark.reporting.status_file import StatusFile
from penstock.spark.sources.static_tables import StaticTable
from penstock.spark.storage.joins import JoinDefinition
from penstock.spark.storage.lane_views import RegisteredView

_log = logging.getLogger(__name__)
#: fields of a change of order that its event has otherwise
_OF_THE_LANE = ("action", "stream", "version", "order")
#: of a cut's figures: see `STREAMS`
STREAM_PROGRESS = "clocks"
#: of a cut's orders; DUE only of an outer join with a stream, and in the figures of its cuts too
ORDER, TABLES, PREDICATES, DUE = "order", "tables", "predicates", "due"


class JoinLane(CutLane):
    """Answers a join view.

    Args:
        registered: the view.
        tables: the static tables it joins with, by name.
        context: the run's.
        streams: the keepers of its streams, which have been asked for its tuples.
        shared: the lanes over the same streams, with which it shares light jobs.
    """

    part = "join"
    reads_again = True

    def __init__(
        self,
        registered: RegisteredView[JoinDefinition],
        tables: Mapping[str, StaticTable],
        context: LaneContext,
        streams: Sequence[LogKeeper],
        shared: SharedJobs | None = None,
    ) -> None:
        self.plan = registered.definition.plan
        self._computed = computed_rows(context.spark, self.plan)
        self._by_spark = is_computed(self.plan) and self._computed is None
        super().__init__(registered.lane, context, streams, shared=None if self._by_spark else shared)
        self._registered = registered
        self._grid = grid_of(self.plan, registered.shares)
        self._kept = kept_runs(self.plan)
        self._plans = {keeper.ingest.stream: keeper.ingest.plans for keeper in streams}
        self._demands = {
            runs: self._plans[self._relation(runs)].demand(demand_of(self.plan, self._grid, runs))
            for runs in self._kept
            if not self.plan.inputs[runs.input].is_static
        }
        self._runs = {
            runs: RunFiles(self.readers[self._relation(runs)], demand)
            for runs, demand in self._demands.items()
        }
        declared = {begun.stream: begun.entry for begun in registered.beginnings}
        self._beginnings = ViewBeginnings(declared, self.readers, self._first_batch)
        shares, layout = registered.shares, context.layout
        self._static = StaticRuns(context.spark, self.plan, shares, tables, layout, context.events, self.name)
        self._bases = VersionBases(self.plan, shares, layout, self.name, self._demands, declared)
        self._view = registered.definition.name
        self._kind = view_kind(registered.number, self._view)
        self._explosions = Explosions(self.plan, self.name, self._view, context.events)
        self._book: StatusBook | None = None
        self.planner = JoinPlanner(registered.definition.name, self.plan, context.settings)
        self.balance = CellBalance(self._grid.cells, context.spark.sparkContext.defaultParallelism)
        self.predicates = PredicatePlanner(context.spark, self.plan, context.functions, context.settings)
        self._statistics = PlanStatistics(context.layout.plan_statistics[self.name])
        self._statistics.restore(self.planner, self.predicates)
        most_delay = int(context.settings.max_delay_seconds * 1e6)
        self._due_times = OuterDueTimes(self.plan, self.readers, most_delay) if self.plan.withdraws else None
        self._due_until: list[int] | None = None
        #: by stream the first entry whose tuples the lane has not let go
        self._held: dict[str, int] = {}

    def orders(self, until: Mapping[str, Reach]) -> Mapping[str, Any]:
        """By which order the next cut is joined, in which its user predicates run, which static tables it reads, what is due."""
        orders: dict[str, Any] = {
            ORDER: ORDERS.document(self.planner.order),
            PREDICATES: list(self.predicates.order),
            TABLES: self._static.versions(),
        }
        if self._due_times is not None:
            orders[DUE] = due_document(self._due_times.due(self._due_before(), until))
        if self._bases.is_kept:
            orders[VERSIONS] = self._bases.newest().document()
        return orders

    def held_from(self, stream: str, before: Reach) -> int:
        """The first entry with tuples that are needed for left ones that are not due yet."""
        needed = {} if self._due_times is None else self._due_times.needed(self._due_before())
        in_no_base = self._bases.held_from(stream)
        if stream not in needed:
            return in_no_base
        reader = self.readers[stream]
        if stream not in self._held:
            self._held[stream] = int(reader.readers().get(self.name, {}).get(SINCE, reader.first))
        held = max(reader.first, self._held[stream])
        begun = self._beginnings.first(stream, held - 1, before.entry)
        self._held[stream] = reader.first_reaching(needed[stream], begun - 1, before.entry)
        return min(in_no_base, self._held[stream])

    def answer(self, cut: Cut, store: BatchFiles) -> CutAnswer:
        """Joins what is new."""
        inputs = self._inputs(cut)
        new = {each.runs: each.open() for each in inputs}
        spans = {runs.input: span for runs, own in new.items() if (span := span_of(own.new)) is not None}
        dues = dues_of(cut.orders[DUE]) if DUE in cut.orders else []
        is_joined = bool(spans) or (bool(dues) and self._has_due(cut, dues, new))
        streams = self._streams(cut)
        read = tuple(self._with_old(cut, inputs, spans, dues)) if is_joined else ()
        made = self._made(cut, store, read, dues, new) if is_joined else []
        if spans and not self.plan.is_as_of:
            self._plan_on(cut, new, made)
        # an input that is searched by two keys has all of its tuples twice
        each_once = {runs.input: own.new for runs, own in reversed(list(new.items()))}
        said = {
            "rows": sum(each.rows for each in made),
            "raised": sum(each.raised for each in made),
            "untimed": untimed(self.plan, each_once),
            "beyond_history": self._beyond_history(cut, each_once),
        }
        self._explosions.note(cut.number, read, said["rows"])
        if self.plan.wider:
            said["beyond_ttl"] = sum(each.beyond for each in made)
        if self.plan.withdraws:
            said["withdrawn"] = sum(each.withdrawn for each in made)
        progress = progress_of(streams.values(), self._registered.number)
        figures: dict[str, Any] = {
            "views": {self._view: said},
            TASKS: tasks_told([each.seconds for each in made]),
            STREAM_PROGRESS: STREAMS.document(streams),
            PROGRESS: {self._view: asdict(progress)},
        }
        if dues:
            self._due_until = [each.until for each in dues]
            figures[DUE] = self._due_until if len(dues) > 1 else self._due_until[0]
        compacted = self._bases.compacted(cut, self._runs, self.readers, self._beginnings, dues, self.jobs)
        puts = {**self._statistics.due(self.planner, self.predicates), **compacted.puts}
        return CutAnswer(made, figures, puts=puts, done=compacted.done)

    def _due_before(self) -> list[int]:
        """Up to which event time tuples were due with the last cut, by side; empty before the first."""
        if self._due_until is None:
            told = read_published(self.context.layout, self.name).batches
            known = told[-1][DUE] if told else []
            self._due_until = known if isinstance(known, list) else [known]
        return self._due_until

    def _has_due(self, cut: Cut, dues: Sequence[Due], new: Mapping[KeptRuns, InputRuns]) -> bool:
        """Whether rows without a partner may be due in a cut that brings no tuples that could match."""
        assert self._due_times is not None, "it is an outer join"
        came = any(
            own.new for runs, own in new.items() if len(dues) > 1 or runs.input not in self.plan.optional
        )
        return came or self._due_times.are_waiting(dues, cut.until)

    def _streams(self, cut: Cut) -> dict[str, StreamProgress]:
        """How far each stream has come with the cut."""
        before = self.publisher.published(cut.number - 1) if cut.number else None
        known = {} if before is None else STREAMS.value(before.figures.get(STREAM_PROGRESS, {}))
        found = {}
        for stream, reader in self.readers.items():
            entries = reader.between(cut.before[stream].entry, cut.until[stream].entry)
            found[stream] = followed(known.get(stream), entries, self.context.settings)
        return found

    def _beyond_history(self, cut: Cut, new: Mapping[int, Sequence[RunSlice]]) -> int:
        """New tuples that came so late that partners of theirs may be gone with the history."""
        lacks = self._lacks(cut)
        return sum(reaching_beyond(self.plan, number, own, lacks) for number, own in new.items())

    def _lacks(self, cut: Cut) -> dict[int, int]:
        """By input: of its tuples those with an event time before this may be gone with the history, microseconds."""
        lacks: dict[int, int] = {}
        for runs, demand in self._demands.items():
            moment = cut.since[self._relation(runs)].lacks.get(demand)
            # what partners of any age may be is held, or is in the base
            is_held = self.plan.looks_back_forever and runs.input in self.plan.optional
            if moment is not None and not is_held:
                lacks[runs.input] = max(moment, lacks.get(runs.input, moment))
        return self._bases.with_lacks(base_of(cut), lacks)

    def _made(
        self,
        cut: Cut,
        store: BatchFiles,
        inputs: Iterable[StreamRuns | TableRuns],
        dues: Sequence[Due],
        new: Mapping[KeptRuns, InputRuns],
    ) -> list[CellReport]:
        task = CellTask(
            plan=self.plan,
            order=ORDERS.value(cut.orders[ORDER]),
            inputs=tuple(inputs),
            number=self._registered.number,
            kind=self._kind,
            store=store,
            columns=needed_columns(self.plan),
            lookups=self._lookups(cut),
            has_changed=self.plan.withdraws and self._static.has_changed,
            computed=self._computed,
            predicates=self.predicates.programs(cut.orders.get(PREDICATES, ())),
            due=dues[0] if dues else None,
            turned_due=dues[1] if len(dues) > 1 else None,
            lacks_before=self._lacks(cut).get(len(self.plan.inputs) - 1),
        )
        tuples = new_tuples(new, self._grid.cells)
        places = self.balance.places(tuples)
        if self._by_spark:
            self.jobs.own()
            made = reports_of(task, computed_frame(self.context.spark, task, places))
        else:
            # what becomes due alone is not told by the number of new tuples
            is_light = (not dues or bool(tuples.any())) and self.balance.is_light(tuples)
            made = self.jobs.run(task, places, is_light=is_light)
        self.balance.measured(
            tuples, places, [each.seconds for each in made], [each.building for each in made]
        )
        return made

    def _plan_on(
        self,
        cut: Cut,
        new: Mapping[KeptRuns, InputRuns],
        made: Sequence[CellReport],
    ) -> None:
        """Chooses how the next cut is joined; where that fails it costs adaptivity, never results."""
        try:
            steps = [step for each in made for step in each.steps]
            work = [work for each in made for work in each.work]
            switches = self.planner.measured(cut.number, new, steps, work)
            reordered = self.predicates.measured(
                cut.orders.get(PREDICATES, ()), (each.judged for each in made if each.judged)
            )
        except Exception as error:
            _log.exception("cannot plan the order of join view %s", self._view)
            self.context.events.record(
                "controller_failed", stream=self._view, batch=cut.number, error=repr(error)
            )
            return
        self._tell_standing()
        place = {"lane": self.name, "view": self._view, "cut": cut.number}
        for switch in switches:
            order = "; ".join(told_orders(self.plan, switch.order))
            self.context.events.record("join_switched", **place, order=order, **_told(switch))
        for each in reordered:
            order = ", ".join(each.order)
            self.context.events.record("predicates_reordered", **place, order=order, **_told(each))

    def _standing(self) -> dict[str, Any] | None:
        standing = self.planner.standing
        return None if standing is None else standing_document(self.plan, standing, self.predicates.standing)

    def _tell_standing(self) -> None:
        standing = self._standing()
        if self._book is not None and standing is not None:
            self._book.take_standing(self.name, standing)

    @property
    def views(self) -> Sequence[str]:
        """The join view."""
        return (self._view,)

    def recount(self, status: StatusFile) -> None:
        """Its cuts; what is measured of them is told there too."""
        super().recount(status)
        self._book = status.book

    @property
    def before(self) -> Sequence[str]:
        """Likewise."""
        return self._registered.lanes_before

    def status(self) -> dict[str, Any]:
        """The view, its newest cut, how many entries of each log are in none yet, joined rows a second, static tables that
        are gone."""
        told = super().status()["lanes"][self.name]
        begun = {each.stream: each.entry for each in self._registered.beginnings}
        reach = {**begun, **told.get("streams", {})}
        backlog = {
            keeper.ingest.stream: last.number - reach[keeper.ingest.stream]
            for keeper in self.streams
            if (last := keeper.ingest.log.last) is not None
        }
        standing = self.planner.standing
        rate = None if standing is None else standing.measured_rate
        told = {**told, "view": self._view, "backlog": backlog, "measured_rate": rate}
        return {"lanes": {self.name: {**told, "lost_tables": self._static.lost}}}

    def explain(self) -> list[str]:
        """How the view is joined, and why."""
        standing = self._standing()
        told = list(
            explain_join(self.plan, self._registered.shares, self.planner.order, by_spark=self._by_spark)
        )
        return told if standing is None else [*told, *standing_lines(standing)]

    def _began(self, stream: str, reach: Reach | None) -> Reach:
        begun = next(each for each in self._registered.beginnings if each.stream == stream)
        found = super()._began(stream, reach)
        return found if found.entry >= begun.entry else Reach(begun.entry, begun.clock)

    def _first_batch(self, stream: str) -> int | None:
        """The first batch of a stream that is dealt out for all the view asks for; None before there is one."""
        asked = [demand for runs, demand in self._demands.items() if self._relation(runs) == stream]
        begun = [batch for demand in asked if (batch := self._plans[stream].begun(demand)) is not None]
        return max(begun) if len(begun) == len(asked) else None

    def _relation(self, runs: KeptRuns) -> str:
        return self.plan.inputs[runs.input].relation

    def _inputs(self, cut: Cut) -> list[StreamRuns | TableRuns]:
        """What is new of the streams, and the static tables."""
        found: list[StreamRuns | TableRuns] = []
        for runs in self._kept:
            if runs in self._runs:
                stream = self._relation(runs)
                until = cut.until[stream].entry
                first = self._beginnings.first(stream, cut.before[stream].entry, until)
                found.append(StreamRuns(runs, self._runs[runs].find(first - 1, until)))
            else:
                version = cut.orders[TABLES][str(runs.input)]
                found.append(TableRuns(runs, self._static.path(runs, version)))
        return found

    def _lookups(self, cut: Cut) -> tuple[TableRuns, ...]:
        """The static tables that joined rows are looked up in."""
        versions = cut.orders[TABLES]
        return tuple(
            TableRuns(runs, self._static.path(runs, versions[str(runs.input)]))
            for runs in lookup_runs(self.plan)
        )

    def _with_old(
        self, cut: Cut, inputs: Sequence[StreamRuns | TableRuns], new: Mapping[int, Span], dues: Sequence[Due]
    ) -> Iterator[StreamRuns | TableRuns]:
        """The same with the older tuples of the streams in which partners of new ones may be, or that are due."""
        plan = self.plan.widened
        needed = needed_spans(plan, new)
        if plan.has_optional_stream:
            needed = needed_outer(plan, new, dues or [Due(AFTER_ALL, AFTER_ALL)])
        for each in inputs:
            span = needed.get(each.runs.input)
            if isinstance(each, TableRuns) or span is None:
                yield each
                continue
            stream = self._relation(each.runs)
            before = cut.before[stream].entry
            files, last = self._bases.files(base_of(cut), each.runs)
            begun = self._beginnings.first(stream, max(cut.since[stream].entry - 1, last), before)
            first = self.readers[stream].first_reaching(span.oldest, begun - 1, before)
            yield replace(each, old=self._runs[each.runs].find(first - 1, before), base=files)


def _told(action: Action) -> dict[str, object]:
    return {name: value for name, value in action.fields().items() if name not in _OF_THE_LANE}
