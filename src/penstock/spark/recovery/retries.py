"""Trying again what can pass by itself: bounded, after waits that grow; each retry and the final failure are told."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.errors import StreamFailedError
from penstock.settings import Settings
from penstock.spark.recovery.causes import Cause, cause_of
from penstock.spark.storage.events import EventLog

_MOST_SECONDS = 30.0
#: the one part without which a stream goes on
_BESIDE = "backfill"


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
        stream: the stream's name.
        part: `ingest`, `log`, `backfill` or a lane's, for the events.
        settings: how often and after what wait.
        events: where retries and the failure are told.
        name_it: adds to a cause what the stream knows: views, topic, folder.
        details: fields of these events.
    """

    def __init__(
        self,
        stream: str,
        part: str,
        settings: Settings,
        events: EventLog,
        name_it: Callable[[Cause], Cause] = lambda cause: cause,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        self._details = dict(details or {})
        self._stream = stream
        self._part = part
        self._most = settings.retry_attempts
        self._first_seconds = settings.retry_seconds
        self._events = events
        self._name_it = name_it
        self._lock = threading.Lock()
        self._tried = 0
        self._pending: Retry | None = None

    @property
    def pending(self) -> Retry | None:
        """The retry that has not led to anything yet, or None."""
        with self._lock:
            return self._pending

    def succeeded(self) -> None:
        """Counts attempts anew."""
        with self._lock:
            self._tried = 0
            self._pending = None

    def run(self, attempt: Callable[[], None], stopping: threading.Event) -> None:
        """Makes attempts until one returns or `stopping` is set.

        Raises:
            StreamFailedError: the cause of the last attempt's exception cannot pass, or too many were made.
        """
        while True:
            try:
                attempt()
            except Exception as error:
                if stopping.is_set():
                    return
                cause = self._name_it(cause_of(error))
                retry = self._next(cause)
                if retry is None:
                    raise self._failure(cause) from error
            else:
                return
            self._events.record(
                {True: "stream_retried", False: "backfill_retried"}[self._part != _BESIDE],
                stream=self._stream,
                part=self._part,
                **self._details,
                cause=cause.kind,
                told=cause.told,
                attempt=retry.attempt,
                wait_seconds=retry.seconds,
            )
            if stopping.wait(retry.seconds):
                return

    def _next(self, cause: Cause) -> Retry | None:
        with self._lock:
            if not cause.is_transient or self._tried >= self._most:
                return None
            seconds = min(_MOST_SECONDS, self._first_seconds * 2.0**self._tried)
            self._tried += 1
            self._pending = Retry(cause, self._tried, seconds)
            return self._pending

    def _failure(self, cause: Cause) -> StreamFailedError:
        again = (
            f"; tried again {'once' if self._tried == 1 else f'{self._tried} times'}" if self._tried else ""
        )
        self._events.record(
            {True: "run_failed", False: "backfill_failed"}[self._part != _BESIDE],
            stream=self._stream,
            part=self._part,
            **self._details,
            cause=cause.kind,
            told=cause.told + again,
            **{
                name: value
                for name in ("view", "function", "file", "topic")
                if (value := getattr(cause, name)) is not None
            },
        )
        what = "stream" if self._part == "ingest" else f"the {self._part} of stream"
        return StreamFailedError(f"{what} {self._stream} stopped: {cause.told}{again}")
