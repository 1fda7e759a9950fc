"""Orders that are begun together: they run behind each other on one processor, and no result is visible before all are worked out."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from penstock.control.policies.deadlines.disciplines import Processor
from penstock.control.policies.deadlines.queries import Order

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
    """

    number: int
    end: float
    due: float = inf
    most: float = inf
    own: float = 0.0
    orders: int = 0

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
        is_begun = self.orders > 0 or own > 0
        room = min(most, self.most) - self.own - own if is_begun else 0.0
        return Processor(self.end, max(0.0, room))

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
