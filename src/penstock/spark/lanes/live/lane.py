"""The live lane: the views over one running view, from the live rows of that one.

The log of the rows beneath says which have changed. A cut is one stateless job, a task a shard, as in the running lane: it takes in what has
changed, stores what that changes of the views, and the shard's state as files, which the commit that publishes the cut lists. A view that
begins, or that the log lacks rows for, is given the newest revision of every row beneath.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from typing import Any

import pyarrow as pa

from penstock.operators.windows.answers import Progress
from penstock.plan.times import AFTER_ALL
from penstock.spark.analysis.schemas import arrow_schema
from penstock.spark.lanes.cut_lane import CutAnswer
from penstock.spark.lanes.cuts import Cut
from penstock.spark.lanes.derived.beneath import RunningSource
from penstock.spark.lanes.derived.over_view import LaneOverView
from penstock.spark.lanes.derived.stream import OPERATORS, DerivedStream
from penstock.spark.lanes.derived.views import Answered
from penstock.spark.lanes.lane import LaneContext, LaneInput
from penstock.spark.lanes.live.changes import LiveView, of_operator
from penstock.spark.lanes.live.task import LiveTask, Work
from penstock.spark.lanes.stopped import Place
from penstock.spark.lanes.windows.listed_state import ListedState, ListedStates
from penstock.spark.lanes.windows.making import Made, ResultMaking
from penstock.spark.lanes.windows.shard_task import ShardCell
from penstock.spark.lanes.windows.state_report import told_of
from penstock.spark.log.entries import Entry
from penstock.spark.log.shards import fixed_shards
from penstock.spark.publication.staged import BatchFiles
from penstock.spark.results.published_rows import all_rows
from penstock.spark.results.window_schemas import readable_operator
from penstock.spark.results.window_staging import StagedResults, written
from penstock.spark.storage.layout import ROWS_FILES
from penstock.spark.storage.store_paths import StorePath

#: a cut whose shards took no longer is light: others may share its job
_LIGHT_SECONDS = 0.1
#: of the state's list: how far the view beneath had come, and where the log was read to
_PROGRESS, _REACH = "beneath", "reach"


@dataclass(frozen=True, slots=True)
class _Known:
    """What an operator has read of the rows beneath.

    Attributes:
        until: the newest publication; -1: it has to read all again.
        beneath: the operator that published the rows.
    """

    until: int
    beneath: int


class LiveLane(LaneOverView):
    """Answers the views over one running view; arguments as of `LaneOverView`."""

    part = "views over a running view"

    def __init__(self, derived: DerivedStream, context: LaneContext, inputs: Sequence[LaneInput]) -> None:
        super().__init__(derived, context, inputs, context.shared_jobs)
        assert isinstance(derived.source, RunningSource)
        self._source = derived.source
        cores = context.spark.sparkContext.defaultParallelism
        self._shards = fixed_shards(context.layout, derived.name, cores, context.settings.shards)
        self._states = ListedStates(context.layout, derived.name, self._shards)
        self._making = ResultMaking(
            context.spark, context.layout, self.name, self.jobs, self.stopped, self._bound
        )
        self._view = lru_cache(256)(self._read_view)
        self._is_light = True

    def answer(self, cut: Cut, store: BatchFiles) -> CutAnswer:
        """Takes in what the cut's entries change."""
        if not cut.entries:
            return self._made_again(cut, store)
        began = time.perf_counter()
        before, name = self._states.before(cut.number), self._derived.name
        entries = self._entries(cut)
        told = Progress(**before.progress.get(_PROGRESS, {}))
        goes_on = self._goes_on(cut, entries, before.progress.get(_REACH))
        known = {
            int(operator): _Known(**each) for operator, each in before.progress.get(OPERATORS, {}).items()
        }
        works, now = dict[int, Work](), dict[int, _Known]()
        for view in map(Answered.of, cut.orders["views"]):
            own = known.get(view.operator) if goes_on else None
            found = self._work(view, own, entries, told, store.scratch)
            if found is not None:
                works[view.operator], now[view.operator] = found
        for operator, each in self._kept(known, works):
            works[operator], now[operator] = each
        task = LiveTask(self.context.layout, name, cut.number, self._shards, works, store)
        cells = [ShardCell(number, own) for number, own in enumerate(before.shards)]
        reports = self.jobs.run(task, cells, is_light=self._is_light)
        self._is_light = max(report.seconds for report in reports) <= _LIGHT_SECONDS
        ran = time.perf_counter()
        staged = [each for report in reports for each in report.results]
        made = self._made(cut, staged, store)
        progress = {
            OPERATORS: {str(operator): asdict(each) for operator, each in now.items()},
            _PROGRESS: asdict(entries[-1].progress or Progress()),
            _REACH: asdict(cut.until[name]),
        }
        state = ListedState(0, tuple(tuple(report.state) for report in reports), progress)
        return CutAnswer(
            staged=made.files,
            figures={"views": {view: asdict(said) for view, said in made.counts.items()}, "whole": []},
            puts={self._states.place: self._states.document(cut.number, state), **made.puts},
            deletes=made.deletes,
            told=told_of(reports, ran - began),
            done=partial(self._published, before.names - state.names, made.committed),
        )

    def _made_again(self, cut: Cut, store: BatchFiles) -> CutAnswer:
        """Answers views that were stopped; no entry has come."""
        made, before = self._made(cut, [], store), self._states.before(cut.number)
        figures = {"views": {view: asdict(said) for view, said in made.counts.items()}, "whole": []}
        puts = {self._states.place: self._states.document(cut.number, before), **made.puts}
        return CutAnswer(made.files, figures, puts=puts, deletes=made.deletes, done=made.committed)

    def _made(self, cut: Cut, staged: Sequence[StagedResults], store: BatchFiles) -> Made:
        views = map(Answered.of, cut.orders["views"])
        wanted = {Place(view.operator, view.name) for view in views}
        # nothing is over these views
        return self._making.made(
            staged, store, wanted, lambda _: None, was_tried=self.retries.pending is not None
        )

    def _published(self, gone: set[str], committed: Callable[[], None]) -> None:
        committed()
        self._states.remove(gone)

    def _work(
        self,
        view: Answered,
        known: _Known | None,
        entries: Sequence[Entry],
        told: Progress,
        scratch: StorePath,
    ) -> tuple[Work, _Known] | None:
        """What is done for a view, and what it has read of then; None where the view beneath has not answered yet.

        Args:
            view: the view.
            known: what it has read; None: it reads all.
            entries: the cut's.
            told: how far the view beneath had come before them.
            scratch: a folder for what tasks read.
        """
        progress = entries[-1].progress or Progress()
        readable = self._source.readable(view, progress)
        if readable is None:
            return None
        live = self._view(view.operator, readable.operator)
        is_whole = known is None or known.until < 0 or known.beneath != readable.operator
        schema = arrow_schema(readable.schema)
        if is_whole or known is None:
            until, files = self._source.published(readable.operator)
        else:
            until = entries[-1].batch
            names = [
                name
                for entry in entries
                if entry.batch > known.until
                for name in entry.files.get(ROWS_FILES, ())
            ]
            files = [self._reader.path(ROWS_FILES, name) for name in of_operator(names, readable.operator)]
        is_final = progress.final == AFTER_ALL
        ends = is_final and (is_whole or bool(files) or told.final != AFTER_ALL)
        work = Work(live.plan, live.ids, live.bound)
        if is_whole or files or ends:
            changes = self._changes(live, all_rows(files, schema), scratch)
            work = Work(live.plan, live.ids, live.bound, changes, is_whole, ends)
        return work, _Known(max(until, -1 if known is None else known.until), readable.operator)

    def _changes(self, live: LiveView, rows: pa.Table, scratch: StorePath) -> StorePath:
        if live.bound.condition is not None or live.bound.derived:
            self.jobs.own()
        changes = live.changes(self.context.spark, rows, scratch)
        return written("", changes).left(scratch).path

    def _kept(
        self, known: Mapping[int, _Known], works: Mapping[int, Work]
    ) -> Iterator[tuple[int, tuple[Work, _Known]]]:
        """Operators whose state stays though the cut does not answer them: their views are declared, and read all again."""
        declared = {each.operator for each in self._derived.answered}
        for operator in declared & known.keys() - works.keys():
            beneath = known[operator].beneath
            live = self._view(operator, beneath)
            yield operator, (Work(live.plan, live.ids, live.bound), _Known(-1, beneath))

    def _read_view(self, operator: int, beneath: int) -> LiveView:
        (bound,) = self._bound(operator).values()
        readable = readable_operator(self.context.layout, self._source.place, self._source.view, beneath)
        return LiveView.of(operator, bound, readable)

    def _recover(self) -> Any:
        standing = super()._recover()
        self._states.remove_unlisted()
        self._making.recover()
        return standing

    def leave(self) -> None:
        """Likewise; what views that were stopped have not answered is forgotten."""
        super().leave()
        self._making.leave()
