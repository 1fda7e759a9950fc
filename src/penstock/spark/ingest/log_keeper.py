"""What is put into a stream's log beside its batches, by one owner a stream: earlier batches, silence, the end.

Everything that reads the log finds the same entries there, however many lanes do.
"""

from __future__ import annotations

import threading

from pyspark.sql import SparkSession

from penstock.control.stream_clock import StreamClock
from penstock.settings import Settings
from penstock.spark.ingest.backfill import Backfill
from penstock.spark.ingest.query import IngestQuery
from penstock.spark.recovery.retried_thread import RetriedThread
from penstock.spark.recovery.retries import Retries
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.layout import Layout
from penstock.trigger import Trigger

_LOOK_SECONDS = 0.2


class LogKeeper(RetriedThread):
    """Runs beside an ingest query from the first lane on that reads its log.

    Args:
        spark: the session.
        ingest: the stream's ingest query, which is started.
        layout: output and checkpoint folders.
        events: the event log.
        settings: frozen settings.
        trigger: when the ingest query stops by itself, and whether the stream has ended then.
    """

    def __init__(
        self,
        spark: SparkSession,
        ingest: IngestQuery,
        layout: Layout,
        events: EventLog,
        settings: Settings,
        trigger: Trigger,
    ) -> None:
        retries = Retries(
            ingest.stream,
            "log",
            settings,
            events,
            details=lambda: {"lane": f"{ingest.stream}.log"},
            is_endless=not trigger.is_bounded,
        )
        super().__init__(f"penstock-log-{ingest.stream}", retries)
        self.ingest = ingest
        self._trigger = trigger
        self._clock = StreamClock(0 if trigger.is_bounded else settings.idle_seconds, ingest.interval_seconds)
        self._backfill = Backfill(spark, ingest, layout, events, settings)
        self._complete = threading.Event()

    def start(self) -> None:
        """Starts the thread that looks at the stream; what an earlier run said to be all there is is so no more."""
        self.ingest.log.put_more()
        self._backfill.start()
        super().start()

    @property
    def stream(self) -> str:
        """The stream whose log it is."""
        return self.ingest.stream

    @property
    def is_complete(self) -> bool:
        """Whether the stream has come to its end in this run, and the log says so: no entry follows."""
        return self._complete.is_set()

    def stop(self) -> None:
        """Stops looking, and breaks off the reading of earlier batches."""
        self._stopping.set()
        self._backfill.stop()
        if self._thread.ident is not None:
            self._thread.join()

    def _attempt(self) -> None:
        self._clock.restart()
        while not self._stopping.wait(_LOOK_SECONDS) and self.ingest.active:
            self._look()
        if self._is_to_end:
            self._backfill.finish()
        # whoever stops the run meanwhile has made the ingest query's end no end of the stream
        if self._is_to_end:
            if self.ingest.has_ended:
                self.ingest.log.put_end()
            else:
                self.ingest.log.put_all()
            self._complete.set()

    def _look(self) -> None:
        log = self.ingest.log
        is_put = self.ingest.has_ended and log.put_end()
        silent = self._clock.look(self.ingest.totals.batches, self.ingest.listen())
        last = log.last
        if silent and last is not None and last.reached_or_newest is not None:
            is_put |= log.put_idle(last.reached_or_newest + int(silent * 1e6))
        if is_put:
            self.retries.succeeded()

    @property
    def _is_to_end(self) -> bool:
        return self._trigger.is_bounded and not self._stopping.is_set() and self.ingest.ended_well
