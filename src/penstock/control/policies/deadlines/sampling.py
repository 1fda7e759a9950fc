"""Windows that are answered by a sample, as not all exact answers would be in time: which, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.control.events import OrderAbandoned, OrderEnded, OrderFailed
from penstock.control.policies.deadlines.disciplines import Choice
from penstock.control.policies.deadlines.lots import Lot
from penstock.control.policies.deadlines.prediction import UnitCosts
from penstock.control.policies.deadlines.queries import Order, QueryState
from penstock.control.policies.deadlines.sample_costs import SampleCost


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample in the place of the newest of the instances of a query that would be shed.

    Attributes:
        query: which.
        count: instances that would be shed.
        cost: of the sample.
        end: when its lot is predicted to end with it, by the clock.
    """

    query: QueryState
    count: int
    cost: SampleCost
    end: float


def samples(choice: Choice, lot: Lot, now: float, most: float) -> Iterator[Sample]:
    """The samples that would be in time, of the queries that a choice sheds instances of.

    Args:
        choice: of a discipline.
        lot: the order would run in it.
        now: by the clock.
        most: that the orders of a lot may take together, seconds.
    """
    for query, count, _ in choice.shed:
        assert isinstance(query, QueryState)
        # measuring again what is behind comes first
        is_measured_again = query is choice.run and not choice.firm
        if query.running or is_measured_again:
            continue
        instance = query.instances[count - 1]
        exact = query.predict(instance.span, query.base)[0]
        cost = query.sample_of(instance, lot.end, now, exact)
        if cost is not None and (not lot.orders or lot.has_room(instance.deadline, cost.own, now, most)):
            yield Sample(query, count, cost, lot.end_with(cost.own, query.job))


def planned_sample(choice: Choice, lot: Lot, now: float, most: float) -> Sample | None:
    """The sample that a choice runs; None where the lot has no room for it. Parameters are those of `samples`."""
    query, cost = choice.run, choice.sample
    assert isinstance(query, QueryState)
    assert cost is not None
    count = 1 + next((passed_over for backlog, passed_over, _ in choice.shed if backlog is query), 0)
    deadline = query.instances[count - 1].deadline
    if lot.orders and (query.running or not lot.has_room(deadline, cost.own, now, most)):
        return None
    return Sample(query, count, cost, lot.end_with(cost.own, query.job))


def sample_ended(
    query: QueryState, order: Order, event: OrderEnded | OrderAbandoned | OrderFailed, now: float
) -> bool:
    """Takes in what came of a sample; whether it was in time.

    It leaves nothing to go on from; in time it is no loss, and not a window that met its deadline either.
    """
    if isinstance(event, OrderFailed):
        query.outcomes.failed += 1
        query.feedback.counts.failed += 1
        return False
    if isinstance(event, OrderAbandoned):
        # a first one is taken to be dear by its tuples, so that smaller ones are tried
        guessed = UnitCosts(new=order.predicted / order.work.new)
        query.sampling.bounded(now, order.work, order.predicted, event.seconds, guessed)
    else:
        rest = event.seconds - event.adding_seconds - event.removing_seconds
        parts = (event.adding_seconds, event.removing_seconds, rest)
        query.sampling.measured(
            now, event.work or order.work, order.predicted, parts, event.beside_seconds, 1 / event.together
        )
        if now <= order.instance.deadline:
            query.outcomes.approximated += 1
            return True
    query.outcomes.missed += 1
    query.feedback.counts.mispredicted += 1
    return False
