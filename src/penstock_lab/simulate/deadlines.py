"""The virtual-time runner of window views with deadlines: recorded arrivals, drawn costs, any number of processors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from heapq import heapify, heappop, heappush

import numpy as np
import numpy.typing as npt

from penstock.control.actions import Action, GiveUpInstance, StartOrder
from penstock.control.controller import Controller
from penstock.control.events import (
    DeadlineBound,
    InstanceCreated,
    OrderAbandoned,
    OrderEnded,
    ProcessorsIdle,
)
from penstock.plan.deadlines import DeadlineQuery, LossConstraint, WindowSpan

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

#: comes at the end of an order, in place of the number of an instance
_END = -1


class Outcome(IntEnum):
    """What became of an instance."""

    WAITING = 0
    RELEASED = 1
    SHED = 2
    MISSED = 3


@dataclass(frozen=True, slots=True, eq=False)
class DrawnCosts:
    """What processing takes, drawn beforehand: the same in every run over it.

    Attributes:
        new: float64[tuples + 1], seconds of adding all tuples before each place.
        expired: likewise of removing them.
        maintenance: float64[instances], Pm of each instance, seconds.
    """

    new: Floats
    expired: Floats
    maintenance: Floats

    def parts(self, number: int, span: WindowSpan, base: WindowSpan | None) -> tuple[float, float, float]:
        """Seconds for the new tuples of an instance, for the expired ones, for the rest.

        Args:
            number: of the instance.
            span: its tuples.
            base: those of the instance it is carried from, None: it is worked out afresh.
        """
        first, gone = span.first, 0.0
        if base is not None:
            first = max(first, base.last)
            gone = float(self.expired[min(span.first, base.last)] - self.expired[base.first])
        return float(self.new[span.last] - self.new[first]), gone, float(self.maintenance[number])


@dataclass(frozen=True, slots=True, eq=False)
class SimulatedQuery:
    """A query over recorded arrivals.

    Attributes:
        query: the deadline and the allowance.
        created: float64[instances], when its windows slide, seconds, ascending.
        spans: of each instance.
        costs: what they take.
    """

    query: DeadlineQuery
    created: Floats
    spans: Sequence[WindowSpan]
    costs: DrawnCosts

    def step_seconds(self) -> Floats:
        """float64[instances]: each one's cost where the one before is processed, the first afresh."""
        bases = [None, *self.spans[:-1]]
        carried = bases if self.query.incremental else [None] * len(self.spans)
        return np.array(
            [
                sum(self.costs.parts(number, span, base))
                for number, (span, base) in enumerate(zip(self.spans, carried, strict=True))
            ]
        )


def sliding(arrivals: Floats, size: float, hop: float, until: float) -> tuple[Floats, list[WindowSpan]]:
    """Windows that hold what arrived in the last `size` seconds; the first ones are not full yet.

    Args:
        arrivals: float64[tuples], seconds, ascending.
        size: Z, seconds.
        hop: H, seconds.
        until: the last one is created before.

    Returns:
        When each is created, and its tuples.
    """
    created = np.arange(1, round(until / hop), dtype=np.float64) * hop
    first, last = (np.searchsorted(arrivals, created - back, "right") for back in (size, 0.0))
    return created, [WindowSpan(int(a), int(b)) for a, b in zip(first, last, strict=True)]


def load(queries: Sequence[SimulatedQuery], processors: int = 1) -> float:
    """Share of the processors' time that working out every instance takes."""
    seconds = sum(float(each.step_seconds().sum()) for each in queries)
    span = max(float(each.created[-1]) for each in queries) - min(float(each.created[0]) for each in queries)
    return seconds / (span * processors)


@dataclass(frozen=True, slots=True, eq=False)
class PlayedQuery:
    """What became of a query's instances.

    Attributes:
        constraint: its (k, m).
        outcomes: int8[instances], an `Outcome` each.
        predicted: float64[instances], seconds; NaN where none was made.
        took: float64[instances], seconds of those worked out, else NaN.
    """

    constraint: LossConstraint
    outcomes: npt.NDArray[np.int8]
    predicted: Floats
    took: Floats

    @property
    def lost(self) -> Bools:
        """Which instances missed their deadline, shed ones included."""
        return np.asarray(self.outcomes != Outcome.RELEASED)

    @property
    def satisfaction(self) -> float:
        """DSR."""
        return 1.0 - float(self.lost.mean())

    @property
    def violations(self) -> int:
        """Runs of m consecutive instances with more than k losses."""
        return violations(self.lost, self.constraint)


@dataclass(frozen=True, slots=True, eq=False)
class PlayedDeadlines:
    """A run.

    Attributes:
        queries: by name.
        busy: processor seconds spent.
        wasted: of these, on instances that missed their deadline.
    """

    queries: dict[str, PlayedQuery]
    busy: float
    wasted: float

    @property
    def released(self) -> int:
        """Instances that met their deadline."""
        return sum(int((~each.lost).sum()) for each in self.queries.values())

    @property
    def satisfaction(self) -> float:
        """DSR over all queries."""
        return self.released / sum(len(each.outcomes) for each in self.queries.values())

    @property
    def violations(self) -> int:
        """Of all queries."""
        return sum(each.violations for each in self.queries.values())

    @property
    def fairness(self) -> float:
        """Jain's index of the queries' loss relative to their allowance."""
        return jain(
            np.array([float(each.lost.mean()) / each.constraint.factor for each in self.queries.values()])
        )


def violations(lost: Bools, constraint: LossConstraint) -> int:
    """Runs of m consecutive instances with more than k losses; instances before the first count as satisfied."""
    runs = np.convolve(lost.astype(np.int64), np.ones(constraint.m, np.int64))[: len(lost)]
    return int(np.count_nonzero(runs > constraint.k))


def jain(shares: Floats) -> float:
    """Jain's fairness index: (sum x)^2 / (n sum x^2); 1 where all are 0."""
    squares = float((shares**2).sum())
    return float(shares.sum()) ** 2 / (len(shares) * squares) if squares else 1.0


@dataclass(frozen=True, slots=True)
class _Order:
    """What a processor works on."""

    number: int
    started: float
    firm: bool
    #: seconds for the new tuples, the expired ones, the rest
    parts: tuple[float, float, float]

    @property
    def seconds(self) -> float:
        return sum(self.parts)


class _Machine:
    """Processors, what runs on them, and what became of each instance."""

    def __init__(self, queries: Sequence[SimulatedQuery], processors: int) -> None:
        self.queries = {each.query.name: each for each in queries}
        self.idle = processors
        self.outcomes = {name: np.zeros(len(q.created), np.int8) for name, q in self.queries.items()}
        self.predicted = {name: np.full(len(q.created), np.nan) for name, q in self.queries.items()}
        self.took = {name: np.full(len(q.created), np.nan) for name, q in self.queries.items()}
        self.bases: dict[str, WindowSpan | None] = dict.fromkeys(self.queries)
        self.running: dict[str, _Order] = {}
        self.busy = self.wasted = 0.0

    def carry_out(self, action: Action, now: float) -> float | None:
        """Does what was decided; when the order ends that it starts."""
        name = action.stream
        if isinstance(action, GiveUpInstance):
            self.outcomes[name][action.number] = Outcome.SHED if action.shed else Outcome.MISSED
            self.predicted[name][action.number] = action.figures["predicted_seconds"]
        if not isinstance(action, StartOrder):
            return None
        query, number = self.queries[name], action.number
        base = self.bases[name] if action.work.carried else None
        parts = query.costs.parts(number, query.spans[number], base)
        order = _Order(number, now, action.firm, parts)
        self.predicted[name][number] = action.figures["predicted_seconds"]
        self.running[name] = order
        self.idle -= 1
        done = now + order.seconds
        return min(done, self._deadline(name, number)) if order.firm else done

    def end(self, name: str, now: float) -> OrderEnded | OrderAbandoned:
        """The order of a query is done, or its deadline has come."""
        order = self.running.pop(name)
        self.idle += 1
        self.busy += now - order.started
        in_time = now <= self._deadline(name, order.number)
        done = order.started + order.seconds <= now
        self.outcomes[name][order.number] = Outcome.RELEASED if in_time and done else Outcome.MISSED
        self.wasted += 0.0 if in_time and done else now - order.started
        if not done:
            return OrderAbandoned(name, 1, order.number, now - order.started)
        self.took[name][order.number] = order.seconds
        self.bases[name] = self.queries[name].spans[order.number]
        adding, removing, _ = order.parts
        return OrderEnded(name, 1, order.number, order.seconds, adding, removing)

    def _deadline(self, name: str, number: int) -> float:
        query = self.queries[name]
        return float(query.created[number]) + query.query.deadline


def play(
    queries: Sequence[SimulatedQuery],
    processors: int,
    control: Callable[[Callable[[], float]], Controller],
) -> PlayedDeadlines:
    """Plays the queries in virtual time; deciding takes none. Instances created at one time come in a drawn order.

    Args:
        queries: with distinct names.
        processors: how many orders run at once.
        control: makes the controller from the run's clock.
    """
    now = 0.0
    controller = control(lambda: now)
    machine = _Machine(queries, processors)
    for each in queries:
        controller.handle(DeadlineBound(each.query.name, 1, each.query))
    rng = np.random.default_rng(0)
    coming = [
        (float(at), float(draw), each.query.name, number)
        for each in queries
        for number, (at, draw) in enumerate(zip(each.created, rng.random(len(each.created)), strict=True))
    ]
    heapify(coming)
    while coming:
        now = coming[0][0]
        while coming and coming[0][0] == now:
            _, _, name, number = heappop(coming)
            if number == _END:
                controller.handle(machine.end(name, now))
            else:
                span = machine.queries[name].spans[number]
                controller.handle(InstanceCreated(name, 1, number, now, span))
        if machine.idle:
            for action in controller.handle(ProcessorsIdle(machine.idle)):
                end = machine.carry_out(action, now)
                if end is not None:
                    heappush(coming, (end, 0.0, action.stream, _END))
    return PlayedDeadlines(
        {
            name: PlayedQuery(
                each.query.constraint, machine.outcomes[name], machine.predicted[name], machine.took[name]
            )
            for name, each in machine.queries.items()
        },
        machine.busy,
        machine.wasted,
    )
