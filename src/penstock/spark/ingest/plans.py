"""The driver's registry of views on one stream: plan versions, which batch is bound to which, and what is sent out."""

from __future__ import annotations

import pickle
import threading
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark import Broadcast
from pyspark.sql import SparkSession

from penstock.control.policies.output_rate import SwitchSettings
from penstock.monitor.figures import counted
from penstock.operators.coding.regions import carried_over
from penstock.operators.ingest.stream_program import StreamProgram
from penstock.plan.arrangement import Arrangement
from penstock.plan.expressions import Derived
from penstock.plan.times import BEFORE_ALL
from penstock.settings import Settings
from penstock.spark.ingest.call_orders import CallOrders
from penstock.spark.ingest.compiling import NO_FUNCTIONS, CompiledPlan, PlanCompiler
from penstock.spark.ingest.conditions import DeclaredConditions
from penstock.spark.ingest.explaining import computer_of, explain_bound, explain_windows
from penstock.spark.publication.staged import BatchFiles
from penstock.spark.sources.source import BoundBatch, Source
from penstock.spark.storage.bindings import (
    Beginning,
    Believed,
    PlanLog,
    RunningDefinition,
    ViewDefinition,
    WindowDefinition,
    WindowRegister,
)
from penstock.spark.storage.demands import NO_DEMANDS, NumberedDemand, TupleDemand
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.shared_maps import SharedMap
from penstock.spark.tasks.worker import SentSequence

_KEPT_PLANS = 3


class StreamPlans:
    """Registers views, stores plan versions, binds batches to them and compiles them.

    Views may come and go from any thread; a change takes effect at the next binding, all changes
    since the last one together. Evaluation sequences may be swapped from any thread. Programs are broadcast,
    and what earlier batches used is destroyed, by the thread that runs the batches alone: they follow one another.

    Args:
        spark: the session.
        stream: the stream's name.
        source: where its tuples come from.
        log: plan versions and bindings.
        events: the event log.
        settings: frozen settings.
        shards: gives the number of shards of the window lane, fixed from then on; asked once there is a window view.
        store_readers: stores what those behind the log have to know of a plan version, if it has not been stored;
            called before any batch is bound to the version.
        beginnings: gives for a batch where the window views begin that it is the first one of.
        time_limit: gives what a batch's event times are judged by.
        too_late: gives for a plan version before which event time tuples are in no window any more, microseconds.
        functions: the users' functions that take arrays and return one, by name; others may follow.
    """

    def __init__(
        self,
        spark: SparkSession,
        stream: str,
        source: Source,
        log: PlanLog,
        events: EventLog,
        settings: Settings,
        shards: Callable[[], int],
        store_readers: Callable[[CompiledPlan], None],
        beginnings: Callable[[int], Callable[[WindowDefinition], Beginning]],
        time_limit: Callable[[int], Believed],
        too_late: Callable[[int], int] = lambda _: BEFORE_ALL,
        functions: Mapping[str, Callable[..., Any]] = NO_FUNCTIONS,
    ) -> None:
        #: names of the views that demands of tuples are for, by the demand's id; replaced as a whole
        self.demanding: Mapping[int, Collection[str]] = {}
        #: seconds that the lanes that read tuples let them wait for others to come with the same batch
        self.patience = 0.0
        self._spark = spark
        self._stream = stream
        self._source = source
        self._log = log
        self._events = events
        self._settings = settings
        self._store_readers = store_readers
        self._beginnings = beginnings
        self._time_limit = time_limit
        self._compiler = PlanCompiler(spark, stream, source, settings, shards, functions)
        #: the order in which users' functions are called
        self.calls = CallOrders(stream, events, SwitchSettings.of(settings), log.call_statistics)
        self._too_late = too_late
        #: tells this registry's programs from others' in the workers' caches
        self._identity = uuid.uuid4().hex
        self._lock = threading.Lock()
        #: held by whoever uses the compiler or what it has compiled
        self._compiling = threading.Lock()
        #: the program that the newest batch uses, by its version; touched by the thread of the batches alone
        self._shipped: dict[int, Broadcast[bytes]] = {}
        #: the evaluation sequence of each version, where one was measured
        self._sequences: dict[int, SentSequence] = {}
        self._revision = 0
        #: the columns in the order of the newest sequence: later plan versions and runs begin with it
        self._order = log.sequence()
        self._compiled: dict[int, CompiledPlan] = {}
        self._newest = log.newest()
        self._views = SharedMap({} if self._newest is None else log.load(self._newest))
        stored = WindowRegister() if self._newest is None else log.load_windows(self._newest)
        self._register = replace(stored, slack=settings.slack)
        self._demands = NO_DEMANDS if self._newest is None else log.load_demands(self._newest)
        #: what the newest version is of
        self._newest_parts = self._views, stored, self._demands
        self._changed = self._newest is None or (bool(stored.windows) and self._register != stored)

    @property
    def views(self) -> SharedMap[ViewDefinition]:
        """The selection views that the next binding will answer."""
        with self._lock:
            return self._views.copy()

    @property
    def windows(self) -> dict[str, WindowDefinition]:
        """The window views that the next binding will answer."""
        with self._lock:
            return self._register.answered_windows

    @property
    def running(self) -> dict[str, RunningDefinition]:
        """The running views that the next binding will answer."""
        with self._lock:
            return self._register.answered_running

    @property
    def answered(self) -> SharedMap[ViewDefinition | WindowDefinition]:
        """All views that the next binding will answer."""
        with self._lock:
            views: SharedMap[Any] = self._views.copy()
            views.update(self._register.answered)
            return views

    @property
    def answered_by_kind(
        self,
    ) -> tuple[SharedMap[ViewDefinition | WindowDefinition], SharedMap[ViewDefinition | WindowDefinition]]:
        """Likewise, those but the running views, and these."""
        with self._lock:
            views: SharedMap[Any] = self._views.copy()
            views.update(self._register.answered_windows)
            return views, SharedMap.of(self._register.answered_running)

    @property
    def gathering_seconds(self) -> float:
        """How long tuples may wait for others to come with the same batch: not at all where the batch itself answers views."""
        with self._lock:
            is_answered = bool(self._views) or bool(self._register.answered)
        return 0.0 if is_answered else self.patience

    def begin_with(self, declared: DeclaredConditions) -> None:
        """Takes conditions that are bound already; the first plan version that is compiled need not bind them again."""
        self._compiler.declared = declared

    def change(
        self, add: Mapping[str, ViewDefinition | WindowDefinition], drop: frozenset[str] = frozenset()
    ) -> None:
        """Adds or redefines views and drops others, in one step.

        Window views added together share operators where they can; see `sharing`.

        Raises:
            InputError: a window view that cannot be bound; nothing changes then.
        """
        selections = {name: view for name, view in add.items() if isinstance(view, ViewDefinition)}
        with self._lock:
            present = self._register.answered
        windows = [
            view
            for name, view in add.items()
            if isinstance(view, WindowDefinition) and not _same_window(present.get(name), view)
        ]
        groups = []
        if windows:
            with self._compiling:
                groups = self._compiler.sharing(windows)
        replaced = {*drop, *selections, *(view.name for view in windows)}
        with self._lock:
            views, register = self._views.copy(), self._register
            for name in (*drop, *(view.name for view in windows)):
                views.pop(name, None)
            for name, selection in selections.items():
                known = self._views.get(name)
                same = known is not None and replace(known, id=selection.id) == selection
                views[name] = known if same and known is not None else selection
            self._register = register.changed(groups, replaced)
            is_same = not len(views.changes_since(self._views)) and self._register == register
            self._views, self._changed = views, self._changed or not is_same

    @property
    def had_windows(self) -> bool:
        """Whether the next binding will answer window views, or any before has."""
        with self._lock:
            return self._register.next_operator > self._register.running_operators

    @property
    def had_running(self) -> bool:
        """Whether the next binding will answer running views, or any before has."""
        with self._lock:
            return self._register.running_operators > 0

    @property
    def demands(self) -> tuple[NumberedDemand, ...]:
        """What the next binding will keep of tuples for readers of the log."""
        with self._lock:
            return self._demands.demands

    def demands_behind(self, version: int) -> frozenset[int] | None:
        """What is kept of the tuples of all batches behind one that is bound to a plan version, as things are.

        Args:
            version: the plan version.

        Returns:
            The demands' ids; None where a later version is, or is about to be, stored.
        """
        with self._lock:
            if self._changed or version != self._newest:
                return None
            return frozenset(each.id for each in self._demands.demands)

    def demand(self, demand: TupleDemand) -> int:
        """Asks for tuples in the log, see `demand_all`; the demand's id, which names its files."""
        return self.demand_all([demand])[0]

    def demand_all(self, demands: Sequence[TupleDemand]) -> list[int]:
        """Asks for tuples in the log, from the next binding on; what is asked for already is not asked for twice.

        Returns:
            The id of each demand, which names its files.

        Raises:
            InputError: one cannot be met; nothing changes then.
        """
        with self._lock:
            known = self._demands
        asked = known.with_demands(demands)
        if asked != known:
            unseen = [each.demand for each in asked.demands if each.id >= known.next_id]
            with self._compiling:
                self._compiler.check_demands(unseen)
        with self._lock:
            asked = self._demands.with_demands(demands)
            self._changed = self._changed or asked != self._demands
            self._demands = asked
            return [asked.id_of(each) for each in demands]

    def begun(self, demand: int) -> int | None:
        """The first batch whose tuples are dealt out for a demand; None before there is one, or where nobody asks for it."""
        return next((each.begins for each in self.demands if each.id == demand), None)

    def withdraw(self, demand: int) -> None:
        """Asks for tuples no more, from the next binding on; what the log holds of them leaves with its entries."""
        with self._lock:
            left = self._demands.without(demand)
            self._changed = self._changed or left != self._demands
            self._demands = left

    def bind(self, batch: int, offsets: str | None = None) -> CompiledPlan:
        """The plan that answers a batch: the one it is bound to, else the newest.

        Args:
            batch: its number; it is not published.
            offsets: what it reads, see `offsets_digest`; None where that is not known.
        """
        version = self._log.bound(batch)
        if version is None:
            version = self._current_version(batch)
            self.compiled(version)
            believed = replace(self._time_limit(batch), too_late_before=self._too_late(version))
            with self._lock:
                order = self._order
            version = self._log.bind(batch, version, believed, offsets, order)
        elif self._log.rebind(batch, offsets):
            # a power cut may take Spark's plan of a batch and leave the binding: nothing of it was published
            self._events.record("batch_replanned", stream=self._stream, batch=batch, plan=version)
        return self.compiled(version)

    def begin(self, batch: int) -> int | None:
        """Lets changed views begin with a batch that has not come; nobody else binds batches meanwhile.

        Returns:
            The plan version with them; None where nothing has changed since the last binding.
        """
        with self._lock:
            if not self._changed:
                return None
        version = self._current_version(batch)
        self.compiled(version)
        return version

    def batch(self, number: int, store: BatchFiles, time_floor: int, offsets: str | None) -> BoundBatch:
        """Binds a batch and gathers what its jobs need; see `BoundBatch` and `bind`."""
        plan = self.bind(number, offsets)
        version = plan.program.version
        with self._lock:
            is_carried = bool(self._order) and version not in self._sequences
        if is_carried:
            self.begin_sequence(version)
        with self._lock:
            sequence = self._sequences.get(version)
        believed = self._log.believed(number)
        return BoundBatch(
            number=number,
            program=plan.program,
            derived=plan.by_spark,
            key=(self._identity, version),
            broadcast=self._ship(plan.program),
            sequence=sequence,
            store=store,
            time_limit=believed.limit,
            time_floor=time_floor,
            kept_ahead=believed.kept_ahead,
            too_late_before=believed.too_late_before,
            call_order=self.calls.order(plan.program.calls),
        )

    def judge_again(self, bound: BoundBatch, believed: Believed) -> BoundBatch:
        """Binds a batch, of which nothing is published, to another limit."""
        believed = replace(believed, too_late_before=bound.too_late_before)
        self._log.judge_again(bound.number, believed)
        return replace(bound, time_limit=believed.limit, kept_ahead=believed.kept_ahead)

    def compiled(self, version: int) -> CompiledPlan:
        """The compiled plan of a version."""
        with self._compiling:
            plan = self._compiled.get(version)
            if plan is None:
                plan = self._compiled[version] = self._compile(version)
                for old in sorted(self._compiled)[:-_KEPT_PLANS]:
                    del self._compiled[old]
            return plan

    def begin_sequence(self, version: int) -> Arrangement:
        """The order that a plan version's first batches evaluate columns in: that of the version or the run before."""
        coded = self.compiled(version).program.plan.coded
        with self._lock:
            arrangement = carried_over(coded, self._order)
            if self._order and version not in self._sequences:
                self._send(version, arrangement)
        return arrangement

    def swap_sequence(self, version: int, arrangement: Arrangement) -> None:
        """Lets batches follow an evaluation sequence from the next binding on; it changes speed, never results."""
        codings = self.compiled(version).program.plan.codings
        with self._lock:
            self._order = tuple(codings[attribute].name for attribute in arrangement.order)
            self._send(version, arrangement)

    def _send(self, version: int, arrangement: Arrangement) -> None:
        self._revision += 1
        self._sequences[version] = SentSequence(self._revision, pickle.dumps(arrangement, protocol=5))
        for old in sorted(self._sequences)[:-_KEPT_PLANS]:
            del self._sequences[old]

    def explain(self) -> str:
        """Where the newest plan's parts run and why."""
        version = self._log.newest()
        if version is None:
            return f"stream {self._stream}: waiting for the first rows"
        plan = self.compiled(version)
        place = self._source.place(plan.by_spark)
        views = f"{counted(len(plan.views), 'selection')}, {counted(len(plan.windows.bound), 'window view')}"
        head = f"stream {self._stream}: {views}, {place}"
        computer = computer_of(plan.program.computed)
        selections = explain_bound(plan.bound, computer) if plan.views else []
        calls = self.calls.explain(plan.program.calls)
        return "\n".join([head, *selections, *calls, *explain_windows(plan.windows, computer)])

    def forget(self, before_batch: int) -> None:
        """Removes what no replay can need any more."""
        self._log.forget(before_batch, self._settings.retained_plans)

    def for_operators(
        self, version: int, operators: Collection[int], span: tuple[int, int]
    ) -> tuple[StreamProgram, tuple[Derived, ...]]:
        """What computes some window operators of a plan version and nothing else, and the columns that Spark computes for it, if it does.

        Args:
            version: the plan version.
            operators: their ids.
            span: the first and the last event time that is wanted, microseconds.
        """
        register = self._log.load_windows(version)
        chosen = tuple(each for each in register.windows if each.operator in operators)
        with self._compiling:
            plan = self._compiler.compile(version, {}, replace(register, windows=chosen))
        assert plan.program.windows is not None, "operators were chosen"
        return replace(plan.program, windows=replace(plan.program.windows, span=span)), plan.by_spark

    def _current_version(self, batch: int) -> int:
        beginnings = self._beginnings(batch)
        while True:
            with self._lock:
                if not self._changed and self._newest is not None:
                    return self._newest
                register = self._register
            # reads what the earlier batches say; whoever adds or lists views does not wait for it
            begun = register.begun(beginnings)
            with self._lock:
                if self._register is register:
                    version = 0 if self._newest is None else self._newest + 1
                    self._register = begun
                    self._demands = self._demands.begun(batch)
                    self._log.store(version, self._views, begun, self._demands)
                    self._newest = version
                    self._newest_parts = self._views, begun, self._demands
                    self._changed = False
                    return version

    def _compile(self, version: int) -> CompiledPlan:
        began = time.perf_counter()
        with self._lock:
            newest, parts = self._newest, self._newest_parts
        if version != newest:
            parts = (
                SharedMap(self._log.load(version)),
                self._log.load_windows(version),
                self._log.load_demands(version),
            )
        base = self._compiled[max(self._compiled)] if self._compiled else None
        plan = self._compiler.compile(version, *parts, base)
        self._store_readers(plan)
        self._events.record(
            "plan_compiled",
            stream=self._stream,
            plan=version,
            views=len(plan.views) + len(plan.windows.bound),
            attributes=plan.bound.shown[:100],
            derived=len(plan.derived),
            place=self._source.place(plan.by_spark),
            seconds=round(time.perf_counter() - began, 3),
        )
        if plan.failed:
            self._events.record("views_failed", stream=self._stream, plan=version, views=dict(plan.failed))
        return plan

    def _ship(self, program: StreamProgram) -> Broadcast[bytes]:
        """The broadcast of the program that the batch at hand uses; no other is kept."""
        version = program.version
        for old in [shipped for shipped in self._shipped if shipped != version]:
            self._shipped.pop(old).destroy()
        if version not in self._shipped:
            pickled = pickle.dumps(program, protocol=5)
            self._shipped[version] = self._spark.sparkContext.broadcast(pickled)
        return self._shipped[version]


def _same_window(present: WindowDefinition | None, view: WindowDefinition) -> bool:
    return present is not None and replace(present, id=view.id) == view
