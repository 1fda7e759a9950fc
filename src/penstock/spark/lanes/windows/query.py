"""The keyed query of one stream: follows the log and publishes the results of its window views."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import lru_cache, partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from penstock.errors import CheckpointError, StreamFailedError
from penstock.plan.times import AFTER_ALL
from penstock.settings import Settings
from penstock.spark.ingest.backfill import never_whole
from penstock.spark.lanes.windows.processor import REPORT_SCHEMA, ShardProcessor
from penstock.spark.lanes.windows.shard_task import ShardReport
from penstock.spark.lanes.windows.standing import final_of, progress_of, standing_of
from penstock.spark.log.entries import Entry
from penstock.spark.log.programs import stored_program
from penstock.spark.log.row_log import PROGRESS, RowLogs, held_rows
from penstock.spark.log.shards import KeyedContext, fixed_shards
from penstock.spark.log.source import ENTRY, following
from penstock.spark.log.stream_log import FINAL, PLAN, SEGMENT, LogReader
from penstock.spark.publication.kinds import results_of
from penstock.spark.publication.manifests import read_published
from penstock.spark.publication.publish import Published, Publisher
from penstock.spark.publication.staged import BatchFiles, Staged, files_of_reports
from penstock.spark.recovery.causes import cause_of
from penstock.spark.recovery.supervisor import refuse_ended, stop_query
from penstock.spark.results.bound_views import stored_views
from penstock.spark.results.window_rows import make_results
from penstock.spark.results.window_staging import SaidWindows, StagedResults, ViewCounts
from penstock.spark.sessions.build import CHECKPOINTS
from penstock.spark.sessions.file_systems import hadoop_path
from penstock.spark.storage.documents import read_json
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.failpoints import failpoint
from penstock.spark.storage.files import drop_unbegun
from penstock.spark.storage.layout import IDENTITY, PARTIALS_FILES, Layout
from penstock.spark.storage.ledger_documents import StoredDocument
from penstock.spark.storage.offsets import REMEDY, PlannedBatches
from penstock.spark.storage.spark_checksums import check_metadata
from penstock.sql.windows.bind import BoundWindow

_PROVIDER = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
#: settings of the query's own session. Idle time comes as entries of the log, so no batch is needed without one
_SESSION = {
    "spark.sql.streaming.stateStore.providerClass": _PROVIDER,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.pollingDelay": "50ms",
    "spark.sql.streaming.metricsEnabled": "false",
    **CHECKPOINTS,
}
#: operators whose views stay decoded
_KEPT_OPERATORS = 256
#: the lane's name among the readers of the log
WINDOWS = "windows"
#: a query that rests does so for so many times as long as its batch took, and no longer than so many seconds
_REST = 4
_MOST_REST = 3.0


@dataclass(frozen=True, slots=True)
class KeyedDone:
    """A published batch of results.

    Attributes:
        stream, batch: which; batches of the keyed query are its own.
        entry: number of the last entry of the log that is in it; -1: none.
        entries: how many are.
        views: what was said, by view.
        beyond: (operator, view, start) of final windows that got tuples: for the history to correct. The
            manifest keeps them.
        seconds: wall time from the start of the batch to its publication.
    """

    stream: str
    batch: int
    entry: int
    entries: int
    views: dict[str, ViewCounts] = field(default_factory=dict)
    beyond: list[tuple[int, str, int]] = field(default_factory=list)
    seconds: float = 0.0


class KeyedQuery:
    """Answers the window views of one stream.

    Args:
        spark: the session; the query runs in a copy of it.
        stream: the stream's name.
        layout: output and checkpoint folders.
        events: the event log.
        settings: frozen settings.
        on_batch: told of each published batch, before Spark's commit.
        sinks: given (stream, batch, the batch's files as its manifest lists them) after each publication and again
            when a batch is repeated; an exception stops the query.
        name: names Spark's query; several may run in one session.
        entries_per_batch: most entries of the log a batch starts with.
        rows: the logs of the views whose rows are read by others.
    """

    def __init__(
        self,
        spark: SparkSession,
        stream: str,
        layout: Layout,
        events: EventLog,
        settings: Settings,
        on_batch: Callable[[KeyedDone], None] = lambda _: None,
        sinks: Callable[[str, int, Sequence[Mapping[str, Any]]], None] = lambda *_: None,
        name: str = "penstock",
        entries_per_batch: int = 64,
        rows: RowLogs | None = None,
    ) -> None:
        self.stream = stream
        self.publisher = Publisher(
            layout,
            results_of(stream),
            (),
            owner=stream,
            failpoints="keyed_",
            grace_seconds=settings.replaced_seconds,
            held=partial(held_rows, layout),
        )
        self.error: BaseException | None = None
        self._planned = PlannedBatches(layout.keyed_spark(stream))
        self._log = LogReader(layout.log(stream))
        self._spark = spark
        self._layout = layout
        self._events = events
        self._on_batch = on_batch
        self._sinks = sinks
        self._rows = rows or RowLogs(layout, events, lambda: None)
        self._name = name
        self._entries_per_batch = entries_per_batch
        self._compact_every = settings.compact_every_batches
        self._keys = fixed_shards(layout, stream, spark.sparkContext.defaultParallelism, settings.shards)
        self._query: StreamingQuery | None = None
        self._marked = -1
        #: the last entry of the batch before, where this query has answered it
        self._before: int | None = None
        published = read_published(layout, results_of(stream)).batches
        self._done: int = published[-1]["entry"] if published else -1
        self._progress = threading.Condition()
        self._rests = False
        self._woken = threading.Event()
        self._views = lru_cache(_KEPT_OPERATORS)(partial(stored_views, layout, stream))

    def start(self, interval: str = "0 seconds", rests: bool = False) -> None:
        """Starts the streaming query.

        Args:
            interval: least time between two starts of a batch, as Spark writes it.
            rests: whether it rests after each batch until `finish`, so that the entries of several
                ingest batches share what a batch costs.
        """
        self._rests = rests
        self._woken.clear()
        self._before = None
        mark = self._log.mark(WINDOWS)
        self._marked = self._join() if mark is None or self._log.has_only_joined(WINDOWS) else mark
        self.error = None
        session = SparkSession(
            self._spark.sparkContext,
            self._spark._jsparkSession.cloneSession(),
        )
        for name, value in {**_SESSION, "spark.sql.shuffle.partitions": str(len(self._keys))}.items():
            session.conf.set(name, value)
        self._log.newest()  # tells now what is gone
        drop_unbegun(self._layout.keyed_spark(self.stream))
        check_metadata(self._layout.keyed_spark(self.stream))
        identity = read_json(self._layout.checkpoint / "identity.json", IDENTITY) or {}
        context = KeyedContext(self._layout, self.stream, identity.get("id", ""), self._keys, self._marked)
        reader = f"reader {WINDOWS} of stream {self.stream}"
        entries = following(
            session, self._layout.log(self.stream), reader, self._marked, self._entries_per_batch
        )
        keys = F.explode(F.array(*(F.lit(key) for key in self._keys)))
        reports = (
            entries.select(keys.alias("shard"), ENTRY)
            .groupBy("shard")
            .transformWithState(ShardProcessor(context), REPORT_SCHEMA, "append", "ProcessingTime")
        )
        writer = reports.writeStream.queryName(f"{self._name}:{self.stream}:windows").foreachBatch(
            self._process
        )
        writer = writer.outputMode("append")
        writer = writer.option("checkpointLocation", hadoop_path(str(self._layout.keyed_spark(self.stream))))
        self._query = writer.trigger(processingTime=interval).start()

    def _join(self) -> int:
        """Puts the first mark: in what is kept of the log, before the entries that have window views."""
        # of the views of no plan all windows are final
        told: dict[str, Any] = {FINAL: AFTER_ALL, PLAN: -1}
        first, newest = self._log.join(WINDOWS, **told), self._log.newest()
        after = first if newest is None else newest.number
        while after > first and self._has_views(self._log.entry(after)):
            after -= 1
        self._log.put_mark(WINDOWS, after, **told)
        return after

    def _has_views(self, entry: Entry) -> bool:
        program = stored_program(self._layout, self.stream, entry.plan)
        # what was aggregated has views, also where these are missing: that is told when the entry is answered
        return PARTIALS_FILES in entry.files if program is None else bool(program.operators)

    @property
    def active(self) -> bool:
        """Whether the streaming query runs."""
        return self._query is not None and self._query.isActive

    @property
    def done(self) -> int:
        """Number of the last entry of the log whose results are published; -1 before the first."""
        return self._done

    def stop(self) -> None:
        """Stops the streaming query; the batch at hand is repeated at the next start."""
        self._woken.set()
        if self._query is not None:
            stop_query(self._query)

    def finish(self, entry: int) -> bool:
        """Waits until an entry of the log and all before it are answered, then stops the query.

        Returns:
            False where the query was stopped before.

        Raises:
            StreamFailedError: something stopped the query before.
        """
        assert self._query is not None, "started before it is finished"
        self._woken.set()
        with self._progress:
            while self._done < entry and self._query.isActive:
                self._progress.wait(0.2)
        if self._query.isActive:
            # Spark's commit of the batch: the next start need not repeat it
            try:
                self._query.processAllAvailable()
            except Exception:
                self.await_termination()
                raise
            self._query.stop()
        self.await_termination()
        return self._done >= entry

    def await_termination(self, timeout_seconds: float | None = None) -> bool:
        """Waits for the end; False where the time ran out first.

        Raises:
            StreamFailedError: something stopped the query; `start` goes on from here.
        """
        assert self._query is not None, "started before it is waited for"
        try:
            if timeout_seconds is None:
                self._query.awaitTermination()
                refuse_ended(self._spark)
                return True
            seconds: Any = max(0.05, timeout_seconds)
            return bool(self._query.awaitTermination(seconds))
        except Exception as error:
            cause = self.error or error
            told = cause_of(cause).told
            raise StreamFailedError(f"the windows of stream {self.stream} stopped: {told}") from cause

    def _process(self, df: DataFrame, batch: int) -> None:
        try:
            self._answer(df, batch)
        except BaseException as error:
            self.error = error
            raise

    def _answer(self, df: DataFrame, batch: int) -> None:
        began = time.perf_counter()
        store = self.publisher.begin(batch)
        # a batch that is published runs again all the same: Spark may not have kept the state after it
        with ThreadPoolExecutor(1, "penstock-sync") as beside:
            synced = beside.submit(self._planned.sync, batch)
            reports: list[ShardReport] = [pickle.loads(bytes(row.report)) for row in df.collect()]
        synced.result()
        failpoint("keyed_staged", batch)
        ran_at = time.perf_counter()
        published = self.publisher.published(batch)
        if published is None:
            published = self._publish(batch, reports, store, began, ran_at)
        else:
            store.discard(files_of_reports(each for report in reports for each in report.results))
            store.clean()
            self._refuse_others(published.figures, reports)
        files = published.files
        self._rows.published(results_of(self.stream), published.figures, files)
        if files is not None:
            self._sinks(self.stream, batch, files)
        if reports:
            self._before = max(report.entry for report in reports)
        with self._progress:
            self._done = max([self._done, *(report.entry for report in reports)])
            self._progress.notify_all()
        self.publisher.compact_if_due(batch, self._compact_every, self._events)
        failpoint("keyed_before_commit", batch)
        if self._rests:
            self._woken.wait(min(_MOST_REST, _REST * (time.perf_counter() - began)))

    def _mark(self, reports: Sequence[ShardReport]) -> dict[StoredDocument, dict[str, Any]]:
        """The mark, if it moves on: the entries of the batch before this one, which Spark has committed, are left behind."""
        before = self._before
        if not reports or before is None or before // SEGMENT <= self._marked // SEGMENT:
            return {}
        plan = self._log.entry(max(report.entry for report in reports)).plan
        program = stored_program(self._layout, self.stream, plan)
        assert program is not None, "the shards have followed it"
        shards = [report.standing for report in reports]
        final = final_of(shards, program, never_whole(self._layout, self.stream))
        return self._log.mark_document(WINDOWS, before, **{FINAL: final, PLAN: plan})

    def _refuse_others(self, figures: Mapping[str, Any], reports: Sequence[ShardReport]) -> None:
        """Makes sure that a published batch which Spark repeats took in what it does now."""
        entry = max((report.entry for report in reports), default=figures["entry"])
        if entry != figures["entry"]:
            raise CheckpointError(
                f"the windows of stream {self.stream}: batch {figures['batch']} was published with log entries up "
                f"to {figures['entry']}, but Spark now plans it up to {entry}: "
                f"{self._layout.keyed_spark(self.stream)} was restored from an older copy, or files are missing; {REMEDY}"
            )

    def _publish(
        self, batch: int, reports: Sequence[ShardReport], store: BatchFiles, began: float, ran_at: float
    ) -> Published:
        staged = [each for report in reports for each in report.results]
        ready: list[Staged] = [each for each in staged if not each.raw]
        made = make_results(self._spark, [each for each in staged if each.raw], self._view, store)
        ready += made
        made_at = time.perf_counter()
        said: dict[str, SaidWindows] = {}
        for each in staged:
            said.setdefault(each.view, SaidWindows()).add(each.said)
        for result in (each for each in made if each.view):
            # the groups before HAVING are no rows of the view
            rows = sum(file.rows for file in result.files)
            said[result.view].judged(rows, rows - result.more)
        views = {name: found.counts() for name, found in said.items()}
        entry = max((report.entry for report in reports), default=self._done)
        entries = max((report.entries for report in reports), default=0)
        counts = {name: asdict(found) for name, found in views.items()}
        beyond = sorted({window for report in reports for window in report.beyond})
        whole = sorted({operator for report in reports for operator in report.whole})
        last = self._log.entry(entry) if entry >= 0 else None
        figures = {
            "batch": batch,
            "entry": entry,
            "answered": None if last is None else last.batch,
            "views": counts,
            "beyond": beyond,
            "late_tuples": sum(report.late.registered for report in reports),
            "late_beyond": sum(report.late.beyond for report in reports),
            "whole": whole,
            PROGRESS: progress_of(
                reports, self._rows.views(results_of(self.stream)), has_ended=last is not None and last.ended
            ),
        }
        mark = self._mark(reports)
        files = self.publisher.publish(batch, ready, figures, puts=mark)
        if mark and self._before is not None:
            self._marked = self._before
        failpoint("keyed_manifest_written", batch)
        ended = time.perf_counter()
        self._events.record(
            "windows",
            stream=self.stream,
            batch=batch,
            entry=entry,
            entries=entries,
            answered=figures["answered"],
            views=counts,
            standing=standing_of([report.standing for report in reports]),
            beyond=len(beyond),
            beyond_history=len({window for report in reports for window in report.beyond_history}),
            late_tuples=figures["late_tuples"],
            late_beyond=figures["late_beyond"],
            late_before=sum(report.late.before for report in reports),
            panes_restored=sum(report.restored for report in reports),
            shard_seconds=round(max((report.seconds for report in reports), default=0.0), 4),
            scalar_bytes=sum(report.state_bytes[0] for report in reports),
            pane_bytes=sum(report.state_bytes[1] for report in reports),
            run_seconds=round(ran_at - began, 4),
            make_seconds=round(made_at - ran_at, 4),
            publish_seconds=round(ended - made_at, 4),
        )
        self._on_batch(KeyedDone(self.stream, batch, entry, entries, views, beyond, ended - began))
        return Published(figures, files)

    def _view(self, staged: StagedResults) -> BoundWindow:
        return self._views(staged.operator)[staged.view]
