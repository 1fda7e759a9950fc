"""Deadline queries with drawn arrivals and costs, and runs of them in virtual time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock.control.controller import Controller
from penstock.control.events import DeadlineBound, InstanceCreated
from penstock.control.policies.deadlines.disciplines import Discipline
from penstock.control.policies.deadlines.policy import DeadlinePolicy, DeadlineSettings
from penstock.control.policies.deadlines.prediction import UnitCosts
from penstock.plan.deadlines import DeadlineQuery, LossConstraint, WindowSpan
from penstock_lab.simulate.deadlines import DrawnCosts, PlayedDeadlines, SimulatedQuery, play


def simulated(
    name: str,
    counts: Sequence[int],
    size: int,
    deadline: float,
    constraint: tuple[int, int] = (1, 1),
    unit: float = 1.0,
    expired: float = 0.0,
    maintenance: float = 0.0,
    incremental: bool = True,
    first: int | None = None,
) -> SimulatedQuery:
    """Windows of so many seconds that slide each second over so many tuples each second.

    Args:
        name: of the query.
        counts: tuples by second, the first second first.
        size: Z, whole seconds.
        deadline: seconds.
        constraint: (k, m).
        unit: seconds of adding a tuple.
        expired: seconds of removing one.
        maintenance: seconds of an instance.
        incremental: whether instances are carried.
        first: when the first instance is created; the first whole window where not given.
    """
    ends = np.append(0, np.cumsum(counts))
    created = np.arange(size if first is None else first, len(counts) + 1)
    spans = [WindowSpan(int(ends[max(0, at - size)]), int(ends[at])) for at in created]
    places = np.arange(ends[-1] + 1)
    costs = DrawnCosts(places * unit, places * expired, np.full(len(created), maintenance))
    query = DeadlineQuery(name, deadline, LossConstraint(*constraint), incremental)
    return SimulatedQuery(query, created.astype(float), spans, costs)


def played(
    queries: Sequence[SimulatedQuery],
    discipline: Discipline,
    settings: DeadlineSettings | None = None,
    processors: int = 1,
) -> tuple[PlayedDeadlines, DeadlinePolicy, Controller]:
    """A run, the policy and the controller behind it."""
    settings = settings or DeadlineSettings()
    made = []

    def control(clock):  # type: ignore[no-untyped-def]
        policy = DeadlinePolicy(discipline, settings, clock)
        made.append((policy, Controller([policy], clock, remembered=1_000_000)))
        return made[0][1]

    result = play(queries, processors, control)
    return result, *made[0]


#: a tuple takes a second
KNOWN = DeadlineSettings(believed=UnitCosts(new=1.0))


class Shell:
    """A controller with a clock to be set."""

    def __init__(self, discipline, settings: DeadlineSettings, **constraints: tuple[int, int]) -> None:  # type: ignore[no-untyped-def]
        self.now = 0.0
        self.policy = DeadlinePolicy(discipline, settings, lambda: self.now)
        self.controller = Controller([self.policy], lambda: self.now)
        for name, (k, m) in (constraints or {"q": (1, 4)}).items():
            self.tell(DeadlineBound(name, 1, DeadlineQuery(name, 3.0, LossConstraint(k, m))))

    def tell(self, event, at: float | None = None):  # type: ignore[no-untyped-def]
        self.now = self.now if at is None else at
        return self.controller.handle(event)

    def create(self, number: int, first: int, last: int, name: str = "q", at: float = 0.0):  # type: ignore[no-untyped-def]
        return self.tell(InstanceCreated(name, 1, number, at, WindowSpan(first, last)), at)
