"""Segments and retention: many small files of a log become few, and what is too old goes.

The small files of 64 entries that every reader has left behind become one a kind; one commit lets the entries name it, or lists it as
a run of tuples, and puts the segment and the names of the files that it replaces. These are kept for a while, for whoever has found
them and is reading. Whole segments leave at the front when they are too old or the log is too large: one commit removes their entries
and says which files go, which are deleted then, or by the next start. Files that cannot be merged stay as they are: what is old goes all the same.

Some reader may still have to repeat an entry whose batch was bound before it was known how far back the log would go. So
the log first announces that windows before some time will lack tuples; entries say which announcement they
know of, and nothing is removed until every reader has left behind one that knows of this. A reader that takes old tuples again
says since which entry, and goes on from what is announced when it begins something new.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

from penstock.errors import DamagedError, UnexpectedDocumentError
from penstock.plan.times import AFTER_ALL
from penstock.spark.log.leaving import Leaving, Removed, announced
from penstock.spark.log.listed_runs import ListedRun
from penstock.spark.log.merging import mergings, with_merged
from penstock.spark.log.run_levels import RunLevels, Unmerged
from penstock.spark.log.runs import newest_of
from penstock.spark.log.stream_log import (
    FINAL,
    SEGMENT,
    SINCE,
    Kept,
    LogReader,
    first_needed,
    since_of,
)
from penstock.spark.publication.compaction import FAILURES
from penstock.spark.storage.documents import plain
from penstock.spark.storage.failpoints import failpoint
from penstock.spark.storage.formats import LOG_KEPT, LOG_SEGMENT
from penstock.spark.storage.layout import ROWS_FILES, demand_of, tuples_kind
from penstock.spark.storage.ledger_documents import commit
from penstock.spark.storage.replaced import ReplacedFiles
from penstock.spark.storage.store_paths import files_in, remove_empty, size_of
from penstock.spark.storage.stored_log import StoredLog
from penstock.stores.ledger import Range

#: no run of tuples is made that is larger, or than this part of the history
_RUN_BYTES, _RUN_PART = 256 << 20, 16


#: gives, for the plan version of an entry, the demands of which the batches behind it may bring files; None: that is not known now
Asked = Callable[[int], Collection[int] | None]


class Segments:
    """Makes and removes the segments of a log; one thread at a time calls it, beside the one that appends.

    Args:
        log: the log.
        history_seconds: entries are kept so long, by the clock.
        history_bytes: ... unless the log's segments have more bytes.
        clock: microseconds since the epoch.
        told: given what was removed, and what could not be merged.
        grace_seconds: files that were merged live on for so long.
    """

    def __init__(
        self,
        log: StoredLog,
        history_seconds: float,
        history_bytes: int,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000,
        told: Callable[[Removed | Unmerged], None] = lambda _: None,
        grace_seconds: float = 0.0,
    ) -> None:
        self._log = LogReader(log)
        self._told = told
        self._history = int(history_seconds * 1e6)
        self._bytes = history_bytes
        self._clock = clock
        self._next: int | None = None
        run_bytes = min(_RUN_BYTES, history_bytes // _RUN_PART)
        self._mergings = mergings(run_bytes)
        self._replaced = ReplacedFiles(log.replaced, files_in(log.files), grace_seconds)
        self._levels = RunLevels(self._log, run_bytes, told, self._replaced)

    def tidy(self, asked: Asked = lambda _: None) -> None:
        """Makes every segment that can be made, and removes those that need not be kept.

        What can be removed is so first, as it makes room, and also where a segment cannot be made.

        Args:
            asked: what is left of other demands goes with the last of their tuples.

        Raises:
            OSError, ValueError, CheckpointError: a segment could not be made or removed; the next call goes on.
        """
        self._replaced.remove()
        number = self._recover() if self._next is None else self._next
        # what fails on the way is finished by the next call as by a new start
        self._next = None
        newest = self._log.newest()
        # what nobody reads is behind everybody
        behind = min(self._log.marks().values(), default=-1 if newest is None else newest.number)
        self._retain(number, behind)
        try:
            # the newest entry is never in a segment: readers find it without one
            while newest is not None and SEGMENT * (number + 1) - 1 < min(behind + 1, newest.number):
                self._make(number)
                number += 1
        finally:
            self._retain(number, behind)
        if newest is not None:
            self._forget(newest.plan, asked)
        self._next = number

    def _recover(self) -> int:
        """Finishes what was left half done; the number of the next segment to make."""
        log = self._log.log
        number = max(log.segments.last + 1, self._log.first // SEGMENT)
        self._remove_unnamed(number)
        self._levels.recover(number - 1)
        return number

    def _remove_unnamed(self, segment: int) -> None:
        """Removes the merged files of a segment that was not put: when it is made depends on the readers."""
        # fails if another run has taken over, whose files these may be
        self._log.log.ledger.writer.commit()
        for kind, merging in self._mergings.items():
            if merging.is_named:
                self._log.path(kind, merging.name(segment)).unlink(missing_ok=True)

    def _make(self, segment: int) -> None:
        log = self._log
        first = SEGMENT * segment
        entries = log.between(first - 1, first + SEGMENT - 1)
        replaced: list[str] = []
        runs: list[ListedRun] = []
        for kind in {kind for entry in entries for kind in entry.files}:
            merging = self._mergings.get(kind.partition("/")[0])
            if merging is None:
                continue
            merged: Sequence[str] = ()
            try:
                entries, merged = with_merged(log, merging, segment, kind, entries)
            except FAILURES as error:
                self._told(Unmerged(segment, kind, str(error)))
            replaced += [f"{kind}/{name}" for name in merged]
            demand = demand_of(kind)
            if demand is not None:
                own = {entry.number: entry.files[kind] for entry in entries if kind in entry.files}
                run = ListedRun(demand, first, entries[-1].number, own=own)
                if merged:
                    name = merging.name(segment)
                    run = replace(run, name=name, bytes=size_of(log.path(kind, name)))
                runs.append(run)
        failpoint("segment_merged", segment)
        files = {(kind, name) for entry in entries for kind, names in entry.files.items() for name in names}
        files |= {(tuples_kind(run.demand), run.name) for run in runs if run.name is not None}
        paths = (log.path(kind, name) for kind, name in files)
        stored = {log.log.entries[entry.number]: entry.document() for entry in entries}
        size = sum(len(plain(document)) for document in stored.values())
        size += sum(size_of(path) for path in paths if path.exists())
        before = LOG_SEGMENT.read(log.log.segments[segment - 1])
        document: dict[str, Any] = {
            "newest": self._newest_tuples(files, entries[-1].furthest),
            "bytes": size,
            "bytes_so_far": size + (before["bytes_so_far"] if before else 0),
        }
        gone = self._replaced.document(f"segment-{segment}", replaced)
        listed = {log.log.runs(run.demand)[run.last]: run.document() for run in runs}
        commit({**stored, **listed, log.log.segments[segment]: LOG_SEGMENT.stamped(document), **gone})
        failpoint("segment_put", segment)
        self._replaced.committed(gone)
        self._replaced.remove()
        self._levels.merge(segment)

    def _newest_tuples(self, files: Collection[tuple[str, str]], furthest: int | None) -> dict[int, int]:
        """By demand the largest event time of its tuples in some files, microseconds.

        Args:
            files: kind and name of each.
            furthest: no tuple of them is later; stands for those of a file that cannot be read.
        """
        found: dict[int, int] = {}
        for kind, name in files:
            demand = demand_of(kind)
            if demand is None:
                continue
            try:
                newest = newest_of(self._log.path(kind, name))
            except FAILURES:
                newest = furthest
            if newest is not None:
                found[demand] = max(newest, found.get(demand, newest))
        return found

    def _retain(self, made: int, behind: int) -> None:
        """Announces that segments at the front will go, and removes those that every reader knows of.

        Args:
            made: number of the first segment that is not made.
            behind: the entry that every reader has left behind.
        """
        log, kept = self._log, self._log.kept()
        leaving = self._leaving(kept.first // SEGMENT, made, behind)
        if not leaving:
            return
        before, kept = kept, announced(kept, leaving)
        if kept != before and not self._changed(before, kept):
            # a reader has joined meanwhile
            return
        if kept != before:
            failpoint("history_announced", leaving[0].number)
        known = log.entry(behind).kept_before if behind >= kept.first else None
        since = since_of(log.readers())

        def is_left(each: Leaving) -> bool:
            knows = each.before is None or (known is not None and each.before <= known)
            return knows and each.end <= min(behind + 1, since)

        gone = list(takewhile(is_left, leaving))
        if not gone:
            return
        last = gone[-1]
        now = replace(kept, first=last.end)
        if now.first > first_needed(log.readers()):
            return
        runs = self._levels.before(now.first)
        paths = [run.path for run in runs if run.path is not None]
        left = self._replaced.document(f"runs-{last.number}", paths, is_read=False)
        for each in gone:
            left |= self._replaced.document(f"left-{each.number}", self._files_of(each.number), is_read=False)
        try:
            commit(
                {log.log.kept: LOG_KEPT.stamped(now.document()), **left},
                [
                    *(log.log.segments[each.number] for each in gone),
                    *(log.log.runs(run.demand)[run.last] for run in runs),
                ],
                {log.log.kept: plain(LOG_KEPT.stamped(kept.document()))},
                [Range(log.log.entries.prefix, before=now.first)],
            )
        except UnexpectedDocumentError:
            # a reader has joined meanwhile
            return
        failpoint("history_kept", gone[0].number)
        self._replaced.committed(left)
        self._replaced.remove()
        size = sum(each.bytes for each in gone)
        self._told(Removed(now.first, SEGMENT * len(gone), size, now.before, last.reason, last.plan))

    def _files_of(self, segment: int) -> list[str]:
        """The files that go with a segment."""
        entries = self._log.segment(segment)
        named = {(kind, name) for entry in entries for kind, names in entry.files.items() for name in names}
        # published files are not the log's
        return sorted(f"{kind}/{name}" for kind, name in named if kind != ROWS_FILES)

    def _forget(self, plan: int, asked: Asked) -> None:
        """Removes what is left of demands that were withdrawn and whose tuples have all gone."""
        kept = self._log.kept()
        coming = asked(plan) if kept.lacks else None
        if coming is None:
            return
        lacks = {
            demand: moment
            for demand, moment in kept.lacks.items()
            if demand in coming or not remove_empty(self._log.path(tuples_kind(demand), ""))
        }
        if lacks != kept.lacks:
            self._changed(kept, replace(kept, lacks=lacks))

    def _leaving(self, first: int, made: int, behind: int) -> list[Leaving]:
        """The segments at the front that need not be kept, without regard to who may read them.

        Args:
            first, made: numbers of the first segment, and of the first one that is not made.
            behind: the entry that every reader has left behind.
        """
        readers = self._log.readers().values()
        is_read_again = any(SINCE in told for told in readers)
        if is_read_again:
            # what is read again is as old as it is to the last reader: a lane that is behind misses nothing for that
            made = min(made, (behind + 1) // SEGMENT)
        if first >= made:
            return []
        now = self._log.entry(behind).clock if is_read_again else self._clock()
        final = min((told.get(FINAL, AFTER_ALL) for told in readers), default=AFTER_ALL)
        until = self._document(made - 1)["bytes_so_far"]
        found: list[Leaving] = []
        for number in range(first, made):
            document = self._document(number)
            last = self._log.entry(SEGMENT * (number + 1) - 1)
            is_final = last.furthest is None or last.furthest < final
            if now - last.clock > self._history and is_final:
                reason = "age"
            elif until - document["bytes_so_far"] + document["bytes"] > self._bytes:
                reason = "size"
            else:
                break
            before = None if last.furthest is None else last.furthest + 1
            lacks = {int(demand): newest + 1 for demand, newest in document.get("newest", {}).items()}
            found.append(
                Leaving(number, SEGMENT * (number + 1), before, lacks, document["bytes"], reason, last.plan)
            )
        return found

    def _document(self, segment: int) -> dict[str, Any]:
        where = self._log.log.segments[segment]
        document = LOG_SEGMENT.read(where)
        if document is None:
            raise DamagedError(str(where), f"({LOG_SEGMENT.kind}) is missing")
        return document

    def _changed(self, before: Kept, kept: Kept) -> bool:
        """Stores what is to be known; False where that has changed meanwhile."""
        where = self._log.log.kept
        try:
            commit(
                {where: LOG_KEPT.stamped(kept.document())},
                expect={where: plain(LOG_KEPT.stamped(before.document()))},
            )
        except UnexpectedDocumentError:
            return False
        return True
