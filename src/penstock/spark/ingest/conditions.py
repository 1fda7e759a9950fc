"""The conditions of a plan version bound and compiled, by what differs from another version where that is little."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from operator import attrgetter

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.operators.selection.selector import SelectionPlan, compile_selections, merge_selections
from penstock.plan.expressions import ExpressionHost
from penstock.plan.selection import SelectionSet
from penstock.spark.storage.bases import others_since
from penstock.sql.conditions.bind import BoundSelections, SelectionBinder
from penstock.sql.conditions.merging import merged

#: all conditions are compiled anew once so large a part of them has changed: constants of others remain until then
_MOST_CHANGED = 0.25
_NAME = attrgetter("name")


@dataclass(frozen=True, slots=True, eq=False)
class CompiledConditions:
    """Conditions bound to a stream's columns and compiled.

    Attributes:
        conditions: their texts by name.
        bound: the conditions bound, in order; the columns that Spark computes for them.
        plan: queries, then error queries, compiled.
        binder: what bound them.
        timezone: the session's time zone.
        changed: conditions bound or dropped since all of them were compiled together.
    """

    conditions: Mapping[str, str]
    bound: BoundSelections
    plan: SelectionPlan
    binder: SelectionBinder
    timezone: str
    changed: int = 0

    @property
    def erring(self) -> list[int]:
        """The number of the query of each error query."""
        wanted = {query.name for query in self.bound.error_queries}
        return [number for number, name in enumerate(self.conditions) if name in wanted] if wanted else []


def compile_conditions(
    conditions: Mapping[str, str],
    schema: pa.Schema,
    host: ExpressionHost,
    timezone: str,
    base: CompiledConditions | None = None,
) -> CompiledConditions:
    """Binds and compiles conditions.

    Args:
        conditions: texts of WHERE clauses by name.
        schema: the stream's columns.
        host: Spark's analysis of expressions.
        timezone: the session's time zone.
        base: other conditions over the same columns.

    Raises:
        SqlError: see `bind_selections`.
    """
    found = None if base is None or base.timezone != timezone else _by_difference(conditions, base)
    if found is not None:
        return found
    binder = SelectionBinder(schema, host, timezone)
    bound = binder.bind(conditions)
    return CompiledConditions(conditions, bound, compile_selections(_all(bound)), binder, timezone)


def _by_difference(conditions: Mapping[str, str], base: CompiledConditions) -> CompiledConditions | None:
    """The conditions compiled from others; None where too much differs, or nobody uses a column any more."""
    new = others_since(base.conditions, conditions)
    left = len(base.conditions) + len(new) - len(conditions)
    changed = base.changed + len(new) + left
    if changed > _MOST_CHANGED * len(conditions):
        return None
    other = base.binder.bind(new)
    bound = merged(base.bound, other, list(conditions))
    order = _order(bound, base.bound, other)
    plan = merge_selections(base.plan, compile_selections(_all(other)), order, _all(bound))
    if _compared(base.plan) - _compared(plan):
        return None
    return CompiledConditions(conditions, bound, plan, base.binder, base.timezone, changed)


def _all(bound: BoundSelections) -> SelectionSet:
    """Queries, then error queries."""
    return SelectionSet(bound.selections.attributes, (*bound.selections.queries, *bound.error_queries))


def _order(bound: BoundSelections, one: BoundSelections, other: BoundSelections) -> npt.NDArray[np.int64]:
    """The numbers that all queries of `bound` have among those of `one`, then those of `other`."""
    own = len(one.selections.queries) + len(one.error_queries)
    found: list[int] = []
    for wanted, first, before, second, after in (
        (bound.selections.queries, one.selections.queries, 0, other.selections.queries, own),
        (
            bound.error_queries,
            one.error_queries,
            len(one.selections.queries),
            other.error_queries,
            own + len(other.selections.queries),
        ),
    ):
        places = dict(zip(map(_NAME, first), count(before), strict=False))
        places |= zip(map(_NAME, second), count(after), strict=False)
        found += map(places.__getitem__, map(_NAME, wanted))
    return np.asarray(found, np.int64)


def _compared(plan: SelectionPlan) -> set[str]:
    """The columns that some query compares."""
    places = np.unique(plan.coded.predicate_attribute).tolist()
    ruled = plan.rules.attributes if plan.rules is not None else ()
    return {plan.codings[place].name for place in places} | {attribute.name for attribute in ruled}
