"""What is put into a stream's log beside its batches, by one owner a stream: earlier batches, silence, the end.

Everything that reads the log finds the same entries there, however many lanes do.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from penstock.control.stream_clock import StreamClock
from penstock.settings import Settings
from penstock.spark.ingest.backfill import Backfill
from penstock.spark.ingest.query import IngestQuery
from penstock.spark.recovery.retries import Retries, told_of
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.layout import Layout
from penstock.trigger import Trigger

_LOOK_SECONDS = 0.2


class LogKeeper:
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
        self.ingest = ingest
        self._trigger = trigger
        self._clock = StreamClock(0 if trigger.is_bounded else settings.idle_seconds, ingest.interval_seconds)
        self._backfill = Backfill(spark, ingest, layout, events, settings)
        self._retries = Retries(
            ingest.stream,
            "log",
            settings,
            events,
            details=lambda: {"lane": f"{ingest.stream}.log"},
            is_endless=not trigger.is_bounded,
        )
        self._stopping = threading.Event()
        self._complete = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._keep, daemon=True, name=f"penstock-log-{ingest.stream}")

    def start(self) -> None:
        """Starts the thread that looks at the stream; what an earlier run said to be all there is is so no more."""
        self.ingest.log.put_more()
        self._backfill.start()
        self._thread.start()

    @property
    def stream(self) -> str:
        """The stream whose log it is."""
        return self.ingest.stream

    @property
    def active(self) -> bool:
        """Whether entries may still come."""
        return self._thread.is_alive()

    @property
    def is_complete(self) -> bool:
        """Whether the stream has come to its end in this run, and the log says so: no entry follows."""
        return self._complete.is_set()

    def prepare_stop(self) -> None:
        """Says that the ingest query is about to be stopped: that is no end of the stream."""
        self._stopping.set()

    def stop(self) -> None:
        """Stops looking, and breaks off the reading of earlier batches."""
        self._stopping.set()
        self._backfill.stop()
        if self._thread.ident is not None:
            self._thread.join()

    def await_termination(self, timeout_seconds: float) -> bool:
        """Waits for the last entry; False where the time ran out first.

        Raises:
            StreamFailedError: the log could not be written.
        """
        has_ended = self.join(timeout_seconds)
        if self._failure is not None:
            raise self._failure
        return has_ended

    def join(self, timeout_seconds: float) -> bool:
        """Likewise, whatever has ended it."""
        self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    @property
    def failed(self) -> Mapping[str, Any] | None:
        """What was told of the failure that has ended it, or None."""
        return told_of(self._failure, self._retries)

    def _keep(self) -> None:
        try:
            self._retries.run(self._attempt, self._stopping)
        except BaseException as error:
            self._failure = error

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
            self._retries.succeeded()

    @property
    def _is_to_end(self) -> bool:
        return self._trigger.is_bounded and not self._stopping.is_set() and self.ingest.ended_well
