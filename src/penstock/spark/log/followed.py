"""The log of a stream as one reader follows it: what has been read of entries is not read again.

An entry is changed only by the commit that puts its segment, which may give it the names of other files. How far event times had come by it, and
its batch, never change.
"""

from __future__ import annotations

from penstock.spark.log.entries import Entry
from penstock.spark.log.stream_log import LogReader
from penstock.spark.storage.stored_log import StoredLog

#: entries that are remembered; the oldest are forgotten first
_MOST = 1 << 12


class FollowedLog(LogReader):
    """Reads a log for one thread, from one start of its reader to the end; nothing that the reader still needs goes meanwhile.

    Args:
        log: where it is.
    """

    def __init__(self, log: StoredLog) -> None:
        super().__init__(log)
        #: the newest segment, as of which entries are remembered
        self._made = -1
        self._entries: dict[int, Entry] = {}
        #: see `Entry.furthest`
        self._furthest: dict[int, int | None] = {}

    def between(self, after: int, until: int) -> list[Entry]:
        # in this order: what is remembered is at least as new as the segment
        made = self.log.segments.last
        if made != self._made:
            self._made, self._entries = made, {}
        numbers = range(after + 1, until + 1)
        lacking = [number for number in numbers if number not in self._entries]
        if lacking:
            for entry in super().between(lacking[0] - 1, lacking[-1]):
                self._entries[entry.number] = entry
                self._furthest[entry.number] = entry.furthest
        found = [self._entries[number] for number in numbers]
        for known in (self._entries, self._furthest):
            while len(known) > _MOST:
                del known[min(known)]
        return found

    def furthest(self, number: int) -> int | None:
        if number not in self._furthest:
            self._furthest[number] = super().furthest(number)
        return self._furthest[number]
