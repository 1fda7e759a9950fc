"""What is put into a stream's log beside its batches, by one owner a stream: silence, views that no batch came for, the end.

Everything that reads the log finds the same entries there, however many lanes do.
"""

from __future__ import annotations

import threading

from penstock.control.stream_clock import StreamClock
from penstock.settings import Settings
from penstock.spark.ingest.query import IngestQuery
from penstock.spark.publication.manifests import read_published
from penstock.spark.recovery.retried_thread import RetriedThread
from penstock.spark.recovery.retries import Retries
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.layout import Layout
from penstock.trigger import Trigger

_LOOK_SECONDS = 0.2


class LogKeeper(RetriedThread):
    """Runs beside an ingest query from the first lane on that reads its log.

    Args:
        ingest: the stream's ingest query, which is started.
        layout: output and checkpoint folders.
        events: the event log.
        settings: frozen settings.
        trigger: when the ingest query stops by itself, and whether the stream has ended then.
    """

    def __init__(
        self,
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
        self._layout = layout
        self._held: tuple[threading.Event, ...] = ()
        #: set when the stream has come to its end, and every view has begun that will in this run
        self.has_begun_all = threading.Event()
        self._complete = threading.Event()

    def start(self) -> None:
        """Starts the thread that looks at the stream; what an earlier run said to be all there is is so no more."""
        self.ingest.log.put_more()
        super().start()

    def hold(self) -> threading.Event:
        """For somebody who puts entries of its own: the log is not complete before the event that is returned is set."""
        self._held = (*self._held, threading.Event())
        return self._held[-1]

    @property
    def stream(self) -> str:
        """The stream whose log it is."""
        return self.ingest.stream

    @property
    def is_complete(self) -> bool:
        """Whether the stream has come to its end in this run, and the log says so: no entry follows."""
        return self._complete.is_set()

    def stop(self) -> None:
        """Stops looking."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _attempt(self) -> None:
        self._clock.restart()
        while not (self._stopping.is_set() or self.ingest.ends_within(_LOOK_SECONDS)):
            self._look()
        if self._is_to_end:
            self._begin_views()
            self.has_begun_all.set()
            while not (self._stopping.is_set() or all(each.wait(_LOOK_SECONDS) for each in self._held)):
                pass
        # whoever stops the run meanwhile has made the ingest query's end no end of the stream
        if self._is_to_end:
            if self.ingest.has_ended:
                self.ingest.log.put_end()
            else:
                self.ingest.log.put_all()
            self._complete.set()
            # lanes that have met the last entry learn that none follows
            self.ingest.log.on_put()

    def _begin_views(self) -> None:
        """Lets views that no batch has come for begin behind the last one."""
        last = read_published(self._layout, self.stream).last
        version = self.ingest.plans.begin(last + 1) if last >= 0 else None
        if version is not None:
            self.ingest.log.put_views(last, version)

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
