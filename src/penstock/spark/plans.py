"""The driver's registry of views on one stream, and the compiled plan of each version."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyspark import Broadcast
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from penstock.operators.map_stage import StreamProgram
from penstock.operators.selection import compile_selections
from penstock.plan.arrangement import Arrangement
from penstock.plan.expressions import Derived
from penstock.plan.selection import SelectionSet
from penstock.settings import Settings
from penstock.spark.bindings import PlanLog, ViewDefinition
from penstock.spark.events import EventLog
from penstock.spark.expressions import SparkExpressionHost
from penstock.spark.source import BoundBatch, Source
from penstock.sql.bind import bind_selections

_KEPT_PLANS = 3


@dataclass(slots=True, eq=False)
class CompiledPlan:
    """A plan version, ready to run.

    Attributes:
        program: what the workers get.
        derived: columns Spark computes for it.
        views: the definitions it answers.
        broadcast: the pickled program on its way to the workers.
        revision: counts swaps of the evaluation sequence under the same version.
    """

    program: StreamProgram
    derived: tuple[Derived, ...]
    views: Mapping[str, ViewDefinition]
    broadcast: Broadcast[bytes]
    revision: int = 0


class StreamPlans:
    """Registers views, stores plan versions, binds batches to them and compiles them.

    Views may come and go from any thread; a change takes effect at the next binding, all changes
    since the last one together.
    """

    def __init__(
        self, spark: SparkSession, stream: str, source: Source, log: PlanLog, events: EventLog, settings: Settings
    ) -> None:
        self._spark = spark
        self._stream = stream
        self._source = source
        self._log = log
        self._events = events
        self._settings = settings
        self._schema = to_arrow_schema(source.schema)
        self.host = SparkExpressionHost(spark, source.schema)
        self._lock = threading.Lock()
        self._compiled: dict[int, CompiledPlan] = {}
        self._newest = log.newest()
        self._views: dict[str, ViewDefinition] = {} if self._newest is None else log.load(self._newest)
        self._changed = self._newest is None

    def check(self, view: ViewDefinition) -> None:
        """Binds a view on its own, so that a mistake is told before anything changes.

        Raises:
            SqlError: the condition cannot be bound.
        """
        bind_selections({view.name: view.condition}, self._schema, self.host)

    @property
    def views(self) -> dict[str, ViewDefinition]:
        """The views that the next binding will answer."""
        with self._lock:
            return dict(self._views)

    def change(self, add: Mapping[str, ViewDefinition], drop: frozenset[str] = frozenset()) -> None:
        """Adds or redefines views and drops others, in one step."""
        with self._lock:
            before = dict(self._views)
            for name in drop:
                self._views.pop(name, None)
            for name, view in add.items():
                present = before.get(name)
                same = present is not None and replace(present, id=view.id) == view
                self._views[name] = present if same and present is not None else view
            self._changed = self._changed or self._views != before

    def bind(self, batch: int) -> CompiledPlan:
        """The plan that answers a batch: the one it is bound to, else the newest."""
        version = self._log.bound(batch)
        if version is None:
            version = self._log.bind(batch, self._current_version())
        return self.compiled(version)

    def batch(self, number: int, staging: str) -> BoundBatch:
        """Binds a batch and gathers what its jobs need."""
        plan = self.bind(number)
        key = (f"{self._spark.sparkContext.applicationId}/{self._stream}", plan.program.version, plan.revision)
        return BoundBatch(number, plan.program, plan.derived, key, plan.broadcast, staging)

    def compiled(self, version: int) -> CompiledPlan:
        """The compiled plan of a version."""
        plan = self._compiled.get(version)
        if plan is None:
            plan = self._compiled[version] = self._compile(version)
            for old in sorted(self._compiled)[:-_KEPT_PLANS]:
                self._compiled.pop(old).broadcast.unpersist()
        return plan

    def swap_sequence(self, version: int, arrangement: Arrangement) -> None:
        """Installs an evaluation sequence; it changes speed, never results."""
        plan = self._compiled.get(version)
        if plan is None:
            return
        program = replace(plan.program, arrangement=arrangement)
        plan.broadcast.unpersist()
        self._compiled[version] = CompiledPlan(
            program, plan.derived, plan.views, self._broadcast(program), plan.revision + 1
        )

    def explain(self) -> str:
        """Where the newest plan's parts run and why."""
        version = self._log.newest()
        if version is None:
            return f"stream {self._stream}: no plan yet"
        plan = self.compiled(version)
        lines = [f"stream {self._stream}: plan {version}, {len(plan.views)} views", *explain_plan(plan, self._source)]
        return "\n  ".join(lines)

    def forget(self, before_batch: int) -> None:
        """Removes what no replay can need any more."""
        self._log.forget(before_batch, self._settings.retained_plans)

    def _current_version(self) -> int:
        with self._lock:
            if self._changed or self._newest is None:
                version = 0 if self._newest is None else self._newest + 1
                self._log.store(version, self._views)
                self._newest = version
                self._changed = False
            return self._newest

    def _compile(self, version: int) -> CompiledPlan:
        began = time.perf_counter()
        views = self._log.load(version)
        bound = bind_selections(
            {name: view.condition for name, view in views.items()}, self._schema, self.host
        )
        both = SelectionSet(
            bound.selections.attributes, (*bound.selections.queries, *bound.error_queries)
        )
        program = StreamProgram(
            stream=self._stream,
            version=version,
            plan=compile_selections(both),
            views=len(views),
            columns=tuple(self._source.schema.fieldNames()),
            event_time=self._source.event_time,
            arrangement=None,
            settings=self._settings,
        )
        self._events.record(
            "plan_compiled",
            stream=self._stream,
            plan=version,
            views=len(views),
            attributes=[attribute.expression for attribute in bound.selections.attributes[:100]],
            derived=len(bound.derived),
            place=self._source.place(bound.derived),
            seconds=round(time.perf_counter() - began, 3),
        )
        return CompiledPlan(program, bound.derived, views, self._broadcast(program))

    def _broadcast(self, program: StreamProgram) -> Broadcast[bytes]:
        return self._spark.sparkContext.broadcast(pickle.dumps(program, protocol=5))


def explain_plan(plan: CompiledPlan, source: Source) -> list[str]:
    """A compiled plan in lines: place, p-attributes, derived columns, sequence."""
    coded = plan.program.plan.coded
    lines = [f"map stage {source.place(plan.derived)}"]
    lines += [
        f"p-attribute {coding.name}: {coding.type}, {len(coding.constants)} constants, {coding.codes} regions"
        for coding in coded.codings[:50]
    ]
    lines += [
        f"derived {column.name}: {column.type} = {column.expression}"
        + (" (evaluated in its try form)" if column.error_column else "")
        for column in plan.derived[:50]
    ]
    for kind, count in (("p-attributes", len(coded.codings)), ("derived columns", len(plan.derived))):
        if count > 50:
            lines.append(f"... {count} {kind} in all")
    lines.append(f"{len(coded.term_query)} terms, {len(coded.predicate_attribute)} predicates")
    return lines
