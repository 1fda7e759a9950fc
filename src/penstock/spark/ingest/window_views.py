"""Window views and running views of one stream: which of them share an operator, and what the map stage computes for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd

import pyarrow as pa

from penstock.errors import InputError
from penstock.operators.windows.aggregates import Parts
from penstock.operators.windows.pane_plan import PaneColumn, PanePlan, PaneProgram
from penstock.operators.windows.rankings import RankedParts
from penstock.operators.windows.shard import OperatorPlan, RunningPlan, SessionPlan, WindowProgram
from penstock.plan.expressions import Derived, ExpressionHost
from penstock.plan.rankings import RankedPlan
from penstock.plan.windows import ALL_TIME, Aggregate, WindowPlan
from penstock.settings import Settings
from penstock.spark.storage.bindings import (
    RegisteredWindow,
    RunningDefinition,
    WindowDefinition,
    WindowRegister,
)
from penstock.sql.script.queries import parse_query
from penstock.sql.script.views import flatten
from penstock.sql.text.lexing import quote
from penstock.sql.windows.bind import BoundWindow, WindowBinder
from penstock.sql.windows.query import WindowQuery, key_name

_SECOND = 1_000_000


@dataclass(frozen=True, slots=True, eq=False)
class CompiledWindows:
    """The window views and running views of one plan version.

    Attributes:
        bound: the views that have results, by name.
        panes: what the map stage computes, None where there is no view.
        shards: what the shards do; its views' keys are called `_k0`, ..., their arguments
            `_x0`, ..., and stay so for as long as the operator lives.
        conditions: the distinct conditions, in the order in which `panes` numbers them.
        derived: the columns that are computed for `panes`.
        members: names of the views that have results, by the number among `PaneProgram.members`.
        registered: those views as they are registered, by name.
    """

    bound: Mapping[str, BoundWindow]
    panes: PaneProgram | None
    shards: WindowProgram
    conditions: tuple[str, ...]
    derived: tuple[Derived, ...]
    members: tuple[tuple[str, ...], ...]
    registered: Mapping[str, RegisteredWindow]


def window_query(definition: WindowDefinition) -> WindowQuery:
    """A definition's query over the stream.

    Raises:
        InputError: its text, or that of a view beneath, is no query of its kind.
    """
    views = {name.upper(): parse_query(text) for name, text in definition.beneath}
    query = flatten(parse_query(definition.sql), views)
    if not isinstance(query, WindowQuery):
        raise InputError(
            f"view {definition.name} has no window in its GROUP BY, and neither do the views it selects from"
        )
    if isinstance(definition, RunningDefinition):
        return replace(query, columns=tuple(name for name, _ in definition.columns))
    return query


def sharing(
    definitions: Sequence[WindowDefinition], schema: pa.Schema, host: ExpressionHost
) -> list[list[WindowDefinition]]:
    """Groups views that one operator can compute together.

    They have the event time, the keys, the offset of the panes and the expressions that may raise in common. Views of one
    condition share where one's panes are made of the other's; views of several conditions where their panes and aggregates
    are the same. Running views share where their conditions and hints are the same too.

    Args:
        definitions: views declared together.
        schema: the stream's columns.
        host: Spark's analysis of expressions.
    """
    binder = WindowBinder(schema, host)
    groups: list[_Group] = []
    of_conditions: dict[object, list[_Group]] = {}
    for definition in definitions:
        query = window_query(definition)
        bound = binder.bind(query, definition.name)
        windows = bound.plan.windows
        own: tuple[object, ...]
        own = bound.plan.time, bound.plan.keys, windows.start % windows.pane, raising(bound)
        if query.is_running:
            own += query.hints.state_ttl, query.hints.backfill, query.gap
        if bound.plan.sets:
            own += bound.plan.sets
        if isinstance(bound.plan, RankedPlan):
            own += bound.plan.ranking, bound.plan.aggregates
        is_whole = bound.condition is None or query.is_running
        known = of_conditions.setdefault((own, bound.condition), [])
        aggregates = set(bound.plan.aggregates)
        for group in known:
            finer = gcd(group.pane, windows.pane)
            if finer == min(group.pane, windows.pane) and query.is_running == (group.pane == ALL_TIME.pane):
                group.pane = finer
                group.aggregates |= aggregates
                group.definitions.append(definition)
                break
        else:
            known.append(_Group(own, is_whole, windows.pane, aggregates, [definition]))
            groups.append(known[-1])
    operators: dict[object, list[WindowDefinition]] = {}
    for number, group in enumerate(groups):
        place = number if group.is_whole else (group.key, group.pane, frozenset(group.aggregates))
        operators.setdefault(place, []).extend(group.definitions)
    return list(operators.values())


@dataclass(slots=True)
class _Group:
    """Views of one condition.

    Attributes:
        key: what all views of an operator have in common.
        is_whole: whether they have none, or are running views: they share with no views of other conditions.
        pane: length of their panes, microseconds.
        aggregates: what they compute.
        definitions: the views.
    """

    key: object
    is_whole: bool
    pane: int
    aggregates: set[Aggregate]
    definitions: list[WindowDefinition]


def raising(bound: BoundWindow) -> tuple[str, ...]:
    """The error columns of a view's expressions, in alphabetical order."""
    return tuple(sorted(each.error_column for each in bound.derived if each.error_column))


def compile_windows(
    version: int,
    register: WindowRegister,
    schema: pa.Schema,
    host: ExpressionHost,
    settings: Settings,
    shards: int,
    event_time: str | None,
) -> CompiledWindows:
    """Compiles the window views of a plan version.

    Args:
        version: the plan version.
        register: its window views.
        schema: the stream's columns.
        host: Spark's analysis of expressions.
        settings: frozen settings.
        shards: number of shards.
        event_time: the stream's event time column, or None.

    Raises:
        InputError: views of different event times.
    """
    binder = WindowBinder(schema, host)
    operators: dict[int, list[tuple[RegisteredWindow, BoundWindow]]] = {}
    ttls: dict[int, int | None] = {}
    for each in register.windows:
        query = window_query(each.definition)
        ttls[each.operator] = query.hints.state_ttl
        bound = binder.bind(query, each.definition.name)
        if not query.is_running:
            bound = replace(bound, plan=replace(bound.plan, slack=bound.plan.slack or register.slack))
        operators.setdefault(each.operator, []).append((each, bound))
    every = [bound for members in operators.values() for _, bound in members]
    derived = {each.name: each for bound in every for each in bound.derived}
    types = {column.name: column.type for column in schema} | {n: each.type for n, each in derived.items()}
    conditions: dict[str, int] = {}
    panes, plans, running = [], [], []
    names: list[tuple[str, ...]] = []
    for id_, members in operators.items():
        needed = {bound.condition for each, bound in members if each.is_answered}
        own = dict.fromkeys(bound.condition for _, bound in members)
        selections = tuple(
            conditions.setdefault(each, len(conditions)) if each in needed else None
            for each in own
            if each is not None
        )
        touched = event_time if ttls[id_] is not None else None
        plan, views = operator_of(id_, [bound for _, bound in members], selections, types, touched)
        panes.append(plan)
        answered_by = {
            name: [bound.plan.name for each, bound in members if each.is_answered and bound.condition == name]
            for name in own
        }
        names += map(tuple, answered_by.values())
        answered = tuple(view for view, (each, _) in zip(views, members, strict=True) if each.is_answered)
        if plan.is_running:
            kept = tuple((argument.name, argument.type) for argument in plan.arguments)
            time = next((argument.name for argument in plan.arguments if argument.column == touched), None)
            session = None
            if plan.gap is not None:
                begun = members[0][0].beginning
                lacks_past = begun is not None and begun.newest is not None and begun.floor is not None
                session = SessionPlan(plan.gap, int(settings.history_seconds * _SECOND), lacks_past)
            running.append(RunningPlan(id_, answered, plan.parts, kept, time, ttls[id_], session))
            continue
        assert isinstance(plan.parts, Parts), "rankings are running views"
        begun = members[0][0].beginning
        floors = tuple(
            (each.definition.name, each.beginning.floor)
            for each, _ in members
            if each.beginning is not None and each.beginning.floor is not None
        )
        plans.append(
            OperatorPlan(
                id_, answered, plan.parts, plan.pane, None if begun is None else begun.newest, floors
            )
        )
    span, horizon = settings.correction_span_seconds, settings.least_horizon_seconds
    return CompiledWindows(
        bound={b.plan.name: b for members in operators.values() for each, b in members if each.is_answered},
        panes=PaneProgram(_time(every, derived, event_time), tuple(panes), shards) if every else None,
        shards=WindowProgram(
            version,
            tuple(plans),
            int(span * _SECOND),
            int(horizon * _SECOND),
            int(settings.max_delay_seconds * _SECOND),
            tuple(running),
        ),
        conditions=tuple(conditions),
        derived=tuple(derived.values()),
        members=tuple(names),
        registered={each.definition.name: each for each in register.windows if each.is_answered},
    )


def without_repeats(windows: CompiledWindows, derived: Sequence[Derived]) -> CompiledWindows:
    """Window views that take columns from `derived` where the same is computed there."""
    known = {(each.expression, each.type, each.error_column is None): each for each in derived}
    names: dict[str, str] = {}
    own = []
    for each in windows.derived:
        same = known.get((each.expression, each.type, each.error_column is None))
        if same is None:
            own.append(each)
            continue
        names[each.name] = same.name
        if each.error_column is not None and same.error_column is not None:
            names[each.error_column] = same.error_column
    panes = windows.panes.renamed(names) if windows.panes is not None else None
    return replace(windows, panes=panes, derived=tuple(own))


def operator_of(
    id_: int,
    bound: Sequence[BoundWindow],
    selections: tuple[int | None, ...],
    types: Mapping[str, pa.DataType],
    touched: str | None,
) -> tuple[PanePlan, list[WindowPlan]]:
    """What the map stage computes for an operator, and its views over that; `touched`: the column whose largest value is kept too."""
    first = bound[0].plan
    arguments: dict[str, str] = {}
    kept: list[Aggregate] = []
    for each in bound:
        for aggregate in each.plan.aggregates:
            if aggregate.argument is not None:
                arguments.setdefault(aggregate.argument, f"_x{len(arguments)}")
    if isinstance(first, RankedPlan):
        for key in first.ranking.order:
            arguments.setdefault(key.argument, f"_x{len(arguments)}")
    columns = tuple(arguments.values())
    if touched is not None:
        name = arguments.setdefault(touched, f"_x{len(arguments)}")
        kept.append(Aggregate("max", name, types[touched]))
    places = {each: place for place, each in enumerate(dict.fromkeys(each.condition for each in bound))}
    views = [
        replace(
            each.plan,
            selection=places[each.condition] if len(places) > 1 else None,
            keys=tuple((key_name(number), kind) for number, (_, kind) in enumerate(first.keys)),
            aggregates=tuple(
                replace(aggregate, argument=arguments.get(aggregate.argument or ""))
                for aggregate in each.plan.aggregates
            ),
        )
        for each in bound
    ]
    views = [_ordered(view, arguments) if isinstance(view, RankedPlan) else view for view in views]
    pane = gcd(*(each.plan.windows.pane for each in bound))
    plan = PanePlan(
        id=id_,
        selections=selections,
        keys=tuple(
            PaneColumn(column, key_name(number), kind) for number, (column, kind) in enumerate(first.computed)
        ),
        arguments=tuple(PaneColumn(column, name, types[column]) for column, name in arguments.items()),
        raising=raising(bound[0]),
        parts=RankedParts(view.ranking, columns, arguments.get(touched or ""))
        if isinstance(view := views[0], RankedPlan)
        else Parts.of([*(aggregate for view in views for aggregate in view.aggregates), *kept]),
        pane=pane,
        offset=first.windows.start % pane,
        gap=first.gap,
        sets=first.sets,
        set_key=key_name(len(first.computed)) if first.sets else "",
    )
    return plan, views


def _ordered(view: RankedPlan, arguments: Mapping[str, str]) -> RankedPlan:
    """A ranking over the arguments of its operator."""
    order = tuple(replace(each, argument=arguments[each.argument]) for each in view.ranking.order)
    return replace(view, ranking=replace(view.ranking, order=order))


def _time(every: Sequence[BoundWindow], derived: Mapping[str, Derived], event_time: str | None) -> str | None:
    """The one event time of all views with windows or sessions; of other views alone that of the stream."""
    bound = [each for each in every if each.plan.time]
    if not bound:
        return event_time
    time = bound[0].plan.time
    for each in bound:
        if each.plan.time != time:
            raise InputError(
                f"views {bound[0].plan.name} and {each.plan.name} have {_called(bound[0])} and {_called(each)} over different event times. "
                "All windows and sessions of a stream must use the same one."
            )
    if event_time is not None and time != event_time:
        text = derived[time].expression if time in derived else quote(time)
        raise InputError(
            f"view {bound[0].plan.name} has {_called(bound[0])} over {text}, but the event time of its stream is "
            f"{event_time}. Write that column in {'window' if bound[0].plan.gap is None else 'session_window'}(...)."
        )
    return time


def _called(bound: BoundWindow) -> str:
    """What a view's rows are of."""
    return "windows" if bound.plan.gap is None else "sessions"
