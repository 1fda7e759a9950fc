"""The lane of a join view: what is new in the logs of its streams, joined with what they hold.

A cut is one stateless job, a task a cell of the grid. Runs in the logs are the only state; the cut says by which order
they are joined and which version of each static table takes part, so a replay says the same and a change of order
moves nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from penstock.control.actions import Action
from penstock.monitor.book import StatusBook
from penstock.monitor.joins import standing_lines
from penstock.operators.joins.changes import Due
from penstock.operators.joins.hot_keys import hottest
from penstock.operators.joins.outer import LEFT
from penstock.operators.joins.tuples import InputRuns
from penstock.plan.times import BEFORE_ALL
from penstock.spark.ingest.log_keeper import LogKeeper
from penstock.spark.lanes.cut_lane import CutAnswer, CutLane
from penstock.spark.lanes.cuts import Cut, Reach
from penstock.spark.lanes.joins.computed import computed_frame, is_computed, needed_columns, reports_of
from penstock.spark.lanes.joins.due import DueTimes, due_of
from penstock.spark.lanes.joins.explaining import explain_join, standing_document, told_orders
from penstock.spark.lanes.joins.grid import KeptRuns, demand_of, grid_of, kept_runs
from penstock.spark.lanes.joins.needed import (
    Span,
    needed_spans,
    needed_without_partners,
    reaching_beyond,
    span_of,
)
from penstock.spark.lanes.joins.orders import ORDERS
from penstock.spark.lanes.joins.planning import JoinPlanner
from penstock.spark.lanes.joins.predicates import PredicatePlanner
from penstock.spark.lanes.joins.progress import STREAMS, StreamProgress, followed, progress_of
from penstock.spark.lanes.joins.static_runs import StaticRuns
from penstock.spark.lanes.joins.task import CellReport, CellTask, StreamRuns, TableRuns
from penstock.spark.lanes.lane import LaneContext
from penstock.spark.log.row_log import PROGRESS
from penstock.spark.log.run_files import RunFiles
from penstock.spark.publication.kinds import view_kind
from penstock.spark.publication.manifests import read_published
from penstock.spark.reporting.status_file import StatusFile
from penstock.spark.results.read import batch_joined
from penstock.spark.sources.static_tables import StaticTable
from penstock.spark.storage.files import make_folder
from penstock.spark.storage.joins import RegisteredJoin

_log = logging.getLogger(__name__)
#: a cut is told to explode that puts out at least so many rows, and so many for each of its tuples
EXPLODED_ROWS, EXPLODED_ROWS_A_TUPLE = 10_000_000, 100
#: fields of a change of order that its event has otherwise
_OF_THE_LANE = ("action", "stream", "version", "order")
#: of a cut's figures: see `STREAMS`
STREAM_PROGRESS = "clocks"
#: of a cut's orders; DUE only of a LEFT JOIN of streams, and in the figures of its cuts too
ORDER, TABLES, PREDICATES, DUE = "order", "tables", "predicates", "due"


class JoinLane(CutLane):
    """Answers a join view.

    Args:
        registered: the view.
        tables: the static tables it joins with, by name.
        context: the run's.
        streams: the keepers of its streams, which have been asked for its tuples.
    """

    part = "join"
    reads_again = True

    def __init__(
        self,
        registered: RegisteredJoin,
        tables: Mapping[str, StaticTable],
        context: LaneContext,
        streams: Sequence[LogKeeper],
    ) -> None:
        super().__init__(registered.lane, context, streams)
        self._registered = registered
        self.plan = registered.definition.plan
        self._grid = grid_of(self.plan, registered.shares)
        self._kept = kept_runs(self.plan)
        plans = {keeper.ingest.stream: keeper.ingest.plans for keeper in streams}
        self._demands = {
            runs: plans[self._relation(runs)].demand(demand_of(self.plan, self._grid, runs))
            for runs in self._kept
            if not self.plan.inputs[runs.input].is_static
        }
        self._runs = {
            runs: RunFiles(self.readers[self._relation(runs)], demand)
            for runs, demand in self._demands.items()
        }
        make_folder(context.layout.lane(self.name))
        self._static = StaticRuns(
            context.spark,
            self.plan,
            registered.shares,
            tables,
            context.layout.static_tables(self.name),
            context.events,
            self.name,
        )
        self._view = registered.definition.name
        self._kind = view_kind(registered.number, self._view)
        self._book: StatusBook | None = None
        self.planner = JoinPlanner(registered.definition.name, self.plan)
        self.predicates = PredicatePlanner(context.spark, self.plan, context.functions)
        most_delay = int(context.settings.max_delay_seconds * 1e6)
        self._due_times = DueTimes(self.plan, self.readers, most_delay) if self.plan.withdraws else None
        self._due_until: int | None = None

    def orders(self, until: Mapping[str, Reach]) -> Mapping[str, Any]:
        """By which order the next cut is joined, in which its user predicates run, which static tables it reads, what is due."""
        orders: dict[str, Any] = {
            ORDER: ORDERS.document(self.planner.order),
            PREDICATES: list(self.predicates.order),
            TABLES: self._static.versions(),
        }
        if self._due_times is not None:
            due = self._due_times.due(self._due_before(), until)
            orders[DUE] = [due.after, due.until]
        return orders

    def held_from(self, stream: str, before: Reach) -> int:
        """The first entry with tuples that are needed for left ones that are not due yet."""
        needed = {} if self._due_times is None else self._due_times.needed(self._due_before())
        if stream not in needed:
            return super().held_from(stream, before)
        reader = self.readers[stream]
        begun = max(self._begun(stream), reader.first - 1)
        return reader.first_reaching(needed[stream], begun, before.entry)

    def answer(self, cut: Cut, staging: Path) -> CutAnswer:
        """Joins what is new."""
        inputs = self._inputs(cut)
        new = {each.runs: each.open() for each in inputs}
        spans = {runs.input: span for runs, own in new.items() if (span := span_of(own.new)) is not None}
        due = due_of(cut.orders[DUE]) if DUE in cut.orders else None
        is_joined = bool(spans) or (due is not None and self._has_due(cut, due, new))
        read = tuple(self._with_old(cut, inputs, spans, due)) if is_joined else ()
        made = self._made(cut, staging, read, due) if is_joined else []
        if spans:
            self._plan_on(cut, new, made)
        said = {
            "rows": sum(each.rows for each in made),
            "raised": sum(each.raised for each in made),
            "untimed": self._untimed(new),
            "beyond_history": self._beyond_history(cut, new),
        }
        self._tell_explosion(cut, read, said["rows"])
        if self.plan.withdraws:
            said["withdrawn"] = sum(each.withdrawn for each in made)
        streams = self._streams(cut)
        progress = progress_of(streams.values(), self._registered.number)
        figures: dict[str, Any] = {
            "views": {self._view: said},
            STREAM_PROGRESS: STREAMS.document(streams),
            PROGRESS: {self._view: asdict(progress)},
        }
        if due is not None:
            self._due_until = figures[DUE] = due.until
        return CutAnswer(made, figures)

    def _tell_explosion(self, cut: Cut, read: Sequence[StreamRuns | TableRuns], rows: int) -> None:
        """Tells of far more joined rows than tuples, and which keys are the most frequent; that it fails costs no results."""
        if rows < EXPLODED_ROWS:
            return
        try:
            self._told_explosion(cut, [(each.runs, each.open()) for each in read], rows)
        except Exception:
            _log.exception("what makes join view %s put out %d rows cannot be told", self._view, rows)

    def _told_explosion(self, cut: Cut, read: Sequence[tuple[KeptRuns, InputRuns]], rows: int) -> None:
        # an input that is searched by two keys has all of its tuples twice
        each_once = {runs.input: own for runs, own in read}
        tuples = sum(each.rows() for own in each_once.values() for each in own.new)
        if rows < EXPLODED_ROWS_A_TUPLE * tuples:
            return
        hot = []
        for runs, own in read:
            found = hottest((*own.new, *own.old))
            if found is not None:
                asked = self.plan.inputs[runs.input]
                written = [each.text for each in asked.columns if each.name in found.columns]
                hot.append({**asdict(found), "input": asked.alias, "columns": written})
        self.context.events.record(
            "join_exploded",
            lane=self.name,
            view=self._view,
            cut=cut.number,
            tuples=tuples,
            rows=rows,
            hot=hot,
        )

    def _due_before(self) -> int:
        """Up to which event time left tuples were due with the last cut."""
        if self._due_until is None:
            told = read_published(self.context.layout, self.name).batches
            self._due_until = told[-1][DUE] if told else BEFORE_ALL
        return self._due_until

    def _has_due(self, cut: Cut, due: Due, new: Mapping[KeptRuns, InputRuns]) -> bool:
        """Whether left tuples may be due in a cut that brings none that could match."""
        assert self._due_times is not None, "it is a LEFT JOIN"
        came = any(own.new for runs, own in new.items() if runs.input == LEFT)
        return came or self._due_times.are_waiting(due, cut.until)

    def _streams(self, cut: Cut) -> dict[str, StreamProgress]:
        """How far each stream has come with the cut."""
        before = self.publisher.published(cut.number - 1) if cut.number else None
        known = {} if before is None else STREAMS.value(before.figures.get(STREAM_PROGRESS, {}))
        found = {}
        for stream, reader in self.readers.items():
            entries = reader.between(cut.before[stream].entry, cut.until[stream].entry)
            found[stream] = followed(known.get(stream), entries, self.context.settings)
        return found

    def _beyond_history(self, cut: Cut, new: Mapping[KeptRuns, InputRuns]) -> int:
        """New tuples that came so late that partners of theirs may be gone with the history."""
        lacks: dict[int, int] = {}
        for runs, demand in self._demands.items():
            moment = cut.since[self._relation(runs)].lacks.get(demand)
            if moment is not None:
                lacks[runs.input] = max(moment, lacks.get(runs.input, moment))
        # an input that is searched by two keys has all of its tuples twice
        first = {runs.input: own for runs, own in reversed(list(new.items()))}
        return sum(reaching_beyond(self.plan, number, own.new, lacks) for number, own in first.items())

    def _untimed(self, new: Mapping[KeptRuns, InputRuns]) -> int:
        """New tuples without an event time: they are in no join, though one with static tables alone needs none."""
        if self.plan.bounds:
            return 0
        found = 0
        # an input that is searched by two keys has all of its tuples twice
        for runs, own in {each.input: (each, own) for each, own in new.items()}.values():
            for run in (each.run for each in own.new):
                for part in (run.part(number) for number, known in run.parts.items() if known.loose):
                    assert part is not None, "it is in the directory"
                    time = self.plan.inputs[runs.input].time
                    found += part.tuples.column(time).null_count
        return found

    def _made(
        self, cut: Cut, staging: Path, inputs: Iterable[StreamRuns | TableRuns], due: Due | None
    ) -> list[CellReport]:
        task = CellTask(
            plan=self.plan,
            order=ORDERS.value(cut.orders[ORDER]),
            inputs=tuple(inputs),
            number=self._registered.number,
            kind=self._kind,
            staging=str(staging),
            columns=needed_columns(self.plan),
            predicates=self.predicates.programs(cut.orders.get(PREDICATES, ())),
            due=due,
        )
        if not is_computed(self.plan):
            return self.jobs.run(task, range(self._grid.cells))
        self.jobs.own()
        return reports_of(task, computed_frame(self.context.spark, task, self._grid.cells))

    def _plan_on(self, cut: Cut, new: Mapping[KeptRuns, InputRuns], made: Sequence[CellReport]) -> None:
        """Chooses how the next cut is joined; where that fails it costs adaptivity, never results."""
        try:
            steps = [step for each in made for step in each.steps]
            work = [work for each in made for work in each.work]
            switches = self.planner.measured(cut.number, new, steps, work)
            reordered = self.predicates.measured(
                cut.orders.get(PREDICATES, ()), (each.judged for each in made if each.judged)
            )
        except Exception as error:
            _log.exception("the order of join view %s cannot be planned", self._view)
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

    def recount(self, status: StatusFile) -> None:
        """Its cuts; what is measured of them is told there too."""
        super().recount(status)
        self._book = status.book

    def status(self) -> dict[str, Any]:
        """The view, its newest cut, how many entries of each log are in none yet, joined rows a second, static tables that
        are gone."""
        told = super().status()["lanes"][self.name]
        reach = told.get("streams", {})
        backlog = {
            keeper.ingest.stream: last.number - reach.get(keeper.ingest.stream, -1)
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
        told = list(explain_join(self.plan, self._registered.shares, self.planner.order))
        return told if standing is None else [*told, *standing_lines(standing)]

    def rows(self, view: str, cut: int, files: Sequence[Mapping[str, Any]]) -> DataFrame | None:
        """The rows of the view in a cut."""
        if view != self._view or not files:
            return None
        return batch_joined(self.context.spark, self.context.layout, self._registered, cut, files)

    def _began(self, stream: str, reach: Reach | None) -> Reach:
        begun = next(each for each in self._registered.beginnings if each.stream == stream)
        found = super()._began(stream, reach)
        return found if found.entry >= begun.entry else Reach(begun.entry, begun.clock)

    def _relation(self, runs: KeptRuns) -> str:
        return self.plan.inputs[runs.input].relation

    def _inputs(self, cut: Cut) -> list[StreamRuns | TableRuns]:
        """What is new of the streams, and the static tables."""
        found: list[StreamRuns | TableRuns] = []
        for runs in self._kept:
            if runs in self._runs:
                stream = self._relation(runs)
                new = self._runs[runs].find(cut.before[stream].entry, cut.until[stream].entry)
                found.append(StreamRuns(runs, new))
            else:
                version = cut.orders[TABLES][str(runs.input)]
                found.append(TableRuns(runs, self._static.path(runs, version)))
        return found

    def _with_old(
        self, cut: Cut, inputs: Sequence[StreamRuns | TableRuns], new: Mapping[int, Span], due: Due | None
    ) -> Iterator[StreamRuns | TableRuns]:
        """The same with the older tuples of the streams in which partners of new ones may be, or that are due."""
        needed = needed_spans(self.plan, new)
        if due is not None:
            needed = needed_without_partners(self.plan, needed, due)
        for each in inputs:
            span = needed.get(each.runs.input)
            if isinstance(each, TableRuns) or span is None:
                yield each
                continue
            stream = self._relation(each.runs)
            before = cut.before[stream].entry
            begun = max(self._begun(stream), cut.since[stream].entry - 1)
            first = self.readers[stream].first_reaching(span.oldest, begun, before)
            yield replace(each, old=self._runs[each.runs].find(first - 1, before))

    def _begun(self, stream: str) -> int:
        return next(each.entry for each in self._registered.beginnings if each.stream == stream)


def _told(action: Action) -> dict[str, object]:
    return {name: value for name, value in action.fields().items() if name not in _OF_THE_LANE}
