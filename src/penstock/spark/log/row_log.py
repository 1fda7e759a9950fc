"""Logs of views' rows: what a lane publishes of a view is a stream again, for lanes that read it.

Each publication of the lane (a cut) is an entry once a view
is read, put behind its manifest by the thread that publishes: what was not put before a crash is put as the
publication is repeated, or as the next run begins. An entry names the published files where they lie. A compaction replaces them as
any others, but they are deleted only once no kept entry names them (`held_rows`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.errors import CheckpointError
from penstock.operators.windows.answers import Progress
from penstock.spark.log.entries import Entry
from penstock.spark.log.segments import Segments
from penstock.spark.log.stream_log import StreamLog
from penstock.spark.publication.compaction import tidying
from penstock.spark.publication.kinds import name_of
from penstock.spark.publication.manifests import read_published
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.failpoints import failpoint
from penstock.spark.storage.formats import LOG_ENTRY
from penstock.spark.storage.layout import ROWS_FILES, Layout
from penstock.spark.storage.offsets import REMEDY

#: entries between two looks at what can be merged or removed
_TIDY_EVERY = 16
#: what a manifest says of each view that is read, see `Progress`
PROGRESS = "progress"


class RowLog:
    """Writes the log of one view's rows.

    Args:
        layout: output and checkpoint folders.
        name: the log's.
        lane: who publishes the view's rows, as manifests name it.
        view: the view's name.
        events: the event log.
        on_put: called for each entry.
    """

    def __init__(
        self, layout: Layout, name: str, lane: str, view: str, events: EventLog, on_put: Callable[[], None]
    ) -> None:
        self._layout = layout
        self._name = name
        self._lane = lane
        self._view = view
        self._events = events
        self._on_put = on_put
        self._lock = threading.Lock()
        self._manifests = layout.manifests(lane)
        self._log = StreamLog(layout.log(name))
        self._segments = Segments(layout.log(name), history_seconds=0, history_bytes=0)
        self._last = self._log.newest()
        #: False where a put has failed: the entry may be there all the same
        self._is_sure = True
        self.catch_up()

    def put(
        self, number: int, files: Sequence[Mapping[str, Any]] | None, progress: Mapping[str, Any] | None
    ) -> None:
        """Puts the entry of a publication unless it is there.

        Args:
            number: of the publication.
            files: the publication's, as its manifest lists them; None where they were merged with those of others.
            progress: how far the view is answered, as `Progress`; None where nobody read it then.
        """
        with self._lock:
            if not self._is_sure:
                self._last, self._is_sure = self._log.newest(), True
            last = self._last
            if last is not None and number <= last.batch:
                return
            is_next = last is not None and number == last.batch + 1
            names = self._named(files) if files is not None and is_next else None
            entry = self._append(number, names, progress)
            if entry is None:
                # the files were merged meanwhile, and may be deleted
                entry = self._append(number, None, progress)
            if entry is None:
                raise CheckpointError(
                    f"view {self._view}: the log of its rows was written by another run; "
                    "only one run may use a checkpoint at a time"
                )
            self._on_put()
            if entry.number % _TIDY_EVERY == 0:
                self._tidy(number)

    def _append(
        self, number: int, names: Sequence[str] | None, progress: Mapping[str, Any] | None
    ) -> Entry | None:
        """Puts an entry; None where its place is taken, or a batch whose files it names is merged."""
        last, manifest = self._last, self._manifests[number]
        entry = Entry(
            number=0 if last is None else last.number + 1,
            batch=number,
            plan=0,
            clock=time.time_ns() // 1_000,
            files={ROWS_FILES: tuple(names)} if names else {},
            answer_all=names is None,
            progress=Progress(**progress or {}),
        )
        self._is_sure = False
        content = manifest.get() if names else None
        if (names and content is None) or not self._log.append(entry, {manifest: content} if names else {}):
            return None
        self._last, self._is_sure = entry, True
        return entry

    def catch_up(self) -> None:
        """Puts what is published and not put: by earlier runs, or before the lane knew of the log."""
        # in this order: the lane may publish meanwhile, and put
        done = -1 if self._last is None else self._last.batch
        published = read_published(self._layout, self._lane)
        if published.last < done:
            raise CheckpointError(
                f"view {self._view}: the log of its rows ends with publication {done} of {self._lane}, but the results folder "
                f"ends with {published.last}: it was restored from an older copy, or files are missing; {REMEDY}"
            )
        for document in published.single:
            if self._last is not None and document["last"] > done:
                figures = document["batches"][0]
                self.put(document["last"], document["files"], figures.get(PROGRESS, {}).get(self._view))
        if self._last is None or published.last > self._last.batch:
            newest = published.batches[-1] if published.batches else {}
            self.put(published.last, None, newest.get(PROGRESS, {}).get(self._view))

    def _named(self, files: Sequence[Mapping[str, Any]]) -> list[str]:
        """The names of the view's files in the results folder."""
        own = [file for file in files if file["kind"].partition("/")[2] == self._view]
        return [name_of(self._layout, self._lane, file["kind"], file["name"]) for file in own]

    def _tidy(self, number: int) -> None:
        with tidying(self._events, f"{self._name}.log", number):
            self._segments.tidy()


def held_rows(layout: Layout) -> set[str]:
    """Return the names of published files that kept entries of the logs of views' rows name.

    Args:
        layout: output and checkpoint folders.
    """
    found: set[str] = set()
    for name in layout.logs():
        entries = layout.log(name).entries
        last = entries.last
        newest = LOG_ENTRY.read(entries[last]) if last >= 0 else None
        if newest is not None and "progress" in newest:
            for document in entries.all(LOG_ENTRY.kind).values():
                found.update(document["files"].get(ROWS_FILES, ()))
    return found


class RowLogs:
    """The logs of the views of a run that are read; any thread may ask and publish.

    Args:
        layout: output and checkpoint folders.
        events: the event log.
        on_put: called for each entry of any of them.
    """

    def __init__(self, layout: Layout, events: EventLog, on_put: Callable[[], None]) -> None:
        self._layout = layout
        self._events = events
        self._on_put = on_put
        #: by lane and view; replaced, never changed
        self._logs: Mapping[str, Mapping[str, RowLog]] = {}

    def read(self, lane: str, views: Mapping[str, str]) -> None:
        """Keeps the logs of these views of a lane from now on, and of no others.

        Args:
            lane: as manifests name it.
            views: the name of each view's log.
        """
        known = self._logs.get(lane, {})
        logs = {
            view: known.get(view) or RowLog(self._layout, name, lane, view, self._events, self._on_put)
            for view, name in views.items()
        }
        self._logs = {**self._logs, lane: logs}
        # the lane may have published since they were made
        for log in logs.values():
            log.catch_up()

    def views(self, lane: str) -> list[str]:
        """The views of a lane that are read."""
        return list(self._logs.get(lane, {}))

    def published(
        self, lane: str, figures: Mapping[str, Any], files: Sequence[Mapping[str, Any]] | None
    ) -> None:
        """Puts the entries of a publication, also where it is repeated.

        Args:
            lane: whose.
            figures: what its manifest says of it.
            files: as it lists them; None where they were merged with those of others.
        """
        for view, log in self._logs.get(lane, {}).items():
            log.put(figures["batch"], files, figures.get(PROGRESS, {}).get(view))
            failpoint("rows_logged", figures["batch"], lane)
