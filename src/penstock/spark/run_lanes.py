"""The lanes of a run: fitted to the views that are declared, each beside the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

from penstock.spark.ingest.log_keeper import LogKeeper
from penstock.spark.ingest.plans import StreamPlans
from penstock.spark.ingest.query import IngestQuery
from penstock.spark.lanes.asking import ask
from penstock.spark.lanes.cuts import Cuts
from penstock.spark.lanes.deadlines.register import DEADLINE_LANE, DeadlineViews
from penstock.spark.lanes.deadlines.views import DeadlineDefinition
from penstock.spark.lanes.derived.beneath import LaneSource, RowSource, RunningSource, WindowSource
from penstock.spark.lanes.derived.stream import DerivedStream, LaneOutput
from penstock.spark.lanes.derived.views import DerivedView
from penstock.spark.lanes.lane import Lane, LaneContext, LaneInput, LanePlan
from penstock.spark.lanes.refreshed.views import RefreshedViews
from penstock.spark.lanes.registry import Needs, needed_lanes, views_with_lanes
from penstock.spark.log.stream_log import LogReader
from penstock.spark.publication.kinds import is_of_view, is_running_name
from penstock.spark.publication.retention import Needed
from penstock.spark.reporting.status_file import StatusFile
from penstock.spark.sources.static_tables import StaticTable
from penstock.spark.storage.bindings import RunningDefinition, WindowDefinition
from penstock.spark.storage.deadlines import DEADLINES_NAME
from penstock.spark.storage.lane_views import LaneDefinition, RegisteredView
from penstock.spark.storage.refreshed import REFRESHED, RefreshedDefinition
from penstock.status import ViewKind

#: views that an event names
_MOST_NAMED = 1000


class RunLanes:
    """The lanes of a run and the views that they answer; one thread changes them at a time.

    Args:
        context: the run's.
        status: where what is published is counted.
        queries: the run's ingest queries by stream.
        changed: called when views have come or gone.

    Raises:
        DamagedError: a register of views is missing or damaged.
    """

    def __init__(
        self,
        context: LaneContext,
        status: StatusFile,
        queries: Callable[[], Mapping[str, IngestQuery]],
        changed: Callable[[], None],
    ) -> None:
        self._context = context
        self._layout, self._events = context.layout, context.events
        self._status = status
        self._queries = queries
        self._changed = changed
        # these are replaced, never changed: threads read them at any time
        self.running: Mapping[str, Lane] = {}
        self.keepers: Mapping[str, LogKeeper] = {}
        self._derived: Mapping[str, DerivedStream] = {}
        #: the views whose rows views with lanes of their own read, by the name of their log
        self._read: Mapping[str, RowSource | RunningSource] = {}
        #: names of the lanes that views need
        self._needed: frozenset[str] = frozenset()
        self._own = views_with_lanes(context)
        #: whether the last change of `_own` was carried out
        self._is_settled = True
        self._deadlines = DeadlineViews(context.layout)

    def set_views(
        self, kind: str, definitions: Mapping[str, LaneDefinition], tables: Mapping[str, StaticTable]
    ) -> None:
        """Answers these views of a kind that has lanes of its own and no others, with what comes to their streams from now on.

        Args:
            kind: its name.
            definitions: the views by name.
            tables: the static tables by name.
        """
        own = self._own[kind]
        # what an attempt before has stored and not carried out is carried out by this one
        is_changed, self._is_settled = not self._is_settled, False
        before = {each.lane for each in own.views}
        gone = own.settle(definitions, tables)
        added = [each.definition.name for each in own.views if each.lane not in before]
        is_changed = is_changed or bool(gone or added)
        stopped = [self._stop(each.lane) for each in gone if each.lane in self.running]
        # what a view that leaves has held, a new one may hold from now on
        for name, query in self._queries().items() if is_changed else ():
            self.ask(name, query.plans)
        for lane in stopped:
            self._leave(lane)
        for each in gone:
            own.forget(each)
        self._forget_sources({each.lane for each in gone})
        if is_changed:
            self._changed()
            dropped = [each.definition.name for each in gone]
            self._events.record(
                {
                    "joins": "joins_changed",
                    "refreshed": "refreshed_changed",
                    "unions": "unions_changed",
                }[kind],
                added=added[:_MOST_NAMED],
                dropped=dropped[:_MOST_NAMED],
            )
        self.fit()
        self._is_settled = True

    def set_deadlines(self, definitions: Mapping[str, tuple[str, DeadlineDefinition]]) -> None:
        """Answers these views with a deadline and no others, with what comes to their streams from now on.

        Args:
            definitions: by name, a view and the stream it is on.
        """
        added, gone = self._deadlines.settle(definitions)
        if not (added or gone):
            return
        if DEADLINE_LANE in self.running:
            # another one goes on where it ends, with the views there are now
            lane = self._stop(DEADLINE_LANE)
            self._needed -= {DEADLINE_LANE}
            for each in lane.streams:
                if each.stream not in self._deadlines.streams:
                    LogReader(self._layout.log(each.stream)).leave(DEADLINE_LANE)
        for name, query in self._queries().items():
            self.ask(name, query.plans)
        self._changed()
        self._events.record("deadlines_changed", added=added[:_MOST_NAMED], dropped=gone[:_MOST_NAMED])
        self.fit()

    def derive(
        self, stream: str, view: str, add: Mapping[str, DerivedView], drop: Sequence[str] = ()
    ) -> None:
        """Adds, redefines and drops window views over a view; before its streams are added, or while they run.

        Args:
            stream: the stream of the view beneath; of a running view as `running_of` names it; `JOINS.name` of a join view, `UNIONS.name` of a UNION ALL, which has been set.
            view: the view beneath.
            add: the views over it, by name.
            drop: names of such views.
        """
        source = self._source(stream, view)
        if source is None:
            self._changed()
            return
        derived = self._derived.get(source.name) or DerivedStream(self._layout, source)
        known = derived.definitions
        derived.change(add, drop)
        self._derived = {**self._derived, derived.name: derived}
        self._read_rows(source.lane)
        if known or any(name in self._queries() for name in source.streams):
            self._events.record(
                "views_changed",
                stream=derived.name,
                added=list(add)[:_MOST_NAMED],
                dropped=list(drop)[:_MOST_NAMED],
            )
        self._changed()
        self.fit()

    def fit(self) -> None:
        """Starts the lanes that views need and that do not run yet, and removes those that none needs any more."""
        needs = Needs(
            self._queries(), tuple(self._own.values()), self._deadlines, tuple(self._derived.values())
        )
        needed = {plan.name: plan for plan in needed_lanes(needs)}
        needed |= {plan.name: plan for plan in self._over_rows(needed)}
        for name in self._needed - needed.keys():
            self.remove(name)
        for name, plan in needed.items():
            if name not in self.running:
                self.add(plan)
        self._needed = frozenset(needed)

    def _over_rows(self, needed: Mapping[str, LanePlan]) -> Iterator[LanePlan]:
        """The lanes of views over rows of views that lanes publish; the logs of these rows are kept from now on.

        Args:
            needed: the other lanes that are needed.
        """
        refreshed = self._own[REFRESHED.name]
        assert isinstance(refreshed, RefreshedViews)
        read: dict[str, RowSource | RunningSource] = {}
        plans: dict[str, LanePlan] = {}
        waiting = list(refreshed.over_rows())
        # one that another one reads begins before it, whichever was declared first
        while waiting:
            left = []
            for registered in waiting:
                sources = self._sources(registered, {*needed, *plans})
                if sources is None:
                    left.append(registered)
                    continue
                read |= {each.name: each for each in sources}
                plans[registered.lane] = refreshed.lane_over(registered, sources)
            if len(left) == len(waiting):
                break
            waiting = left
        lanes = {
            each.lane
            for name, each in (*self._read.items(), *read.items())
            if (name in self._read) != (name in read)
        }
        self._read = read
        for lane in lanes:
            self._read_rows(lane)
        yield from plans.values()

    def _sources(
        self, registered: RegisteredView[RefreshedDefinition], lanes: Set[str]
    ) -> list[RowSource | RunningSource] | None:
        """Who publishes the rows that a view reads; None where one is not answered by these lanes, or not yet as the view reads it."""
        found: list[RowSource | RunningSource] = []
        for read in registered.definition.views:
            source = self._source(read.place, read.view)
            if source is None or source.lane not in lanes:
                return None
            if isinstance(source, LaneSource) and source.answered.definition.id != read.id:
                return None
            found.append(source)
        return found

    def add(self, plan: LanePlan) -> Lane:
        """Starts a lane beside those that the views need; its name must be free."""
        inputs = {stream: self._input(stream) for stream in plan.streams}
        lane = plan.make(self._context, [inputs[stream] for stream in plan.streams])
        # a lane that puts entries of its own holds the logs by now
        for stream, keeper in inputs.items():
            if isinstance(keeper, LogKeeper) and stream not in self.keepers:
                keeper.start()
                self.keepers = {**self.keepers, stream: keeper}
        lane.recount(self._status)
        lane.start()
        self.running = {**self.running, plan.name: lane}
        return lane

    def remove(self, name: str) -> None:
        """Stops a lane that is needed no more; the logs of its streams go on without it, what it has published stays."""
        self._leave(self._stop(name))

    def _leave(self, lane: Lane) -> None:
        lane.leave()
        streams = [each.stream for each in lane.streams]
        self._events.record("lane_left", lane=lane.name, streams=streams)

    def _stop(self, name: str) -> Lane:
        lane = self.running[name]
        self.running = {other: each for other, each in self.running.items() if other != name}
        lane.stop()
        return lane

    def readers(self, stream: str) -> set[str]:
        """The names that this run's lanes have among the readers of a stream's log."""
        lanes = self.running.values()
        return {
            name
            for lane in lanes
            if any(each.stream == stream for each in lane.streams)
            for name in lane.reader_names
        }

    def _input(self, stream: str) -> LaneInput:
        """The log of a stream, or of what a lane publishes."""
        if stream in self._read or stream in self._derived:
            source = self._read[stream] if stream in self._read else self._derived[stream].source
            return LaneOutput(stream, self.running[source.lane], source.view)
        query, context = self._queries()[stream], self._context
        return self.keepers.get(stream) or LogKeeper(
            query, self._layout, self._events, context.settings, context.trigger
        )

    def ask(self, stream: str, plans: StreamPlans) -> None:
        """Asks a stream for what views need of its tuples."""
        asked = [each for own in self._own.values() for each in own.asked(stream)]
        ask(LogReader(self._layout.log(stream)), plans, [*asked, *self._deadlines.asked(stream)])

    def _source(self, stream: str, view: str) -> RowSource | RunningSource | None:
        """A view that others are over; None of a join view or UNION ALL that is answered no more."""
        if is_running_name(stream):
            return RunningSource(self._layout, stream, view)
        if stream not in self._own:
            return WindowSource(self._layout, stream, view)
        answered = self._own[stream].register.of(view)
        return None if answered is None else LaneSource(self._layout, answered)

    def _read_rows(self, lane: str) -> None:
        """Keeps the logs of those views of a lane that others are over."""
        derived = [each.source for each in self._derived.values() if each.answered]
        read = [each for each in (*derived, *self._read.values()) if each.lane == lane]
        self._context.rows.read(lane, {each.view: each.name for each in read})

    def _forget_sources(self, lanes: Set[str]) -> None:
        """Lets views over those that these lanes answered begin anew, over what answers them from now on."""
        self._derived = {
            name: derived for name, derived in self._derived.items() if derived.source.lane not in lanes
        }
        for lane in lanes:
            self._read_rows(lane)
        self._needed -= lanes

    def prepare_stop(self) -> None:
        """Lets every part know that it is about to be stopped; none is waited for."""
        for keeper in self.keepers.values():
            keeper.prepare_stop()
        for lane in self.running.values():
            lane.prepare_stop()

    def leave_logs(self) -> None:
        """Lanes of an earlier run that no view needs any more leave the logs of the streams."""
        for stream in self._queries():
            log = LogReader(self._layout.log(stream))
            for reader in log.marks().keys() - self.readers(stream):
                # another program that reads the log is no lane
                if self._layout.lanes[reader].exists():
                    Cuts(self._layout.cuts(reader)).clear()
                    log.leave(reader)
                    self._events.record("lane_left", lane=reader, streams=[stream])

    def needed_rows(self, query: str, kinds: Iterable[str]) -> dict[str, Needed]:
        """The first row of each kind that a view reads; see `Retention`."""
        above = [(each.source, tuple(each.definitions)) for each in self._derived.values() if each.answered]
        refreshed = self._own[REFRESHED.name].views
        above += [
            (
                source,
                tuple(
                    each.definition.name for each in refreshed if source.view in dict(each.definition.beneath)
                ),
            )
            for source in self._read.values()
        ]
        return {
            kind: Needed(0, views)
            for source, views in above
            if source.lane == query
            for kind in kinds
            if is_of_view(kind, source.view)
        }

    def views(self) -> Iterator[tuple[str, ViewKind, str]]:
        """The views that are answered: name, kind, and the stream that each reads, of a join the first one."""
        for derived in self._derived.values():
            for name, definition in derived.definitions.items():
                kind: ViewKind = "running" if isinstance(definition, RunningDefinition) else "window"
                yield name, kind, derived.name
        for own in self._own.values():
            yield from ((each.definition.name, own.kind, each.definition.streams[0]) for each in own.views)
        for deadline in self._deadlines.views:
            yield deadline.definition.name, "deadline", deadline.stream

    def definitions(self) -> dict[str, Mapping[str, WindowDefinition]]:
        """The views whose rows are those of windows or groups, by what readers of the output find them under."""
        derived = {name: dict(each.definitions) for name, each in self._derived.items()}
        return {DEADLINES_NAME: dict(self._deadlines.definitions), **derived}

    def entries(self) -> list[dict[str, Any]]:
        """What the catalog says of the views that have lanes of their own."""
        return [entry for own in self._own.values() for entry in own.entries()]
