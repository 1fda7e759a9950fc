"""How far a stream has come: silence, told from everything that only looks like it, and the time its tuples tell."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum, auto

#: tuples that are remembered, at least, and that are enough to tell the time
_REMEMBERED, _ENOUGH = 1_000, 100
#: asking an empty source takes no trigger so long
_HANGS_SECONDS = 10.0


class Heard(Enum):
    """What a look at a stream's source finds."""

    #: a batch is at hand or its tuples wait; or the source cannot be reached, so that nobody knows
    SOMETHING = auto()
    #: a trigger has asked the source and it had nothing
    NOTHING = auto()
    #: a trigger is asking, or none has asked since the last batch
    UNKNOWN = auto()


class StreamClock:
    """Measures silence; one thread owns it.

    A stream is silent from the moment its last batch was answered, once a trigger has found nothing since; the
    time to the next trigger is no silence before that one has found nothing too. Starting, an outage, a batch
    at hand, a backlog and a trigger that hangs are none.

    Args:
        idle_seconds: silence that is longer counts; 0: none ever does.
        interval_seconds: time between two triggers.
        clock: monotonic time in seconds.
    """

    def __init__(
        self, idle_seconds: float, interval_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._idle_seconds = idle_seconds
        self._interval = interval_seconds
        self._clock = clock
        self._batches = 0
        #: silent since then; None: not known to be
        self._since: float | None = None
        #: when a trigger first found nothing
        self._asked: float | None = None
        #: when a look last found out something
        self._known = 0.0

    def restart(self) -> None:
        """Nobody has looked for a while: silence begins anew."""
        self._since = self._asked = None

    def look(self, batches: int, heard: Heard) -> float:
        """Takes a look.

        Args:
            batches: how many the stream has answered.
            heard: what its source says.

        Returns:
            Seconds of silence that have not been counted yet, once they are more than `idle_seconds`; else 0.
        """
        now = self._clock()
        if heard is Heard.SOMETHING or batches != self._batches:
            self._batches, self._since, self._asked, self._known = batches, now, None, now
            return 0.0
        if heard is Heard.UNKNOWN:
            if now - self._known > self._interval + max(self._idle_seconds, _HANGS_SECONDS):
                # a trigger that hangs says nothing of the time it hangs for
                self._since = self._asked = None
            return 0.0
        self._known = now
        if self._since is None:
            self._since = now
        if self._asked is None:
            self._asked = now
        asked = now if not self._interval else now - (now - self._asked) % self._interval
        silent = asked - self._since
        if not self._idle_seconds or silent <= self._idle_seconds:
            return 0.0
        self._since = asked
        return silent


class StreamTime:
    """What most of a stream's newest tuples say the time is, whatever the clock of this machine says.

    One tuple with a wrong clock says nothing: it takes a hundred tuples to say anything, and half of the newest
    thousand to move it.
    """

    def __init__(self) -> None:
        self._batches: deque[tuple[int, int]] = deque()
        self._tuples = 0

    def add(self, tuples: int, middle: int) -> None:
        """Takes in a batch: how many tuples have an event time, and their median, microseconds since the epoch."""
        self._batches.append((tuples, middle))
        self._tuples += tuples
        while self._tuples - self._batches[0][0] >= _REMEMBERED:
            self._tuples -= self._batches.popleft()[0]

    def with_batch(self, tuples: int, middle: int) -> StreamTime:
        """What would be known with one more batch; see `add`."""
        later = StreamTime()
        later._batches, later._tuples = self._batches.copy(), self._tuples
        later.add(tuples, middle)
        return later

    @property
    def middle(self) -> int | None:
        """The median event time of the newest tuples; None where they are too few to say."""
        return weighted_median(self._batches) if self._tuples >= _ENOUGH else None

    def share_after(self, moment: int) -> float:
        """Share of the newest tuples that are of batches whose median is after a moment."""
        return sum(tuples for tuples, middle in self._batches if middle > moment) / max(1, self._tuples)


def weighted_median(counted: Iterable[tuple[int, int]]) -> int | None:
    """The median of values that count several times each: (times, value) pairs; None where there are none."""
    known = sorted((value, times) for times, value in counted)
    total, passed = sum(times for _, times in known), 0
    for value, times in known:
        passed += times
        if 2 * passed >= total:
            return value
    return None
