"""Logs of views' rows: what a lane publishes of a view is a stream again, for lanes that read it.

Each publication of the lane (a batch of the keyed query, a cut) is an entry once a view
is read, put behind its manifest by the thread that publishes: what was not put before a crash is put as the
publication is repeated, or as the next run begins. The files are other names of the published ones, so that a
compaction takes none away before it is read; they go with their segment, as soon as every reader has left it behind.
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
from penstock.spark.publication.kinds import folder_of
from penstock.spark.publication.manifests import read_published
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.failpoints import failpoint
from penstock.spark.storage.files import make_folder, second_name, sync_folder
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
        self._log = StreamLog(layout.log(name))
        self._files = self._log.path(ROWS_FILES, "")
        make_folder(self._files)
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
            names = None if files is None or not is_next else self._named(number, files)
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
            if not self._log.append(entry):
                raise CheckpointError(
                    f"view {self._view}: entry {entry.number} of the log of its rows was written by another run; "
                    "only one run may use a checkpoint at a time"
                )
            self._last, self._is_sure = entry, True
            self._on_put()
            if entry.number % _TIDY_EVERY == 0:
                self._tidy(number)

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

    def _named(self, number: int, files: Sequence[Mapping[str, Any]]) -> list[str] | None:
        """Gives the view's files names in the log, durable on return; None where a compaction was sooner."""
        own = [
            folder_of(self._layout, self._lane, file["kind"]) / file["name"]
            for file in files
            if file["kind"].partition("/")[2] == self._view
        ]
        names = [f"{number:010d}-{place:05d}.parquet" for place in range(len(own))]
        try:
            for published, name in zip(own, names, strict=True):
                second_name(published, self._files / name)
        except FileNotFoundError:
            return None
        if names:
            sync_folder(self._files)
            failpoint("rows_named", number)
        return names

    def _tidy(self, number: int) -> None:
        with tidying(self._events, f"{self._name}.log", number):
            self._segments.tidy()


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
            failpoint("rows_logged", figures["batch"])
