"""The driver's registry of views on one stream, and the compiled plan of each version."""

from __future__ import annotations

import pickle
import threading
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark import Broadcast
from pyspark.sql import SparkSession

from penstock.operators.derived import DerivedLayout
from penstock.operators.map_stage import StreamProgram
from penstock.operators.selection import compile_selections
from penstock.plan.arrangement import Arrangement
from penstock.plan.expressions import Derived
from penstock.plan.selection import SelectionSet
from penstock.plan.windows import Aggregate
from penstock.settings import Settings
from penstock.spark.bindings import (
    Beginning,
    Believed,
    PlanLog,
    ViewDefinition,
    WindowDefinition,
    WindowRegister,
)
from penstock.spark.events import EventLog
from penstock.spark.expressions import SparkExpressionHost
from penstock.spark.schemas import arrow_schema
from penstock.spark.source import BoundBatch, Source
from penstock.spark.window_views import CompiledWindows, compile_windows, sharing, without_repeats
from penstock.spark.worker import SentSequence
from penstock.sql.bind import BoundSelections, bind_selections
from penstock.sql.bind_windows import BoundWindow

_KEPT_PLANS = 3
#: lines of one kind that `explain` shows
_SHOWN = 50


@dataclass(frozen=True, slots=True, eq=False)
class CompiledPlan:
    """A plan version, ready to run.

    Attributes:
        program: what the workers get.
        bound: the selections, and the columns Spark computes for them.
        views: the definitions of the selection views it answers.
        windows: the window views it answers.
        derived: the columns Spark computes for all of them.
    """

    program: StreamProgram
    bound: BoundSelections
    views: Mapping[str, ViewDefinition]
    windows: CompiledWindows
    derived: tuple[Derived, ...]


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
        shards: gives the number of shards of the keyed query, fixed from then on; asked once there is a window view.
        store_windows: stores what the keyed query does in a plan version, if it has not been stored; called before
            any batch is bound to the version.
        beginnings: gives for a batch where the window views begin that it is the first one of.
        time_limit: gives what a batch's event times are judged by.
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
        store_windows: Callable[[CompiledWindows], None],
        beginnings: Callable[[int], Callable[[WindowDefinition], Beginning]],
        time_limit: Callable[[int], Believed],
    ) -> None:
        self._spark = spark
        self._stream = stream
        self._source = source
        self._log = log
        self._events = events
        self._settings = settings
        self._shards = shards
        self._store_windows = store_windows
        self._beginnings = beginnings
        self._time_limit = time_limit
        self._schema = arrow_schema(source.schema)
        self._host = SparkExpressionHost(spark, source.schema)
        #: tells this registry's programs from others' in the workers' caches
        self._identity = uuid.uuid4().hex
        self._lock = threading.Lock()
        self._compiling = threading.Lock()
        #: the program that the newest batch uses, by its version; touched by the thread of the batches alone
        self._shipped: dict[int, Broadcast[bytes]] = {}
        #: the evaluation sequence of each version, where one was measured
        self._sequences: dict[int, SentSequence] = {}
        self._revision = 0
        self._compiled: dict[int, CompiledPlan] = {}
        self._newest = log.newest()
        self._views: dict[str, ViewDefinition] = {} if self._newest is None else log.load(self._newest)
        self._register = WindowRegister() if self._newest is None else log.load_windows(self._newest)
        self._changed = self._newest is None

    @property
    def views(self) -> dict[str, ViewDefinition]:
        """The selection views that the next binding will answer."""
        with self._lock:
            return dict(self._views)

    @property
    def windows(self) -> dict[str, WindowDefinition]:
        """The window views that the next binding will answer."""
        with self._lock:
            return self._register.answered

    def definitions(self, version: int) -> dict[str, ViewDefinition]:
        """The selection views of a stored plan version."""
        with self._compiling:
            plan = self._compiled.get(version)
        return self._log.load(version) if plan is None else dict(plan.views)

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
                groups = sharing(windows, self._schema, self._host)
        replaced = {*drop, *selections, *(view.name for view in windows)}
        with self._lock:
            before, register = dict(self._views), self._register
            for name in (*drop, *(view.name for view in windows)):
                self._views.pop(name, None)
            for name, selection in selections.items():
                known = before.get(name)
                same = known is not None and replace(known, id=selection.id) == selection
                self._views[name] = known if same and known is not None else selection
            self._register = register.changed(groups, replaced)
            self._changed = self._changed or self._views != before or self._register != register

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
            version = self._log.bind(batch, version, self._time_limit(batch), offsets)
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

    def batch(
        self, number: int, staging: Path, staged_envelopes: Path, time_floor: int, offsets: str | None
    ) -> BoundBatch:
        """Binds a batch and gathers what its jobs need; see `BoundBatch` and `bind`."""
        plan = self.bind(number, offsets)
        version = plan.program.version
        with self._lock:
            sequence = self._sequences.get(version)
        believed = self._log.believed(number)
        return BoundBatch(
            number=number,
            program=plan.program,
            derived=plan.derived,
            key=(self._identity, version),
            broadcast=self._ship(plan.program),
            sequence=sequence,
            staging=str(staging),
            staged_envelopes=str(staged_envelopes),
            time_limit=believed.limit,
            time_floor=time_floor,
            kept_ahead=believed.kept_ahead,
        )

    def judge_again(self, bound: BoundBatch, believed: Believed) -> BoundBatch:
        """Binds a batch, of which nothing is published, to another limit."""
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

    def swap_sequence(self, version: int, arrangement: Arrangement) -> None:
        """Lets batches follow an evaluation sequence from the next binding on; it changes speed, never results."""
        pickled = pickle.dumps(arrangement, protocol=5)
        with self._lock:
            self._revision += 1
            self._sequences[version] = SentSequence(self._revision, pickled)
            for old in sorted(self._sequences)[:-_KEPT_PLANS]:
                del self._sequences[old]

    def explain(self) -> str:
        """Where the newest plan's parts run and why."""
        version = self._log.newest()
        if version is None:
            return f"stream {self._stream}: no plan yet"
        plan = self.compiled(version)
        place = self._source.place(plan.derived)
        number = len(plan.views) + len(plan.windows.bound)
        head = f"stream {self._stream}: plan {version}, {number} views, map stage {place}"
        return "\n".join([head, *explain_bound(plan.bound), *explain_windows(plan.windows)])

    def forget(self, before_batch: int) -> None:
        """Removes what no replay can need any more."""
        self._log.forget(before_batch, self._settings.retained_plans)

    def for_operators(
        self, version: int, operators: Collection[int], span: tuple[int, int]
    ) -> tuple[StreamProgram, tuple[Derived, ...]]:
        """What computes some window operators of a plan version and nothing else, and the columns Spark computes for it.

        Args:
            version: the plan version.
            operators: their ids.
            span: the first and the last event time that is wanted, microseconds.
        """
        register = self._log.load_windows(version)
        chosen = tuple(each for each in register.windows if each.operator in operators)
        with self._compiling:
            windows = self._compiled_windows(version, replace(register, windows=chosen))
            _, windows, derived, program = self._bound(version, {}, windows)
        assert windows.panes is not None, "operators were chosen"
        return replace(program, windows=replace(windows.panes, span=span)), derived

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
                    self._log.store(version, self._views, begun)
                    self._newest = version
                    self._changed = False
                    return version

    def _compile(self, version: int) -> CompiledPlan:
        began = time.perf_counter()
        views = self._log.load(version)
        windows = self._compiled_windows(version, self._log.load_windows(version))
        self._store_windows(windows)
        bound, windows, derived, program = self._bound(version, views, windows)
        self._events.record(
            "plan_compiled",
            stream=self._stream,
            plan=version,
            views=len(views) + len(windows.bound),
            attributes=[attribute.expression for attribute in bound.selections.attributes[:100]],
            derived=len(derived),
            place=self._source.place(derived),
            seconds=round(time.perf_counter() - began, 3),
        )
        return CompiledPlan(program, bound, views, windows, derived)

    def _compiled_windows(self, version: int, register: WindowRegister) -> CompiledWindows:
        return compile_windows(
            version,
            register,
            self._schema,
            self._host,
            self._settings,
            self._shards() if register.windows else 1,
            self._source.event_time,
        )

    def _bound(
        self, version: int, views: Mapping[str, ViewDefinition], windows: CompiledWindows
    ) -> tuple[BoundSelections, CompiledWindows, tuple[Derived, ...], StreamProgram]:
        """Selections and the windows' conditions bound together, the windows over shared columns, the program."""
        conditions = {name: view.condition for name, view in views.items()}
        for number, condition in enumerate(windows.conditions):
            conditions[_condition_name(number, views)] = condition
        timezone = self._spark.conf.get("spark.sql.session.timeZone") or "UTC"
        bound = bind_selections(conditions, self._schema, self._host, timezone)
        both = SelectionSet(bound.selections.attributes, (*bound.selections.queries, *bound.error_queries))
        windows = without_repeats(windows, bound.derived)
        derived = (*bound.derived, *windows.derived)
        program = StreamProgram(
            stream=self._stream,
            version=version,
            plan=compile_selections(both),
            views=len(views),
            columns=tuple(self._source.schema.fieldNames()),
            event_time=self._source.event_time,
            derived=DerivedLayout.of(derived) if derived else None,
            settings=self._settings,
            windows=windows.panes,
        )
        return bound, windows, derived, program

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


def _condition_name(number: int, taken: Collection[str]) -> str:
    """A name that no view has."""
    name = f"condition {number}"
    while name in taken:
        name += "'"
    return name


def explain_windows(windows: CompiledWindows) -> list[str]:
    """Compiled window views in lines: the operators, what they keep, the columns Spark computes for them."""
    plans = windows.panes.operators if windows.panes is not None else ()
    lines = []
    for plan, members in zip(plans, windows.members, strict=True):
        keys = f", keys {', '.join(key.column for key in plan.keys)}" if plan.keys else ""
        lines.append(f"  window operator {plan.id}: panes of {plan.pane / 1e6:g} s{keys}")
        lines += [f"    {name}: {_window_view(windows.bound[name])}" for name in members]
    if len(lines) > _SHOWN:
        lines[_SHOWN:] = [f"  ... {len(windows.bound)} window views in all"]
    lines += [f"  derived {each.name}: {each.expression}" for each in windows.derived[:_SHOWN]]
    return lines


def _window_view(view: BoundWindow) -> str:
    windows, bound = view.plan.windows, view.plan.bound
    every = "" if windows.slide == windows.size else f" every {windows.slide / 1e6:g} s"
    start = "" if not windows.start else f" from {windows.start / 1e6:g} s"
    expressions = {each.name: each.expression for each in view.derived}

    def call(each: Aggregate) -> str:
        argument = "*" if each.argument is None else expressions.get(each.argument, each.argument)
        further = [f"{number:g}" for number in (each.parameter, each.accuracy) if number is not None]
        return f"{each.function}({', '.join([argument, *further])})"

    aggregates = ", ".join(f"_a{number} = {call(each)}" for number, each in enumerate(view.plan.aggregates))
    unit = " (absolute)" if bound.absolute else ""
    having = "" if view.having is None else f"; HAVING {view.having}"
    return (
        f"windows of {windows.size / 1e6:g} s{every}{start}; {aggregates or 'no aggregate'}{having}; "
        f"early error below {bound.epsilon:g}{unit} with probability {1 - bound.delta:g}"
    )


def explain_bound(bound: BoundSelections) -> list[str]:
    """Bound selections in lines: p-attributes, derived columns, terms."""
    attributes, derived = bound.selections.attributes, bound.derived
    lines = [f"  p-attribute {each.name}: {each.type} = {each.expression}" for each in attributes[:_SHOWN]]
    if len(attributes) > _SHOWN:
        lines.append(f"  ... {len(attributes)} p-attributes in all")
    lines += [
        f"  derived {column.name}: {column.expression}"
        + (" (may raise: evaluated in its try form)" if column.error_column else "")
        for column in derived[:_SHOWN]
    ]
    if len(derived) > _SHOWN:
        lines.append(f"  ... {len(derived)} derived columns in all")
    terms = sum(len(query.terms) for query in bound.selections.queries)
    return [*lines, f"  {len(bound.selections.queries)} queries, {terms} terms"]
