"""How many instances a clairvoyant could release in time: an upper bound, and what it says about violations.

The clairvoyant knows every arrival and cost beforehand and works on instances in pieces. If the cost of an instance did not depend
on which others are worked out, most instances in time would be 1 | pmtn, r_j | sum U_j: Lawler's dynamic programme solves it in
O(n^5), Baptiste's in O(n^4), too much for ten thousands of instances. So the bound is that of the linear programme in which a
part of an instance counts as that part: it is solved in the dual, where each slot of time has a price and every instance is
taken that is worth more than the cheapest time it could be worked out in. By weak duality the value is an upper bound at *any*
prices; subgradient steps, O(n log n) each, bring them near the best ones.

Costs that hang together are relaxed: each instance takes the least it can after any choice of others, which is its cost behind
the instance before it, or afresh.

Sources: Lawler (1990); Baptiste (1999); Fisher (1981) on Lagrangian bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.plan.deadlines import LossConstraint
from penstock.simulate.deadlines import Floats, SimulatedQuery

#: a price that nobody pays
_NEVER = 1e12


@dataclass(frozen=True, slots=True, eq=False)
class _Jobs:
    """The instances of a query.

    Attributes:
        seconds: float64[instances], the least each takes.
        slots: int64[instances, slots], those between creation and deadline, begun ones included.
        slot: length of a slot, seconds.
        deadline: seconds from creation.
    """

    seconds: Floats
    slots: npt.NDArray[np.int64]
    slot: float
    deadline: float

    def taken(self, prices: Floats) -> tuple[float, Floats]:
        """What the instances that are worth it bring at these prices, and the seconds of each slot that they take."""
        own = prices[self.slots]
        order = np.argsort(own, axis=1, kind="stable")
        own = np.take_along_axis(own, order, 1)
        whole = np.minimum((self.seconds / self.slot).astype(np.int64), own.shape[1])
        paid = np.pad(np.cumsum(own, axis=1), ((0, 0), (1, 0))) * self.slot
        each = np.arange(len(whole))
        next_price = np.pad(own, ((0, 0), (0, 1)), constant_values=_NEVER)[each, whole]
        gains = 1 - (paid[each, whole] + (self.seconds - whole * self.slot) * next_price)
        wanted = (gains > 0) & (self.seconds <= self.deadline)
        used = np.clip(
            np.where(wanted, self.seconds, 0.0)[:, None] - np.arange(own.shape[1]) * self.slot, 0.0, self.slot
        )
        places = np.take_along_axis(self.slots, order, 1)
        asked = np.bincount(places.ravel(), used.ravel(), len(prices)).astype(np.float64)
        return float(gains[wanted].sum()), asked


def satisfied_bound(
    queries: Sequence[SimulatedQuery], processors: int = 1, slot: float = 0.1, steps: int = 300
) -> float:
    """Instances that could be released in time at most.

    Args:
        queries: with their true costs.
        processors: how many there are; one instance is on one of them at a time.
        slot: seconds; where creations and deadlines are no multiples of it, the bound is looser, and still one.
        steps: of the subgradient method.
    """
    jobs = [_jobs(each, slot) for each in queries]
    slots = max(int(each.slots.max()) for each in jobs) + 1
    seconds = np.concatenate([each.seconds for each in jobs])
    released = np.concatenate([each.slots[:, 0] for each in jobs])
    worth = 1 / float(np.mean(seconds))
    prices = _first_prices(seconds, released, slots, round(2.0 / slot), slot * processors)
    least = float("inf")
    for step in range(steps):
        found = [each.taken(prices) for each in jobs]
        least = min(least, sum(gain for gain, _ in found) + float(prices.sum()) * slot * processors)
        asked = np.sum([used for _, used in found], axis=0) / slot - processors
        prices = np.maximum(0.0, prices + 0.1 * worth / (1 + step / 5) * asked)
    return least


def _jobs(simulated: SimulatedQuery, slot: float) -> _Jobs:
    deadline = simulated.query.deadline
    first = np.floor(simulated.created / slot + 1e-6).astype(np.int64)
    last = np.ceil((simulated.created + deadline) / slot - 1e-6).astype(np.int64)
    slots = np.minimum(first[:, None] + np.arange(int((last - first).max())), last[:, None] - 1)
    return _Jobs(least_seconds(simulated), slots, slot, deadline)


def least_seconds(simulated: SimulatedQuery) -> Floats:
    """float64[instances]: the least each takes, whatever else is worked out."""
    fresh = [sum(simulated.costs.parts(number, span, None)) for number, span in enumerate(simulated.spans)]
    return np.asarray(np.minimum(fresh, simulated.step_seconds()), np.float64)


def _first_prices(
    seconds: Floats, released: npt.NDArray[np.int64], slots: int, block: int, capacity: float
) -> Floats:
    """Prices at which about as much is taken, cheapest first, as a block of slots has room for."""
    prices = np.zeros(slots)
    blocks = released // block
    for number in range(int(blocks.max()) + 1):
        own = np.sort(seconds[blocks == number])
        over = np.searchsorted(np.cumsum(own), capacity * block)
        if over < len(own):
            prices[number * block : (number + 1) * block] = 1 / own[over]
    return prices


def least_violations(released: float, instances: int, constraints: Sequence[LossConstraint]) -> float:
    """Violations that there are at least where no more than so many instances are in time, each query with as many.

    A loss lies in m runs of m instances, and a violated run holds at most m - k losses beyond its allowance; so V >= (L - C n) /
    (1 - C) for L losses of n instances, but for the ends of a run, which are left out by counting m losses less.

    Args:
        released: at most, of all queries.
        instances: of all queries.
        constraints: of each query; none allows all losses.
    """
    share = instances / len(constraints)
    beyond = instances - released - sum(each.factor * share + each.m for each in constraints)
    return max(0.0, beyond / max(1 - each.factor for each in constraints))
