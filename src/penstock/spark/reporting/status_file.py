"""`_penstock/status.json`: what a run says of itself, for readers of the folder; one thread writes it."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from penstock.monitor.book import StatusBook
from penstock.spark.publication.history import added
from penstock.spark.publication.kinds import results_of
from penstock.spark.publication.manifests import PublishedBatches, read_manifests
from penstock.spark.reporting.starting import read_status
from penstock.spark.storage.documents import sealed
from penstock.spark.storage.event_copies import copied_lines
from penstock.spark.storage.events import newest_events, parsed_events
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.store_paths import replace_content

_log = logging.getLogger(__name__)
#: a large document is written less often: between two lies this many times the processor time that it took; a slow disk costs none
_PAUSES = 20
#: bytes of copied events that are looked at
_LOOKED_AT = 1 << 18


class StatusFile:
    """Keeps the book of a run and writes it once a second where something changed.

    Args:
        layout: the run's folders.
        pairs: gives, by stream, (tuple, view) pairs since this run began, by definition of a view, see `counted_as`.
        every_seconds: least time between two writings.
    """

    def __init__(
        self, layout: Layout, pairs: Callable[[], Mapping[str, Mapping[str, int]]], every_seconds: float = 1.0
    ) -> None:
        self._layout = layout
        self._pairs = pairs
        self._every = every_seconds
        document = read_status(layout)
        self._before: dict[str, Mapping[str, int]] = {}
        #: tuples of each stream that earlier runs have read
        self.tuples_before: dict[str, int] = {}
        self.book = StatusBook(document)
        _recall(self.book, layout, document)
        self.book.update(pid=os.getpid(), checkpoint=str(layout.checkpoint))
        self._written = -1
        self._closing = threading.Event()
        self._is_left = False
        self._thread = threading.Thread(target=self._follow, daemon=True, name="penstock-status")
        self._thread.start()

    def begin_stream(self, stream: str) -> None:
        """Counts the batches of a stream that earlier runs have published and told nobody of."""
        published = catch_up(self.book, self._layout, stream)
        self._before[stream] = published.view_pairs
        self.tuples_before[stream] = self.book.stream(stream).get("tuples", 0)

    def begin_lane(self, lane: str) -> None:
        """Likewise of the cuts of a lane."""
        catch_up_lane(self.book, self._layout, lane)

    def close(self) -> None:
        """Writes once more; later changes are not written. May be called again."""
        self._closing.set()
        self._thread.join()

    def leave(self) -> None:
        """Writes nothing any more: the folder is another run's."""
        self._is_left = True
        self._closing.set()

    def _follow(self) -> None:
        pause = self._every
        while not self._closing.wait(pause):
            began = time.thread_time()
            self._write()
            pause = max(self._every, _PAUSES * (time.thread_time() - began))
        self._write()

    def _write(self) -> None:
        changes = self.book.changes
        if changes == self._written or self._is_left:
            return
        try:
            replace_content(self._layout.status, sealed(self.book.document(), default=str))
            self._written = changes
        except Exception as error:
            # a full disk, or whatever an event holds: the run goes on, its answers count
            _log.warning("cannot write %s: %s", self._layout.status, error)

    def all_pairs(self) -> dict[str, Mapping[str, int]]:
        """By stream, pairs of each definition of a view since the folder's first batch."""
        return {stream: added(self._before.get(stream, {}), views) for stream, views in self._pairs().items()}


def catch_up(book: StatusBook, layout: Layout, stream: str) -> PublishedBatches:
    """Takes in what the manifests of a stream say of batches that the book does not know, and gives them."""
    batches = read_manifests(layout.manifests(stream))
    book.catch_up(stream, batches.totals, batches.batches)
    results = read_manifests(layout.manifests(results_of(stream)))
    book.catch_up_windows(stream, results.totals, results.batches)
    return batches


def catch_up_lane(book: StatusBook, layout: Layout, lane: str) -> None:
    """Likewise of the cuts of a lane."""
    cuts = read_manifests(layout.manifests(lane))
    book.catch_up_lane(lane, cuts.totals, cuts.batches)


def untold_events(layout: Layout, document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the events that a written document has not taken in, oldest first: those after its newest one."""
    until = str(document.get("time") or "")
    known = document.get("at_time")
    for event in newest_events(layout.events) or parsed_events(copied_lines(layout, _LOOKED_AT)):
        time = str(event.get("time"))
        if (time == until and known is not None and known <= 0) or time > until:
            yield event
        elif time == until and known is not None:
            known -= 1


def _recall(book: StatusBook, layout: Layout, document: Mapping[str, Any]) -> None:
    """Takes in what a run that was killed recorded after it had written the document last."""
    events = list(untold_events(layout, document))
    # first what manifests count: the events at hand may not have all of it
    for stream in {each["stream"] for each in events if each["kind"] in ("batch", "windows")}:
        catch_up(book, layout, stream)
    for lane in {each["lane"] for each in events if each["kind"] == "cut"}:
        catch_up_lane(book, layout, lane)
    for event in events:
        book.note(event)
