"""The ingest query of one stream: its streaming query, started, watched over, started again, and ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.control.stream_clock import Heard
from penstock.settings import Settings
from penstock.spark.ingest.answering import BatchAnswerer, BatchDone
from penstock.spark.ingest.beginnings import Beginnings
from penstock.spark.ingest.causes import with_source, with_views
from penstock.spark.ingest.compiling import NO_FUNCTIONS, CompiledPlan
from penstock.spark.ingest.continuity import refuse_lost
from penstock.spark.ingest.plans import StreamPlans
from penstock.spark.ingest.time_limit import TimeLimit
from penstock.spark.ingest.totals import Totals
from penstock.spark.log.ingest_log import IngestLog
from penstock.spark.log.shards import fixed_shards
from penstock.spark.publication.kinds import running_of
from penstock.spark.publication.retention import FOREVER, Retention
from penstock.spark.recovery.causes import Cause
from penstock.spark.recovery.retries import Retries
from penstock.spark.recovery.supervisor import Supervisor, stop_all
from penstock.spark.results.bound_views import store_views
from penstock.spark.sessions.file_systems import hadoop_path
from penstock.spark.sources.file_watch import FileWatch
from penstock.spark.sources.source import Source
from penstock.spark.sources.watch import SourceState
from penstock.spark.storage.bindings import PlanLog, ViewDefinition, WindowDefinition
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.failpoints import failpoint
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.spark_checksums import check_metadata
from penstock.spark.storage.spark_files import drop_unbegun, numbered
from penstock.trigger import Trigger

#: a batch whose tuples may wait rests so many times as long as the one before it took
_RESTS = 3.0


def resting_seconds(took: float, most: float) -> float:
    """How long no further batch begins, so that more tuples share the next one.

    Args:
        took: the batch before, seconds.
        most: seconds that tuples may wait from the beginning of that batch on.
    """
    return max(0.0, min(_RESTS * took, most - took))


class IngestQuery:
    """Runs one stream.

    Args:
        spark: the session.
        stream: the stream's name.
        source: where its tuples come from.
        layout: output and checkpoint folders.
        events: the event log.
        settings: frozen settings.
        published: called after each publication.
        on_batch: told of each published batch, before Spark's commit.
        name: names Spark's query; several may run in one session.
        functions: names of the user's functions, for messages.
        called: those of them that take arrays and return one; others may follow.
        retention: how long published rows are kept.
    """

    def __init__(
        self,
        spark: SparkSession,
        stream: str,
        source: Source,
        layout: Layout,
        events: EventLog,
        settings: Settings,
        published: Callable[[], None],
        on_batch: Callable[[BatchDone], None],
        name: str = "penstock",
        functions: Collection[str] = (),
        called: Mapping[str, Callable[..., Any]] = NO_FUNCTIONS,
        retention: Retention = FOREVER,
    ) -> None:
        self.stream = stream
        self.source = source
        refuse_lost(layout, stream)
        self.log = IngestLog(layout, stream, settings, events)
        time_limit = TimeLimit(layout, stream, settings, events)
        self.plans = StreamPlans(
            spark,
            stream,
            source,
            PlanLog(layout, stream),
            events,
            settings,
            lambda: fixed_shards(layout, stream, spark.sparkContext.defaultParallelism, settings.shards),
            self._store_readers,
            Beginnings(layout, stream, settings),
            time_limit.of,
            self.log.too_late_before,
            called,
        )
        self.log.demands = self.plans.demands_behind
        self.files = FileWatch(
            stream,
            layout.spark(stream) / "sources",
            layout.read_files(stream),
            events,
            settings.files_seconds,
        )
        self.retries = Retries(stream, "ingest", settings, events, self._named)
        self._answerer = BatchAnswerer(
            stream,
            source,
            layout,
            events,
            settings,
            self.plans,
            self.log,
            time_limit,
            self.files,
            published,
            on_batch,
            self.retries.succeeded,
            retention,
        )
        #: whether a batch is being answered
        self.busy = False
        #: what the newest look at the source found
        self.source_state: Callable[[], SourceState] = SourceState
        self._error: BaseException | None = None
        self._spark = spark
        self._layout = layout
        self._name = name
        self._functions = functions
        self._supervisor: Supervisor | None = None
        self._trigger = Trigger()
        self._looks_for_end = self._is_paced = self._is_played = False
        self._stopped = threading.Event()

    @property
    def totals(self) -> Totals:
        """What has been counted up to the newest batch."""
        return self._answerer.totals

    @property
    def newest_event_time(self) -> int | None:
        """The largest event time of this run's batches, microseconds."""
        return self._answerer.newest_event_time

    def start(self, trigger: Trigger) -> None:
        """Starts the streaming query; it is started again where that helps, see `Retries`."""
        drop_unbegun(self._layout.spark(self.stream))
        check_metadata(self._layout.spark(self.stream))
        self.files.start()
        supervisor = Supervisor(
            f"penstock-ingest-{self.stream}",
            self._spark,
            lambda: self._begin(trigger),
            self._look,
            self.retries,
            lambda: self._error,
            self._is_done,
        )
        self._supervisor = supervisor
        supervisor.start()

    @property
    def active(self) -> bool:
        """Whether the streaming query runs, or is about to be started again."""
        return self._supervisor is not None and self._supervisor.active

    def ends_within(self, seconds: float) -> bool:
        """Wait so long for the end of the streaming query; return whether it does not run, and is not started again."""
        return not self.active or (self._supervisor is not None and self._supervisor.join(seconds))

    @property
    def ended_well(self) -> bool:
        """Whether the streaming query has ended and nothing stopped it."""
        return self._supervisor is not None and self._supervisor.ended_well

    @property
    def has_ended(self) -> bool:
        """Whether all tuples there will ever be are published: a stored table was played, or the user has said so."""
        if self._is_played or not self._trigger.is_bounded or not self.ended_well:
            return self._is_played
        return self._trigger.is_complete or (self.source.is_finite and self.source.exhausted())

    @property
    def interval_seconds(self) -> float:
        """Time between two starts of a batch."""
        return self._trigger.seconds

    def listen(self) -> Heard:
        """What the source says now."""
        if self.source_state().is_reachable is False:
            return Heard.SOMETHING
        query = None if self._supervisor is None else self._supervisor.query
        if query is None or self.busy or self.retries.pending is not None:
            return Heard.SOMETHING
        status = query.status
        if status["isTriggerActive"]:
            return Heard.UNKNOWN
        # of the last trigger; before the first one nobody has asked
        if status["isDataAvailable"] or status["message"].startswith("Initializing"):
            return Heard.UNKNOWN
        return Heard.SOMETHING if self.busy else Heard.NOTHING

    def stop(self) -> None:
        """Stops the streaming query; the batch at hand is repeated at the next start."""
        self._stopped.set()
        query = () if self._supervisor is None else (self._supervisor.stop,)
        stop_all((*query, self.source.close, self.close))

    def close(self) -> None:
        """Waits until merged files are listed and nothing of the stream is written; the streaming query has ended."""
        stop_all((self._answerer.close, self.files.close, self.log.close))

    def await_termination(self, timeout_seconds: float | None = None) -> bool:
        """Waits for the end; False where the time ran out first.

        Raises:
            StreamFailedError: something stopped the stream.
        """
        assert self._supervisor is not None, "started before it is waited for"
        return self._supervisor.await_termination(timeout_seconds)

    def _begin(self, trigger: Trigger) -> StreamingQuery:
        self._error = None
        # a run that was taken over would write to Spark's checkpoint
        self._layout.ledger.writer.commit()
        frame = self.source.frame(self._spark)
        plays = self.source.is_finite and not self.source.exhausted()
        self._is_paced = trigger.is_bounded and plays
        self._looks_for_end = self.source.is_finite and (plays or not trigger.is_bounded)
        self._is_played = False
        self._trigger = effective = Trigger.every("1 second") if self._is_paced else trigger
        writer = frame.writeStream.queryName(f"{self._name}:{self.stream}").foreachBatch(self._process)
        checkpoint = hadoop_path(str(self._layout.spark(self.stream)))
        writer = writer.option("checkpointLocation", checkpoint)
        if effective.is_bounded:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=effective.interval).start()

    def _store_readers(self, plan: CompiledPlan) -> None:
        """Stores what readers and the window lane have to know of a plan version."""
        windows = plan.windows
        for operator in windows.shards.operators:
            bound = [windows.bound[view.name] for view in operator.views]
            store_views(self._layout, self.stream, operator.id, bound, windows.registered)
        for running in windows.shards.running:
            bound = [windows.bound[view.name] for view in running.views]
            store_views(self._layout, running_of(self.stream), running.id, bound, windows.registered)
        self.log.store_program(windows.shards, is_read=plan.program.tuples is not None)

    def _is_done(self) -> bool:
        """Whether a query that nobody here stopped, and that raised nothing, had come to its end.

        Spark does not tell whether a query over what is available has come to the end of it or was stopped on the
        way; what it leaves behind does, unless it was stopped between two batches.
        """
        if self._is_paced or not self._trigger.is_bounded:
            return self._is_played
        checkpoint = self._layout.spark(self.stream)
        begun, done = (numbered(checkpoint / name, "") for name in ("offsets", "commits"))
        return self._error is None and begun[-1:] == done[-1:]

    def _look(self, query: StreamingQuery) -> None:
        """Notices that a retry has led to something, and that a stored table has been played and answered."""
        if self.retries.pending is not None and query.lastProgress is not None:
            self.retries.succeeded()
        if self._is_played or not self._looks_for_end or not self.source.exhausted():
            return
        query.processAllAvailable()
        if self.source.exhausted() and query.isActive:
            self._is_played = True
            if self._is_paced:
                query.stop()

    def _named(self, cause: Cause) -> Cause:
        """The cause with the source, or the views and functions, that it may be about."""
        definitions: list[ViewDefinition | WindowDefinition] = [
            *self.plans.views.values(),
            *self.plans.windows.values(),
            *self.plans.running.values(),
        ]
        cause = with_source(self.source.named(cause), self.source_state())
        return with_views(cause, definitions, self._functions)

    def _process(self, df: DataFrame, batch: int) -> None:
        began = time.monotonic()
        self.busy = True
        try:
            self._answerer.answer(df, batch)
            failpoint("before_commit", batch)
        except BaseException as error:
            self._error = error
            raise
        finally:
            self.busy = False
        if not self._trigger.is_bounded and not self.source.is_finite:
            self._stopped.wait(resting_seconds(time.monotonic() - began, self.plans.gathering_seconds))
