"""Orders that are begun together: they run behind each other on one processor, and no result is visible before all are worked out."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from penstock.control.policies.deadlines.queries import Order

#: a lot is over when so much of the time is that any instance of it has left
_OF_TIME_LEFT = 0.25
#: predictions that are added up come out so much longer, seconds
_ROUNDING = 1e-9


@dataclass(slots=True, eq=False)
class Lot:
    """Orders that are begun together on one processor.

    Attributes:
        number: tells lots apart.
        end: when they are predicted to end, by the clock.
        until: no further order may end later.
        own: what they take themselves, seconds.
        orders: how many there are.
    """

    number: int
    end: float
    until: float = inf
    own: float = 0.0
    orders: int = 0

    def add(self, order: Order, own: float, now: float) -> None:
        """An order runs behind those that are there: the first brings what the lot takes beside its orders."""
        self.end += own if self.orders else order.predicted
        self.own += own
        self.until = min(self.until, _due(order.instance.deadline, now))
        self.orders += 1

    def has_room(self, deadline: float, own: float, now: float, most: float) -> bool:
        """Whether an order may run behind others.

        Args:
            deadline: of its instance.
            own: what it takes itself, seconds.
            now: by the clock.
            most: that the orders of a lot may take together, seconds.
        """
        until = min(self.until, _due(deadline, now))
        return self.own + own <= most + _ROUNDING and self.end + own <= until + _ROUNDING


def _due(deadline: float, now: float) -> float:
    return now + _OF_TIME_LEFT * (deadline - now)
