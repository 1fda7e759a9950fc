"""The followers of a run: started, fitted to the sinks that are declared, brought to their end, and stopped."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from penstock.spark.publication.kinds import is_of_view
from penstock.spark.publication.retention import Needed
from penstock.spark.sinks.declared import Sink, named_apart
from penstock.spark.sinks.follower import Follower, FollowerContext
from penstock.spark.sinks.marks import Mark
from penstock.spark.sinks.published import Feed
from penstock.spark.storage.formats import SINK

#: followers that end at the same time are looked at so long one after the other
_LOOK_SECONDS = 0.2


class Followers:
    """Keeps a follower for each sink; threads that declare views and the one that ends the run may call.

    Args:
        context: the run's.
    """

    def __init__(self, context: FollowerContext) -> None:
        self._context = context
        self._lock = threading.RLock()
        #: replaced, never changed
        self._all: Mapping[str, Follower] = {}
        self._sinks: Sequence[Sink] = ()
        self._is_started = False
        self._is_over = False

    @property
    def all(self) -> Mapping[str, Follower]:
        """The followers by name."""
        return self._all

    @property
    def active(self) -> bool:
        """Whether deliveries may follow."""
        return any(each.active for each in self._all.values())

    def set(self, sinks: Sequence[Sink]) -> None:
        """Deliver to these sinks and no others; those that stay go on. Before `start` none is begun."""
        with self._lock:
            self._sinks = tuple(sinks)
            if self._is_started and not self._is_over:
                self._fit()

    def views_changed(self) -> None:
        """Say that views may be published in other files than before: the catalog was written."""
        self._context.views.tell()

    def start(self) -> None:
        """Begin to deliver: the catalog has the views."""
        with self._lock:
            self._is_started = True
            if not self._is_over:
                self._fit()

    def join(self, deadline: float | None) -> bool:
        """Wait until all have ended, as no publication follows; False where a time of `time.monotonic` came first."""
        self._context.published.tell()
        while self.active:
            if deadline is not None and time.monotonic() >= deadline:
                return False
            for each in self._all.values():
                if not each.join(_LOOK_SECONDS):
                    break
        return True

    def prepare_stop(self) -> None:
        """Say that no further delivery is to be begun."""
        with self._lock:
            self._is_over = True
        for each in self._all.values():
            each.prepare_stop()

    def stop(self) -> None:
        """Stop after the deliveries that are being made."""
        self.prepare_stop()
        for each in self._all.values():
            each.stop()

    @property
    def failed(self) -> list[Mapping[str, Any]]:
        """What was told of those that have failed."""
        return [told for each in self._all.values() if (told := each.failed) is not None]

    def needed(self, query: str, kinds: Iterable[str]) -> dict[str, Needed]:
        """The first row of each kind that a declared sink has not been given; a sink that has not begun needs none.

        Args:
            query: whose rows, as manifests name it.
            kinds: of its files.
        """
        documents = self._context.layout.sinks.all(SINK.kind)
        found: dict[str, Needed] = {}
        for name, sink in named_apart(self._sinks).items():
            if name not in documents:
                continue
            mark = Mark.of(SINK.opened(documents[name], self._context.layout.sinks[name]))
            for kind in kinds:
                first = first_needed(mark, Feed(query, kind), sink.view)
                known = found.get(kind)
                if first is None or (known is not None and first > known.first):
                    continue
                others = known.by if known is not None and known.first == first else ()
                found[kind] = Needed(first, (*others, name))
        return found

    def _fit(self) -> None:
        wanted = named_apart(self._sinks)
        kept = {
            name: each for name, each in self._all.items() if name in wanted and each.sink is wanted[name]
        }
        gone = [each for name, each in self._all.items() if name not in kept]
        for each in gone:
            each.prepare_stop()
        for each in gone:
            each.stop()
        new = {name: Follower(name, sink, self._context) for name, sink in wanted.items() if name not in kept}
        self._all = {**kept, **new}
        for name, each in new.items():
            self._context.told(name, {"view": each.sink.view, "kind": each.sink.kind})
            each.start()


def first_needed(mark: Mark, feed: Feed, view: str) -> int | None:
    """The first row of a feed that a sink has not been given; None: it needs none of them."""
    place = mark.places.get(feed)
    if place is not None:
        return place.rows
    if not is_of_view(feed.kind, view):
        return None
    number = _number(feed.kind)
    # those of earlier definitions have no place; the sink finds a later one with its next look
    earlier = all(number > _number(each.kind) for each in mark.places if each.query == feed.query)
    return 0 if earlier else None


def _number(kind: str) -> int:
    return int(kind.partition("/")[0])
