"""What runs: the ingest queries and lanes of a run, started, fitted to the views, and stopped."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from penstock.errors import FencedError, InputError, StreamFailedError
from penstock.monitor.troubles import unanswered_words, undelivered_words
from penstock.operators.deadlines.aggregates import UserAggregate
from penstock.settings import Settings
from penstock.spark.declaring.rule_sets import RuleChanges
from penstock.spark.ingest.conditions import DeclaredConditions
from penstock.spark.ingest.log_keeper import LogKeeper
from penstock.spark.ingest.query import IngestQuery
from penstock.spark.ingest.rearranging import Rearranging
from penstock.spark.lanes.lane import Lane, LaneContext
from penstock.spark.log.appended import Appended
from penstock.spark.log.row_log import RowLogs
from penstock.spark.publication.kinds import running_of
from penstock.spark.publication.retention import Needed, Retention
from penstock.spark.recovery.causes import TAKEN_OVER
from penstock.spark.recovery.supervisor import stop_all
from penstock.spark.reporting.known_streams import added_columns, refuse_another_source
from penstock.spark.reporting.status_file import StatusFile
from penstock.spark.results.cataloguing import CatalogWriter
from penstock.spark.run_lanes import RunLanes
from penstock.spark.sessions.build import warm_workers
from penstock.spark.sessions.output import OUTPUT
from penstock.spark.sinks.declared import Sink
from penstock.spark.sinks.follower import FollowerContext
from penstock.spark.sinks.followers import Followers
from penstock.spark.sinks.marks import Marks
from penstock.spark.sinks.published import Publications
from penstock.spark.sources.probes import Probe
from penstock.spark.sources.source import Progress, Source, untold
from penstock.spark.sources.watch import SourceWatch
from penstock.spark.storage.bindings import ViewDefinition, WindowDefinition
from penstock.spark.storage.event_copies import EventCopies
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.store_paths import ObjectPath
from penstock.status import ViewKind
from penstock.trigger import Trigger

Definition = ViewDefinition | WindowDefinition
#: how long one stream is looked at before the next while all are waited for
_LOOK_SECONDS = 0.2
#: views that an event names
_MOST_NAMED = 1000
#: refused rules of one look at their files that are events
_MOST_REFUSED = 100


class Execution:
    """The queries and lanes behind a `Run`.

    Args:
        spark: the session.
        layout: the run's folders.
        settings: frozen settings.
        trigger: when batches start, and when the run ends.
        functions: the user's functions, by name.
        called: those of them that take arrays and return one.
        aggregates: the user's aggregates, by name in upper case.
        progress: called with what the start is doing; what it raises ends the start.

    Raises:
        CheckpointError: another run uses the checkpoint.
        InputError: as `Layout.open`.
    """

    def __init__(
        self,
        spark: SparkSession,
        layout: Layout,
        settings: Settings,
        trigger: Trigger,
        functions: Mapping[str, Callable[..., Any]],
        called: Mapping[str, Callable[..., Any]],
        aggregates: Mapping[str, UserAggregate],
        progress: Progress = untold,
    ) -> None:
        self.spark = spark
        self._progress = progress
        self._settings = settings
        self._trigger = trigger
        self._functions, self._called = functions, called
        #: Spark's queries have names, and one session may hold several runs over streams of the same name
        self._name = f"penstock-{uuid.uuid4().hex[:8]}"
        #: until the streams it begins with are added
        self.is_starting = True
        #: whether something may run that could not be stopped
        self._is_unstopped = False
        #: replaced, never changed: threads read it at any time
        self.queries: Mapping[str, IngestQuery] = {}
        #: of streams that are prepared and not added yet, see `added_columns`
        self._added_columns: dict[str, list[str]] = {}
        #: by stream the folder or the topics that it reads
        self._parts: dict[str, Sequence[str]] = {}
        self._catalog = CatalogWriter(layout)
        #: one thread may wait for the end while another stops the run
        self._ending = threading.Lock()
        self._stopped = False
        #: one thread may stop the parts while another finds that the run is fenced
        self._stopping_parts, self._fencing = threading.Lock(), threading.Lock()
        #: who has taken the ledger over
        self._fenced: FencedError | None = None
        with ExitStack() as held:
            self._ledger = layout.open(
                lambda: self.is_starting or self.active or self._is_unstopped, self._end_fenced
            )
            held.callback(self._ledger.close)
            layout.sweep()
            self.layout = layout = replace(layout, run=self._ledger.writer().epoch)
            self.status_file = StatusFile(layout, self._pairs)
            held.callback(self.status_file.close)
            told: list[Callable[[dict[str, Any]], None]] = [self.status_file.book.note]
            if isinstance(layout.output, ObjectPath):
                copies = EventCopies(layout.output, layout.run)
                held.callback(copies.close)
                told.append(copies.add)
            self.events = EventLog(
                layout.events,
                told=partial(_tell_all, told),
                most_bytes=settings.events_bytes,
                most_files=settings.events_files,
            )
            held.callback(self.events.close)
            held.callback(OUTPUT.into(layout.spark_log))
            warm_workers(spark)
            self._watch = SourceWatch(self.events, settings.watch_seconds)
            self.rearranging = Rearranging(settings, self.events, lambda stream: self.queries[stream].plans)
            appended, published = Appended(), Appended()
            self._retention = Retention(settings.retain_seconds)
            self._retention.needed = self._needed_rows
            context = LaneContext(
                spark,
                layout,
                self.events,
                settings,
                trigger,
                self._name,
                published,
                appended,
                RowLogs(layout, self.events, appended.tell),
                functions,
                aggregates,
                retention=self._retention,
            )
            self._appended, self._published = appended.tell, published.tell
            self.lanes = RunLanes(context, self.status_file, lambda: self.queries, self._write_catalog)
            self.followers = Followers(
                FollowerContext(
                    spark,
                    layout,
                    self.events,
                    settings,
                    trigger.is_bounded,
                    lambda: not (self.is_starting or self._publishes),
                    Publications(layout),
                    Marks(),
                    published,
                    Appended(),
                    self.status_file.book.take_sink,
                )
            )
            self.events.record("run_started", spark=spark.version, master=spark.sparkContext.master)
            #: what the run holds of the process, to be let go of in reverse order
            self._held = held.pop_all()

    def explain(self) -> str:
        """What runs where and why, a paragraph a stream, a join view and a window view that others are over."""
        streams = [query.plans.explain() for query in self.queries.values()]
        return "\n".join(
            [*streams, *(line for lane in self.lanes.running.values() for line in lane.explain())]
        )

    def refused(self, error: InputError) -> None:
        """Notes why the run cannot start: what was asked for cannot be."""
        self.events.record("run_refused", told=str(error))

    def stop(self) -> None:
        """Stops every stream. The same checkpoint goes on where it stopped.

        Raises:
            Exception: what kept one from being stopped; all others are, and the checkpoint stays this run's, as that one may
                still run, until another call stops it, or the process ends.
        """
        self._stop_parts()
        with self._ending:
            self.rearranging.close()
            if not self._stopped:
                self.events.record("run_stopped")
            self._stopped = True
            self._held.close()

    def _stop_parts(self) -> None:
        self.lanes.prepare_stop()
        self.followers.prepare_stop()
        with self._stopping_parts:
            self._is_unstopped = True
            try:
                stop_all([*(running.stop for running in self._running), self.followers.stop])
            finally:
                self._watch.close()
            self._is_unstopped = False

    def _end_fenced(self, error: FencedError) -> None:
        """Ends the run because another one has taken over: its folder takes no more files, reports or events of this one."""
        with self._fencing:
            if self._fenced is not None:
                return
            self._fenced = error
        self.status_file.leave()
        self.events.close()
        self.events.record("run_failed", cause=TAKEN_OVER, told=str(error))
        # the thread that has met it may be one of those that are stopped
        threading.Thread(target=self._stop_fenced, daemon=True, name="penstock-fenced").start()

    def _stop_fenced(self) -> None:
        # what keeps a part from being stopped is raised by the call of `stop` that follows
        with suppress(Exception):
            self._stop_parts()

    def _refuse_fenced(self) -> None:
        if self._fenced is not None:
            raise self._fenced

    def await_termination(self, timeout_seconds: float | None = None) -> bool:
        """Waits until every stream has ended (only with available_now) and sinks have what it brought, or one has failed.

        Returns:
            False where the time ran out first.

        Raises:
            StreamFailedError: something stopped a stream, a lane could not answer what was available, or a sink did not take it.
            FencedError: another run has taken over.
        """
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds

        def look_seconds() -> float:
            left = _LOOK_SECONDS if deadline is None else deadline - time.monotonic()
            return max(0.0, min(_LOOK_SECONDS, left))

        while True:
            self._refuse_fenced()
            # a lane that fails is no matter of the others
            try:
                ended = [
                    each.await_termination(look_seconds())
                    if isinstance(each, IngestQuery)
                    else each.join(look_seconds())
                    for each in self._running
                ]
            except StreamFailedError:
                self._refuse_fenced()
                raise
            if all(ended):
                break
            if deadline is not None and time.monotonic() >= deadline:
                return False
        if not self.followers.join(deadline):
            return False
        self._refuse_fenced()
        self._refuse_unanswered()
        self._watch.close()
        with self._ending:
            if not self._stopped:
                self.rearranging.settle()
                for query in self.queries.values():
                    query.close()
                self.events.record("run_ended", streams={n: q.totals.tuples for n, q in self.queries.items()})
                self.status_file.close()
                self._ledger.close()
        return True

    def _refuse_unanswered(self) -> None:
        """Makes sure that every lane and sink that has ended, and was not stopped, has what there is.

        Raises:
            StreamFailedError: one has failed.
        """
        lanes = self.lanes.running.values()
        failed = [each.failed for each in self.lanes.keepers.values() if each.failed is not None]
        failed += [each for lane in lanes for each in lane.failures]
        of_sinks = self.followers.failed
        if not (failed or of_sinks) or self._stopped:
            return
        waiting = [view for lane in lanes if lane.waits_for_others for view in lane.views]
        told = " ".join(
            [
                *([unanswered_words(failed, waiting)] if failed else ()),
                *([undelivered_words(of_sinks)] if of_sinks else ()),
            ]
        )
        failed += of_sinks
        self.events.record("run_failed", **{**failed[0], "told": told})
        raise StreamFailedError(told)

    @property
    def active(self) -> bool:
        """Whether any stream still runs."""
        return self._publishes or self.followers.active

    @property
    def _publishes(self) -> bool:
        """Whether any batch or cut may follow."""
        return any(each.active for each in self._running)

    @property
    def _running(self) -> list[IngestQuery | LogKeeper | Lane]:
        return [*self.queries.values(), *self.lanes.keepers.values(), *self.lanes.running.values()]

    def prepare(self, name: str, source: Source, probe: Probe | None = None) -> None:
        """Makes sure that a stream can be added, and gets its source ready; stores nothing of views.

        Raises:
            InputError: what the stream reads cannot be used, or does not fit the results there are.
        """
        parts = () if probe is None else probe.parts
        refuse_another_source(self.layout, name, parts)
        self._parts[name] = parts
        self._added_columns[name] = added_columns(self.layout, name, source.schema)
        source.prepare(self.layout, name, self.events, self._progress)

    def add_stream(
        self,
        name: str,
        source: Source,
        views: Mapping[str, Definition],
        probe: Probe | None = None,
        bound: DeclaredConditions | None = None,
    ) -> None:
        """Starts the ingest query of a prepared stream.

        Args:
            name: its name.
            source: where its tuples come from.
            views: the views on it.
            probe: tells of outages and lag, where there is one.
            bound: conditions of its views that are bound already.
        """
        added = self._added_columns.pop(name)
        query = IngestQuery(
            self.spark,
            name,
            source,
            self.layout,
            self.events,
            self._settings,
            self._published,
            self.rearranging.report,
            self._name,
            self._functions,
            self._called,
            self._retention,
        )
        views = self._catalog.number(name, source.schema, views)
        known = query.plans.answered
        redefined = [view for view, definition in views.items() if known.get(view, definition) != definition]
        gone = [view for view in known if view not in views]
        query.plans.change(views, frozenset(gone))
        if bound is not None:
            query.plans.begin_with(bound)
        self.lanes.ask(name, query.plans)
        self.queries = {**self.queries, name: query}
        self.status_file.begin_stream(name)
        self._write_catalog()
        self.events.record("stream_started", stream=name, views=len(views))
        if added:
            self.events.record("columns_added", stream=name, columns=added)
        if redefined or gone:
            self.events.record(
                "views_changed",
                stream=name,
                redefined=redefined[:_MOST_NAMED],
                dropped=gone[:_MOST_NAMED],
            )
        self._watch.add(name, probe, self.layout.spark(name), lambda: query.newest_event_time)
        query.source_state = partial(self._watch.state, name)
        query.log.on_put = self._appended
        query.log.readers = partial(self.lanes.readers, name)
        query.start(self._trigger)
        self.lanes.fit()

    def started(self) -> None:
        """All streams that the run begins with are there: lanes of an earlier run that no view needs any more leave."""
        self.is_starting = False
        self.lanes.leave_logs()
        self.followers.start()

    def change(self, stream: str, add: Mapping[str, Definition], drop: Sequence[str] = ()) -> None:
        """Adds, redefines and drops views of a running stream, from its next binding on."""
        query = self.queries[stream]
        add = self._catalog.number(stream, query.source.schema, add)
        query.plans.change(add, frozenset(drop))
        self._write_catalog()
        self.events.record(
            "views_changed", stream=stream, added=list(add)[:_MOST_NAMED], dropped=list(drop)[:_MOST_NAMED]
        )
        self.lanes.fit()

    def rules_changed(self, changes: RuleChanges) -> None:
        """Notes what a look at files of rules changed."""
        for each in changes.refused[:_MOST_REFUSED]:
            told = f"{each.place}: {each.told}"
            self.events.record("rule_refused", rules=changes.path, view=each.name, told=told)
        self.events.record(
            "rules_changed",
            rules=changes.path,
            added=changes.added[:_MOST_NAMED],
            redefined=changes.redefined[:_MOST_NAMED],
            dropped=changes.dropped[:_MOST_NAMED],
            refused=[str(each) for each in changes.standing[:_MOST_REFUSED]],
            refused_count=len(changes.standing),
            kept_count=sum(bool(each.kept) for each in changes.standing),
        )

    def script_changed(self, path: str, refused: str | None) -> None:
        """Notes that a changed script was refused, and why, or that the run follows it."""
        if refused is None:
            self.events.record("script_followed", script=path)
        else:
            self.events.record("script_refused", script=path, told=refused)

    def settings_changed(self, path: str, names: Sequence[str]) -> None:
        """Notes that a changed script has other settings than this run."""
        self.events.record("settings_changed", script=path, settings=list(names))

    def _pairs(self) -> dict[str, Mapping[str, int]]:
        return {name: query.totals.view_pairs for name, query in self.queries.items()}

    def set_sinks(self, sinks: Sequence[Sink]) -> None:
        """Delivers views' rows to these sinks, and to no others."""
        self.followers.set(sinks)

    def set_retention(self, seconds: Mapping[str, float]) -> None:
        """Keeps the published rows of these streams and views so long, and those of others as the settings say."""
        self._retention.of_names = dict(seconds)

    def _needed_rows(self, query: str, kinds: Iterable[str]) -> dict[str, Needed]:
        """The first row of each kind that a sink has not, or that a view reads; see `Retention`."""
        kinds = list(kinds)
        return self.followers.needed(query, kinds) | self.lanes.needed_rows(query, kinds)

    def set_rules(self, files: Mapping[str, Sequence[str]]) -> None:
        """Keeps which views files of rules declare, for the next start."""
        if self._catalog.set_rules(files) and self.queries:
            self._write_catalog()

    def views(self) -> Iterator[tuple[str, ViewKind, str]]:
        """The views that are answered: name, kind, and the stream that each reads, of a join the first one."""
        for stream, query in self.queries.items():
            yield from ((name, "selection", stream) for name in query.plans.views)
            yield from ((name, "window", stream) for name in query.plans.windows)
            yield from ((name, "running", stream) for name in query.plans.running)
        yield from self.lanes.views()

    def _write_catalog(self) -> None:
        streams = {name: query.source.schema for name, query in self.queries.items()}
        views: dict[str, Mapping[str, Definition]] = {}
        for name, query in self.queries.items():
            views[name], running = query.plans.answered_by_kind
            if query.plans.had_running:
                views[running_of(name)] = running
        views |= self.lanes.definitions()
        parts = {name: own for name, own in self._parts.items() if own and name in streams}
        self._catalog.write(streams, views, self.lanes.entries(), parts)
        self.followers.views_changed()


def _tell_all(told: Sequence[Callable[[dict[str, Any]], None]], event: dict[str, Any]) -> None:
    for tell in told:
        tell(event)
