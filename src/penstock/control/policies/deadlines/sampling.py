"""Windows that would be shed are answered by a sample where that is in time: which, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.control.events import OrderAbandoned, OrderEnded, OrderFailed
from penstock.control.policies.deadlines.disciplines import Backlog, Choice
from penstock.control.policies.deadlines.lots import Lot
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
        # measuring again what is behind comes first
        if query is choice.run and not choice.firm:
            continue
        sample = sample_of(query, count, lot, now, most)
        if sample is not None:
            yield sample


def sample_of(backlog: Backlog, count: int, lot: Lot, now: float, most: float) -> Sample | None:
    """A sample in the place of the newest of so many of the oldest instances of a query, if it would be in time.

    Args:
        backlog: of the query.
        count: of its instances.
        lot, now, most: as of `samples`.
    """
    assert isinstance(backlog, QueryState)
    instance = backlog.instances[count - 1]
    cost = None if backlog.running else backlog.sample_of(instance, lot.end, now)
    if cost is None or (lot.orders and not lot.has_room(instance.deadline, cost.own, now, most)):
        return None
    return Sample(backlog, count, cost, lot.end_with(cost.own, backlog.job))


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
        query.sampling.bounded(now, order.work, order.predicted, event.seconds)
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
