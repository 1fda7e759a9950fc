"""How far a stream has come while nothing comes: silence, told from everything that only looks like it."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import Enum, auto


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
    at hand and a backlog are none.

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
            self._batches, self._since, self._asked = batches, now, None
            return 0.0
        if heard is Heard.UNKNOWN:
            return 0.0
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
