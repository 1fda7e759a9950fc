"""The ingest query's end of the envelope log: an entry for each published batch, others while none come."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, takewhile
from typing import Any

from penstock.operators.shard import KeyedProgram
from penstock.settings import Settings
from penstock.spark.envelope_log import EnvelopeLog, LogEntry
from penstock.spark.layout import Layout
from penstock.spark.result_views import store_views
from penstock.spark.window_views import CompiledWindows

_BEFORE_ALL = -(2**62)


class IngestLog:
    """Writes the log of one stream, from its first window view on.

    Args:
        layout: output and checkpoint folders.
        stream: the stream's name.
        settings: frozen settings.
    """

    def __init__(self, layout: Layout, stream: str, settings: Settings) -> None:
        self._layout = layout
        self._stream = stream
        self._most_delay = int(settings.max_delay_seconds * 1e6)
        self._correction_seconds = settings.correction_seconds
        self._corrected = time.monotonic()
        self._lock = threading.Lock()
        self._log = EnvelopeLog(layout, stream) if layout.log(stream).is_dir() else None
        self._last = self._log.newest() if self._log else None

    @property
    def last(self) -> LogEntry | None:
        """The newest entry, or None."""
        with self._lock:
            return self._last

    @property
    def floor(self) -> int:
        """Tuples that are older are too late to matter for slack, microseconds."""
        last = self.last
        return _BEFORE_ALL if last is None or last.newest is None else last.newest - self._most_delay

    def program(self, version: int) -> KeyedProgram | None:
        """The window views of a plan version; None where it has none."""
        with self._lock:
            log = self._log
        return None if log is None else log.program(version)

    def is_whole(self, operator: int, batch: int) -> bool:
        """Whether an operator that began with a batch has been given the partials of those before."""
        with self._lock:
            log = self._log
        # as the disk has it: of an entry that seemed to fail as it was put nothing is known here
        last = None if log is None else log.newest()
        if log is None or last is None:
            return False
        # the entry follows the one of the first batch, or of the batch before where none has come since
        entries = takewhile(lambda entry: entry.batch >= batch - 1, chain([last], log.backwards(last)))
        return any(operator in entry.whole for entry in entries)

    def store_windows(self, windows: CompiledWindows) -> None:
        """Stores the window views of a plan version; a stream that never had any has no log."""
        program = windows.keyed
        with self._lock:
            if self._log is None and program.operators:
                self._log = EnvelopeLog(self._layout, self._stream)
            if self._log is None:
                return
            for operator, members in zip(program.operators, windows.members, strict=True):
                bound = [windows.bound[name] for name in members]
                store_views(self._layout, self._stream, operator.id, bound, windows.registered)
            self._log.store_program(program)

    def put_batch(
        self,
        batch: int,
        plan: int,
        oldest: int | None,
        oldest_recent: int | None,
        newest: int | None,
        furthest: int | None,
        files: Sequence[str],
    ) -> None:
        """Puts the entry of a published batch unless it is there.

        Args:
            batch: its number.
            plan: the plan version it is bound to.
            oldest, oldest_recent, newest: its smallest event time, the smallest not before `floor`, and its
                largest, of those that are believed, microseconds, or None.
            furthest: its largest event time, believed or not, or None.
            files: names of its envelope files.
        """
        with self._lock:
            log, last = self._log, self._last
            program = log.program(plan) if log is not None and last is None else None
            if log is None or (last is None and program is None):
                return
            if last is not None and last.batch >= batch:
                return
            before = last.newest if last is not None else _newest_before(program)
            found = dict.fromkeys(each for each in (oldest, oldest_recent) if each is not None)
            delays = tuple(0 if before is None else max(0, before - each) for each in found)
            now = time.monotonic()
            flush = now - self._corrected >= self._correction_seconds
            self._corrected = now if flush else self._corrected
            self._put(
                log,
                LogEntry(
                    batch,
                    0,
                    plan,
                    _later(before, newest),
                    delays,
                    False,
                    tuple(files),
                    flush,
                    furthest=_later(None if last is None else last.furthest, _later(newest, furthest)),
                ),
            )

    def put_views(self, batch: int, plan: int) -> None:
        """Lets the window views of a plan version begin behind the last batch.

        Args:
            batch: the last published one.
            plan: the version.
        """
        with self._lock:
            log, last = self._log, self._last
            program = None if log is None else log.program(plan)
            if log is None or program is None or not program.operators:
                return
            if last is None:
                newest = _newest_before(program)
                furthest = max(
                    (each.since for each in program.operators if each.since is not None), default=None
                )
                entry = LogEntry(batch, 0, plan, newest, (), False, (), furthest=furthest)
            else:
                nothing: dict[str, Any] = {"delays": (), "files": (), "flush": False, "whole": ()}
                entry = replace(last, mark=last.mark + 1, plan=plan, answer_all=False, **nothing)
            self._put(log, entry)

    def put_idle(self, reached: int) -> bool:
        """Says that a silent stream is taken to have come to an event time.

        Returns:
            False where there is no entry to follow, or nothing new to say.
        """
        with self._lock:
            last = self._last
            if last is None or (last.reached_or_newest is not None and reached <= last.reached_or_newest):
                return False
            return self._follow(last, reached=reached)

    def put_all(self) -> bool:
        """Says that every window is answered now; False where it is said already, or there was no batch."""
        with self._lock:
            last = self._last
            if last is None or last.answer_all or last.ended:
                return False
            return self._follow(last, answer_all=True)

    def put_end(self) -> bool:
        """Says that the stream has ended; False where it is said already, or there was no batch."""
        with self._lock:
            last = self._last
            return last is not None and not last.ended and self._follow(last, ended=True)

    def put_whole(self, operators: Sequence[int], files: Sequence[str], newest: int) -> None:
        """Gives operators the partials of all batches before their first one, which is in the log.

        Args:
            operators: which.
            files: names of the envelope files.
            newest: largest event time in them, microseconds.
        """
        with self._lock:
            log, entry = self._log, None
            assert log is not None, "their first batch is in the log"
            # the place may be taken by an entry that seemed to fail as it was put
            while self._last is not entry:
                last = self._last
                assert last is not None, "their first batch is in the log"
                entry = replace(
                    last,
                    mark=last.mark + 1,
                    delays=(),
                    files=tuple(files),
                    flush=True,
                    whole=tuple(operators),
                    furthest=_later(last.furthest, newest),
                )
                self._put(log, entry)

    def _follow(
        self, last: LogEntry, *, ended: bool = False, reached: int | None = None, answer_all: bool = False
    ) -> bool:
        assert self._log is not None, "it holds an entry"
        following = replace(
            last,
            mark=last.mark + 1,
            delays=(),
            files=(),
            flush=False,
            whole=(),
            ended=ended,
            reached=reached,
            answer_all=answer_all,
        )
        self._put(self._log, following)
        return True

    def _put(self, log: EnvelopeLog, entry: LogEntry) -> None:
        self._last = entry if log.put(entry) else log.newest()


def _newest_before(program: KeyedProgram | None) -> int | None:
    """Largest event time that was believed of the batches before the first one with window views, where it is known."""
    operators = () if program is None else program.operators
    floors = (floor for each in operators for _, floor in each.floors)
    return max((floor for floor in floors if floor > _BEFORE_ALL), default=None)


def _later(one: int | None, other: int | None) -> int | None:
    known = [each for each in (one, other) if each is not None]
    return max(known) if known else None
