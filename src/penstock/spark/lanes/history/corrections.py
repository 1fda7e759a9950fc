"""Final windows that got tuples, answered again from the history of the stream.

This is the batch module of the HPM paper (section 1.4). A cut of the window lane that meets such windows puts them into the ledger with its
commit. A thread of its own answers those of all cuts so far together, by one job in a pool of its own, while the lane goes on with early
answers. A later cut of the lane names them and publishes the answers. An answer depends on the windows and the log alone. So a cut that is
repeated computes it again if the process has forgotten it.

Entries of the log name the partials of every tuple that the history keeps, by pane. So a window is computed from them exactly, without
the tuples.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

from penstock.errors import DamagedError
from penstock.operators.windows.history import Beyond
from penstock.operators.windows.shard import WindowProgram
from penstock.spark.lanes.history.correction_task import CorrectionCell, CorrectionTask, History
from penstock.spark.lanes.history.lane import HistoryLane
from penstock.spark.lanes.lane import LaneContext, LaneInput
from penstock.spark.lanes.windows.programs import WindowPrograms
from penstock.spark.lanes.windows.shard_task import ShardReport
from penstock.spark.log.entries import Entry
from penstock.spark.log.stream_log import SINCE
from penstock.spark.publication.kinds import results_of
from penstock.spark.results.window_schemas import FIRST_REVISION
from penstock.spark.results.window_staging import StagedResults
from penstock.spark.storage.formats import TO_CORRECT
from penstock.spark.storage.ledger_documents import StoredDocument, StoredDocuments
from penstock.spark.storage.store_paths import StorePath, remove_folder

#: the thread looks for windows at least so often
_LOOK_SECONDS = 0.5
#: while more entries may come, a job begins so many times as long after the one before as that one took, at the most so long: most of the
#: time early answers have the processors to themselves, and one job answers once what several cuts have put. Then it waits for a cut with
#: early answers, at most as long again: until the next one is the time in which it delays nobody
_REST_SHARE, _REST_SECONDS = 9.0, 10.0
#: for so long answers wait for a cut that entries ask for, and are published with it
_RIDE_SECONDS = 1.0
#: the windows of further cuts wait for the next job: a job holds the panes of its windows in memory
_MOST_WINDOWS = 20_000


class CommitPart(NamedTuple):
    """What a commit puts and deletes, and what is called after it."""

    puts: Mapping[StoredDocument, Mapping[str, Any]]
    deletes: Sequence[StoredDocument]
    committed: Callable[[], None]


@dataclass(frozen=True, slots=True)
class ToCorrect:
    """Windows that some cuts have put to be corrected.

    Attributes:
        cuts: numbers of the cuts.
        windows: the windows by shard, each with the first entry with such tuples.
        entry: number of the last entry of the last cut.
        plan: its plan version.
        reached: by view the event time that the stream had come to, microseconds; None before any.
    """

    cuts: tuple[int, ...]
    windows: Mapping[int, Sequence[Beyond]]
    entry: int
    plan: int
    reached: Mapping[str, int | None]

    @classmethod
    def read(cls, documents: StoredDocuments, cuts: Collection[int] | None = None) -> ToCorrect:
        """Read what cuts have put.

        Args:
            documents: of the stream.
            cuts: which; None: those that are there, the oldest first, until they have `_MOST_WINDOWS` windows.

        Raises:
            DamagedError: one is missing.
        """
        found = documents.all(TO_CORRECT.kind)
        numbers = tuple(sorted(int(number) for number in found)) if cuts is None else tuple(sorted(cuts))
        windows: dict[int, dict[tuple[int, str, int], int]] = {}
        entry = plan = -1
        reached: dict[str, int | None] = {}
        taken: list[int] = []
        for number in numbers:
            if cuts is None and sum(map(len, windows.values())) >= _MOST_WINDOWS:
                break
            taken.append(number)
            if number not in found:
                raise DamagedError(str(documents[number]), f"({TO_CORRECT.kind}) is missing")
            document = TO_CORRECT.opened(found[number], documents[number])
            entry, plan = document["entry"], document["plan"]
            reached |= document["reached"]
            for shard, operator, view, start, first in document["windows"]:
                windows.setdefault(shard, {}).setdefault((operator, view, start), first)
        by_shard = {
            shard: [Beyond(*window, first) for window, first in sorted(own.items())]
            for shard, own in windows.items()
        }
        return cls(tuple(taken), by_shard, entry, plan, reached)


@dataclass(frozen=True, slots=True)
class _Answered:
    """What was answered.

    Attributes:
        windows: the windows.
        scratch: where the results are left.
        results: the results, once: whoever has them takes the files away.
        moment: by `time.monotonic`.
    """

    windows: ToCorrect
    scratch: StorePath
    results: list[StagedResults] | None
    moment: float = field(default_factory=time.monotonic)


class Corrections(HistoryLane):
    """Answers the windows of one stream that were put to be corrected, as long as the window lane of the stream runs.

    That lane's thread calls it, but for `HistoryLane`.

    Args:
        context: the run's.
        stream: the stream.
    """

    part = "corrections"

    def __init__(self, context: LaneContext, stream: LaneInput) -> None:
        self._stream = stream.stream
        # also its name among the readers of the log
        super().__init__(f"{results_of(self._stream)}.corrections", context, stream)
        self.documents = context.layout.corrections(self._stream)
        self._log = self.readers[self._stream]
        self._history = History(self._log)
        self._programs = WindowPrograms(context.spark.sparkContext, context.layout, self._stream)
        self._is_endless = not context.trigger.is_bounded
        #: by the cut that put windows the first entry that they need; the window lane's thread replaces it, after its commit
        self._since: dict[int, int] = {}
        #: folders whose files were published, or are not wanted
        self._used: list[StorePath] = []
        #: set while nothing else is left to answer
        self._alone = threading.Event()
        #: guards what follows
        self._changed = threading.Condition()
        #: what the thread has answered and no cut has published
        self._answered: _Answered | None = None
        #: how many cuts with early answers are published
        self._early = 0

    @property
    def views(self) -> Sequence[str]:
        """The window views of the stream."""
        return list(self.streams[0].ingest.plans.windows)

    def recover(self) -> None:
        """Goes by what the ledger has: the window lane begins, or begins again."""
        self._alone.clear()
        self._drop()
        found = self.documents.all(TO_CORRECT.kind)
        self._since = {int(cut): int(document["since"]) for cut, document in found.items()}

    def stop(self) -> None:
        """Breaks off what is being answered; the window lane's thread has ended, or calls it."""
        super().stop()
        self._drop()

    def leave(self) -> None:
        """Forget all windows: nobody will publish their answers."""
        self.documents.remove(self.documents.numbers())
        super().leave()

    @property
    def ready(self) -> tuple[int, ...]:
        """Numbers of the cuts whose windows are answered and not published."""
        with self._changed:
            answered = self._answered
        if answered is None:
            return ()
        if not self._since.keys() >= set(answered.windows.cuts):
            # a cut that was repeated has published them
            self._drop()
            return ()
        return answered.windows.cuts

    @property
    def are_due(self) -> bool:
        """Whether answers are published though no entry asks for a cut."""
        with self._changed:
            answered = self._answered
        if answered is None or not self.ready:
            return False
        return self._alone.is_set() or time.monotonic() - answered.moment >= _RIDE_SECONDS

    def await_alone(self) -> bool:
        """Whether windows wait to be answered, or their answers to be published, where nothing else is left to answer: they wait no longer.

        Raises:
            StreamFailedError: they could not be answered.
        """
        if self._failure is not None:
            raise self._failure
        if not self._since:
            return False
        with self._changed:
            self._alone.set()
            self._changed.notify_all()
        return True

    def take(self, cuts: Collection[int]) -> list[StagedResults]:
        """Give the answers to what some cuts have put; they are computed now unless they are there.

        Args:
            cuts: their numbers.
        """
        if not cuts:
            return []
        with self._changed:
            answered = self._answered
            if answered is not None and answered.windows.cuts == tuple(cuts) and answered.results is not None:
                self._answered = replace(answered, results=None)
                return answered.results
        answered = self._answer(ToCorrect.read(self.documents, cuts))
        self._used.append(answered.scratch)
        return answered.results or []

    def changes(
        self,
        cut: int,
        last: Entry,
        program: WindowProgram,
        reports: Sequence[ShardReport],
        published: Collection[int],
        *,
        is_early: bool,
    ) -> CommitPart:
        """What the commit of a cut puts and deletes of the windows to correct.

        Args:
            cut: number of the cut.
            last: its last entry.
            program: the views of that.
            reports: of its shards.
            published: numbers of the cuts whose answers it publishes.
            is_early: whether it has early answers.
        """
        document = self._document(last, program, reports)
        since = {number: first for number, first in self._since.items() if number not in published}
        puts: dict[StoredDocument, dict[str, Any]] = {}
        if document is not None:
            puts[self.documents[cut]] = TO_CORRECT.stamped(document)
            since[cut] = int(document["since"])
        deletes = [self.documents[number] for number in published]
        if since:
            # the entries that windows are answered from stay, and all others are left behind
            puts |= self._log.mark_document(self.name, last.number, **{SINCE: min(since.values())})
        elif published:
            deletes.append(self._log.log.readers[self.name])
        return CommitPart(puts, deletes, partial(self._committed, since, bool(published), is_early))

    def _committed(self, since: dict[int, int], is_published: bool, is_early: bool) -> None:
        self._since = since
        if is_published:
            self._drop()
        with self._changed:
            self._early += is_early
            self._changed.notify_all()

    def _drop(self) -> None:
        """Forgets what was answered, with its files: it is published, or not wanted."""
        with self._changed:
            if self._answered is not None:
                self._used.append(self._answered.scratch)
            self._answered = None
            self._changed.notify_all()
        while self._used:
            remove_folder(self._used.pop())

    def _document(
        self, last: Entry, program: WindowProgram, reports: Sequence[ShardReport]
    ) -> dict[str, Any] | None:
        """The windows that a cut met and that some view still has; None where there are none."""
        views = {(plan.id, view.name) for plan in program.operators for view in plan.views}
        windows = [
            (report.shard, *astuple(each))
            for report in reports
            for each in report.beyond
            if (each.operator, each.view) in views
        ]
        if not windows:
            return None
        reached = {view: each.reached for report in reports for view, each in report.standing.items()}
        return {
            "windows": windows,
            "entry": last.number,
            "plan": last.plan,
            "reached": {view: reached[view] for view in sorted({window[2] for window in windows})},
            "since": self._history.first(min(window[3] for window in windows), last.number),
        }

    def _halt(self) -> None:
        with self._changed:
            self._changed.notify_all()
        super()._halt()

    def _attempt(self) -> None:
        while not self._stopping.is_set():
            with self._changed:
                if self._answered is not None or not self._since:
                    self._changed.wait(_LOOK_SECONDS)
                    continue
            windows = ToCorrect.read(self.documents)
            if not windows.cuts:
                continue
            began = time.monotonic()
            answered = self._answer(windows)
            self.retries.succeeded()
            with self._changed:
                self._answered = answered
            self.context.appended.tell()
            if self._is_endless:
                self._rest(time.monotonic() - began)

    def _rest(self, took: float) -> None:
        """Waits after a job that took so many seconds, unless nothing else is left to answer."""
        rest = min(_REST_SECONDS, _REST_SHARE * took)
        with self._changed:
            self._changed.wait_for(lambda: self._stopping.is_set() or self._alone.is_set(), rest)
            early = self._early
            self._changed.wait_for(
                lambda: self._stopping.is_set() or self._alone.is_set() or self._early > early, rest
            )

    def _answer(self, windows: ToCorrect) -> _Answered:
        scratch, _ = self.context.layout.staging(self.name, next(self._attempts))
        sent = self._programs.sent([windows.plan])[windows.plan]
        program = self._programs.of(windows.plan).program
        views = {(plan.id, view.name): view for plan in program.operators for view in plan.views}
        cells = [
            CorrectionCell(shard, kept, windows.reached)
            for shard, own in windows.windows.items()
            if (kept := [window for window in own if (window.operator, window.view) in views])
        ]
        every = [window for cell in cells for window in cell.windows]
        if not every:
            return _Answered(windows, scratch, [])
        spans = [
            (own.begin(window.start + own.size), window.start + own.size)
            for window in every
            for own in (views[window.operator, window.view].windows,)
        ]
        oldest, latest = min(begin for begin, _ in spans), max(end for _, end in spans)
        entries = []
        for entry in self._history.entries(oldest, latest, windows.entry):
            if self._stopping.is_set():
                return _Answered(windows, scratch, [])
            entries.append(entry)
        task = CorrectionTask(
            layout=self.context.layout,
            stream=self._stream,
            entries=entries,
            program=sent,
            revision=FIRST_REVISION + windows.entry,
            scratch=scratch,
        )
        results = [each for own in self.jobs.run(task, cells) for each in own]
        return _Answered(windows, scratch, results)
