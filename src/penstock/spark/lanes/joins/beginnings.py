"""Where in the logs of its streams a join view begins."""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Callable, Mapping

from penstock.spark.log.stream_log import LogReader


class ViewBeginnings:
    """Finds the first entries of a join view; one thread has it.

    A batch that was bound before the view was declared may be put behind that: it has the tuples that older views ask for.
    Which batch is the first that is dealt out for all the view asks for is said by the plan version it is bound to.

    Args:
        declared: by stream, the newest entry as the view was declared.
        logs: by stream.
        begun: gives for a stream the first batch that is dealt out for all the view asks for; None: there is none yet.
    """

    def __init__(
        self,
        declared: Mapping[str, int],
        logs: Mapping[str, LogReader],
        begun: Callable[[str], int | None],
    ) -> None:
        self._declared = declared
        self._logs = logs
        self._begun = begun
        #: by stream: the entries up to the first one are without, those from the second one on have it
        self._known: dict[str, tuple[int, int]] = {}

    def first(self, stream: str, after: int, until: int) -> int:
        """The first entry, of those behind one and up to another, that has what the view asks for.

        Args:
            stream: which.
            after: number of an entry; those behind it and up to `until` do not go meanwhile.
            until: likewise.

        Returns:
            Its number; until + 1 where there is none.

        Raises:
            CheckpointError: an entry is gone.
        """
        begin = max(after, self._declared[stream]) + 1
        without, has = self._known.get(stream, (-1, sys.maxsize))
        if begin >= has:
            return min(begin, until + 1)
        batch = self._begun(stream)
        if batch is None:
            return until + 1
        log = self._logs[stream]
        entries = range(max(begin, without + 1), min(until + 1, has))
        found = entries.start + bisect_left(entries, batch, key=lambda number: log.entry(number).batch)
        if found > entries.start:
            without = found - 1
        if found in entries:
            has = found
        self._known[stream] = without, has
        return min(found, until + 1)
