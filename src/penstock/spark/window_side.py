"""The window views of one stream while it runs: its keyed query, the end of the stream, and idle time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql import SparkSession

from penstock.control.stream_clock import StreamClock
from penstock.errors import StoppedOutsideError
from penstock.settings import Settings
from penstock.spark.backfill import Backfill
from penstock.spark.events import EventLog
from penstock.spark.ingest import IngestQuery, Trigger
from penstock.spark.keyed_query import KeyedDone, KeyedQuery
from penstock.spark.layout import Layout
from penstock.spark.retries import Retries

_LOOK_SECONDS = 0.2


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
        trigger: when the ingest query stops by itself, and whether the stream has ended then.
        name: see `IngestQuery`.
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
        trigger: Trigger,
        name: str = "penstock",
    ) -> None:
        self._ingest = ingest
        self._trigger = trigger
        self._clock = StreamClock(
            0 if trigger.available_now else settings.idle_seconds, ingest.interval_seconds
        )
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._backfill = Backfill(spark, ingest, layout, events, settings)
        self.retries = Retries(ingest.stream, "windows", settings, events)

        def answered(done: KeyedDone) -> None:
            self.retries.succeeded()
            on_batch(done)

        self.keyed = KeyedQuery(spark, ingest.stream, layout, events, settings, answered, sinks, name)
        self._thread = threading.Thread(target=self._accompany, daemon=True, name="penstock-windows")

    def start(self) -> None:
        """Starts the thread that starts the keyed query, and starts it again where that helps."""
        self._backfill.start()
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
        self._backfill.stop()
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
            self.retries.run(self._attempt, self._stopping)
        except BaseException as error:
            self._failure = error

    def _attempt(self) -> None:
        self.keyed.start(rests=self._trigger.available_now)
        try:
            self._follow()
        except BaseException:
            # what failed may be the log of the ingest query, beside a keyed query that runs well
            self.keyed.stop()
            raise

    def _follow(self) -> None:
        self._clock.restart()
        while not self._stopping.wait(_LOOK_SECONDS):
            if not self.keyed.active:
                self.keyed.await_termination()
                self._refuse_stopped()
                return
            if not self._ingest.active:
                break
            if self._ingest.has_ended:
                self._ingest.log.put_end()
            silent = self._clock.look(self._ingest.totals.batches, self._ingest.listen())
            last = self._ingest.log.last
            if silent and last is not None and last.reached_or_newest is not None:
                self._ingest.log.put_idle(last.reached_or_newest + int(silent * 1e6))
        if self._trigger.available_now and not self._stopping.is_set() and self._ingest.ended_well:
            self._backfill.finish()
        if self._trigger.available_now and not self._stopping.is_set() and self._ingest.ended_well:
            if self._ingest.has_ended:
                self._ingest.log.put_end()
            else:
                self._ingest.log.put_all()
            last = self._ingest.log.last
            if last is not None:
                if not self.keyed.finish(last.batch, last.mark):
                    self._refuse_stopped()
                return
        self.keyed.stop()

    def _refuse_stopped(self) -> None:
        if not self._stopping.is_set():
            raise StoppedOutsideError("Spark's query was stopped from outside")
