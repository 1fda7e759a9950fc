"""A plan version compiled: views and window views bound to the stream's columns, and the program of the workers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from types import MappingProxyType
from typing import Any

import numpy as np
from pyspark.sql import SparkSession

from penstock.operators.ingest.derived import DerivedLayout
from penstock.operators.ingest.outcomes import Outcomes
from penstock.operators.ingest.stage_counts import StageCounts
from penstock.operators.ingest.stream_program import StreamProgram
from penstock.operators.scalars.columns import ComputedColumns
from penstock.plan.expressions import Derived, ExpressionHost
from penstock.plan.selection import attributes_of
from penstock.plan.spark_types import spark_name
from penstock.settings import Settings
from penstock.spark.analysis.expressions import SparkExpressionHost
from penstock.spark.analysis.schemas import arrow_schema
from penstock.spark.ingest.calls import CallCompiler
from penstock.spark.ingest.conditions import CompiledConditions, DeclaredConditions, compile_conditions
from penstock.spark.ingest.tuple_demands import compile_demands
from penstock.spark.ingest.window_views import CompiledWindows, compile_windows, sharing, without_repeats
from penstock.spark.sources.source import Source
from penstock.spark.storage.bindings import ViewDefinition, WindowDefinition, WindowRegister
from penstock.spark.storage.demands import NO_DEMANDS, DemandRegister, TupleDemand
from penstock.spark.storage.shared_maps import SharedMap, made_of
from penstock.sql.conditions.bind import BoundSelections, bind_selections

#: no users' functions
NO_FUNCTIONS: Mapping[str, Callable[..., Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, eq=False)
class CompiledPlan:
    """A plan version, ready to run.

    Attributes:
        program: what the workers get.
        bound: the selections, and the columns that are computed for them.
        views: the definitions of the selection views it answers.
        windows: the window views it answers.
        derived: the columns that are computed for all of them.
        failed: views of which Spark can plan an expression no more, and what it says; they match nothing.
        selected: the conditions, bound and compiled, for the next version.
    """

    program: StreamProgram
    bound: BoundSelections
    views: SharedMap[ViewDefinition]
    windows: CompiledWindows
    derived: tuple[Derived, ...]
    failed: Mapping[str, str]
    selected: CompiledConditions

    @property
    def by_spark(self) -> tuple[Derived, ...]:
        """Those of `derived` that Spark computes: all or none."""
        return () if self.program.computed else self.derived

    def errors(self, counts: StageCounts) -> dict[str, int]:
        """Tuples that views lost to an expression that raised, by view.

        Args:
            counts: of tasks that ran the program.
        """
        names = self.program.views
        lost = {names[view]: int(counts.view_errors[view]) for view in np.flatnonzero(counts.view_errors)}
        for operator in np.flatnonzero(counts.window_errors):
            lost.update(dict.fromkeys(self.windows.members[operator], int(counts.window_errors[operator])))
        return lost

    def raising(self, views: Iterable[str]) -> dict[str, str]:
        """Return an expression of each view that may raise, by view; of a view of which it is not known nothing."""
        columns = {each.error_column: each.expression for each in self.derived if each.error_column}
        attributes = self.bound.selections.attributes
        named = [
            (query.name, attributes[each].name)
            for query in self.bound.error_queries
            for each in sorted(attributes_of(query))
        ]
        known = {view: columns[name] for view, name in named if name in columns}
        known |= {
            view: each.expression
            for view, bound in self.windows.bound.items()
            for each in bound.derived
            if each.error_column
        }
        texts = {each.name: each.text for each in self.bound.calls}
        for each in self.bound.branches:
            known.setdefault(each.query.name, texts[each.tests[0][0]])
        return {view: known[view] for view in views if view in known}


class PlanCompiler:
    """Compiles the plan versions of one stream, for one thread at a time.

    Args:
        spark: the session.
        stream: the stream's name.
        source: where its tuples come from.
        settings: frozen settings.
        shards: gives the number of shards of the window lane, fixed from then on; asked once there is a window view.
        functions: the users' functions that take arrays and return one, by name; others may follow.
    """

    def __init__(
        self,
        spark: SparkSession,
        stream: str,
        source: Source,
        settings: Settings,
        shards: Callable[[], int],
        functions: Mapping[str, Callable[..., Any]] = NO_FUNCTIONS,
    ) -> None:
        #: what the first version need not bind again
        self.declared: DeclaredConditions | None = None
        self._spark = spark
        self._stream = stream
        self._source = source
        self._settings = settings
        self._shards = shards
        self._schema = arrow_schema(source.schema)
        self._functions = functions
        self._calls = CallCompiler(spark, self._schema, functions)
        self._host = SparkExpressionHost(spark, source.schema)

    def sharing(self, windows: Sequence[WindowDefinition]) -> list[list[WindowDefinition]]:
        """Groups window views that one operator can compute together.

        Raises:
            InputError: a window view that cannot be bound.
        """
        return sharing(windows, self._schema, self._host)

    def check_demands(self, asked: Sequence[TupleDemand]) -> None:
        """Makes sure that demands of tuples can be met.

        Raises:
            InputError: one cannot.
        """
        demands = compile_demands(NO_DEMANDS.with_demands(asked), self._schema, self._host)
        bind_selections(
            {f"condition {number}": text for number, text in enumerate(demands.conditions)},
            self._schema,
            self._host,
            self._timezone,
        )

    def compile(
        self,
        version: int,
        views: Mapping[str, ViewDefinition],
        register: WindowRegister,
        asked: DemandRegister = NO_DEMANDS,
        base: CompiledPlan | None = None,
    ) -> CompiledPlan:
        """Compiles a plan version.

        Args:
            version: its number.
            views: its selection views.
            register: its window views.
            asked: its demands of tuples.
            base: another version, compiled; conditions that both have are not bound again.
        """
        windows = compile_windows(
            version,
            register,
            self._schema,
            self._host,
            self._settings,
            self._shards() if register.windows else 1,
            self._source.event_time,
        )
        answered = SharedMap.of(views)
        demands = compile_demands(asked, self._schema, self._host, windows.conditions)
        others = {
            _condition_name(number, answered): condition
            for number, condition in enumerate((*windows.conditions, *demands.conditions))
        }
        known = (
            (SharedMap[ViewDefinition](), SharedMap[str]())
            if base is None
            else (base.views, base.selected.views)
        )
        selected = compile_conditions(
            made_of(answered, attrgetter("condition"), known),
            self._schema,
            self._host,
            self._timezone,
            None if base is None else base.selected,
            others,
            self.declared,
            self._functions,
        )
        self.declared = None
        bound = selected.bound
        windows = without_repeats(windows, bound.derived)
        derived = (*bound.computed, *windows.derived, *demands.derived)
        failures = self._host.failures([each.expression for each in derived])
        derived = tuple(_raising(each) if each.expression in failures else each for each in derived)
        computed = None
        if not failures:
            derived, computed = by_whom(self._host, derived)
        columns = tuple(self._source.schema.fieldNames())
        program = StreamProgram(
            stream=self._stream,
            version=version,
            plan=selected.plan,
            outcomes=Outcomes.numbered(len(answered), len(others), selected.erring),
            columns=columns,
            event_time=self._source.event_time,
            derived=DerivedLayout.of(derived) if derived and computed is None else None,
            computed=computed,
            settings=self._settings,
            windows=windows.panes,
            tuples=demands.program,
            definitions=_numbers(answered, base),
            stored=_stored(answered.values(), columns),
            calls=self._calls.compile(
                bound, selected.branching, len(answered) + len(others) + len(selected.erring)
            ),
        )
        failed = _failed(failures, windows, selected)
        return CompiledPlan(program, bound, answered, windows, derived, failed, selected)

    @property
    def _timezone(self) -> str:
        return self._spark.conf.get("spark.sql.session.timeZone") or "UTC"


def by_whom(
    host: ExpressionHost, derived: Sequence[Derived]
) -> tuple[tuple[Derived, ...], ComputedColumns | None]:
    """Who computes the derived columns of a plan: the workers all of them, or Spark.

    Args:
        host: Spark's analysis of expressions.
        derived: the columns.

    Returns:
        The columns, those that only Spark can compute first; and how the workers compute them, None where there are none or Spark does.
    """
    found = host.trees([each.expression for each in derived]) if derived else []
    trees = [
        tree if tree is not None and tree.type == each.type else None
        for tree, each in zip(found, derived, strict=True)
    ]
    known = tuple(each for each in trees if each is not None)
    if known and len(known) == len(derived):
        return tuple(derived), ComputedColumns(tuple(derived), known)
    ordered = sorted(zip(trees, derived, strict=True), key=lambda each: each[0] is not None)
    return tuple(each for _, each in ordered), None


def _numbers(views: SharedMap[ViewDefinition], base: CompiledPlan | None) -> tuple[int, ...]:
    """Which definition each view has; () where all have their first ones."""
    looked_at: Iterable[ViewDefinition] = views.values()
    if base is not None and not base.program.definitions:
        looked_at = views.changes_since(base.views).others.values()
    if all(view.number == 1 for view in looked_at):
        return ()
    return tuple(view.number for view in views.values())


def _stored(views: Iterable[ViewDefinition], columns: Sequence[str]) -> tuple[str, ...] | None:
    """The columns that the SELECT lists of views read, in their order; None: all."""
    read: set[str] = set()
    for view in views:
        if view.columns is None:
            return None
        read.update(view.columns)
    return tuple(name for name in columns if name in read)


def _raising(derived: Derived) -> Derived:
    """A column that raises for every row; NULL where its program takes it for one that cannot raise."""
    value = "NULL" if derived.error_column is None else "raise_error('not planned')"
    return replace(derived, expression=f"CAST({value} AS {spark_name(derived.type)})")


def _failed(
    failures: Mapping[str, str], windows: CompiledWindows, selected: CompiledConditions
) -> dict[str, str]:
    """The views that use an expression that Spark cannot plan, with what it says.

    Args:
        failures: the expressions, with what it says.
        windows: the window views.
        selected: the conditions.
    """
    if not failures:
        return {}
    selections = selected.bound.selections
    by_text: dict[str, str] = {}
    failed: dict[str, str] = {}
    for query in (*selections.queries, *(each.query for each in selected.bound.branches)):
        for each in sorted(attributes_of(query)):
            expression = selections.attributes[each].expression
            if expression in failures:
                failed.setdefault(query.name, failures[expression])
                by_text.setdefault(selected.text(query.name), failures[expression])
    own = {name: reason for name, reason in failed.items() if name in selected.views}
    for name, bound in windows.bound.items():
        expressions = [each.expression for each in bound.derived]
        reasons = [failures[each] for each in expressions if each in failures]
        if bound.condition in by_text:
            reasons.append(by_text[bound.condition])
        if reasons:
            own[name] = reasons[0]
    return own


def _condition_name(number: int, taken: Collection[str]) -> str:
    """A name that no view has."""
    name = f"condition {number}"
    while name in taken:
        name += "'"
    return name
