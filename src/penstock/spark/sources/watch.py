"""Looks at the sources of a run every few seconds: outages are told while they last, and how far a stream lags."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from penstock.spark.sources.probes import Probe, SourceGoneError
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.store_paths import StorePath

_CLOSE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class SourceState:
    """What the newest look at a stream's source found.

    Attributes:
        is_reachable: whether the source is there; None before the first look, or where nobody can look.
        backlog: what is in the source and in no batch yet; None where nobody can tell.
        unit: what the backlog counts: `records` or `files`.
        told: what is wrong with a source that is out of reach.
        source: the source in words.
        topic: the topic it reads, where it is Kafka's.
    """

    is_reachable: bool | None = None
    backlog: int | None = None
    unit: str | None = None
    told: str | None = None
    source: str | None = None
    topic: str | None = None


@dataclass(slots=True, eq=False)
class _Watched:
    """A stream that is looked at; the thread of the watch owns all of it but `state`, which is replaced as a whole."""

    probe: Probe | None
    checkpoint: StorePath
    newest: Callable[[], int | None]
    state: SourceState
    away_since: float = 0.0
    told: tuple[Any, ...] = ()


class SourceWatch:
    """One thread a run.

    Args:
        events: where outages and lags are told.
        every_seconds: time between two looks; 0: never.
    """

    def __init__(self, events: EventLog, every_seconds: float) -> None:
        self._events = events
        self._every = every_seconds
        self._lock = threading.Lock()
        self._watched: dict[str, _Watched] = {}
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True, name="penstock-sources")

    def add(
        self, stream: str, probe: Probe | None, checkpoint: StorePath, newest: Callable[[], int | None]
    ) -> None:
        """Looks at a stream from now on.

        Args:
            stream: its name.
            probe: of its source; None where it cannot be looked at.
            checkpoint: Spark's own checkpoint of the stream.
            newest: gives its newest event time, microseconds, or None.
        """
        state = (
            SourceState()
            if probe is None
            else SourceState(None, None, probe.unit, None, probe.source, probe.topic)
        )
        with self._lock:
            self._watched[stream] = _Watched(probe, checkpoint, newest, state)
            if self._every and self._thread.ident is None:
                self._thread.start()

    def state(self, stream: str) -> SourceState:
        """What the newest look at a stream found."""
        with self._lock:
            watched = self._watched.get(stream)
            return watched.state if watched else SourceState()

    def close(self) -> None:
        """Ends the thread after a last look at what the streams, which have ended, have left; does not wait long for it."""
        self._closed.set()
        if self._thread.ident is not None:
            self._thread.join(_CLOSE_SECONDS)

    def _watch(self) -> None:
        while not self._closed.wait(self._every):
            with self._lock:
                watched = list(self._watched.items())
            for stream, each in watched:
                if not self._closed.is_set():
                    self._look(stream, each)
        with self._lock:
            watched = list(self._watched.items())
        for stream, each in watched:
            # a source that is away now is nobody's outage any more
            self._look(stream, each, is_last=True)
            if each.probe is not None:
                each.probe.close()

    def _look(self, stream: str, watched: _Watched, *, is_last: bool = False) -> None:
        probe, before = watched.probe, watched.state
        if probe is not None:
            state = _found(probe, watched.checkpoint, before)
            if is_last and not state.is_reachable:
                return
            if state.is_reachable is False and before.is_reachable is not False:
                watched.away_since = time.monotonic()
                self._events.record("source_unreachable", stream=stream, source=probe.source, told=state.told)
            elif state.is_reachable and before.is_reachable is False:
                away = round(time.monotonic() - watched.away_since, 1)
                self._events.record("source_reachable", stream=stream, source=probe.source, away_seconds=away)
            watched.state = state
        newest = watched.newest()
        told = (watched.state.backlog, newest)
        if told in (watched.told, (None, None)):
            return
        watched.told = told
        self._events.record(
            "lag",
            stream=stream,
            backlog=watched.state.backlog,
            unit=watched.state.unit,
            newest_event_time_us=newest,
            age_seconds=None if newest is None else round(time.time() - newest / 1e6, 1),
        )


def _found(probe: Probe, checkpoint: StorePath, before: SourceState) -> SourceState:
    try:
        backlog = probe.backlog(checkpoint)
    except SourceGoneError as error:
        return replace(before, is_reachable=False, backlog=None, told=str(error))
    except Exception:  # a look must never be what stops a run
        return replace(before, backlog=None)
    return replace(before, is_reachable=True, backlog=backlog, told=None)
