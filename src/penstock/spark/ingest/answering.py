"""A batch of one stream answered: bound, run, published, and told."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from pyspark.sql import DataFrame

from penstock.control.stream_clock import weighted_median
from penstock.operators.ingest.arrivals import Arrived
from penstock.operators.ingest.stage_counts import StageCounts
from penstock.operators.windows.arrival_steps import StepTimes
from penstock.settings import Settings
from penstock.spark.ingest.arrived import ArrivalClock
from penstock.spark.ingest.batch_events import BatchEvents, Spent
from penstock.spark.ingest.compiling import CompiledPlan
from penstock.spark.ingest.figures import figures_of
from penstock.spark.ingest.plans import StreamPlans
from penstock.spark.ingest.time_limit import TimeLimit
from penstock.spark.ingest.totals import Totals
from penstock.spark.log.ingest_log import IngestLog
from penstock.spark.publication.compaction import tidying
from penstock.spark.publication.manifests import VIEW_PAIRS
from penstock.spark.publication.publish import Published, Publisher
from penstock.spark.publication.retention import FOREVER, Retention
from penstock.spark.publication.staged import files_of_reports
from penstock.spark.sources.file_watch import FileWatch
from penstock.spark.sources.source import BoundBatch, Source
from penstock.spark.storage.bindings import Believed
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.failpoints import failpoint
from penstock.spark.storage.layout import Layout, is_of_log
from penstock.spark.storage.ledger_documents import StoredDocument
from penstock.spark.storage.offsets import PlannedBatches, offsets_digest, refuse_others
from penstock.spark.tasks.worker import TaskReport


@dataclass(frozen=True, slots=True, eq=False)
class BatchDone:
    """A published batch, for the controller and the reporters.

    Attributes:
        stream, batch, plan: which batch, and the plan version it is bound to.
        counts: sums over its tasks.
        sample: uint32[attributes, tuples] region codes sampled by the tasks, or None.
    """

    stream: str
    batch: int
    plan: int
    counts: StageCounts
    sample: npt.NDArray[np.uint32] | None


@dataclass(frozen=True, slots=True, eq=False)
class _Ran:
    """A batch whose tasks have run: what they ran by, what each reported, and the sums of their counts."""

    bound: BoundBatch
    reports: list[TaskReport]
    counts: StageCounts


class BatchAnswerer:
    """Answers the batches of one stream, one after the other; the thread that Spark runs them in owns it.

    Args:
        stream: the stream's name.
        source: where its tuples come from.
        layout: output and checkpoint folders.
        events: the event log.
        settings: frozen settings.
        plans: what batches are bound to.
        log: gets an entry for each batch.
        time_limit: what the batches' event times are judged by.
        files: is told which batches are answered.
        published, on_batch: see `IngestQuery`.
        succeeded: called when a batch is published.
        retention: how long published rows are kept.
    """

    def __init__(
        self,
        stream: str,
        source: Source,
        layout: Layout,
        events: EventLog,
        settings: Settings,
        plans: StreamPlans,
        log: IngestLog,
        time_limit: TimeLimit,
        files: FileWatch,
        published: Callable[[], None],
        on_batch: Callable[[BatchDone], None],
        succeeded: Callable[[], None],
        retention: Retention = FOREVER,
    ) -> None:
        #: replaced as a whole: whoever reads it has a copy of one moment
        self.totals = Totals()
        #: the largest event time of the batches, microseconds
        self.newest_event_time: int | None = None
        self._stream = stream
        self._source = source
        self._layout = layout
        self._events = events
        self._settings = settings
        self._plans = plans
        self._log = log
        self._time_limit = time_limit
        self._files = files
        self._published = published
        self._on_batch = on_batch
        self._succeeded = succeeded
        self._publisher = Publisher(
            layout, stream, grace_seconds=settings.replaced_seconds, retention=retention
        )
        self._planned = PlannedBatches(layout.spark(stream))
        self._told = BatchEvents(stream, events)
        self._arrivals = ArrivalClock()
        #: event time that a place of the source brings, microseconds, see `BoundBatch.cut`
        self._pace: float | None = None

    def answer(self, df: DataFrame, batch: int) -> None:
        """Answers a batch, unless it is published already.

        Args:
            df: its records.
            batch: its number.

        Raises:
            CheckpointError: what is published of it does not fit what Spark plans.
        """
        began = time.perf_counter()
        offsets = offsets_digest(self._layout.spark(self._stream), batch)
        published = self._publisher.published(batch)
        if published is not None:
            self._repeat(published, offsets)
            return
        bound = self._bind(batch, offsets)
        bound_at = time.perf_counter()
        ran = self._run(df, bound)
        ran_at = time.perf_counter()
        failpoint("staged", batch)
        plan = self._plans.compiled(bound.program.version)
        figures = figures_of(batch, plan, offsets, ran.reports, ran.counts, self._plans.demanding)
        self._keep_pace(ran.bound, figures)
        arrived = self._arrivals.of(ran.bound, ran.counts)
        calls = plan.program.calls
        self._plans.calls.measured(calls, batch, ran.counts, ran_at - began)
        with self._entry(figures, ran.reports, arrived) as entry:
            puts = {**entry, **self._plans.calls.due(calls)}
            self._publisher.publish(batch, ran.reports, figures, puts=puts, expect=dict.fromkeys(entry))
        failpoint("manifest_written", batch)
        self._time_limit.add(figures)
        spent = Spent(bound_at - began, ran_at - bound_at, time.perf_counter() - ran_at)
        self._files.answered(ran.bound.stamps)
        self._tell(plan, ran, figures, spent)
        version = bound.program.version
        self._published()
        self._on_batch(BatchDone(self._stream, batch, version, ran.counts, _samples(ran.reports)))
        self._tidy(batch)

    def close(self) -> None:
        """Waits until nothing is written any more; no batch is answered afterwards."""
        self._publisher.close()

    def _bind(self, batch: int, offsets: str | None) -> BoundBatch:
        bound = self._plans.batch(batch, self._publisher.begin(batch), self._log.floor, offsets)
        bound.checkpoint = self._layout.spark(self._stream)
        bound.pace = self._pace
        return bound

    def _run(self, df: DataFrame, bound: BoundBatch) -> _Ran:
        """Runs the batch's jobs, a second time where its own tuples show that it was judged wrongly."""
        with ThreadPoolExecutor(1, "penstock-sync") as beside:
            synced = beside.submit(self._planned.sync, bound.number)
            ran = self._run_once(df, bound)
        synced.result()
        believed = self._believed_after(bound, ran.counts)
        if believed is None:
            return ran
        # the clock is behind the batch, and tuples were kept from windows for it
        self._publisher.begin(bound.number)
        return self._run_once(df, self._plans.judge_again(bound, believed))

    def _run_once(self, df: DataFrame, bound: BoundBatch) -> _Ran:
        reports = self._source.run(df, bound)
        counts = sum((report.counts for report in reports), StageCounts.none(bound.program))
        return _Ran(bound, reports, counts)

    def _believed_after(self, bound: BoundBatch, counts: StageCounts) -> Believed | None:
        """What a batch should have been judged by that lost tuples to its limit; None where that was right."""
        middle = weighted_median(counts.middles)
        if middle is None or not counts.future_event_times:
            return None
        timed = sum(times for times, _ in counts.middles)
        return self._time_limit.corrected(bound.number, bound.time_limit, timed, middle)

    def _repeat(self, published: Published, offsets: str | None) -> None:
        """Takes note of a batch that is published already."""
        # by this run's start before, or by a run that has taken over
        self._layout.ledger.writer.commit()
        refuse_others(self._stream, published.figures, offsets, self._layout.spark(self._stream))
        # of one that was merged long ago this was done for later batches too
        if published.files is not None:
            self._files.answered({})

    def _keep_pace(self, bound: BoundBatch, figures: dict[str, Any]) -> None:
        """Keeps what event time a place of the source brings: what the newest batch showed, or half of what those before did."""
        newest, last = figures["newest_event_time_us"], self._log.last
        if not bound.places or newest is None:
            return
        before = None if last is None else last.newest
        moved = max(0, newest - (figures["oldest_event_time_us"] if before is None else before))
        self._pace = max(moved / bound.places, (self._pace or 0.0) / 2)

    def _entry(
        self, figures: dict[str, Any], reports: list[TaskReport], arrived: Arrived
    ) -> AbstractContextManager[dict[StoredDocument, dict[str, Any]]]:
        """The entry of the log that the commit of a batch puts, see `IngestLog.batch_entry`."""
        times = {
            which: figures.get(f"{which}_event_time_us")
            for which in ("oldest", "oldest_recent", "newest", "furthest")
        }
        named: dict[str, list[str]] = {}
        for file in files_of_reports(reports):
            if is_of_log(file.kind):
                named.setdefault(file.kind, []).append(file.name)
        steps = {step: StepTimes(*found) for step, *found in figures.get("arrival_steps", ())}
        return self._log.batch_entry(
            figures["batch"], figures["plan"], files=named, steps=steps, arrived=arrived, **times
        )

    def _tell(self, plan: CompiledPlan, ran: _Ran, figures: dict[str, Any], spent: Spent) -> None:
        self._told.set_aside(figures["batch"], [each for report in ran.reports for each in report.set_aside])
        self._succeeded()
        newest = ran.counts.newest_event_time
        if newest is not None:
            known = self.newest_event_time
            self.newest_event_time = newest if known is None else max(known, newest)
        self.totals = self.totals.plus(
            ran.counts,
            figures[VIEW_PAIRS],
            figures["quarantined"],
            figures["errors"],
            figures["rows_set_aside"],
            spent.whole,
        )
        self._told.published(figures, ran.counts, spent, plan.raising(figures["errors"]))

    def _tidy(self, batch: int) -> None:
        every = self._settings.compact_every_batches
        compacted = self._publisher.compact_if_due(batch, every, self._events)
        if compacted is not None:
            self._told.compacted(*compacted)
            with tidying(self._events, self._stream, batch):
                self._plans.forget(compacted[1] + 1)


def _samples(reports: list[TaskReport]) -> npt.NDArray[np.uint32] | None:
    samples = [report.sample for report in reports if report.sample is not None]
    return np.concatenate(samples, axis=1) if samples else None
