"""Orders that are begun together: they run behind each other on one processor, and no result is visible before all are worked out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf

from penstock.control.policies.deadlines.disciplines import Processor
from penstock.control.policies.deadlines.queries import Order, QueryState

#: orders of a lot take together no more than so much of the time that any instance of it has left: by that much they delay each other
_OF_TIME_LEFT = 0.25
#: predictions that are added up come out so much longer, seconds
_ROUNDING = 1e-9


@dataclass(slots=True, eq=False)
class Lot:
    """Orders that are begun together on one processor.

    Attributes:
        number: tells lots apart.
        end: when they are predicted to end, by the clock.
        due: the first deadline of their instances, by the clock.
        most: that they may take together, seconds.
        own: what they take themselves, seconds.
        orders: how many there are.
        is_full: no further order runs behind them.
    """

    number: int
    end: float
    due: float = inf
    most: float = inf
    own: float = 0.0
    orders: int = 0
    is_full: bool = False

    def end_with(self, own: float, job: float) -> float:
        """When it is predicted to end with an order more: the first brings what the lot takes beside its orders.

        Args:
            own: what the order takes itself, seconds.
            job: all that the orders of a lot share, seconds.
        """
        return self.end + own + (0.0 if self.orders else job)

    def processor(self, most: float, own: float = 0.0) -> Processor:
        """What it leaves of its processor, if an order more takes so much itself.

        Args:
            most: that the orders of a lot may take together, seconds.
            own: seconds.
        """
        is_open = not self.is_full and (self.orders > 0 or own > 0)
        return Processor(self.end, max(0.0, min(most, self.most) - self.own - own) if is_open else 0.0)

    def add(self, order: Order, own: float, now: float) -> None:
        """An order runs behind those that are there."""
        self.end = order.end
        self.own += own
        self.due = min(self.due, order.instance.deadline)
        self.most = min(self.most, _OF_TIME_LEFT * (order.instance.deadline - now))
        self.orders += 1

    def has_room(self, deadline: float, own: float, now: float, most: float) -> bool:
        """Whether an order may run behind others.

        Args:
            deadline: of its instance.
            own: what it takes itself, seconds.
            now: by the clock.
            most: that the orders of a lot may take together, seconds.
        """
        most = min(most, self.most, _OF_TIME_LEFT * (deadline - now))
        due = min(self.due, deadline)
        return self.own + own <= most + _ROUNDING and self.end + own <= due + _ROUNDING


def other_processors(
    queries: Iterable[QueryState], lots: Sequence[Lot], lot: Lot, now: float, most: float
) -> list[Processor]:
    """What the other lots that are being filled leave of their processors, and when those of running lots are predicted to be free.

    Queries learn until when they are busy: one whose oldest instance can be begun in the lot is not.

    Args:
        queries: all.
        lots: that are being filled.
        lot: of these, the one that is filled next.
        now: by the clock.
        most: that the orders of a lot may take together, seconds.
    """
    found = {each.number: each.processor(most) for each in lots}
    for query in queries:
        end = max(now, query.running[-1].end) if query.running else now
        query.busy_until = None if query.can_begin(lot.number) else end
        if query.running:
            number = query.running[-1].lot
            found[number] = max(found.get(number, Processor(end)), Processor(end))
    del found[lot.number]
    return [*found.values()]
