"""The conditions of a plan version bound and compiled, by what differs from another version where that is little."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.operators.selection.selector import SelectionPlan, compile_selections, merge_selections
from penstock.plan.expressions import ExpressionHost
from penstock.plan.selection import SelectionSet
from penstock.spark.storage.shared_maps import Changes, SharedMap
from penstock.sql.conditions.bind import BoundSelections, SelectionBinder
from penstock.sql.conditions.merging import merged

#: all conditions are compiled anew once so large a part of them has changed: constants of others remain until then
_MOST_CHANGED = 0.25

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class CompiledConditions:
    """Conditions bound to a stream's columns and compiled.

    Attributes:
        views: the texts of views' conditions by name.
        others: the texts of other conditions by name, behind them.
        bound: the conditions bound, in order; the columns that are computed for them.
        erring, branching: int64[error queries] and int64[branches], the number of the query of each, ascending.
        plan: queries, then error queries, then those of branches, compiled.
        binder: what bound them.
        timezone: the session's time zone.
        changed: conditions bound or dropped since all of them were compiled together.
    """

    views: SharedMap[str]
    others: SharedMap[str]
    bound: BoundSelections
    erring: Ints
    branching: Ints
    plan: SelectionPlan
    binder: SelectionBinder
    timezone: str
    changed: int = 0

    def __len__(self) -> int:
        return len(self.views) + len(self.others)

    def text(self, name: str) -> str:
        """The text of a condition."""
        return self.views[name] if name in self.views else self.others[name]


@dataclass(frozen=True, slots=True, eq=False)
class DeclaredConditions:
    """Conditions that were bound when they were declared, for the first plan version, which then need not bind them again.

    Attributes:
        views: the texts of views' conditions by name.
        bound: the conditions bound, in order.
        binder: what bound them, and nothing else.
        timezone: the session's time zone.
    """

    views: SharedMap[str]
    bound: BoundSelections
    binder: SelectionBinder
    timezone: str


def compile_conditions(
    views: Mapping[str, str],
    schema: pa.Schema,
    host: ExpressionHost,
    timezone: str,
    base: CompiledConditions | None = None,
    others: Mapping[str, str] = MappingProxyType({}),
    declared: DeclaredConditions | None = None,
    functions: Collection[str] = (),
) -> CompiledConditions:
    """Binds and compiles conditions.

    Args:
        views: texts of WHERE clauses of views, by name.
        schema: the stream's columns.
        host: Spark's analysis of expressions.
        timezone: the session's time zone.
        base: other conditions over the same columns.
        others: texts of other conditions by names that no view has; their queries are behind those of the views.
        declared: conditions over the same columns that are bound already; used once.
        functions: names of the users' functions that the worker calls itself.

    Raises:
        SqlError: see `bind_selections`.
    """
    of_views, of_others = SharedMap.of(views), SharedMap.of(others)
    found = None
    if base is not None and base.timezone == timezone:
        found = _by_difference(of_views, of_others, base)
    if found is not None:
        return found
    bound = None
    if declared is not None and declared.timezone == timezone and declared.binder.settled(host):
        binder, bound = declared.binder, _with_declared(of_views, of_others, declared)
    if bound is None:
        binder = SelectionBinder(schema, host, timezone, functions=functions)
        bound = binder.bind({**of_views, **of_others})
    plan = compile_selections(_all(bound))
    return CompiledConditions(
        of_views, of_others, bound, _erring(bound), _branching(bound), plan, binder, timezone
    )


def _with_declared(
    views: SharedMap[str], others: SharedMap[str], declared: DeclaredConditions
) -> BoundSelections | None:
    """Conditions bound, of which some have been; None where most have not."""
    changes = views.changes_since(declared.views)
    if len(changes) > len(declared.views):
        return None
    rest = declared.binder.bind({**changes.others, **others})
    own = len(declared.views)
    behind = own + len(changes.others) + np.arange(len(others))
    queries = np.concatenate([_numbers(views, declared.views, changes, 0, own), behind])
    errors, branches = np.arange(len(rest.error_queries)), np.arange(len(rest.branches))
    return merged(declared.bound, rest, queries, errors, branches)


def _by_difference(
    views: SharedMap[str], others: SharedMap[str], base: CompiledConditions
) -> CompiledConditions | None:
    """The conditions compiled from others; None where too much differs, or nobody uses a column any more."""
    pairs = (views, base.views), (others, base.others)
    of_views, of_others = (now.changes_since(before) for now, before in pairs)
    new = of_views.others | of_others.others
    count = len(views) + len(others)
    changed = base.changed + 2 * len(new) + len(base) - count
    if changed > _MOST_CHANGED * count:
        return None
    other = base.binder.bind(new)
    queries = np.concatenate(
        [
            _numbers(views, base.views, of_views, 0, len(base)),
            _numbers(others, base.others, of_others, len(base.views), len(base) + len(of_views.others)),
        ]
    )
    total = len(base) + len(other.selections.queries)
    errors, erring = _following(queries, total, base.erring, len(base) + _erring(other))
    branches, branching = _following(queries, total, base.branching, len(base) + _branching(other))
    bound = merged(base.bound, other, queries, errors, branches)
    if len(bound.calls) < len(base.bound.calls):
        return None
    parts = (
        (queries, len(base), len(other.selections.queries)),
        (errors, len(base.erring), len(other.error_queries)),
        (branches, len(base.branching), len(other.branches)),
    )
    plan = merge_selections(base.plan, compile_selections(_all(other)), _order(parts), _all(bound))
    if _compared(base.plan) - _compared(plan):
        return None
    return CompiledConditions(
        views, others, bound, erring, branching, plan, base.binder, base.timezone, changed
    )


def _all(bound: BoundSelections) -> SelectionSet:
    """Queries, then error queries, then those of branches."""
    branches = (each.query for each in bound.branches)
    return SelectionSet(
        bound.selections.attributes, (*bound.selections.queries, *bound.error_queries, *branches)
    )


def _numbers(
    now: SharedMap[str], before: SharedMap[str], changes: Changes[str], first: int, first_new: int
) -> Ints:
    """The number of the query of each condition, int64[].

    Args:
        now, before: conditions, and those of which queries have the numbers `first` and on.
        changes: what makes `now` of `before`; their queries have the numbers `first_new` and on.
    """
    if changes.is_in_order:
        kept = np.delete(np.arange(len(before)), before.places(changes.gone))
    else:
        places = {name: place for place, name in enumerate(before)}
        kept = np.asarray([places.get(name, 0) for name in now], np.int64)
    numbers = np.empty(len(now), np.int64)
    numbers[: len(kept)] = first + kept
    numbers[now.places(changes.others)] = first_new + np.arange(len(changes.others))
    return numbers


def _following(queries: Ints, total: int, one: Ints, other: Ints) -> tuple[Ints, Ints]:
    """The error queries, or branches, of some queries of two sets.

    Args:
        queries: numbers among the queries of both sets.
        total: how many these have.
        one, other: the number, among the queries of both, of the query of each one of the first set's and of the second's.

    Returns:
        Their numbers among those of both sets, and the place of the query of each, ascending.
    """
    places = np.full(total, -1)
    places[queries] = np.arange(len(queries))
    owners = places[np.concatenate([one, other])]
    order = np.argsort(owners, kind="stable")
    order = order[np.count_nonzero(owners < 0) :]
    return order, owners[order]


def _erring(bound: BoundSelections) -> Ints:
    """The number of the query of each error query."""
    wanted = {query.name for query in bound.error_queries}
    every = bound.selections.queries if wanted else ()
    return np.asarray([number for number, query in enumerate(every) if query.name in wanted], np.int64)


def _branching(bound: BoundSelections) -> Ints:
    """The number of the query of each branch."""
    every = bound.selections.queries if bound.branches else ()
    numbers = {query.name: number for number, query in enumerate(every)}
    return np.asarray([numbers[each.query.name] for each in bound.branches], np.int64)


def _order(parts: Sequence[tuple[Ints, int, int]]) -> Ints:
    """The numbers of queries of two plans among all of the first, then all of the second.

    Args:
        parts: of each kind of query the numbers among those of the first plan, then those of the second; how many
            the first has, and the second.
    """
    first, found = 0, []
    second = sum(own for _, own, _ in parts)
    for numbers, own, others in parts:
        found.append(np.where(numbers < own, first + numbers, second - own + numbers))
        first, second = first + own, second + others
    return np.concatenate(found)


def _compared(plan: SelectionPlan) -> set[str]:
    """The columns that some query compares."""
    places = np.flatnonzero(np.bincount(plan.coded.predicate_attribute)).tolist()
    ruled = plan.rules.attributes if plan.rules is not None else ()
    return {plan.codings[place].name for place in places} | {attribute.name for attribute in ruled}
