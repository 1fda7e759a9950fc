"""The ingest query of one stream: bind, run the map stage, publish; batch after batch."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.control.stream_clock import Heard, weighted_median
from penstock.errors import CheckpointError
from penstock.operators.map_stage import StageCounts
from penstock.settings import Settings
from penstock.spark.beginnings import Beginnings
from penstock.spark.bindings import Believed, PlanLog, ViewDefinition, WindowDefinition
from penstock.spark.causes import DATA_LOST, SOURCE_UNREACHABLE, Cause
from penstock.spark.events import EventLog
from penstock.spark.failpoints import failpoint
from penstock.spark.file_watch import FileWatch
from penstock.spark.files import drop_unbegun, numbered
from penstock.spark.ingest_log import IngestLog
from penstock.spark.layout import ENVELOPES, Layout
from penstock.spark.offsets import REMEDY, PlannedBatches, offsets_digest, refuse_others
from penstock.spark.plans import StreamPlans
from penstock.spark.publish import Published, Publisher, tell_compaction_failed
from penstock.spark.retries import Retries
from penstock.spark.shards import fixed_shards
from penstock.spark.source import BoundBatch, Source
from penstock.spark.source_watch import SourceState
from penstock.spark.supervisor import Supervisor
from penstock.spark.time_limit import TimeLimit
from penstock.spark.worker import SetAside, TaskReport
from penstock.sql.intervals import microseconds_of

#: causes that are about a stream's source
_OF_SOURCES = (SOURCE_UNREACHABLE, "topic_missing", "topic_recreated", DATA_LOST)
_BEFORE_ALL = -(2**62)
#: places of unreadable rows that an event names
_MOST_NAMED = 100
#: batches whose rate is told
_RECENT_BATCHES = 5


@dataclass(frozen=True, slots=True, eq=False)
class BatchDone:
    """A published batch, for the controller, the sinks and the reporters.

    Attributes:
        stream, batch, plan: which batch, and the plan version it is bound to.
        counts: sums over its tasks.
        sample: uint32[attributes, tuples] region codes sampled by the tasks, or None.
        seconds: wall time from the start of the batch to its publication.
    """

    stream: str
    batch: int
    plan: int
    counts: StageCounts
    sample: npt.NDArray[np.uint32] | None
    seconds: float


@dataclass(slots=True)
class Trigger:
    """When batches start, and when no more will.

    Attributes:
        available_now: stop when everything available at the start has been answered.
        interval: least time between two starts, as Spark writes it ('1 second').
        ended: with `available_now`: what is available is all there will ever be, the stream has ended then.
    """

    available_now: bool = False
    interval: str = "0 seconds"
    ended: bool = False

    @property
    def seconds(self) -> float:
        """The interval in seconds."""
        return (microseconds_of(f"'{self.interval}'") or 0) / 1e6

    def options(self) -> dict[str, Any]:
        """Keyword arguments for Spark's `trigger`."""
        return {"availableNow": True} if self.available_now else {"processingTime": self.interval}


@dataclass(frozen=True, slots=True, eq=False)
class Totals:
    """What a stream has counted since this process started, up to one batch; the next batch makes new ones.

    Attributes:
        batches, tuples, matched, pairs: published so far.
        recent: (tuples, seconds) of the newest batches.
        quarantined: records by reason.
        view_pairs, view_errors: (tuple, view) pairs, and those lost to an expression that raised, by view.
        rows_set_aside: rows of files and row groups that could not be read, as far as their number is known.
        null_event_times, future_event_times: tuples kept from windows: event time NULL, or too far ahead of the
            clock.
    """

    batches: int = 0
    tuples: int = 0
    matched: int = 0
    pairs: int = 0
    recent: tuple[tuple[int, float], ...] = ()
    quarantined: Mapping[str, int] = field(default_factory=dict)
    view_pairs: Mapping[str, int] = field(default_factory=dict)
    view_errors: Mapping[str, int] = field(default_factory=dict)
    rows_set_aside: int = 0
    null_event_times: int = 0
    future_event_times: int = 0

    def plus(
        self,
        counts: StageCounts,
        names: Sequence[str],
        quarantined: Mapping[str, int],
        errors: Mapping[str, int],
        rows_set_aside: int,
        seconds: float,
    ) -> Totals:
        """The totals after one more batch.

        Args:
            counts: the batch's.
            names: the names of its plan's views, in order.
            quarantined: its quarantined records by reason.
            errors: what its views lost, by view.
            rows_set_aside: rows that could not be read.
            seconds: wall time it took.
        """
        pairs = {
            names[index]: int(counts.view_pairs[index])
            for index in np.flatnonzero(counts.view_pairs).tolist()
        }
        return Totals(
            batches=self.batches + 1,
            tuples=self.tuples + counts.tuples,
            matched=self.matched + counts.matched,
            pairs=self.pairs + counts.pairs,
            recent=(*self.recent, (counts.tuples, seconds))[-_RECENT_BATCHES:],
            quarantined=_added(self.quarantined, quarantined),
            view_pairs=_added(self.view_pairs, pairs),
            view_errors=_added(self.view_errors, errors),
            rows_set_aside=self.rows_set_aside + rows_set_aside,
            null_event_times=self.null_event_times + counts.null_event_times,
            future_event_times=self.future_event_times + counts.future_event_times,
        )

    @property
    def tuples_per_second(self) -> float:
        """Rate of the newest batches."""
        seconds = sum(spent for _, spent in self.recent)
        return sum(tuples for tuples, _ in self.recent) / seconds if seconds else 0.0


class IngestQuery:
    """Runs one stream.

    Args:
        spark: the session.
        stream: the stream's name.
        source: where its tuples come from.
        layout: output and checkpoint folders.
        events: the event log.
        settings: frozen settings.
        sinks: given (stream, batch, plan version, names of the batch's files of matches) after each publication and
            again when a batch is repeated; an exception stops the stream.
        on_batch: told of each published batch, before Spark's commit.
        name: names Spark's query; several may run in one session.
        functions: names of the user's functions, for messages.
    """

    def __init__(
        self,
        spark: SparkSession,
        stream: str,
        source: Source,
        layout: Layout,
        events: EventLog,
        settings: Settings,
        sinks: Callable[[str, int, int, list[str]], None],
        on_batch: Callable[[BatchDone], None],
        name: str = "penstock",
        functions: Collection[str] = (),
    ) -> None:
        self.stream = stream
        self.source = source
        self.log = IngestLog(layout, stream, settings)
        self._time_limit = TimeLimit(layout, stream, settings, events)
        self.plans = StreamPlans(
            spark,
            stream,
            source,
            PlanLog(layout, stream),
            events,
            settings,
            lambda: len(fixed_shards(layout, stream, spark.sparkContext.defaultParallelism, settings.shards)),
            self.log.store_windows,
            Beginnings(layout, stream, settings),
            self._time_limit.of,
        )
        self.publisher = Publisher(layout, stream)
        self._planned = PlannedBatches(layout.spark(stream))
        self.files = FileWatch(
            stream,
            layout.spark(stream) / "sources",
            layout.read_files(stream),
            events,
            settings.files_seconds,
        )
        #: replaced as a whole by the thread of the batches: whoever reads it has a copy of one moment
        self.totals = Totals()
        #: whether a batch is being answered
        self.busy = False
        self.retries = Retries(stream, "ingest", settings, events, self._named)
        #: what the newest look at the source found
        self.source_state: Callable[[], SourceState] = SourceState
        #: the largest event time of this run's batches, microseconds
        self.newest_event_time: int | None = None
        self._error: BaseException | None = None
        self._spark = spark
        self._layout = layout
        self._events = events
        self._settings = settings
        self._sinks = sinks
        self._on_batch = on_batch
        self._name = name
        self._functions = functions
        self._supervisor: Supervisor | None = None
        self._trigger = Trigger()
        self._looks_for_end = self._is_paced = self._is_played = False

    def start(self, trigger: Trigger) -> None:
        """Starts the streaming query; it is started again where that helps, see `Retries`."""
        drop_unbegun(self._layout.spark(self.stream))
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

    @property
    def ended_well(self) -> bool:
        """Whether the streaming query has ended and nothing stopped it."""
        return self._supervisor is not None and self._supervisor.ended_well

    @property
    def has_ended(self) -> bool:
        """Whether all tuples there will ever be are published: a stored table was played, or the user has said so."""
        if self._is_played or not self._trigger.available_now or not self.ended_well:
            return self._is_played
        return self._trigger.ended or (self.source.is_finite and self.source.exhausted())

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
        if self._supervisor is not None:
            self._supervisor.stop()
        self.source.close()
        self.files.close()

    def await_termination(self, timeout_seconds: float | None = None) -> bool:
        """Waits for the end; False where the time ran out first.

        Raises:
            StreamFailedError: something stopped the stream.
        """
        assert self._supervisor is not None, "started before it is waited for"
        return self._supervisor.await_termination(timeout_seconds)

    def _begin(self, trigger: Trigger) -> StreamingQuery:
        self._error = None
        frame = self.source.frame(self._spark)
        plays = self.source.is_finite and not self.source.exhausted()
        self._is_paced = trigger.available_now and plays
        self._looks_for_end = self.source.is_finite and (plays or not trigger.available_now)
        self._is_played = False
        self._trigger = effective = Trigger(interval="1 second") if self._is_paced else trigger
        writer = frame.writeStream.queryName(f"{self._name}:{self.stream}").foreachBatch(self._process)
        writer = writer.option("checkpointLocation", str(self._layout.spark(self.stream)))
        return writer.trigger(**effective.options()).start()

    def _is_done(self) -> bool:
        """Whether a query that nobody here stopped, and that raised nothing, had come to its end.

        Spark does not tell whether a query over what is available has come to the end of it or was stopped on the
        way; what it leaves behind does, unless it was stopped between two batches.
        """
        if self._is_paced or not self._trigger.available_now:
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
        cause = self.source.named(cause)
        state = self.source_state()
        if cause.kind in _OF_SOURCES and state.source is not None:
            return replace(cause, told=f"{state.source}: {cause.told}", topic=state.topic)
        if cause.kind not in ("function_failed", "worker_lost"):
            return cause
        functions = self._functions if cause.function is None else (cause.function,)
        called = re.compile(rf"\b({'|'.join(map(re.escape, functions))})\s*\(", re.IGNORECASE)
        definitions: list[ViewDefinition | WindowDefinition] = [
            *self.plans.views.values(),
            *self.plans.windows.values(),
        ]
        calls = {
            each.name: found.group(1)
            for each in definitions
            if functions and (found := called.search(each.sql)) is not None
        }
        if not calls:
            return cause
        view, function = next(iter(calls.items()))
        more = f" and {len(calls) - 1} more" if len(calls) > 1 else ""
        where = f"view {view}{more}" if cause.function else f"view {view}{more} calls {function}"
        return replace(cause, told=f"{cause.told} ({where})", view=view, function=function)

    def _process(self, df: DataFrame, batch: int) -> None:
        self.busy = True
        try:
            self._answer(df, batch)
            failpoint("before_commit", batch)
        except BaseException as error:
            self._error = error
            raise
        finally:
            self.busy = False

    def _answer(self, df: DataFrame, batch: int) -> None:
        began = time.perf_counter()
        offsets = offsets_digest(self._layout.spark(self.stream), batch)
        published = self.publisher.published(batch)
        if published is not None:
            self._repeat(published, offsets)
            return
        staging = self._layout.staging(self.stream, batch)
        staged_envelopes = self._layout.staged_envelopes(self.stream, batch)
        for folder in (staging, staged_envelopes):
            shutil.rmtree(folder, ignore_errors=True)
        bound = self.plans.batch(batch, staging, staged_envelopes, self.log.floor, offsets)
        bound.checkpoint = self._layout.spark(self.stream)
        bound_at = time.perf_counter()
        with ThreadPoolExecutor(1, "penstock-sync") as beside:
            synced = beside.submit(self._planned.sync, batch)
            reports, counts = self._run(df, bound)
        synced.result()
        believed = self._believed_after(bound, counts)
        if believed is not None:
            # the clock is behind the batch, and tuples were kept from windows for it
            for folder in (staging, staged_envelopes):
                shutil.rmtree(folder, ignore_errors=True)
            bound = self.plans.judge_again(bound, believed)
            reports, counts = self._run(df, bound)
        ran_at = time.perf_counter()
        failpoint("staged", batch)
        windows = bound.program.windows
        aside = [each for report in reports for each in report.set_aside]
        quarantined: dict[str, int] = {}
        for report in reports:
            for reason, count in report.quarantined.items():
                quarantined[reason] = quarantined.get(reason, 0) + count
        names = bound.program.plan.names
        errors = {
            names[index]: int(counts.view_errors[index]) for index in np.flatnonzero(counts.view_errors)
        }
        for index in np.flatnonzero(counts.window_errors):
            members = self.plans.compiled(bound.program.version).windows.members[index]
            errors.update(dict.fromkeys(members, int(counts.window_errors[index])))
        figures = {
            "batch": batch,
            "plan": bound.program.version,
            "offsets": offsets,
            "tuples": counts.tuples,
            "matched": counts.matched,
            "pairs": counts.pairs,
            "quarantined": quarantined,
            "rows_set_aside": sum(each.rows or 0 for each in aside),
            "errors": errors,
            "oldest_event_time_us": counts.oldest_event_time,
            "oldest_recent_event_time_us": counts.oldest_recent_event_time,
            "newest_event_time_us": counts.newest_event_time,
            "furthest_event_time_us": counts.furthest_event_time,
        }
        if windows is not None:
            figures["null_event_times"] = counts.null_event_times
            figures["future_event_times"] = counts.future_event_times
            figures["ahead_event_times"] = counts.ahead_event_times
            figures["timed_tuples"] = sum(times for times, _ in counts.middles)
            figures["middle_event_time_us"] = weighted_median(counts.middles)
        files = self.publisher.publish(batch, reports, figures)
        failpoint("manifest_written", batch)
        self._time_limit.add(figures)
        self._put_entry(figures, files)
        ended = time.perf_counter()
        self.files.answered(bound.stamps)
        self._record_set_aside(batch, aside)
        self._record(bound.program.version, figures, counts, names, (began, bound_at, ran_at, ended))
        self._sinks(self.stream, batch, bound.program.version, _names(files, "matches"))
        self._on_batch(
            BatchDone(self.stream, batch, bound.program.version, counts, _samples(reports), ended - began)
        )
        self._tidy(batch)

    def _run(self, df: DataFrame, bound: BoundBatch) -> tuple[list[TaskReport], StageCounts]:
        reports = self.source.run(df, bound)
        windows = bound.program.windows
        operators = len(windows.operators) if windows else 0
        return reports, _sum([report.counts for report in reports], bound.program.views, operators)

    def _believed_after(self, bound: BoundBatch, counts: StageCounts) -> Believed | None:
        """What a batch should have been judged by that lost tuples to its limit; None where that was right."""
        middle = weighted_median(counts.middles)
        if middle is None or not counts.future_event_times:
            return None
        timed = sum(times for times, _ in counts.middles)
        return self._time_limit.corrected(bound.number, bound.time_limit, timed, middle)

    def _repeat(self, published: Published, offsets: str | None) -> None:
        """Brings the log and the sinks to a batch that is published already."""
        figures, files = published.figures, published.files
        refuse_others(self.stream, figures, offsets, self._layout.spark(self.stream))
        if files is None:
            # merged long ago: what comes after publication has been done for later batches too
            return
        gone = [
            name
            for name in _names(files, ENVELOPES)
            if not (self._layout.envelopes(self.stream) / name).exists()
        ]
        if gone:
            raise CheckpointError(
                f"stream {self.stream}: {self._layout.envelopes(self.stream) / gone[0]} of the published batch "
                f"{figures['batch']} is missing; {REMEDY}"
            )
        self._put_entry(figures, files)
        self.files.answered({})
        self._sinks(self.stream, figures["batch"], figures["plan"], _names(files, "matches"))

    def _put_entry(self, figures: dict[str, Any], files: list[dict[str, Any]]) -> None:
        times = {
            which: figures.get(f"{which}_event_time_us")
            for which in ("oldest", "oldest_recent", "newest", "furthest")
        }
        self.log.put_batch(figures["batch"], figures["plan"], files=_names(files, ENVELOPES), **times)
        failpoint("logged", figures["batch"])

    def _record(
        self,
        plan: int,
        figures: dict[str, Any],
        counts: StageCounts,
        names: list[str],
        times: tuple[float, float, float, float],
    ) -> None:
        began, bound_at, ran_at, ended = times
        self.retries.succeeded()
        if counts.newest_event_time is not None:
            self.newest_event_time = max(counts.newest_event_time, self.newest_event_time or _BEFORE_ALL)
        self.totals = self.totals.plus(
            counts,
            names,
            figures["quarantined"],
            figures["errors"],
            figures["rows_set_aside"],
            ended - began,
        )
        self._events.record(
            "batch",
            stream=self.stream,
            **figures,
            evaluations=counts.evaluations if counts.asc_tuples else None,
            asc_tuples=counts.asc_tuples,
            skipped=counts.skipped,
            bind_seconds=round(bound_at - began, 4),
            run_seconds=round(ran_at - bound_at, 4),
            publish_seconds=round(ended - ran_at, 4),
            encode_cpu_seconds=round(counts.encode_ns / 1e9, 4),
            match_cpu_seconds=round(counts.match_ns / 1e9, 4),
            pane_cpu_seconds=round(counts.pane_ns / 1e9, 4),
            write_cpu_seconds=round(counts.write_ns / 1e9, 4),
        )
        for kind in ("quarantined", "errors"):
            if figures[kind]:
                self._events.record(
                    {"quarantined": "records_quarantined", "errors": "expression_raised"}[kind],
                    stream=self.stream,
                    batch=figures["batch"],
                    plan=plan,
                    counts=figures[kind],
                )
        if counts.null_event_times or counts.future_event_times:
            self._events.record(
                "event_times_unusable",
                stream=self.stream,
                batch=figures["batch"],
                plan=plan,
                null_event_times=counts.null_event_times,
                future_event_times=counts.future_event_times,
            )
        if counts.ahead_event_times:
            self._events.record(
                "event_times_ahead",
                stream=self.stream,
                batch=figures["batch"],
                plan=plan,
                ahead_event_times=counts.ahead_event_times,
            )

    def _record_set_aside(self, batch: int, found: list[SetAside]) -> None:
        if found:
            rows = sum(each.rows or 0 for each in found)
            self._events.record(
                "rows_set_aside",
                stream=self.stream,
                batch=batch,
                told=f"{len(found):,} places with {rows:,} rows in all could not be read, first "
                f"{found[0].origin}: {found[0].reason}",
                rows=rows,
                places=[asdict(each) for each in found[:_MOST_NAMED]],
                further=max(0, len(found) - _MOST_NAMED),
            )

    def _tidy(self, batch: int) -> None:
        every = self._settings.compact_every_batches
        if every and batch and batch % every == 0:
            try:
                compacted = self.publisher.compact(batch - 1)
                if compacted:
                    self._events.record(
                        "compacted", stream=self.stream, first=compacted[0], last=compacted[1]
                    )
                self.plans.forget(batch)
            except OSError as error:
                tell_compaction_failed(self._events, self.stream, batch, error)


def _sum(parts: list[StageCounts], views: int, operators: int) -> StageCounts:
    total = StageCounts(
        view_pairs=np.zeros(views, np.int64),
        view_errors=np.zeros(views, np.int64),
        window_errors=np.zeros(operators, np.int64),
    )
    for part in parts:
        for name in (
            "tuples",
            "matched",
            "pairs",
            "skipped",
            "evaluations",
            "asc_tuples",
            "encode_ns",
            "match_ns",
            "pane_ns",
            "write_ns",
            "null_event_times",
            "future_event_times",
            "ahead_event_times",
        ):
            setattr(total, name, getattr(total, name) + getattr(part, name))
        total.view_pairs += part.view_pairs
        total.view_errors += part.view_errors
        total.window_errors += part.window_errors
    for name in ("oldest_event_time", "oldest_recent_event_time"):
        known = [found for part in parts if (found := getattr(part, name)) is not None]
        setattr(total, name, min(known, default=None))
    for name in ("newest_event_time", "furthest_event_time"):
        known = [found for part in parts if (found := getattr(part, name)) is not None]
        setattr(total, name, max(known, default=None))
    total.middles = [middle for part in parts for middle in part.middles]
    return total


def _added(known: Mapping[str, int], found: Mapping[str, int]) -> Mapping[str, int]:
    return (
        {**known, **{name: known.get(name, 0) + count for name, count in found.items()}} if found else known
    )


def _names(files: list[dict[str, Any]], kind: str) -> list[str]:
    return [file["name"] for file in files if file["kind"] == kind]


def _samples(reports: list[TaskReport]) -> npt.NDArray[np.uint32] | None:
    samples = [report.sample for report in reports if report.sample is not None]
    return np.concatenate(samples, axis=1) if samples else None
