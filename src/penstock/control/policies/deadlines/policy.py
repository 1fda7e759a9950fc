"""The deadline policy: what waits, what runs, what is shed, and how each query's allowance stands.

Source: Wu, Gu, Lyu, Yu, sections 3 and 4.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf

from penstock.control.actions import (
    Action,
    AdjustPrediction,
    GiveUpInstance,
    RaiseOverload,
    ReportViolation,
    StartOrder,
)
from penstock.control.events import (
    DeadlineBound,
    DeadlineDropped,
    Event,
    InstanceCreated,
    OrderAbandoned,
    OrderEnded,
    OrderFailed,
    ProcessorsIdle,
)
from penstock.control.policies.deadlines.allowance import CurrentConstraint, LossHistory
from penstock.control.policies.deadlines.demand import Demand
from penstock.control.policies.deadlines.disciplines import Choice, Discipline, Instance
from penstock.control.policies.deadlines.feedback import Feedback, FeedbackSettings
from penstock.control.policies.deadlines.forecast import InstanceForecast
from penstock.control.policies.deadlines.memory import QueryMemory
from penstock.control.policies.deadlines.prediction import (
    CostPredictor,
    PredictionSettings,
    UnitCosts,
    expiration_factor,
)
from penstock.control.policies.deadlines.standing import DeadlineStanding, Outcomes
from penstock.plan.deadlines import WindowSpan, WindowWork

#: a query that is behind comes nearer where an order takes so much of what the one before took
_CATCHES_UP = 0.9


@dataclass(frozen=True, slots=True)
class DeadlineSettings:
    """Parameters of the deadline policy.

    Attributes:
        feedback: of predictions.
        prediction: how costs are measured.
        believed: unit costs before the first order of a query.
    """

    feedback: FeedbackSettings = field(default_factory=FeedbackSettings)
    prediction: PredictionSettings = field(default_factory=PredictionSettings)
    believed: UnitCosts = field(default_factory=UnitCosts)


@dataclass(frozen=True, slots=True)
class _Order:
    instance: Instance
    predicted: float
    work: WindowWork
    firm: bool
    started: float

    def end(self, now: float) -> float:
        """When it is predicted to end, not before now."""
        return max(now, self.started + self.predicted)


@dataclass(slots=True)
class _Query:
    """A query with what waits of it: a `Backlog`."""

    bound: DeadlineBound
    predictor: CostPredictor
    history: LossHistory
    feedback: Feedback
    constraint: CurrentConstraint
    instances: deque[Instance] = field(default_factory=deque)
    forecast: InstanceForecast = field(default_factory=InstanceForecast)
    running: _Order | None = None
    processed: WindowSpan | None = None
    busy_until: float | None = None
    outcomes: Outcomes = field(default_factory=Outcomes)
    distance: int = 0
    #: as of the newest instance
    demand: Demand = field(default_factory=Demand)
    catching_up: bool = False
    #: what the last order took that was not firm, if none was firm since
    late_seconds: float = inf

    @property
    def base(self) -> WindowSpan | None:
        return self.processed if self.running is None else self.running.instance.span

    @property
    def spread(self) -> float:
        return self.predictor.spread

    @property
    def measured_at(self) -> float:
        return self.predictor.measured_at

    def predict(self, span: WindowSpan, base: WindowSpan | None) -> tuple[float, WindowWork]:
        return self.predictor.predict(span, base)

    def created(self, instance: Instance) -> None:
        """An instance waits; what is asked follows."""
        self.instances.append(instance)
        self.forecast.created(instance)
        self.demand = Demand.of(
            self.forecast.newest, self.forecast.hop, self.predict, self.bound.query.constraint
        )

    def expected(self, due: float, now: float) -> Sequence[Instance]:
        return self.forecast.until(due, now)

    def settle(self, satisfied: bool) -> Iterator[ReportViolation]:
        """An outcome is known: the allowance follows."""
        declared, before = self.bound.query.constraint, self.constraint
        self.constraint = before.satisfied(declared) if satisfied else before.missed(declared)
        self.history.add(not satisfied)
        self.distance = self.history.distance()
        if self.constraint.violating and not before.violating:
            reason = f"more than {declared.k} of {declared.m} consecutive windows were lost"
            yield ReportViolation(self.bound.stream, self.bound.version, reason, self.figures())

    def expect_less(self) -> Iterator[AdjustPrediction]:
        """An instance that was predicted to miss was in time: rho, which only acts where the DSR falls, no longer keeps others back."""
        before = self.predictor.rho
        if before > 1:
            self.predictor.rho = 1.0
            reason = "a window that was predicted to miss its deadline met it: costs were over-estimated"
            figures = {"rho_before": before, "rho": 1.0}
            yield AdjustPrediction(self.bound.stream, self.bound.version, reason, figures)

    def figures(self) -> dict[str, float | int | str]:
        return {
            "k'": self.constraint.k,
            "m'": self.constraint.m,
            "distance": self.distance,
            "rho": round(self.predictor.rho, 4),
        }


class DeadlinePolicy:
    """Orders the instances of all queries with deadlines.

    The shell tells what happens; to `ProcessorsIdle` the policy answers with orders to start and instances to give up. One order
    a query runs at a time, and its instances are released in order. The shell abandons a firm order at its deadline.

    Args:
        discipline: which instance is next.
        settings: parameters.
        clock: seconds; those of `InstanceCreated.created` too.
    """

    def __init__(
        self, discipline: Discipline, settings: DeadlineSettings, clock: Callable[[], float]
    ) -> None:
        self._discipline = discipline
        self._settings = settings
        self._clock = clock
        self._queries: dict[str, _Query] = {}
        self._arrived = 0
        self._period_end = clock() + settings.feedback.period

    def handle(self, event: Event) -> list[Action]:
        """Takes an event and returns the actions it gives rise to."""
        now = self._clock()
        actions = list(self._end_periods(now))
        match event:
            case DeadlineBound():
                self._queries[event.stream] = self._bound(event)
            case DeadlineDropped():
                self._queries.pop(event.stream, None)
            case ProcessorsIdle():
                actions += self._choose(now, event.processors)
            case InstanceCreated() | OrderEnded() | OrderAbandoned() | OrderFailed():
                query = self._queries.get(event.stream)
                if query is not None and query.bound.version == event.version:
                    actions += self._heard(query, event, now)
        return actions

    def standing(self, stream: str) -> DeadlineStanding:
        """How a query stands.

        Raises:
            KeyError: there is no such query.
        """
        query = self._queries[stream]
        return DeadlineStanding(
            query.outcomes,
            len(query.instances),
            query.constraint,
            query.history.violations,
            query.predictor.rho,
            query.predictor.costs,
            query.feedback.overloaded,
            query.feedback.failing,
            query.forecast.lag,
        )

    def memory(self, stream: str) -> QueryMemory:
        """What outlasts the process of a query.

        Raises:
            KeyError: there is no such query.
        """
        query = self._queries[stream]
        return QueryMemory(
            query.constraint,
            tuple(query.history.recent),
            query.history.violations,
            query.predictor.rho,
            query.predictor.costs,
            query.predictor.sums,
        )

    def recall(self, stream: str, memory: QueryMemory) -> None:
        """A query of which no instance is known yet goes on with what was known of it; rho is left to policies that correct it.

        Raises:
            KeyError: there is no such query.
        """
        query = self._queries[stream]
        query.constraint = memory.constraint
        query.history.recall(memory.lost, memory.violations)
        query.distance = query.history.distance()
        query.predictor.recall(self._clock(), memory.costs, memory.measured)
        if self._settings.feedback.step:
            query.predictor.rho = memory.rho

    def _bound(self, event: DeadlineBound) -> _Query:
        query, settings = event.query, self._settings
        made = _Query(
            event,
            CostPredictor(query, settings.prediction, settings.believed),
            LossHistory(query.constraint),
            Feedback(settings.feedback, query.constraint),
            CurrentConstraint.of(query.constraint),
        )
        made.distance = made.history.distance()
        return made

    def _heard(
        self, query: _Query, event: InstanceCreated | OrderEnded | OrderAbandoned | OrderFailed, now: float
    ) -> Iterator[Action]:
        if isinstance(event, InstanceCreated):
            deadline = event.created + query.bound.query.deadline
            noticed = event.created if event.noticed is None else event.noticed
            instance = Instance(event.number, event.created, deadline, event.span, self._arrived, noticed)
            query.created(instance)
            self._arrived += 1
            query.outcomes.created += 1
            return
        order, query.running = query.running, None
        assert order is not None, f"no order of {event.stream!r} runs"
        counts, satisfied = query.feedback.counts, False
        if isinstance(event, OrderFailed):
            query.outcomes.failed += 1
            counts.failed += 1
        elif isinstance(event, OrderAbandoned):
            query.predictor.bounded(now, order.work, order.predicted, event.seconds)
        else:
            rest = event.seconds - event.adding_seconds - event.removing_seconds
            parts = (event.adding_seconds, event.removing_seconds, rest)
            query.predictor.measured(now, event.work or order.work, order.predicted, parts)
            query.processed = order.instance.span if event.is_carried else None
            if not order.firm:
                query.catching_up = event.seconds < _CATCHES_UP * query.late_seconds
                query.late_seconds = event.seconds
            satisfied = now <= order.instance.deadline
            if satisfied and order.started + order.predicted > order.instance.deadline:
                yield from query.expect_less()
        if satisfied:
            query.outcomes.released += 1
            counts.satisfied += 1
        elif not isinstance(event, OrderFailed):
            query.outcomes.missed += 1
            counts.mispredicted += order.firm
            counts.lost += not order.firm
        yield from query.settle(satisfied)

    def _choose(self, now: float, processors: int) -> Iterator[Action]:
        for query in self._queries.values():
            yield from self._expire(query, now)
        for idle in range(processors, 0, -1):
            backlogs = list(self._queries.values())
            if not any(each.instances and each.running is None for each in backlogs):
                return
            choice = self._discipline.choose(backlogs, now, [now] * idle + self._busy(now))
            for backlog, count, reason in choice.shed:
                assert isinstance(backlog, _Query)
                for _ in range(count):
                    yield from self._shed(backlog, reason, now)
            if choice.run is None:
                return
            assert isinstance(choice.run, _Query)
            yield self._start(choice.run, choice, now)

    def _busy(self, now: float) -> list[float]:
        """When each running order is predicted to end."""
        found = []
        for query in self._queries.values():
            query.busy_until = None if query.running is None else query.running.end(now)
            found += [] if query.busy_until is None else [query.busy_until]
        return found

    def _start(self, query: _Query, choice: Choice, now: float) -> Action:
        instance = query.instances.popleft()
        seconds, work = query.predict(instance.span, query.base)
        query.running = _Order(instance, seconds, work, choice.firm, now)
        if choice.firm:
            query.late_seconds, query.catching_up = inf, False
        figures = self._figures(query, instance, seconds, now)
        figures |= {"new": work.new, "expired": work.expired}
        stream, version = query.bound.stream, query.bound.version
        return StartOrder(stream, version, choice.reason, figures, instance.number, work, choice.firm)

    def _shed(self, query: _Query, reason: str, now: float) -> Iterator[Action]:
        instance = query.instances.popleft()
        seconds, _ = query.predict(instance.span, query.base)
        figures = self._figures(query, instance, seconds, now)
        query.outcomes.shed += 1
        query.feedback.counts.shed += 1
        yield GiveUpInstance(
            query.bound.stream, query.bound.version, reason, figures, instance.number, shed=True
        )
        yield from query.settle(satisfied=False)

    def _expire(self, query: _Query, now: float) -> Iterator[Action]:
        """Gives up what waited beyond its deadline: shed by a discipline that predicts, as no time left."""
        if query.running is not None:
            return
        for instance in list(query.instances):
            if instance.deadline > now:
                return
            if self._discipline.predicts:
                yield from self._shed(query, "no time left", now)
                continue
            query.instances.popleft()
            query.outcomes.missed += 1
            query.feedback.counts.lost += 1
            figures = self._figures(query, instance, query.predict(instance.span, query.base)[0], now)
            yield GiveUpInstance(
                query.bound.stream,
                query.bound.version,
                "its deadline passed while it was waiting",
                figures,
                instance.number,
                shed=False,
            )
            yield from query.settle(satisfied=False)

    def _figures(
        self, query: _Query, instance: Instance, seconds: float, now: float
    ) -> dict[str, float | int | str]:
        factor = expiration_factor(seconds, instance.deadline, now)
        return {
            "waited_seconds": round(now - instance.created, 6),
            "left_seconds": round(instance.deadline - now, 6),
            "predicted_seconds": round(seconds, 6),
            **({"expiration_factor": round(factor, 4)} if factor < inf else {}),
            **query.figures(),
        }

    def _end_periods(self, now: float) -> Iterator[Action]:
        period = self._settings.feedback.period
        if now < self._period_end - period:
            # the clock was set back
            self._period_end = now + period
        if now < self._period_end:
            return
        self._period_end += ((now - self._period_end) // period + 1) * period
        for query in self._queries.values():
            ended = query.feedback.end_period()
            if ended is None or not ended.instances:
                continue
            stream, version, figures = query.bound.stream, query.bound.version, ended.figures()
            rho, before = query.feedback.corrected(query.predictor.rho, ended), query.predictor.rho
            if rho != before:
                query.predictor.rho = rho
                kind = "over" if rho < before else "under"
                reason = f"the deadline satisfaction ratio fell: costs were {kind}-estimated"
                yield AdjustPrediction(stream, version, reason, {**figures, "rho_before": before, "rho": rho})
            if query.feedback.overload_begins(ended):
                reason = f"{ended.satisfied} of {ended.instances} windows met their deadline"
                yield RaiseOverload(stream, version, reason, figures)
