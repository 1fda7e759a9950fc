"""The window lane: the window views of one stream, early, corrected and final.

A cut is one stateless job, a task a shard: it takes in the cut's entries, stores what they answer, and the shard's state as files. The
commit that publishes the cut lists these. So a cut that is repeated begins with the same state and answers the same.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from typing import Any

from pyspark.sql import DataFrame

from penstock.errors import DamagedError
from penstock.plan.times import AFTER_ALL
from penstock.spark.ingest.backfill import never_whole
from penstock.spark.ingest.log_keeper import LogKeeper
from penstock.spark.lanes.cut_lane import CutAnswer, CutLane, Spent
from penstock.spark.lanes.cuts import Cut
from penstock.spark.lanes.lane import LaneContext
from penstock.spark.lanes.shared_jobs import SharedJobs
from penstock.spark.lanes.windows.corrections import (
    CorrectionCell,
    CorrectionTask,
    history_entries,
    revision_of,
)
from penstock.spark.lanes.windows.programs import WindowPrograms
from penstock.spark.lanes.windows.shard_state import StateFile
from penstock.spark.lanes.windows.shard_task import ShardCell, ShardReport, ShardTask
from penstock.spark.lanes.windows.standing import final_of, progress_of, standing_of
from penstock.spark.log.entries import Entry
from penstock.spark.log.programs import stored_program
from penstock.spark.log.row_log import PROGRESS
from penstock.spark.log.shards import fixed_shards
from penstock.spark.log.stream_log import FINAL, PLAN, SEGMENT, LogReader
from penstock.spark.publication.kinds import results_of
from penstock.spark.publication.staged import BatchFiles, Staged
from penstock.spark.reporting.status_file import StatusFile
from penstock.spark.results import read as results
from penstock.spark.results.window_rows import make_results
from penstock.spark.results.window_staging import SaidWindows, StagedResults, ViewCounts
from penstock.spark.storage.formats import WINDOW_STATE
from penstock.spark.storage.layout import PARTIALS_FILES
from penstock.spark.storage.store_paths import name_below

#: a cut whose shards took no longer is light: others may share its job
_LIGHT_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class _State:
    """The state of all shards after a cut.

    Attributes:
        plan: the plan version that they followed last; None before the first cut.
        shards: the files of each, the oldest first.
    """

    plan: int | None
    shards: tuple[tuple[StateFile, ...], ...]

    @property
    def names(self) -> set[str]:
        """The names of all files."""
        return {file.name for own in self.shards for file in own}


class WindowLane(CutLane):
    """Answers the window views of a stream.

    Args:
        context: the run's.
        stream: the stream.
        shared: lanes whose light jobs are run together with its own.
    """

    part = "windows"

    def __init__(self, context: LaneContext, stream: LogKeeper, shared: SharedJobs | None = None) -> None:
        name = stream.ingest.stream
        super().__init__(results_of(name), context, [stream], shared=shared)
        self._ingest = stream.ingest
        self._stream = name
        self._log = self.readers[name]
        cores = context.spark.sparkContext.defaultParallelism
        self._shards = fixed_shards(context.layout, name, cores, context.settings.shards)
        self._programs = WindowPrograms(context.spark.sparkContext, context.layout, name)
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

    def recount(self, status: StatusFile) -> None:
        """Nothing: its cuts are counted with the batches of its stream."""

    def status(self) -> dict[str, Any]:
        """Windows told so far, by what was told of them, and rows with a sum that does not fit its type, by view."""
        with self._counting:
            return {"windows": dict(self._totals), "overflowed": dict(self._overflowed)}

    def rows(self, view: str, cut: int, files: Sequence[Mapping[str, Any]]) -> DataFrame | None:
        """What a published cut says of a view, for its sinks."""
        if view not in self._ingest.plans.windows:
            return None
        return results.batch_changes(self.context.spark, self.context.layout, self._stream, view, cut, files)

    def answer(self, cut: Cut, store: BatchFiles) -> CutAnswer:
        """Takes in the cut's entries, and corrects final windows that got tuples."""
        began = time.perf_counter()
        state = self._state(cut)
        entries = self._log.between(cut.before[self._stream].entry, cut.until[self._stream].entry)
        last = entries[-1]
        versions = {entry.plan for entry in entries} | ({state.plan} - {None})
        task = ShardTask(
            layout=self.context.layout,
            stream=self._stream,
            cut=cut.number,
            entries=entries,
            programs=self._programs.sent(version for version in versions if version is not None),
            store=store,
        )
        cells = [ShardCell(number, own) for number, own in enumerate(state.shards)]
        reports = self.jobs.run(task, cells, is_light=self._is_light)
        ran = time.perf_counter()
        self._is_light = max(report.seconds for report in reports) <= _LIGHT_SECONDS
        staged = [each for report in reports for each in report.results]
        staged += self._corrected(last, reports, store)
        ready, counts = self._made(staged, store)
        made = time.perf_counter()
        now = _State(last.plan, tuple(tuple(report.state) for report in reports))
        late = [report.late for report in reports]
        shards = [report.standing for report in reports]
        beyond = {(each.operator, each.view, each.start) for report in reports for each in report.beyond}
        lost = {window for report in reports for window in report.beyond_history}
        figures = {
            "answered": last.batch,
            "views": {view: asdict(said) for view, said in counts.items()},
            "beyond": sorted(beyond),
            "late_tuples": sum(each.registered for each in late),
            "late_beyond": sum(each.beyond for each in late),
            "whole": sorted({operator for entry in entries for operator in entry.whole}),
            PROGRESS: progress_of(reports, self.context.rows.views(self.name), has_ended=last.ended),
        }
        told = {
            "entry": last.number,
            "entries": len(entries),
            "standing": standing_of(shards),
            "beyond": len(beyond),
            "beyond_history": len(lost),
            "late_before": sum(each.before for each in late),
            "panes_restored": sum(report.restored for report in reports),
            "shard_seconds": round(max(report.seconds for report in reports), 4),
            "state_bytes": sum(report.state_bytes for report in reports),
            "run_seconds": round(ran - began, 4),
            "make_seconds": round(made - ran, 4),
        }
        return CutAnswer(
            staged=ready,
            figures=figures,
            marks=self._final(last, reports),
            puts={self.context.layout.window_state(self._stream): _document(cut.number, now)},
            told=told,
            done=partial(self._published, counts, state.names - now.names),
        )

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

    def _recover(self) -> Any:
        standing = super()._recover()
        self._remove_unlisted()
        return standing

    def _remove_unlisted(self) -> None:
        """Deletes state files that attempts before have left."""
        layout = self.context.layout
        listed = self._stored().names
        folder = name_below(layout.checkpoint, layout.window_states(self._stream))
        gone = [
            each.name for each in layout.log_store.list(folder) if each.name.rpartition("/")[2] not in listed
        ]
        if gone:
            # fails if another run has taken over, whose files these may be
            layout.ledger.writer.commit()
            layout.log_store.delete(gone)

    def _stored(self) -> _State:
        document = WINDOW_STATE.read(self.context.layout.window_state(self._stream))
        if document is None:
            return _State(None, ((),) * self._shards)
        shards = tuple(tuple(StateFile(*file) for file in own) for own in document["shards"])
        return _State(document["plan"], shards)

    def _state(self, cut: Cut) -> _State:
        """The state before a cut."""
        place = self.context.layout.window_state(self._stream)
        document = WINDOW_STATE.read(place)
        if (-1 if document is None else document["cut"]) != cut.number - 1:
            found = "is missing" if document is None else f"is that of cut {document['cut']}"
            raise DamagedError(str(place), f"({WINDOW_STATE.kind}) {found}; cut {cut.number} is next")
        return self._stored()

    def _corrected(
        self, last: Entry, reports: Sequence[ShardReport], store: BatchFiles
    ) -> list[StagedResults]:
        """The corrections of final windows that got tuples."""
        program = self._programs.of(last.plan)
        views = {view.name: view for plan in program.program.operators for view in plan.views}
        cells = []
        for report in reports:
            windows = sorted(each for each in report.beyond if each.view in views)
            reached = {view: standing.reached for view, standing in report.standing.items()}
            if windows:
                cells.append(CorrectionCell(report.shard, windows, reached))
        every = [window for cell in cells for window in cell.windows]
        if not every:
            return []
        oldest = min(window.start for window in every)
        latest = max(window.start + views[window.view].windows.size for window in every)
        task = CorrectionTask(
            layout=self.context.layout,
            stream=self._stream,
            entries=list(history_entries(self._log, oldest, latest, last.number)),
            program=self._programs.sent([last.plan])[last.plan],
            revision=revision_of(last.batch),
            store=store,
        )
        return [each for own in self.jobs.run(task, cells) for each in own]

    def _made(
        self, staged: Sequence[StagedResults], store: BatchFiles
    ) -> tuple[list[Staged], dict[str, ViewCounts]]:
        """The published files, and what they say by view."""
        views = self._programs.views
        made = make_results(
            self.context.spark,
            [each for each in staged if each.raw],
            lambda each: views(each.operator)[each.view],
            store,
        )
        said: dict[str, SaidWindows] = {}
        for each in staged:
            said.setdefault(each.view, SaidWindows()).add(each.said)
        for result in (each for each in made if each.view):
            # the groups before HAVING are no rows of the view
            rows = sum(file.rows for file in result.files)
            said[result.view].judged(rows, rows - result.more)
        counts = {name: found.counts() for name, found in said.items()}
        return [*(each for each in staged if not each.raw), *made], counts

    def _final(self, last: Entry, reports: Sequence[ShardReport]) -> dict[str, Any]:
        """What the lane says to the writer of the log: of which tuples all windows are final."""
        program = self._programs.of(last.plan).program
        lacking = self._never_whole(last.plan, last.number // SEGMENT)
        return {FINAL: final_of([report.standing for report in reports], program, lacking), PLAN: last.plan}

    def _published(self, counts: Mapping[str, ViewCounts], gone: set[str]) -> None:
        """Counts what was told, and deletes state files that are needed no more."""
        with self._counting:
            for view, said in counts.items():
                self._totals.update(asdict(said))
                self._overflowed[view] += said.overflowed
        layout = self.context.layout
        folder = layout.window_states(self._stream)
        layout.log_store.delete(name_below(layout.checkpoint, folder / name) for name in gone)


def _document(cut: int, state: _State) -> dict[str, Any]:
    shards = [[[file.name, file.size] for file in own] for own in state.shards]
    return WINDOW_STATE.stamped({"cut": cut, "plan": state.plan, "shards": shards})
