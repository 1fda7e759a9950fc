"""Windows that would be shed are answered by a sample where that is in time: which, by how many tuples, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from penstock.control.events import OrderAbandoned, OrderEnded, OrderFailed
from penstock.control.policies.deadlines.disciplines import Choice
from penstock.control.policies.deadlines.lots import Lot
from penstock.control.policies.deadlines.prediction import UnitCosts
from penstock.control.policies.deadlines.queries import Order, QueryState
from penstock.plan.deadlines import WindowWork

#: fewer tuples are not worth an answer, more not the time
LEAST_SAMPLE, MOST_SAMPLE = 1_000, 50_000
#: a sample takes at most so much of the time left, and of what the exact answer is predicted to take
_OF_TIME, _OF_EXACT = 0.5, 0.5
#: of more of the tuples of a window the exact answer is as good
_OF_TUPLES = 0.5


def sample_size(costs: UnitCosts, tuples: int, left: float, exact: float) -> int:
    """The tuples of the largest sample that is worth its time; 0 where none is.

    Args:
        costs: of an order of a sample.
        tuples: of the window.
        left: seconds until its deadline.
        exact: predicted seconds of its exact answer.
    """
    seconds = min(_OF_TIME * left, _OF_EXACT * exact) - costs.maintenance
    affordable = seconds / costs.new if costs.new else inf if seconds > 0 else 0.0
    size = int(min(affordable, _OF_TUPLES * tuples, MOST_SAMPLE))
    return size if size >= LEAST_SAMPLE else 0


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample in the place of the newest of the instances of a query that would be shed.

    Attributes:
        query: which.
        count: instances that would be shed.
        size: tuples that are drawn.
        seconds: predicted.
        own: of these, what the order takes itself.
        end: when its lot is predicted to end with it, by the clock.
    """

    query: QueryState
    count: int
    size: int
    seconds: float
    own: float
    end: float

    @property
    def work(self) -> WindowWork:
        """What the order is predicted by."""
        return WindowWork(self.size, 0, carried=False)


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
        if not query.bound.query.approximate or query.running or is_measured_again:
            continue
        instance = query.instances[count - 1]
        costs = query.sample_costs(instance.span.tuples, now)
        exact = query.predict(instance.span, query.base)[0]
        size = sample_size(costs, instance.span.tuples, instance.deadline - lot.end, exact)
        seconds = costs.seconds(WindowWork(size, 0, carried=False))
        own = query.own_of_sample(seconds)
        if size and (not lot.orders or lot.has_room(instance.deadline, own, now, most)):
            yield Sample(query, count, size, seconds, own, lot.end_with(own, query.job))


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
