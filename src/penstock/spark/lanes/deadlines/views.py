"""Window views with deadlines as they are declared, and what they ask of their streams."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.operators.routing.routers import HashRouter
from penstock.spark.storage.demands import TupleDemand
from penstock.sql.windows.deadlines import BoundDeadline


@dataclass(frozen=True, slots=True)
class DeadlineDefinition:
    """A window view with a deadline, as it is declared.

    Attributes:
        name: the view's name.
        id: identifies this definition; redefining a view gives a new one.
        sql: the whole text of its query.
        bound: the view over the columns of its stream.
        beneath: (name, text) of the views that it selects from, directly or through others.
    """

    name: str
    id: str
    sql: str
    bound: BoundDeadline
    beneath: tuple[tuple[str, str], ...] = ()


def demand_of(bound: BoundDeadline) -> TupleDemand:
    """The tuples a view asks its stream for: those of all groups in one cell, by event time."""
    view = bound.view
    return TupleDemand(
        condition=bound.window.condition,
        columns=view.columns,
        key=(),
        time=view.plan.time,
        router=HashRouter((), 1).document(),
    )
