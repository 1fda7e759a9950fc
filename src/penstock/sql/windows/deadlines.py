"""Binding of window views with a deadline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from penstock.errors import UnsupportedError
from penstock.plan.deadlines import AggregateSignature, DeadlineQuery, DeadlineView, LossConstraint
from penstock.plan.expressions import ExpressionHost
from penstock.sql.text.hints import Loss
from penstock.sql.text.lexing import quote
from penstock.sql.windows.bind import BoundWindow, WindowBinder
from penstock.sql.windows.error_bounds import with_error_bounds
from penstock.sql.windows.query import WindowQuery

#: of a view without LOSS: all its windows may miss, and those that do are not answered late
_ANY_LOSS = Loss(LossConstraint(1, 1))


@dataclass(frozen=True, slots=True)
class BoundDeadline:
    """A window view with a deadline over the columns of its stream.

    Attributes:
        view: what its instances are worked out from.
        window: the view as one without a deadline is bound: condition, outputs, HAVING; its plan is that of `view`.
    """

    view: DeadlineView
    window: BoundWindow


def bind_deadline(
    query: WindowQuery,
    name: str,
    schema: pa.Schema,
    host: ExpressionHost,
    users: Mapping[str, AggregateSignature],
) -> BoundDeadline:
    """Binds one window view that has the hint DEADLINE.

    An instance can be worked out from an earlier one where a class of the user's is among what the view computes.

    Args:
        query: the view, flattened.
        name: the view's name.
        schema: the stream's columns.
        host: Spark's analysis of expressions.
        users: the user's aggregates by name in upper case.

    Raises what `WindowBinder.bind_calling` raises, and UnsupportedError for a bound that no error can be held against, or an
    aggregate whose error cannot be bounded where a window may be approximated.
    """
    window, calls = WindowBinder(schema, host).bind_calling(query, name, users)
    bound = query.hints.max_error
    if calls and bound is not None and bound.absolute:
        raise UnsupportedError(
            "For your own aggregates MAX_ERROR bounds the share of missing tuples, which has no unit. Write "
            "MAX_ERROR(epsilon, delta) without 'absolute'.",
            query.source_clause.script,
            *query.hints.places["MAX_ERROR"],
        )
    loss = query.hints.loss or _ANY_LOSS
    if loss.is_approximate:
        window = with_error_bounds(query, window)
    plan = window.plan
    assert query.hints.deadline_seconds is not None, "it has a deadline"
    # partials of built-in aggregates are kept
    is_incremental = not calls or any(users[call.name.upper()].is_incremental for call in calls)
    needed = [plan.time, *(column for column, _ in plan.keys)]
    needed += (argument for each in plan.aggregates for argument in each.arguments)
    needed += (argument for call in calls for argument in call.arguments)
    derived = {each.name: each.expression for each in window.derived}
    return BoundDeadline(
        DeadlineView(
            DeadlineQuery(
                name, query.hints.deadline_seconds, loss.constraint, is_incremental, loss.is_approximate
            ),
            plan,
            calls,
            loss.is_late,
            tuple((derived.get(column) or quote(column), column) for column in dict.fromkeys(needed)),
            waits=query.hints.max_error is not None,
        ),
        window,
    )
