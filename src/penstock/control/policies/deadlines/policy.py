"""The deadline policy: what waits, what runs, what is shed, and how each query's allowance stands.

Source: Wu, Gu, Lyu, Yu, sections 3 and 4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from penstock.control.actions import (
    Action,
    AdjustPrediction,
    GiveUpInstance,
    RaiseOverload,
    StartOrder,
)
from penstock.control.events import (
    DeadlineBound,
    DeadlineDropped,
    Event,
    InstanceCreated,
    LateAnswered,
    OrderAbandoned,
    OrderEnded,
    OrderFailed,
    ProcessorsIdle,
)
from penstock.control.policies.deadlines.allowance import CurrentConstraint, LossHistory
from penstock.control.policies.deadlines.disciplines import MISSES, Choice, Discipline, Instance, Processor
from penstock.control.policies.deadlines.feedback import Feedback, FeedbackSettings
from penstock.control.policies.deadlines.lots import Lot, other_processors
from penstock.control.policies.deadlines.memory import QueryMemory
from penstock.control.policies.deadlines.prediction import (
    CostPredictor,
    PredictionSettings,
    UnitCosts,
    expiration_factor,
)
from penstock.control.policies.deadlines.queries import CATCHES_UP, Order, QueryState
from penstock.control.policies.deadlines.sampling import Sample, planned_sample, sample_ended, samples
from penstock.control.policies.deadlines.standing import DeadlineStanding


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


class DeadlinePolicy:
    """Orders the instances of all queries with deadlines.

    The shell tells what happens; to `ProcessorsIdle` the policy answers with orders to start and instances to give up. Orders of a
    query run in one lot at a time, and its instances are released in order. The shell abandons a firm order at its deadline.

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
        self._queries: dict[str, QueryState] = {}
        #: what orders of all queries that compute the same take
        self._kin: dict[str, CostPredictor] = {}
        self._sampling_kin: dict[str, CostPredictor] = {}
        self._arrived = 0
        #: number of the newest lot
        self._lots = 0
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
                actions += self._choose(now, event)
            case LateAnswered():
                query = self._queries.get(event.stream)
                if query is not None and query.bound.version == event.version:
                    self._learned(query, event, now)
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
            query.load,
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

    def _bound(self, event: DeadlineBound) -> QueryState:
        query, settings = event.query, self._settings
        kin = sampling = None
        if event.kin:
            alike = CostPredictor(query, settings.prediction, settings.believed)
            kin = self._kin.setdefault(event.kin, alike)
            samples = CostPredictor(query, settings.prediction, settings.believed)
            sampling = self._sampling_kin.setdefault(event.kin, samples)
        made = QueryState(
            event,
            CostPredictor(query, settings.prediction, settings.believed, kin),
            LossHistory(query.constraint),
            Feedback(settings.feedback, query.constraint),
            CurrentConstraint.of(query.constraint),
            CostPredictor(query, settings.prediction, settings.believed, sampling),
        )
        made.distance = made.history.distance()
        return made

    def _heard(
        self,
        query: QueryState,
        event: InstanceCreated | OrderEnded | OrderAbandoned | OrderFailed,
        now: float,
    ) -> Iterator[Action]:
        if isinstance(event, InstanceCreated):
            deadline = event.created + query.bound.query.deadline
            noticed = event.created if event.noticed is None else event.noticed
            instance = Instance(event.number, event.created, deadline, event.span, self._arrived, noticed)
            query.created(instance)
            self._arrived += 1
            query.outcomes.created += 1
            return
        assert query.running, f"no order of {event.stream!r} runs"
        order = query.running.popleft()
        if order.is_sample:
            yield from query.settle(sample_ended(query, order, event, now))
            return
        counts, satisfied = query.feedback.counts, False
        if isinstance(event, OrderFailed):
            query.outcomes.failed += 1
            counts.failed += 1
        elif isinstance(event, OrderAbandoned):
            query.predictor.bounded(now, order.work, order.predicted, event.seconds)
        else:
            rest = event.seconds - event.adding_seconds - event.removing_seconds
            parts = (event.adding_seconds, event.removing_seconds, rest)
            work = event.work or order.work
            beside, lots = event.beside_seconds, 1 / event.together
            query.predictor.measured(now, work, order.predicted, parts, beside, lots)
            query.processed = order.instance.span if event.is_carried else None
            if not order.firm:
                query.catching_up = event.seconds < CATCHES_UP * query.late_seconds
                query.late_seconds = event.seconds
            satisfied = now <= order.instance.deadline
            if satisfied and order.end > order.instance.deadline:
                yield from query.expect_less()
        if satisfied:
            query.outcomes.released += 1
            counts.satisfied += 1
        elif not isinstance(event, OrderFailed):
            query.outcomes.missed += 1
            counts.mispredicted += order.firm
            counts.lost += not order.firm
        yield from query.settle(satisfied)

    def _learned(self, query: QueryState, event: LateAnswered, now: float) -> None:
        """Takes in what an exact answer took, of a query whose windows are sampled: else nobody would know when it takes less."""
        if query.bound.query.approximate:
            rest = event.seconds - event.adding_seconds
            parts = (event.adding_seconds, 0.0, rest)
            query.predictor.measured(now, event.work, 0.0, parts, event.beside_seconds, 1.0)

    def _choose(self, now: float, event: ProcessorsIdle) -> Iterator[Action]:
        for query in self._queries.values():
            yield from self._expire(query, now)
        lots = [Lot(self._lots + number + 1, now) for number in range(event.processors)]
        self._lots += len(lots)
        planned: list[Choice] = []
        others: list[Processor] = []
        together = event.together_seconds
        while filling := [each for each in lots if not each.is_full]:
            lot = min(filling, key=lambda each: each.end)
            if not any(each.instances and each.can_begin(lot.number) for each in self._queries.values()):
                lot.is_full = True
                continue
            choice = next((each for each in planned if each.run and each.run.can_begin(lot.number)), None)
            if choice is None:
                others = other_processors(self._queries.values(), lots, lot, now, together)
                processors = [lot.processor(together), *others]
                choice = self._discipline.choose([*self._queries.values()], lot.end, processors, together)
                behind = [
                    replace(choice, run=backlog, sample=sample, shed=(), behind=())
                    for backlog, sample in choice.behind
                ]
                planned = [choice, *behind] if behind else []
            if choice.sample is not None:
                sample = planned_sample(choice, lot, now, together)
                if sample is None:
                    lot.is_full = True
                    continue
            else:
                sample = self._degraded(choice, lot, now, together, others)
            if sample is not None:
                yield from self._start_sample(sample, lot, now)
                if choice in planned:
                    planned.remove(choice)
                continue
            if lot.orders and not self._fits(choice, lot, now, together):
                lot.is_full = True
                continue
            for backlog, count, reason in choice.shed:
                assert isinstance(backlog, QueryState)
                if backlog.running:
                    # what runs of it is settled first
                    continue
                for _ in range(count):
                    yield from self._shed(backlog, reason, now)
            if choice.run is None:
                return
            assert isinstance(choice.run, QueryState)
            yield self._start(choice.run, choice, lot, now)
            order = choice.run.running[-1]
            if choice.run.own(order.predicted) > order.predicted:
                planned = []
            elif planned:
                planned.remove(choice)
            # on one whose cost is not known yet nothing may depend
            if not order.firm or not order.predicted or not together:
                lot.is_full = True

    def _fits(self, choice: Choice, lot: Lot, now: float, most: float) -> bool:
        """Whether an order may run behind others of its lot, of which no result is visible before all are worked out."""
        query = choice.run
        if not isinstance(query, QueryState) or not choice.firm:
            return False
        passed_over = next((count for backlog, count, _ in choice.shed if backlog is query), 0)
        if passed_over and query.running:
            return False
        instance = query.instances[passed_over]
        seconds = query.predict(instance.span, query.base)[0]
        return seconds > 0 and lot.has_room(instance.deadline, query.own(seconds), now, most)

    def _degraded(
        self, choice: Choice, lot: Lot, now: float, most: float, others: Sequence[Processor]
    ) -> Sample | None:
        """A sample behind which the choice would be the same; None where there is none."""
        for sample in samples(choice, lot, now, most) if most else ():
            own = replace(lot.processor(most, sample.cost.own), end=sample.end)
            queries = [*self._queries.values()]
            if _same(choice, self._discipline.choose(queries, sample.end, [own, *others], most)):
                return sample
        return None

    def _start(self, query: QueryState, choice: Choice, lot: Lot, now: float) -> Action:
        instance = query.instances.popleft()
        seconds, work = query.predict(instance.span, query.base)
        figures = self._figures(query, instance, seconds, lot.end)
        own = query.own(seconds)
        end = lot.end_with(own, query.job)
        query.running.append(Order(instance, seconds, work, choice.firm, end, lot.number))
        lot.add(query.running[-1], own, now)
        if choice.firm:
            query.late_seconds, query.catching_up = inf, False
        figures |= {"new": work.new, "expired": work.expired}
        stream, version = query.bound.stream, query.bound.version
        return StartOrder(
            stream, version, choice.reason, figures, instance.number, work, choice.firm, lot.number
        )

    def _start_sample(self, sample: Sample, lot: Lot, now: float) -> Iterator[Action]:
        query = sample.query
        for _ in range(sample.count - 1):
            yield from self._shed(query, MISSES, now)
        instance = query.instances.popleft()
        figures = self._figures(query, instance, query.predict(instance.span, query.base)[0], lot.end)
        cost = sample.cost
        figures |= {"sample": cost.size, "sample_seconds": round(cost.seconds, 6)}
        order = Order(instance, cost.seconds, cost.work, True, sample.end, lot.number, is_sample=True)
        query.running.append(order)
        lot.add(order, cost.own, now)
        stream, version = query.bound.stream, query.bound.version
        # nothing may depend on what is only guessed
        lot.is_full = lot.is_full or not cost.is_known
        reason = "a sample, as not all exact answers would be in time"
        yield StartOrder(
            stream, version, reason, figures, instance.number, cost.work, True, lot.number, cost.size
        )

    def _shed(self, query: QueryState, reason: str, now: float) -> Iterator[Action]:
        instance = query.instances.popleft()
        seconds, _ = query.predict(instance.span, query.base)
        figures = self._figures(query, instance, seconds, now)
        query.outcomes.shed += 1
        query.feedback.counts.shed += 1
        yield GiveUpInstance(
            query.bound.stream, query.bound.version, reason, figures, instance.number, shed=True
        )
        yield from query.settle(satisfied=False)

    def _expire(self, query: QueryState, now: float) -> Iterator[Action]:
        """Gives up what waited beyond its deadline: shed by a discipline that predicts, as no time left."""
        if query.running:
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
        self, query: QueryState, instance: Instance, seconds: float, now: float
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


def _same(choice: Choice, other: Choice) -> bool:
    """Whether two choices run and shed the same."""
    shed, others = ({id(query): count for query, count, _ in each.shed} for each in (choice, other))
    return (
        choice.run is other.run
        and choice.firm == other.firm
        and choice.sample == other.sample
        and shed == others
    )
