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
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from typing import Any

from penstock.errors import DamagedError
from penstock.spark.lanes.cells import CellJobs
from penstock.spark.lanes.lane import LaneContext
from penstock.spark.lanes.windows.correction_task import (
    CorrectionCell,
    CorrectionTask,
    first_entry,
    history_entries,
)
from penstock.spark.lanes.windows.programs import WindowPrograms
from penstock.spark.lanes.windows.shard_task import Beyond, ShardReport
from penstock.spark.log.entries import Entry
from penstock.spark.log.stream_log import SINCE, LogReader
from penstock.spark.recovery.retries import Retries
from penstock.spark.results.window_schemas import FIRST_REVISION
from penstock.spark.results.window_staging import StagedResults
from penstock.spark.storage.formats import TO_CORRECT
from penstock.spark.storage.ledger_documents import StoredDocument, StoredDocuments

#: the thread looks for windows at least so often
_LOOK_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Registered:
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
    def read(cls, documents: StoredDocuments, cuts: Collection[int] | None = None) -> Registered:
        """Read what cuts have put.

        Args:
            documents: of the stream.
            cuts: which; None: all that are there.

        Raises:
            DamagedError: one is missing.
        """
        windows: dict[int, dict[tuple[int, str, int], int]] = {}
        entry = plan = -1
        reached: dict[str, int | None] = {}
        numbers = tuple(sorted(documents.numbers() if cuts is None else cuts))
        for number in numbers:
            document = TO_CORRECT.read(documents[number])
            if document is None:
                raise DamagedError(str(documents[number]), f"({TO_CORRECT.kind}) is missing")
            entry, plan = document["entry"], document["plan"]
            reached |= document["reached"]
            for shard, operator, view, start, first in document["windows"]:
                windows.setdefault(shard, {}).setdefault((operator, view, start), first)
        found = {
            shard: [Beyond(*window, first) for window, first in sorted(own.items())]
            for shard, own in windows.items()
        }
        return cls(numbers, found, entry, plan, reached)


@dataclass(frozen=True, slots=True)
class _Answered:
    """What was answered; the results once: whoever has them takes the files away."""

    registered: Registered
    results: list[StagedResults] | None


class Corrections:
    """Answers the windows of one stream that were put to be corrected.

    Args:
        context: the run's.
        lane: the name of the window lane.
        stream: the stream's name.
        is_endless: whether what fails is tried again however often.
    """

    def __init__(self, context: LaneContext, lane: str, stream: str, *, is_endless: bool) -> None:
        self._context = context
        self._stream = stream
        self._name = f"{lane}.corrections"
        self.documents = context.layout.corrections(stream)
        self._log = LogReader(context.layout.log(stream))
        self._jobs = CellJobs(context.spark, self._name)
        self._programs = WindowPrograms(context.spark.sparkContext, context.layout, stream)
        self._retries = Retries(
            stream,
            "corrections",
            context.settings,
            context.events,
            details=lambda: {"lane": self._name},
            is_endless=is_endless,
        )
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        #: what the thread has answered, and nobody has taken yet
        self._answered: _Answered | None = None
        self._failure: BaseException | None = None
        self._attempts = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Answers beside what the block does; at its end what is being answered is broken off."""
        self._stopping.clear()
        self._answered = self._failure = None
        thread = threading.Thread(target=self._run, daemon=True, name=f"penstock-{self._name}")
        thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            while thread.is_alive():
                self.published()
                self._jobs.cancel()
                thread.join(_LOOK_SECONDS)

    def published(self) -> None:
        """Say that windows were put, or answers published."""
        with self._changed:
            if self._answered is not None and self._answered.results is None:
                self._answered = None
            self._changed.notify_all()

    @property
    def ready(self) -> tuple[int, ...]:
        """Numbers of the cuts whose windows are answered and not published.

        Raises:
            StreamFailedError: they could not be answered.
        """
        with self._changed:
            if self._failure is not None:
                raise self._failure
            if self._answered is None:
                return ()
            cuts = self._answered.registered.cuts
            if not all(self.documents[cut].exists() for cut in cuts):
                # a cut that was repeated has published them
                self._answered = None
                self._changed.notify_all()
                return ()
            return cuts

    @property
    def are_waiting(self) -> bool:
        """Whether windows wait to be answered, or their answers to be published."""
        return self.documents.exists()

    def take(self, cuts: Collection[int]) -> list[StagedResults]:
        """Give the answers to what some cuts have put; they are computed now unless they are there.

        Args:
            cuts: their numbers.
        """
        with self._changed:
            answered = self._answered
            if (
                answered is not None
                and answered.registered.cuts == tuple(cuts)
                and answered.results is not None
            ):
                self._answered = _Answered(answered.registered, None)
                return answered.results
        return self._answer(Registered.read(self.documents, cuts))

    def changes(
        self, cut: int, last: Entry, reports: Sequence[ShardReport], published: Collection[int]
    ) -> tuple[dict[StoredDocument, dict[str, Any]], list[StoredDocument]]:
        """What the commit of a cut puts and deletes of the windows to correct.

        Args:
            cut: number of the cut.
            last: its last entry.
            reports: of its shards.
            published: numbers of the cuts whose answers it publishes.
        """
        document = self._document(last, reports)
        if document is None and not published:
            return {}, []
        puts = {} if document is None else {self.documents[cut]: TO_CORRECT.stamped(document)}
        deletes = [self.documents[number] for number in published]
        left = self.documents.all(TO_CORRECT.kind)
        since = [int(each["since"]) for number, each in left.items() if number not in published]
        if document is not None:
            since.append(document["since"])
        if since:
            # the entries that windows are answered from stay
            puts |= self._log.mark_document(self._name, last.number, **{SINCE: min(since)})
        else:
            deletes.append(self._log.log.readers[self._name])
        return puts, deletes

    def _document(self, last: Entry, reports: Sequence[ShardReport]) -> dict[str, Any] | None:
        """The windows that a cut met and that some view still has; None where there are none."""
        windows = [(report.shard, *astuple(each)) for report in reports for each in report.beyond]
        if windows:
            program = self._programs.of(last.plan).program
            views = {view.name for plan in program.operators for view in plan.views}
            windows = [window for window in windows if window[2] in views]
        if not windows:
            return None
        reached = {view: each.reached for report in reports for view, each in report.standing.items()}
        return {
            "windows": windows,
            "entry": last.number,
            "plan": last.plan,
            "reached": {view: reached[view] for view in sorted({window[2] for window in windows})},
            "since": first_entry(self._log, min(window[3] for window in windows), last.number),
        }

    def _run(self) -> None:
        try:
            self._retries.run(self._follow, self._stopping)
        except BaseException as error:
            with self._changed:
                self._failure = error
        finally:
            self._context.appended.tell()

    def _follow(self) -> None:
        while not self._stopping.is_set():
            with self._changed:
                if self._answered is not None or not self.documents.exists():
                    self._changed.wait(_LOOK_SECONDS)
                    continue
            registered = Registered.read(self.documents)
            answers = self._answer(registered)
            self._retries.succeeded()
            with self._changed:
                self._answered = _Answered(registered, answers)
            self._context.appended.tell()

    def _answer(self, registered: Registered) -> list[StagedResults]:
        if not registered.cuts:
            return []
        program = self._programs.of(registered.plan)
        views = {view.name: view for plan in program.program.operators for view in plan.views}
        cells = [
            CorrectionCell(shard, kept, registered.reached)
            for shard, own in registered.windows.items()
            if (kept := [window for window in own if window.view in views])
        ]
        windows = [window for cell in cells for window in cell.windows]
        if not windows:
            return []
        oldest = min(window.start for window in windows)
        latest = max(window.start + views[window.view].windows.size for window in windows)
        self._attempts += 1
        scratch, _ = self._context.layout.staging(self._name, self._attempts)
        task = CorrectionTask(
            layout=self._context.layout,
            stream=self._stream,
            entries=list(history_entries(self._log, oldest, latest, registered.entry)),
            program=self._programs.sent([registered.plan])[registered.plan],
            revision=FIRST_REVISION + registered.entry,
            scratch=scratch,
        )
        return [each for own in self._jobs.run(task, cells) for each in own]
