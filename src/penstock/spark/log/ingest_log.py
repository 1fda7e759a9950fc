"""The ingest query's end of the log: an entry for each published batch, others while none come."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from penstock.errors import CheckpointError, UnexpectedDocumentError
from penstock.operators.ingest.arrivals import Arrived
from penstock.operators.windows.arrival_steps import StepTimes, steps_told
from penstock.operators.windows.shard import WindowProgram
from penstock.plan.times import BEFORE_ALL
from penstock.settings import Settings
from penstock.spark.log.entries import Entry
from penstock.spark.log.holding import Holding
from penstock.spark.log.leaving import Removed
from penstock.spark.log.programs import prune_programs, refuse_lost_program, store_program, stored_program
from penstock.spark.log.run_levels import Unmerged
from penstock.spark.log.segments import Asked, Segments
from penstock.spark.log.stream_log import FINAL, PLAN, LogReader, StreamLog
from penstock.spark.log.wholeness import settled
from penstock.spark.publication.compaction import tidying
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.ledger_documents import StoredDocument

#: entries between two looks at what can be merged or removed
_TIDY_EVERY = 16


class IngestLog:
    """Writes the log of one stream, from the first window view, or other reader, on.

    Args:
        layout: output and checkpoint folders.
        stream: the stream's name.
        settings: frozen settings.
        events: the event log.
    """

    def __init__(self, layout: Layout, stream: str, settings: Settings, events: EventLog) -> None:
        self._layout = layout
        self._stream = stream
        self._most_delay = int(settings.max_delay_seconds * 1e6)
        self._correction_seconds = settings.correction_seconds
        self._corrected = time.monotonic()
        self._lock = threading.Lock()
        self._events = events
        self._segments = Segments(
            layout.log(stream),
            settings.history_seconds,
            settings.history_bytes,
            told=self._tell,
            grace_seconds=settings.replaced_seconds,
        )
        self._holding = Holding(
            LogReader(layout.log(stream)), settings.history_seconds, settings.history_bytes
        )
        #: gives the names of those readers of the log that are lanes of this run
        self.readers: Callable[[], Collection[str]] = tuple
        #: see `Segments.tidy`
        self.demands: Asked = lambda _: None
        self._tidying: threading.Thread | None = None
        #: window views of older plan versions need not be looked at, and need not be kept; touched by the thread that
        #: tidies alone
        self._pruned = self._left = 0
        #: called for each entry that is put
        self.on_put: Callable[[], None] = lambda: None
        self._log = StreamLog(layout.log(stream)) if layout.log(stream).exists() else None
        self._last = self._log.newest() if self._log else None
        if self._last is not None:
            refuse_lost_program(layout, stream, self._last.plan)
        #: False where a put has failed: the entry may be there all the same
        self._is_sure = True
        self._is_closed = False
        self._kept_before = self._log.kept().before if self._log else None

    def close(self) -> None:
        """Waits until nothing is merged or removed any more, and lets nothing of that begin again."""
        with self._lock:
            self._is_closed = True
            tidying = self._tidying
        if tidying is not None:
            tidying.join()

    @property
    def last(self) -> Entry | None:
        """The newest entry, or None."""
        with self._lock:
            return self._newest()

    @property
    def floor(self) -> int:
        """Tuples that are older are too late to matter for slack, microseconds."""
        last = self.last
        return BEFORE_ALL if last is None or last.newest is None else last.newest - self._most_delay

    def too_late_before(self, plan: int) -> int:
        """Tuples with an earlier event time can correct nothing exactly: their windows are final, and the history is gone.

        Args:
            plan: the plan version of the batch that is about to be bound.

        Returns:
            Microseconds; a time before all others where nothing of the history is gone. Until a reader has told how far the
            plan's views are final, what it told of another plan holds for those of that one, and of the others
            the windows that were over before they began.
        """
        with self._lock:
            log, kept_before = self._log, self._kept_before
        if log is None or kept_before is None:
            return BEFORE_ALL
        limits = [kept_before]
        told = [reader for reader in log.readers().values() if PLAN in reader]
        for reader in told:
            limits.append(int(reader[FINAL]))
            if reader[PLAN] != plan:
                limits += _begins(self.program(plan), self.program(int(reader[PLAN])))
        return min(limits) if told else BEFORE_ALL

    def program(self, version: int) -> WindowProgram | None:
        """The window views of a plan version; None where it has none."""
        return stored_program(self._layout, self._stream, version)

    def store_program(self, program: WindowProgram, *, is_read: bool = False) -> None:
        """Stores the window views of a plan version; a stream that nobody ever read has no log.

        Args:
            program: the window views.
            is_read: whether others read the log too.
        """
        with self._lock:
            if self._log is None and (program.ids or is_read):
                self._log = StreamLog(self._layout.log(self._stream))
            if self._log is not None:
                store_program(self._layout, self._stream, program)

    @contextmanager
    def batch_entry(
        self,
        batch: int,
        plan: int,
        oldest: int | None,
        oldest_recent: int | None,
        newest: int | None,
        furthest: int | None,
        files: Mapping[str, Sequence[str]],
        steps: Mapping[int, StepTimes] | None = None,
        arrived: Arrived | None = None,
    ) -> Iterator[dict[StoredDocument, dict[str, Any]]]:
        """Give the entry of a batch as a document, none where the stream has no log; the `with` block commits it with the manifest.

        Nobody else puts an entry meanwhile.

        Args:
            batch: its number.
            plan: the plan version it is bound to.
            oldest, oldest_recent, newest: its smallest event time, the smallest not before `floor`, and its
                largest, of those that are believed, microseconds, or None.
            furthest: its largest event time, believed or not, or None.
            files: names of its files, by kind.
            steps: its event times by arrival step, where it has such.
            arrived: when its tuples arrived; None: not known.

        Raises:
            CheckpointError: another run has put an entry.
        """
        with self._lock:
            log, last = self._log, self._newest()
            program = self.program(plan) if log is not None and last is None else None
            if (
                log is None
                or (last is None and program is None)
                or (last is not None and last.batch >= batch)
            ):
                yield {}
                return
            before = last.newest if last is not None else _newest_before(program)
            found = dict.fromkeys(each for each in (oldest, oldest_recent) if each is not None)
            delays = tuple(0 if before is None else max(0, before - each) for each in found)
            now = time.monotonic()
            flush = now - self._corrected >= self._correction_seconds
            entry = Entry(
                number=0 if last is None else last.number + 1,
                batch=batch,
                plan=plan,
                clock=_clock(),
                newest=_later(before, newest),
                furthest=_later(None if last is None else last.furthest, _later(newest, furthest)),
                delays=delays,
                files={kind: tuple(names) for kind, names in files.items()},
                flush=flush,
                kept_before=self._kept_before,
                steps=steps_told(steps or {}, before),
                arrivals=arrived.moments if arrived else (),
                arrived_by=arrived.by if arrived and arrived.moments else "",
            )
            self._is_sure = False
            try:
                yield {log.log.entries[entry.number]: entry.document()}
            except UnexpectedDocumentError:
                raise self._written_by_another(entry) from None
            self._corrected = now if flush else self._corrected
            self._note(entry)

    def put_views(self, batch: int, plan: int) -> None:
        """Lets the window views of a plan version begin behind the last batch.

        Args:
            batch: the last published one.
            plan: the version.
        """
        with self._lock:
            log, last = self._log, self._newest()
            program = None if log is None else self.program(plan)
            if log is None or program is None or not program.ids:
                return
            if last is None:
                newest = _newest_before(program)
                furthest = max(
                    (each.since for each in program.operators if each.since is not None), default=None
                )
                self._put(log, Entry(0, batch, plan, _clock(), newest, furthest))
            else:
                self._put(log, self._behind(last, plan=plan, reached=last.reached, ended=last.ended))

    def put_idle(self, reached: int) -> bool:
        """Says that a silent stream is taken to have come to an event time.

        Returns:
            False where there is no entry to follow, the stream has ended, or there is nothing new to say.
        """
        with self._lock:
            last = self._newest()
            if last is None or last.ended:
                return False
            if last.reached_or_newest is not None and reached <= last.reached_or_newest:
                return False
            return self._follow(last, reached=reached)

    def put_all(self) -> bool:
        """Says that every window is answered now; False where it is said already, or there was no batch."""
        with self._lock:
            last = self._newest()
            if last is None or last.answer_all or last.ended:
                return False
            return self._follow(last, answer_all=True)

    def put_more(self) -> bool:
        """Says that more may come where it is said last that what is there is all: another run goes on with the stream.

        Returns:
            Whether that was said.
        """
        with self._lock:
            last = self._newest()
            return last is not None and last.answer_all and self._follow(last)

    def put_end(self) -> bool:
        """Says that the stream has ended; False where it is said already, or there was no batch."""
        with self._lock:
            last = self._newest()
            return last is not None and not last.ended and self._follow(last, ended=True)

    def put_whole(
        self, operators: Sequence[int], files: Mapping[str, Sequence[str]], newest: int | None
    ) -> None:
        """Gives operators the partials of all batches before their first one, which is in the log: one commit, with their marks.

        Args:
            operators: which; none is settled.
            files: names of the files, by kind.
            newest: largest event time in them, microseconds.

        Raises:
            CheckpointError: another run has put an entry, or settled one of them.
        """
        with self._lock:
            log, last = self._log, self._newest()
            assert log is not None, "their first batch is in the log"
            assert last is not None, "their first batch is in the log"
            entry = self._behind(
                last,
                furthest=_later(last.furthest, newest),
                files={kind: tuple(names) for kind, names in files.items()},
                flush=True,
                whole=tuple(operators),
                reached=last.reached,
                answer_all=last.answer_all,
                ended=last.ended,
            )
            self._put(log, entry, settled(self._layout, self._stream, operators))

    def _follow(
        self, last: Entry, *, ended: bool = False, reached: int | None = None, answer_all: bool = False
    ) -> bool:
        assert self._log is not None, "it holds an entry"
        self._put(self._log, self._behind(last, ended=ended, reached=reached, answer_all=answer_all))
        return True

    def _behind(self, last: Entry, **said: Any) -> Entry:
        """The entry behind another, of the same batch and without tuples but for what is said."""
        held = {"plan": last.plan, "newest": last.newest, "furthest": last.furthest, **said}
        return Entry(last.number + 1, last.batch, clock=_clock(), kept_before=self._kept_before, **held)

    def _newest(self) -> Entry | None:
        """The newest entry; as the disk has it where a put has failed."""
        if not self._is_sure and self._log is not None:
            self._last = self._log.newest()
            self._is_sure = True
        return self._last

    def _put(
        self, log: StreamLog, entry: Entry, marks: Mapping[StoredDocument, Mapping[str, Any]] | None = None
    ) -> None:
        self._is_sure = False
        if not log.append(entry, beside=marks):
            raise self._written_by_another(entry)
        self._note(entry)

    def _written_by_another(self, entry: Entry) -> CheckpointError:
        return CheckpointError(
            f"stream {self._stream}: entry {entry.number} of its log was written by another run; "
            "only one run may use a checkpoint at a time"
        )

    def _note(self, entry: Entry) -> None:
        """Takes in that an entry was put."""
        self._last, self._is_sure = entry, True
        self.on_put()
        if entry.number % _TIDY_EVERY == 0 or self._tidying is None:
            self._tidy()

    def _tidy(self) -> None:
        """Merges and removes what can be beside the batches: nothing that entries to come are about."""
        if self._is_closed or (self._tidying is not None and self._tidying.is_alive()):
            return

        def tidy() -> None:
            for step in (self._retain, self._take_kept, self._prune, self._tell_holding):
                with tidying(self._events, f"{self._stream}.log", last):
                    step()

        last = -1 if self._last is None else self._last.batch
        self._tidying = threading.Thread(target=tidy, daemon=True, name="penstock-log")
        self._tidying.start()

    def _retain(self) -> None:
        self._segments.tidy(self.demands)

    def _tell(self, told: Removed | Unmerged) -> None:
        if isinstance(told, Unmerged):
            self._events.record("segment_unmerged", stream=self._stream, **asdict(told))
        else:
            self._left = told.plan
            self._events.record("history_removed", stream=self._stream, **asdict(told))

    def _take_kept(self) -> None:
        """Lets entries to come say what is announced by now."""
        kept = LogReader(self._layout.log(self._stream)).kept()
        with self._lock:
            self._kept_before = kept.before

    def _prune(self) -> None:
        if self._left > self._pruned:
            prune_programs(self._layout, self._stream, self._pruned, self._left)
            self._pruned = self._left

    def _tell_holding(self) -> None:
        self._holding.tell(self._events, self._stream, self.readers())


def _begins(program: WindowProgram | None, before: WindowProgram | None) -> Iterator[int]:
    """Of each view that an earlier plan version has not: before which event time tuples are in no window it answers."""
    known = {(each.id, view.name) for each in (before.operators if before else ()) for view in each.views}
    for operator in program.operators if program else ():
        floors = dict(operator.floors)
        for view in operator.views:
            if (operator.id, view.name) not in known:
                yield floors.get(view.name, BEFORE_ALL) - view.windows.size


def _clock() -> int:
    return time.time_ns() // 1_000


def _newest_before(program: WindowProgram | None) -> int | None:
    """Largest event time that was believed of the batches before the first one with window views, where it is known."""
    operators = () if program is None else program.operators
    floors = (floor for each in operators for _, floor in each.floors)
    return max((floor for floor in floors if floor > BEFORE_ALL), default=None)


def _later(one: int | None, other: int | None) -> int | None:
    known = [each for each in (one, other) if each is not None]
    return max(known) if known else None
