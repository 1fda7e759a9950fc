"""The running lane: the running views of one stream, a row for each group that changed.

A cut is one stateless job, a task a shard, as in the window lane: it takes in the cut's entries, stores what they change, and the shard's
state as files. The commit that publishes the cut lists these. So a cut that is repeated begins with the same state and answers the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import lru_cache, partial
from typing import Any

from penstock.operators.windows.answers import Progress
from penstock.operators.windows.shard import RunningPlan
from penstock.plan.times import AFTER_ALL, BEFORE_ALL
from penstock.spark.ingest.log_keeper import LogKeeper
from penstock.spark.lanes.cut_lane import CutAnswer, CutLane
from penstock.spark.lanes.cuts import Cut
from penstock.spark.lanes.lane import LaneContext
from penstock.spark.lanes.running.shard_task import RunningTask
from penstock.spark.lanes.stopped import Place
from penstock.spark.lanes.windows.listed_state import ListedState, ListedStates
from penstock.spark.lanes.windows.making import Made, ResultMaking
from penstock.spark.lanes.windows.programs import WindowPrograms
from penstock.spark.lanes.windows.shard_task import ShardCell
from penstock.spark.lanes.windows.state_report import told_of
from penstock.spark.log.entries import Entry
from penstock.spark.log.programs import stored_program
from penstock.spark.log.row_log import PROGRESS
from penstock.spark.log.shards import fixed_shards
from penstock.spark.log.stream_log import LogReader
from penstock.spark.publication.kinds import results_of, running_of
from penstock.spark.publication.staged import BatchFiles
from penstock.spark.results.bound_views import stored_views
from penstock.spark.results.window_staging import StagedResults, ViewCounts

#: a cut whose shards took no longer is light: others may share its job
_LIGHT_SECONDS = 0.1
#: operators whose views stay decoded
_KEPT_OPERATORS = 256
#: of a cut's figures: whether the stream has ended
_ENDED = "ended"


class RunningLane(CutLane):
    """Answers the running views of a stream.

    Args:
        context: the run's.
        stream: the stream.
    """

    part = "running views"

    def __init__(self, context: LaneContext, stream: LogKeeper) -> None:
        self._stream = stream.ingest.stream
        self._place = running_of(self._stream)
        super().__init__(results_of(self._place), context, [stream], shared=context.shared_jobs)
        self._ingest = stream.ingest
        self._log = self.readers[self._stream]
        layout, cores = context.layout, context.spark.sparkContext.defaultParallelism
        shards = fixed_shards(layout, self._stream, cores, context.settings.shards)
        self._states = ListedStates(layout, self._place, shards)
        self._programs = WindowPrograms(context.spark.sparkContext, layout, self._stream)
        self._views = lru_cache(_KEPT_OPERATORS)(partial(stored_views, layout, self._place))
        self._making = ResultMaking(context.spark, layout, self.name, self.jobs, self.stopped, self._views)
        self._is_light = True

    @property
    def views(self) -> Sequence[str]:
        """The running views of the stream."""
        return list(self._ingest.plans.running)

    def answer(self, cut: Cut, store: BatchFiles) -> CutAnswer:
        """Takes in the cut's entries."""
        if not cut.entries:
            return self._made_again(cut, store)
        began = time.perf_counter()
        before = self._states.before(cut.number)
        entries = self._log.between(cut.before[self._stream].entry, cut.until[self._stream].entry)
        last = entries[-1]
        task = RunningTask(
            layout=self.context.layout,
            stream=self._stream,
            place=self._place,
            cut=cut.number,
            entries=entries,
            program=self._programs.sent({last.plan})[last.plan],
            store=store,
        )
        cells = [ShardCell(number, own) for number, own in enumerate(before.shards)]
        reports = self.jobs.run(task, cells, is_light=self._is_light)
        self._is_light = max(report.seconds for report in reports) <= _LIGHT_SECONDS
        ran = time.perf_counter()
        staged = [each for report in reports for each in report.results]
        now = ListedState(last.plan, tuple(tuple(report.state) for report in reports))
        running = self._programs.of(last.plan).program.running
        made = self._made(cut, staged, running, store)
        own = {plan.id for plan in running}
        views: dict[str, dict[str, Any]] = {view: asdict(said) for view, said in made.counts.items()}
        for plan in running:
            if left_out := sum(report.left_out.get(plan.id, 0) for report in reports):
                for view in plan.views:
                    views.setdefault(view.name, asdict(ViewCounts()))["left_out"] = left_out
        return CutAnswer(
            staged=made.files,
            figures={
                "answered": last.batch,
                _ENDED: last.ended,
                "views": views,
                PROGRESS: made.progress_of(self._progress(running, ended=last.ended)),
                "whole": sorted({each for entry in entries for each in entry.whole} & own),
            },
            puts={self._states.place: self._states.document(cut.number, now), **made.puts},
            deletes=made.deletes,
            told=told_of(reports, ran - began),
            done=partial(self._published, before.names - now.names, made.committed),
        )

    def _made_again(self, cut: Cut, store: BatchFiles) -> CutAnswer:
        """Answers views that were stopped; no entry has come."""
        before, figures = self._states.before(cut.number), dict(self.figures_before(cut))
        assert before.plan is not None, "something was answered"
        running = self._programs.of(before.plan).program.running
        made = self._made(cut, [], running, store)
        figures |= {
            "views": {view: asdict(said) for view, said in made.counts.items()},
            PROGRESS: made.progress_of(self._progress(running, ended=figures[_ENDED])),
            "whole": [],
        }
        own = {name: value for name, value in figures.items() if name not in ("batch", "until")}
        puts = {self._states.place: self._states.document(cut.number, before), **made.puts}
        return CutAnswer(made.files, own, puts=puts, deletes=made.deletes, done=made.committed)

    def _made(
        self, cut: Cut, staged: Sequence[StagedResults], running: Sequence[RunningPlan], store: BatchFiles
    ) -> Made:
        wanted = {Place(plan.id, view.name) for plan in running for view in plan.views}

        def before(view: str) -> Any:
            return self.figures_before(cut).get(PROGRESS, {}).get(view)

        return self._making.made(staged, store, wanted, before, was_tried=self.retries.pending is not None)

    def _published(self, gone: set[str], committed: Callable[[], None]) -> None:
        committed()
        self._states.remove(gone)

    def _progress(self, running: Sequence[RunningPlan], *, ended: bool) -> dict[str, dict[str, int]]:
        """How far the views are answered, as `Progress`: one that nobody reads yet may have readers later."""
        until = AFTER_ALL if ended else BEFORE_ALL
        return {
            view.name: asdict(Progress(until, until, until, plan.id))
            for plan in running
            for view in plan.views
        }

    def _join(self, reader: LogReader) -> int:
        """Puts the first mark: in what is kept of the log, before the entries that have running views."""
        first, newest = reader.join(self.name), reader.newest()
        after = first if newest is None else newest.number
        while after > first and self._has_views(reader.entry(after)):
            after -= 1
        reader.put_mark(self.name, after)
        return after

    def _has_views(self, entry: Entry) -> bool:
        program = stored_program(self.context.layout, self._stream, entry.plan)
        return program is not None and bool(program.running)

    def _recover(self) -> Any:
        standing = super()._recover()
        self._states.remove_unlisted()
        self._making.recover()
        return standing

    def leave(self) -> None:
        """Likewise; what views that were stopped have not answered is forgotten."""
        super().leave()
        self._making.leave()
