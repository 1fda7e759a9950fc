"""The window lane: the window views of one stream, answered by its keyed query."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from penstock.errors import StoppedOutsideError
from penstock.spark.ingest.log_keeper import LogKeeper
from penstock.spark.lanes.lane import Lane, LaneContext
from penstock.spark.lanes.windows.query import WINDOWS, KeyedDone, KeyedQuery
from penstock.spark.publication.kinds import results_of
from penstock.spark.reporting.status_file import StatusFile
from penstock.spark.results import read as results

_LOOK_SECONDS = 0.2


class WindowLane(Lane):
    """Runs the keyed query of a stream; Spark's own plan of its batches are the cuts.

    Args:
        context: the run's.
        stream: the stream.
    """

    part = "windows"

    def __init__(self, context: LaneContext, stream: LogKeeper) -> None:
        super().__init__(results_of(stream.ingest.stream), context, [stream])
        self._ingest = stream.ingest
        self._counting = threading.Lock()
        self._totals: Counter[str] = Counter()
        self._overflowed: Counter[str] = Counter()
        self.keyed = KeyedQuery(
            context.spark,
            stream.ingest.stream,
            context.layout,
            context.events,
            context.settings,
            self._answered,
            self._copy,
            context.run,
            rows=context.rows,
        )
        self.publisher = self.keyed.publisher

    @property
    def reader(self) -> str:
        """The same in the log of every stream."""
        return WINDOWS

    @property
    def views(self) -> Sequence[str]:
        """The window views of the stream."""
        return list(self._ingest.plans.windows)

    def recount(self, status: StatusFile) -> None:
        """Nothing: its batches are counted with those of its stream."""

    def status(self) -> dict[str, Any]:
        """Windows told so far, by what was told of them, and rows with a sum that does not fit its type, by view."""
        with self._counting:
            return {"windows": dict(self._totals), "overflowed": dict(self._overflowed)}

    def _answered(self, done: KeyedDone) -> None:
        self.retries.succeeded()
        with self._counting:
            for view, counts in done.views.items():
                self._totals.update(asdict(counts))
                self._overflowed[view] += counts.overflowed

    def _copy(self, stream: str, batch: int, files: Sequence[Mapping[str, Any]]) -> None:
        """Hands a published batch to the sinks of its views."""
        for sink in self.context.sinks():
            if sink.view in self._ingest.plans.windows:
                rows = results.batch_changes(
                    self.context.spark, self.context.layout, stream, sink.view, batch, files
                )
                if rows is not None:
                    sink.take(rows, batch)

    def _halt(self) -> None:
        self.keyed.stop()

    def _attempt(self) -> None:
        self.keyed.start(rests=self.context.trigger.is_bounded)
        try:
            self._follow()
        except BaseException:
            self.keyed.stop()
            raise

    def _follow(self) -> None:
        while not self._stopping.wait(_LOOK_SECONDS):
            if not self.keyed.active:
                self.keyed.await_termination()
                self._refuse_stopped()
                return
            if not self._is_fed:
                break
        last = self._ingest.log.last
        if self._is_to_end and last is not None:
            if not self.keyed.finish(last.number):
                self._refuse_stopped()
            return
        self.keyed.stop()

    def _refuse_stopped(self) -> None:
        if not self._stopping.is_set():
            raise StoppedOutsideError("another program stopped Spark's query")
