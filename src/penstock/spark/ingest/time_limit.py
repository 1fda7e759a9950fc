"""Up to which event time the tuples of a batch are believed, by this machine's clock and by the stream itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from penstock.control.stream_clock import StreamTime
from penstock.settings import Settings
from penstock.spark.publication.manifests import read_published
from penstock.spark.storage.bindings import Believed
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.layout import Layout

#: a stream that the clock is behind of may be a backlog of days: tuples are kept so far beyond its limit, microseconds
_KEPT_OF_A_BACKLOG = 366 * 86_400 * 1_000_000


class TimeLimit:
    """Gives the limit of each batch of one stream; the thread of the batches owns it.

    Args:
        layout: output and checkpoint folders; what the published batches said is read from their manifests.
        stream: the stream's name.
        settings: frozen settings.
        events: the event log.
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        layout: Layout,
        stream: str,
        settings: Settings,
        events: EventLog,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._stream = stream
        self._ahead = int(settings.max_clock_ahead_seconds * 1e6)
        self._kept_ahead = int(settings.max_delay_seconds * 1e6)
        self._events = events
        self._clock = clock
        self._time = StreamTime()
        self._is_behind = False
        for stretch in read_published(layout, stream).stretches:
            if stretch.timed and stretch.middle is not None:
                self._time.add(stretch.timed, stretch.middle)

    def add(self, figures: Mapping[str, Any]) -> None:
        """Takes in what a published batch counted."""
        if figures.get("timed_tuples"):
            self._time.add(figures["timed_tuples"], figures["middle_event_time_us"])

    def of(self, batch: int) -> Believed:
        """What a batch that is about to be bound is judged by.

        Where most of the stream is further ahead of the clock than a tuple may be, the clock is wrong: that is told,
        and the stream's own time takes its place.
        """
        return self._judged(batch, self._time)

    def corrected(self, batch: int, limit: int, tuples: int, middle: int) -> Believed | None:
        """What a batch should have been judged by, once it is known what it says itself; None where all was well.

        Args:
            batch: its number; it is not published.
            limit: the limit it was judged by.
            tuples, middle: how many of it have an event time, and their median, microseconds.
        """
        later = self._time.with_batch(tuples, middle)
        return self._judged(batch, later) if later.middle is not None and later.middle > limit else None

    def _judged(self, batch: int, stream: StreamTime) -> Believed:
        now = int(self._clock() * 1e6)
        middle = stream.middle
        is_behind = middle is not None and middle > now + self._ahead
        if is_behind and not self._is_behind:
            assert middle is not None, "it is after the clock"
            self._events.record(
                "clock_behind",
                stream=self._stream,
                batch=batch,
                seconds=round((middle - now) / 1e6, 1),
                share=round(stream.share_after(now + self._ahead), 4),
            )
        self._is_behind = is_behind
        kept_ahead = max(self._kept_ahead, _KEPT_OF_A_BACKLOG) if is_behind else self._kept_ahead
        return Believed(max(now, now if middle is None else middle) + self._ahead, kept_ahead)
