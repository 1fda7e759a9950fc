"""Which readers hold a log back beyond its history: nothing that they still need is removed, however old."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from penstock.spark.log.stream_log import SEGMENT, SINCE, LogReader
from penstock.spark.storage.documents import plain
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.formats import LOG_SEGMENT
from penstock.spark.storage.refreshed import REFRESHED
from penstock.spark.storage.store_paths import size_of

#: stretches of entries whose bytes are counted in one look
_COUNTED = 64
#: what is told is told again when it has become so many times as much
_AGAIN = 2


@dataclass(frozen=True, slots=True)
class Held:
    """A reader that holds a log back.

    Attributes:
        reader: its name.
        entry: the first entry that it has not left behind, or whose tuples it holds to read them again.
        seconds: how long ago that was put.
        bytes: of the log from there on, as far as they are counted.
        reason: `age` or `size`: which limit of the history the log is beyond for its sake.
        is_known: whether a lane of this run has the name.
    """

    reader: str
    entry: int
    seconds: int
    bytes: int
    reason: str
    is_known: bool

    def event(self) -> dict[str, Any]:
        """The fields of the event that tells of it."""
        told = f"reader {self.reader} still needs entry {self.entry}, so the log is kept from there on"
        if not self.is_known:
            told += "; no view of this run uses this reader"
        return {name: getattr(self, name) for name in self.__slots__} | {"told": told}


class Holding:
    """Looks for readers that hold a log back, and tells of them; one thread owns it.

    Whole segments are what can go, so that a reader holds one back from the end of it on.

    Args:
        log: the log.
        history_seconds, history_bytes: see `Segments`.
        clock: microseconds since the epoch.
    """

    def __init__(
        self,
        log: LogReader,
        history_seconds: float,
        history_bytes: int,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000,
    ) -> None:
        self._log = log
        self._history = int(history_seconds * 1e6)
        self._bytes = history_bytes
        self._clock = clock
        #: bytes of stretches of entries, each a segment or one to be
        self._sizes: dict[int, int] = {}
        self._told: dict[str, Held] = {}
        #: what is before this entry was announced to go by the look before, see `Kept.since`
        self._announced = 0

    def look(self, known: Collection[str]) -> list[Held]:
        """Who holds the log back now.

        Args:
            known: names of the readers that are lanes of this run.
        """
        newest, kept = self._log.newest(), self._log.kept()
        needed = {reader: self._needed(told) for reader, told in self._log.readers().items()}
        self._announced = kept.since
        if newest is None or not needed:
            return []
        # the newest entry is never in a segment
        end = newest.number // SEGMENT
        begins = {reader: max(entry, kept.first) // SEGMENT for reader, entry in needed.items()}
        self._count(range(min(begins.values()), end))
        found = []
        for reader, begin in sorted(begins.items()):
            # all tuples are what a refreshed view is for, and its status says how many bytes they are
            if begin >= end or (reader in known and reader.startswith(f"{REFRESHED.name}.")):
                continue
            size = sum(size for segment, size in self._sizes.items() if segment >= begin)
            is_old = self._clock() - self._log.entry(SEGMENT * (begin + 1) - 1).clock > self._history
            if is_old or size > self._bytes:
                entry = self._log.entry(max(needed[reader], kept.first))
                seconds = (self._clock() - entry.clock) // 1_000_000
                reason = "age" if is_old else "size"
                found.append(Held(reader, entry.number, seconds, size, reason, reader in known))
        return found

    def tell(self, events: EventLog, stream: str, known: Collection[str]) -> None:
        """Records who holds the log back, when that is new or has become much more, and who does no longer."""
        held = {each.reader: each for each in self.look(known)}
        for reader, each in held.items():
            if _is_news(each, self._told.get(reader)):
                self._told[reader] = each
                events.record("history_held", stream=stream, **each.event())
        for reader in self._told.keys() - held.keys():
            del self._told[reader]
            events.record("history_released", stream=stream, reader=reader)

    def _needed(self, told: Mapping[str, Any]) -> int:
        """The first entry that a reader still needs, given what it says.

        One that reads tuples again does without what is announced to go from its next cut on, unless it holds that.
        """
        behind, since = int(told["number"]) + 1, int(told.get(SINCE, self._announced))
        return min(behind, since) if since < self._announced else behind

    def _count(self, segments: range) -> None:
        """Counts the bytes of some of them that are not counted yet; the others are another look's."""
        self._sizes = {segment: size for segment, size in self._sizes.items() if segment in segments}
        for segment in islice((each for each in segments if each not in self._sizes), _COUNTED):
            document = LOG_SEGMENT.read(self._log.log.segments[segment])
            self._sizes[segment] = document["bytes"] if document is not None else self._unmerged(segment)

    def _unmerged(self, segment: int) -> int:
        first = SEGMENT * segment
        entries = self._log.between(first - 1, first + SEGMENT - 1)
        size = sum(len(plain(entry.document())) for entry in entries)
        paths = (self._log.path(kind, name) for entry in entries for kind, name in _files(entry.files))
        return size + sum(size_of(path) for path in paths)


def _files(files: Mapping[str, Collection[str]]) -> set[tuple[str, str]]:
    return {(kind, name) for kind, names in files.items() for name in names}


def _is_news(held: Held, told: Held | None) -> bool:
    return (
        told is None
        or held.is_known != told.is_known
        or held.seconds > _AGAIN * told.seconds
        or held.bytes > _AGAIN * told.bytes
    )
