"""Trying again what failed, after waits that grow; each retry, the recovery and the final failure are told.

The ingest query and whatever else must come to an end is tried again a bounded number of times, and only where the cause can pass. A lane of
a run that goes on is tried again for as long as the run goes on, whatever the cause: its views wait, and nothing else does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.errors import StreamFailedError
from penstock.settings import Settings
from penstock.spark.recovery.causes import (
    SESSION_ENDED,
    SLOW_START,
    STOPPED_OUTSIDE,
    TAKEN_OVER,
    Cause,
    cause_of,
)
from penstock.spark.storage.events import EventLog

_MOST_SECONDS = 30.0
#: the longest wait after a cause that somebody has to mend first
_SELDOM_SECONDS = 300.0
#: a machine too busy to start a process says nothing against what was to run there, unless it stays so
_BUSY_SECONDS = 3_600.0
#: how long a stop may follow the end of the session that it is the reason of
_STOP_SECONDS = 3.0
#: causes that no attempt ever ends
FOR_GOOD = (SESSION_ENDED, STOPPED_OUTSIDE, TAKEN_OVER)


@dataclass(frozen=True, slots=True)
class Retry:
    """Something is about to be tried again.

    Attributes:
        cause: why.
        attempt: the how many-eth time, from 1.
        seconds: how long is waited before.
    """

    cause: Cause
    attempt: int
    seconds: float


class Retries:
    """Runs one part of a stream until it ends well, is stopped, or fails for good.

    Args:
        stream: the stream's name; of a sink its own.
        part: `ingest`, `log`, `sink` or a lane's, for the events.
        settings: how often and after what wait.
        events: where retries and the failure are told.
        name_it: adds to a cause what the stream knows: views, topic, folder.
        details: gives further fields of these events.
        is_endless: whether it is tried again whatever fails and however often.
        kind: of the part, for the names of its events; None: that of a lane, unless it is another by its name.
    """

    def __init__(
        self,
        stream: str,
        part: str,
        settings: Settings,
        events: EventLog,
        name_it: Callable[[Cause], Cause] = lambda cause: cause,
        details: Callable[[], Mapping[str, Any]] = dict,
        is_endless: bool = False,
        kind: str | None = None,
    ) -> None:
        self._details = details
        self._stream = stream
        self._part = part
        self._kind = kind or (part if part in ("ingest", "backfill", "sink") else "lane")
        self._most = settings.retry_attempts
        self._first_seconds = settings.retry_seconds
        self._events = events
        self._name_it = name_it
        self._is_endless = is_endless
        self._lock = threading.Lock()
        self._tried = self._counted = 0
        self._since = 0.0
        self._pending: Retry | None = None
        #: what was told of the final failure
        self.failed: Mapping[str, Any] | None = None

    @property
    def pending(self) -> Retry | None:
        """The retry that has not led to anything yet, or None."""
        with self._lock:
            return self._pending

    def succeeded(self) -> None:
        """Counts attempts anew."""
        with self._lock:
            pending, self._pending = self._pending, None
            self._tried = self._counted = 0
        if pending is not None and self._kind in ("lane", "view", "sink"):
            self._events.record(
                {"lane": "lane_back", "view": "view_back", "sink": "sink_back"}[self._kind],
                **self._fields(),
                attempt=pending.attempt,
            )

    def run(self, attempt: Callable[[], None], stopping: threading.Event) -> None:
        """Makes attempts until one returns or `stopping` is set.

        Raises:
            StreamFailedError: nothing helps against the cause of the last attempt's exception, or too many were made.
        """
        while True:
            try:
                attempt()
            except Exception as error:
                if stopping.is_set():
                    return
                cause = cause_of(error)
                if cause.kind == SESSION_ENDED and stopping.wait(_STOP_SECONDS):
                    # who ends Spark's Java process by a signal has sent it to this one too
                    return
                retry = self.count(cause)
                if retry is None:
                    raise self.failure from error
            else:
                if not stopping.is_set():
                    self.succeeded()
                return
            if stopping.wait(retry.seconds):
                return

    def count(self, cause: Cause) -> Retry | None:
        """Counts an attempt that failed, and records that; None where no other is made: see `failed` and `failure`."""
        cause = self._name_it(cause)
        retry = self._next(cause)
        if retry is None:
            self._fail(cause)
            return None
        self._events.record(
            {
                "ingest": "stream_retried",
                "backfill": "backfill_retried",
                "lane": "lane_retried",
                "view": "view_retried",
                "sink": "sink_retried",
            }[self._kind],
            **self._fields(),
            cause=cause.kind,
            told=cause.told,
            attempt=retry.attempt,
            wait_seconds=retry.seconds,
        )
        return retry

    def _next(self, cause: Cause) -> Retry | None:
        with self._lock:
            now = time.monotonic()
            if not self._tried:
                self._since = now
            if not self._may_try(cause, now - self._since):
                return None
            is_soon = cause.is_transient or self._part == "sink"
            longest = _MOST_SECONDS if is_soon else _SELDOM_SECONDS
            seconds = min(longest, self._first_seconds * 2.0 ** min(self._tried, 64))
            self._tried += 1
            self._pending = Retry(cause, self._tried, seconds)
            return self._pending

    def _may_try(self, cause: Cause, seconds: float) -> bool:
        """Whether it is worth while to try again, so many seconds after the first failure."""
        if cause.kind in FOR_GOOD:
            return False
        if self._is_endless or (cause.kind == SLOW_START and seconds < _BUSY_SECONDS):
            return True
        self._counted += 1
        return cause.is_transient and self._counted <= self._most

    def _fields(self) -> dict[str, Any]:
        own = {} if self._part == "sink" else {"stream": self._stream}
        return {**own, "part": self._part, **self._details()}

    def _fail(self, cause: Cause) -> None:
        again = f"; retried {'once' if self._tried == 1 else f'{self._tried} times'}" if self._tried else ""
        named = {
            name: value
            for name in ("view", "function", "file", "topic")
            if (value := getattr(cause, name)) is not None
        }
        fields = self._fields()
        self.failed = {**fields, "cause": cause.kind, "told": cause.told + again, **named}
        self._events.record(
            {
                "ingest": "run_failed",
                "backfill": "backfill_failed",
                "lane": "lane_failed",
                "view": "view_failed",
                "sink": "sink_failed",
            }[self._kind],
            **self.failed,
        )

    @property
    def failure(self) -> StreamFailedError:
        """What is raised once no other attempt is made."""
        assert self.failed is not None, "attempts are made"
        told = self.failed["told"]
        if self._part == "sink":
            return StreamFailedError(told)
        what = "stream" if self._part == "ingest" else f"the {self._part} of stream"
        return StreamFailedError(f"{what} {self._stream} stopped: {told}")


def told_of(failure: BaseException | None, retries: Retries) -> Mapping[str, Any] | None:
    """What is told of the failure that has ended a part: `told` and fields of its event; None where none has."""
    if failure is None:
        return None
    return retries.failed or {"cause": "failed", "told": f"{type(failure).__name__}: {failure}"}
