"""The window lane: the window views of one stream, early, corrected and final.

A cut is one stateless job, a task a shard: it takes in the cut's entries, stores what they answer, and the shard's state as files. The
commit that publishes the cut lists these. So a cut that is repeated begins with the same state and answers the same.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import lru_cache, partial
from typing import Any

from penstock.plan.times import AFTER_ALL
from penstock.spark.ingest.log_keeper import LogKeeper
from penstock.spark.lanes.cut_lane import CutAnswer, CutLane, Spent
from penstock.spark.lanes.cuts import Cut, Reach
from penstock.spark.lanes.history.corrections import Corrections
from penstock.spark.lanes.lane import LaneContext
from penstock.spark.lanes.stopped import Place
from penstock.spark.lanes.windows.listed_state import ListedState, ListedStates
from penstock.spark.lanes.windows.making import ResultMaking
from penstock.spark.lanes.windows.programs import WindowPrograms
from penstock.spark.lanes.windows.shard_task import ShardCell, ShardReport, ShardTask
from penstock.spark.lanes.windows.standing import final_of, progress_of, standing_of
from penstock.spark.log.entries import Entry
from penstock.spark.log.programs import stored_program
from penstock.spark.log.row_log import PROGRESS
from penstock.spark.log.shards import fixed_shards
from penstock.spark.log.stream_log import FINAL, PLAN, SEGMENT, LogReader
from penstock.spark.log.wholeness import never_whole
from penstock.spark.publication.kinds import results_of
from penstock.spark.publication.staged import BatchFiles
from penstock.spark.reporting.status_file import StatusFile
from penstock.spark.results.bound_views import stored_views
from penstock.spark.results.window_staging import StagedResults, ViewCounts
from penstock.spark.storage.layout import PARTIALS_FILES

#: a cut whose shards took no longer is light: others may share its job
_LIGHT_SECONDS = 0.1
#: operators whose views stay decoded
_KEPT_OPERATORS = 256
#: of a cut's orders: the cuts whose final windows it corrects
_CORRECTS = "corrects"


class WindowLane(CutLane):
    """Answers the window views of a stream.

    Args:
        context: the run's.
        stream: the stream.
    """

    part = "windows"

    def __init__(self, context: LaneContext, stream: LogKeeper) -> None:
        name = stream.ingest.stream
        super().__init__(results_of(name), context, [stream], shared=context.shared_jobs)
        self._ingest = stream.ingest
        self._stream = name
        self._log = self.readers[name]
        cores = context.spark.sparkContext.defaultParallelism
        shards = fixed_shards(context.layout, name, cores, context.settings.shards)
        self._states = ListedStates(context.layout, name, shards)
        self._programs = WindowPrograms(context.spark.sparkContext, context.layout, name)
        self._corrections = Corrections(context, stream)
        self._views = lru_cache(_KEPT_OPERATORS)(partial(stored_views, context.layout, name))
        self._making = ResultMaking(
            context.spark, context.layout, self.name, self.jobs, self.stopped, self._views
        )
        self._is_light = True
        self._counting = threading.Lock()
        self._totals: Counter[str] = Counter()
        self._overflowed: Counter[str] = Counter()
        #: asked for with each cut, and changes seldom: by the plan version and the segment of its last entry
        self._never_whole = lru_cache(1)(lambda _plan, _segment: never_whole(context.layout, name))

    @property
    def views(self) -> Sequence[str]:
        """The window views of the stream."""
        return list(self._ingest.plans.windows)

    def start(self) -> None:
        """Likewise, with the corrections beside."""
        self._corrections.start()
        super().start()

    def recount(self, status: StatusFile) -> None:
        """Nothing: its cuts are counted with the batches of its stream."""

    def status(self) -> dict[str, Any]:
        """Windows told so far, by what was told of them, and rows with a sum that does not fit its type, by view."""
        with self._counting:
            return {"windows": dict(self._totals), "overflowed": dict(self._overflowed)}

    @property
    def has_more(self) -> bool:
        """Likewise, or corrections are published."""
        return self._corrections.are_due or super().has_more

    @property
    def awaits_more(self) -> bool:
        """Likewise, or windows wait to be corrected."""
        return self._corrections.await_alone() or super().awaits_more

    def orders(self, until: Mapping[str, Reach]) -> Mapping[str, Any]:  # noqa: ARG002
        """The cuts before whose final windows it corrects."""
        return {_CORRECTS: list(self._corrections.ready)}

    def answer(self, cut: Cut, store: BatchFiles) -> CutAnswer:
        """Takes in the cut's entries, and publishes corrections of final windows."""
        began = time.perf_counter()
        state = self._states.before(cut.number)
        after, until = cut.before[self._stream].entry, cut.until[self._stream].entry
        entries = self._log.between(after, until) if until > after else []
        last = entries[-1] if entries else self._log.entry(until)
        reports = self._reports(cut, entries, state, store) if entries else []
        ran = time.perf_counter()
        staged = [each for report in reports for each in report.results]
        staged += self._stored(self._corrections.take(cut.orders[_CORRECTS]), store)
        program = self._programs.of(last.plan).program
        made = self._making.made(
            staged,
            store,
            {Place(plan.id, view.name) for plan in program.operators for view in plan.views},
            lambda view: self.figures_before(cut).get(PROGRESS, {}).get(view),
            was_tried=self.retries.pending is not None,
        )
        counts = made.counts
        finished = time.perf_counter()
        progress = state.progress
        if reports:
            progress = progress_of(reports, self.context.rows.views(self.name), has_ended=last.ended)
        now = ListedState(
            last.plan if reports else state.plan,
            tuple(tuple(report.state) for report in reports) or state.shards,
            progress,
        )
        late = [report.late for report in reports]
        beyond = {(each.operator, each.view, each.start) for report in reports for each in report.beyond}
        lost = {window for report in reports for window in report.beyond_history}
        figures = {
            "answered": last.batch,
            "views": {view: asdict(said) for view, said in counts.items()},
            "beyond": sorted(beyond),
            "late_tuples": sum(each.registered for each in late),
            "late_beyond": sum(each.beyond for each in late),
            "whole": sorted({operator for entry in entries for operator in entry.whole}),
            PROGRESS: made.progress_of(progress),
        }
        told = {
            "entry": last.number,
            "entries": len(entries),
            "standing": standing_of([report.standing for report in reports]),
            "beyond": len(beyond),
            "beyond_history": len(lost),
            "late_before": sum(each.before for each in late),
            "panes_restored": sum(report.restored for report in reports),
            "shard_seconds": round(max((report.seconds for report in reports), default=0.0), 4),
            "state_bytes": sum(report.state_bytes for report in reports),
            "run_seconds": round(ran - began, 4),
            "make_seconds": round(finished - ran, 4),
        }
        is_early = any(said.early for said in counts.values())
        corrections = self._corrections.changes(
            cut.number, last, program, reports, cut.orders[_CORRECTS], is_early=is_early
        )
        return CutAnswer(
            staged=made.files,
            figures=figures,
            marks=self._final(last, reports) if reports else {},
            puts={
                **corrections.puts,
                **made.puts,
                self._states.place: self._states.document(cut.number, now),
            },
            deletes=[*corrections.deletes, *made.deletes],
            told=told,
            done=partial(
                self._published, counts, state.names - now.names, corrections.committed, made.committed
            ),
        )

    def _reports(
        self, cut: Cut, entries: Sequence[Entry], state: ListedState, store: BatchFiles
    ) -> list[ShardReport]:
        """What the shards have done with the entries of a cut."""
        versions = {entry.plan for entry in entries}
        if state.plan is not None:
            versions.add(state.plan)
        task = ShardTask(
            layout=self.context.layout,
            stream=self._stream,
            cut=cut.number,
            entries=entries,
            programs=self._programs.sent(versions),
            store=store,
        )
        cells = [ShardCell(number, own) for number, own in enumerate(state.shards)]
        reports = self.jobs.run(task, cells, is_light=self._is_light)
        self._is_light = max(report.seconds for report in reports) <= _LIGHT_SECONDS
        return reports

    def record(self, cut: Cut, answer: CutAnswer, spent: Spent) -> None:
        """Records what the cut has answered."""
        figures = {
            name: value for name, value in answer.figures.items() if name not in ("beyond", "whole", PROGRESS)
        }
        self.context.events.record(
            "windows",
            stream=self._stream,
            batch=cut.number,
            **{**figures, **answer.told},
            wake_seconds=spent.wake,
            put_seconds=spent.put,
            publish_seconds=spent.publish,
        )

    def _join(self, reader: LogReader) -> int:
        """Puts the first mark: in what is kept of the log, before the entries that have window views."""
        # of the views of no plan all windows are final
        told: dict[str, Any] = {FINAL: AFTER_ALL, PLAN: -1}
        first, newest = reader.join(self.name, **told), reader.newest()
        after = first if newest is None else newest.number
        while after > first and self._has_views(reader.entry(after)):
            after -= 1
        reader.put_mark(self.name, after, **told)
        return after

    def _has_views(self, entry: Entry) -> bool:
        program = stored_program(self.context.layout, self._stream, entry.plan)
        # what was aggregated has views, also where these are missing: that is told when the entry is answered
        return PARTIALS_FILES in entry.files if program is None else bool(program.operators)

    @property
    def reader_names(self) -> Sequence[str]:
        """Likewise, and that of its corrections."""
        return (self.name, self._corrections.name)

    def leave(self) -> None:
        """Likewise; final windows are not corrected any more, and what views that were stopped have not answered is forgotten."""
        super().leave()
        self._making.leave()
        self._corrections.leave()

    def _halt(self) -> None:
        super()._halt()
        self._corrections.prepare_stop()
        self._corrections.jobs.cancel()

    def _close(self) -> None:
        try:
            super()._close()
        finally:
            self._corrections.stop()

    def _attempt(self) -> None:
        self._corrections.recover()
        super()._attempt()

    def _recover(self) -> Any:
        standing = super()._recover()
        self._states.remove_unlisted()
        self._making.recover()
        return standing

    def _stored(self, corrected: Sequence[StagedResults], store: BatchFiles) -> list[StagedResults]:
        """Corrections as the results of this cut: those that Spark need not make are stored."""
        found = []
        for each in corrected:
            if each.raw or not each.left:
                found.append(each)
            else:
                (file,) = store.put(each.operator, each.shard, each.left)
                found.append(replace(each, file=file))
        return found

    def _final(self, last: Entry, reports: Sequence[ShardReport]) -> dict[str, Any]:
        """What the lane says to the writer of the log: of which tuples all windows are final."""
        program = self._programs.of(last.plan).program
        lacking = self._never_whole(last.plan, last.number // SEGMENT)
        return {FINAL: final_of([report.standing for report in reports], program, lacking), PLAN: last.plan}

    def _published(
        self, counts: Mapping[str, ViewCounts], gone: set[str], *committed: Callable[[], None]
    ) -> None:
        """Counts what was told, and deletes state files that are needed no more."""
        for each in committed:
            each()
        with self._counting:
            for view, said in counts.items():
                self._totals.update(asdict(said))
                self._overflowed[view] += said.overflowed
        self._states.remove(gone)
