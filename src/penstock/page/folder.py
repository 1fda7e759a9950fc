"""Reads a results folder for the page: one thread, which publishes what it has read as snapshots that never change."""

from __future__ import annotations

import logging
import threading
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.errors import DamagedError, PenstockError
from penstock.monitor.book import Document
from penstock.monitor.folder import folder_layout, folder_status
from penstock.page.answers import encoded
from penstock.page.histories import Histories
from penstock.page.judgements import Judgements
from penstock.page.overview import overview_answer
from penstock.page.tail import EventTail
from penstock.page.views import RowSamples, ViewIndex, ViewTable
from penstock.spark.reporting.catalog import known_catalog
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.store_paths import ObjectPath, StorePath

_log = logging.getLogger(__name__)
#: time between two looks at the event log
_TICK_SECONDS = 0.5
#: least time between two readings of the status, and how many times the processor time that the last one took
_READ_SECONDS, _PAUSES = 1.0, 20
#: a status whose files have not changed is read again after so long: its ages grow
_STALE_SECONDS = 5.0
#: the status is read as long as somebody has looked at it in that time
_LOOKED_SECONDS = 10.0
#: a request waits so long for a status that is read anew
_WAIT_SECONDS = 30.0
#: seconds that one reading spends on how many early answers were within their bound
_JUDGING_SECONDS = 0.2
_EMPTY: Document = {"streams": {}, "views": {}}

Signature = tuple[Any, ...]


class UnreadError(PenstockError):
    """The folder has not been read once."""


@dataclass(frozen=True)
class Snapshot:
    """What a folder said at one moment.

    Attributes:
        version: grows with each snapshot.
        document: see `folder_status`.
        catalog: the streams and views, as the catalog has them.
        views: the views, ready to be sorted and searched.
        histories: of streams, lanes and views.
        overview: the answer to /api/overview.
        error: why the folder cannot be read now, and the rest is that of before; None where it can.
    """

    version: int
    document: Document
    catalog: Document
    views: ViewTable
    histories: Histories
    overview: bytes
    error: str | None = None


class FolderReader:
    """Follows a results folder.

    Args:
        folder: the results folder.
        awaits: whether the folder may not exist yet, because its run is starting.
        published: called after each snapshot, in the thread of the reader.
        clock: seconds that only grow.

    Raises:
        InputError: it is no results folder, and is not awaited.
    """

    def __init__(
        self,
        folder: str | StorePath,
        *,
        awaits: bool = False,
        published: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not awaits:
            folder_layout(folder)
        self.folder = folder
        self.layout = Layout.of(folder, None)
        self.published = published
        self._awaits = awaits
        self._clock = clock
        self._tail = EventTail(self.layout.events)
        self._histories = Histories()
        #: how many early answers were within their bound
        self.judgements = Judgements()
        self._catalog: tuple[int | None, Document, ViewIndex] = (None, _EMPTY, ViewIndex(_EMPTY))
        self._samples = RowSamples(self._catalog[2])
        self._snapshot: Snapshot | None = None
        self._read: Signature | None = None
        self._due = self._read_at = float("-inf")
        self._looked = clock()
        self._turns = 0
        self._turned = threading.Condition()
        self._woken, self._closing = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True, name="penstock-page-folder")

    def start(self) -> None:
        """Begins to read."""
        self._thread.start()

    def close(self) -> None:
        """Ends the thread."""
        self._closing.set()
        self._woken.set()
        if self._thread.is_alive():
            self._thread.join()
        self._tail.close()

    def touch(self) -> None:
        """Says that somebody looks."""
        self._looked = self._clock()

    def current(self) -> Snapshot:
        """Return the newest snapshot; where nobody has looked for a while, it is read first.

        Raises:
            UnreadError: the folder has not been read once.
        """
        is_asleep = not self._is_looked_at()
        self.touch()
        if is_asleep or self._snapshot is None:
            with self._turned:
                turn = self._turns
                self._woken.set()
                # the turn that is under way may have begun before
                self._turned.wait_for(lambda: self._turns >= turn + 1 + is_asleep, _WAIT_SECONDS)
        if self._snapshot is None:
            raise UnreadError("The page has not read the folder yet; try again in a moment.")
        return self._snapshot

    @property
    def newest(self) -> Snapshot | None:
        """The newest snapshot, None before the first."""
        return self._snapshot

    def _is_looked_at(self) -> bool:
        return self._clock() - self._looked < _LOOKED_SECONDS

    def _follow(self) -> None:
        while not self._closing.is_set():
            self._woken.clear()
            try:
                self.look()
            except Exception as error:
                _log.warning("cannot read %s: %s: %s", self.folder, type(error).__name__, error)
            with self._turned:
                self._turns += 1
                self._turned.notify_all()
            self._woken.wait(_TICK_SECONDS)

    def look(self) -> None:
        """Takes in new events, and reads the status where it is due."""
        events = self._tail.read()
        if self._tail.is_new:
            self._histories = Histories()
        for event in events:
            self._histories.take(event)
        now = self._clock()
        if not self._is_looked_at() or now < self._due:
            return
        signature = self._signature()
        is_live = self._snapshot is not None and self._snapshot.document["state"] in ("running", "starting")
        if signature == self._read and not (is_live and now - self._read_at > _STALE_SECONDS):
            return
        began = time.thread_time()
        self._publish()
        self._read, self._read_at = signature, now
        self._due = now + max(_READ_SECONDS, _PAUSES * (time.thread_time() - began))

    def _signature(self) -> Signature:
        """Changes with everything that the status depends on, but for the clock."""
        status = self.layout.status
        told = self.layout.catalog.signature()
        said = zlib.crc32(status.read_bytes()) if isinstance(status, ObjectPath) else file_signature(status)
        return (
            file_signature(self.layout.events),
            said,
            told,
            self.layout.ledger.owner(),
            self.layout.output.is_dir(),
        )

    def _publish(self) -> None:
        before = self._snapshot
        error = None
        try:
            document, catalog, index = self._status()
        except Exception as failure:
            error = self._reason(failure)
            if before is None:
                document, catalog, index = _unread(self.layout), _EMPTY, ViewIndex(_EMPTY)
            else:
                document, catalog, index = before.document, before.catalog, before.views.index
        if index is not self._samples.index:
            self._samples = self._samples.of(index)
        views = ViewTable(index, document, self._samples)
        self._samples.add(time.time(), views.rows)
        version = 1 if before is None else before.version + 1
        overview = encoded(overview_answer(version, document, catalog, self._histories, error))
        self._snapshot = Snapshot(version, document, catalog, views, self._histories, overview, error)
        self.published()

    def _reason(self, failure: Exception) -> str:
        """Why the folder cannot be read, as a sentence: one of its files may be damaged, half there, or of another version."""
        if isinstance(failure, DamagedError):
            return f"{failure.path} {failure.fault}"
        if isinstance(failure, PenstockError):
            return str(failure)
        return f"Results folder {self.folder} cannot be read: {type(failure).__name__}: {failure}"

    def _status(self) -> tuple[Document, Document, ViewIndex]:
        if self._awaits and not (self.layout.output / "_penstock").is_dir():
            return {**_unread(self.layout), "state": "starting"}, _EMPTY, ViewIndex(_EMPTY)
        self._awaits = False
        known, catalog, index = self._catalog
        signature = self.layout.catalog.signature()
        if signature != known or signature is None:
            folder_layout(self.folder)
            catalog = known_catalog(self.layout) or _EMPTY
            index = ViewIndex(catalog)
            self._catalog = signature, catalog, index
        document = folder_status(self.folder, catalog)
        self.judgements.put(self.layout, document["views"], _JUDGING_SECONDS)
        return document, catalog, index


def file_signature(path: Path) -> Signature | None:
    """Changes with a file; None where there is none."""
    try:
        told = path.stat()
    except OSError:
        return None
    return told.st_ino, told.st_size, told.st_mtime_ns


def _unread(layout: Layout) -> Document:
    return {"state": "never started", "output": str(layout.output), "streams": {}, "views": {}, "news": []}
