"""The window views of one stream while it runs: its keyed query, the end of the stream, and idle time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql import SparkSession

from penstock.errors import SlowStartError
from penstock.settings import Settings
from penstock.spark.events import EventLog
from penstock.spark.ingest import IngestQuery
from penstock.spark.keyed_query import KeyedDone, KeyedQuery
from penstock.spark.layout import Layout

_LOOK_SECONDS = 0.2
#: a machine that has other things to do may be too slow to start Spark's Python processes, at first
_MOST_STARTS = 5


class WindowSide:
    """Runs beside an ingest query from its first window view on.

    Args:
        spark: the session.
        ingest: the stream's ingest query.
        layout: output and checkpoint folders.
        events: the event log.
        settings: frozen settings.
        on_batch: told of each published batch of results.
        sinks: see `KeyedQuery`.
        ends: whether every window becomes final when the ingest query has ended by itself.
    """

    def __init__(
        self,
        spark: SparkSession,
        ingest: IngestQuery,
        layout: Layout,
        events: EventLog,
        settings: Settings,
        on_batch: Callable[[KeyedDone], None],
        sinks: Callable[[str, int, Sequence[Mapping[str, Any]]], None],
        ends: bool,
    ) -> None:
        self._ingest = ingest
        self._events = events
        self._idle_seconds = settings.idle_seconds
        self._ends = ends
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self.keyed = KeyedQuery(spark, ingest.stream, layout, events, settings, on_batch, sinks)
        self._thread = threading.Thread(target=self._accompany, daemon=True, name="penstock-windows")

    def start(self) -> None:
        """Starts the keyed query."""
        self.keyed.start(rests=self._ends)
        self._thread.start()

    @property
    def active(self) -> bool:
        """Whether results may still come."""
        return self._thread.is_alive()

    def prepare_stop(self) -> None:
        """Says that the ingest query is about to be stopped: that is no end of the stream."""
        self._stopping.set()

    def stop(self) -> None:
        """Stops the keyed query; what is in the log is answered at the next start."""
        self._stopping.set()
        self.keyed.stop()
        if self._thread.ident is not None:
            self._thread.join()

    def await_termination(self, timeout_seconds: float) -> bool:
        """Waits for the end; False where the time ran out first.

        Raises:
            StreamFailedError: something stopped the keyed query.
        """
        self._thread.join(timeout_seconds)
        if self._failure is not None:
            raise self._failure
        return not self._thread.is_alive()

    def _accompany(self) -> None:
        try:
            for _ in range(_MOST_STARTS - 1):
                try:
                    self._follow()
                except SlowStartError as error:
                    if self._stopping.is_set():
                        return
                    self._events.record("windows_restarted", stream=self._ingest.stream, reason=str(error))
                    self.keyed.start(rests=self._ends)
                else:
                    return
            self._follow()
        except BaseException as error:
            self._failure = error

    def _follow(self) -> None:
        seen, since = self._ingest.totals.tuples, time.monotonic()
        while not self._stopping.wait(_LOOK_SECONDS):
            if not self.keyed.active:
                self.keyed.await_termination()
                return
            if not self._ingest.active:
                break
            if self._ingest.totals.tuples != seen:
                seen, since = self._ingest.totals.tuples, time.monotonic()
            if self._ingest.busy:
                since = time.monotonic()
            idle = time.monotonic() - since
            if self._idle_seconds and not self._ends and idle > self._idle_seconds:
                since += idle
                last = self._ingest.log.last
                if last is not None and last.newest is not None:
                    self._ingest.log.put_idle(last.newest + int(idle * 1e6))
        if self._ends and not self._stopping.is_set() and self._ingest.ended_well:
            self._ingest.log.put_end()
            last = self._ingest.log.last
            if last is not None:
                self.keyed.finish(last.batch, last.mark)
                return
        self.keyed.stop()
