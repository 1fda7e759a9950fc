"""What a clairvoyant could reach: how many instances in time at most, and how few violations at least.

The clairvoyant knows every arrival and cost beforehand and works on instances in pieces. If the cost of an instance did not depend
on which others are worked out, most instances in time would be 1 | pmtn, r_j | sum U_j: Lawler's dynamic programme solves it in
O(n^5), Baptiste's in O(n^4), too much for ten thousands of instances. So the bounds are Lagrangian: each slot of time has a price,
an instance costs the cheapest time it could be worked out in, and every query for itself chooses what is best for it, by a dynamic
programme over which of its last instances it lost. From that follows what an instance is carried from, and whether a loss is a
violation. By weak duality the value is a bound at *any* prices; subgradient steps bring them near the best ones.

Where instances are carried, time is given from the creation of the first instance after the one carried from: so the bounds
hold for a clairvoyant, too, that works instances in between out too late, to carry from them; their work is at least as much.

Sources: Lawler (1990); Baptiste (1999); Fisher (1981) on Lagrangian bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock_lab.simulate.deadlines import Bools, Floats, SimulatedQuery

Ints = npt.NDArray[np.int64]

#: a price that nobody pays
_NEVER = 1e12


@dataclass(frozen=True, slots=True, eq=False)
class _Jobs:
    """The instances of a query, carried from the last one before, from the one before that and so on, at last afresh.

    Attributes:
        seconds: float64[bases, instances], what each takes.
        slots: of each base int64[instances, slots], those in which it can be worked on, begun ones included.
        slot: length of a slot, seconds.
    """

    seconds: Floats
    slots: Sequence[Ints]
    slot: float

    def paid(self, prices: Floats) -> Floats:
        """float64[instances, bases], what the cheapest time costs."""
        found = []
        for seconds, slots in zip(self.seconds, self.slots, strict=True):
            own = np.sort(prices[slots], axis=1)
            whole = np.minimum((seconds / self.slot).astype(np.int64), own.shape[1])
            sums = np.pad(np.cumsum(own, axis=1), ((0, 0), (1, 0))) * self.slot
            each = np.arange(len(whole))
            following = np.pad(own, ((0, 0), (0, 1)), constant_values=_NEVER)[each, whole]
            found.append(sums[each, whole] + (seconds - whole * self.slot) * following)
        return np.stack(found, axis=1)

    def asked(self, prices: Floats, taken: Bools, bases: Ints) -> Floats:
        """float64[slots], the seconds of each that instances take."""
        total = np.zeros(len(prices))
        for base, (seconds, slots) in enumerate(zip(self.seconds, self.slots, strict=True)):
            own = np.flatnonzero(taken & (bases == base))
            order = np.argsort(prices[slots[own]], axis=1, kind="stable")
            used = np.clip(seconds[own, None] - np.arange(order.shape[1]) * self.slot, 0.0, self.slot)
            places = np.take_along_axis(slots[own], order, 1)
            total += np.bincount(places.ravel(), used.ravel(), len(prices))
        return total


def satisfied_bound(
    queries: Sequence[SimulatedQuery], processors: int = 1, slot: float = 0.1, steps: int = 300
) -> float:
    """Instances that could be released in time at most.

    Args:
        queries: with their true costs and as many instances each.
        processors: how many there are; one instance is on one of them at a time.
        slot: seconds; where creations and deadlines are no multiples of it, the bound is looser, and still one.
        steps: of the subgradient method.
    """
    jobs = [_jobs(each, slot) for each in queries]
    bases = max(len(each.seconds) for each in jobs)
    charges = np.zeros((len(jobs), 2, 2 ** max(1, bases - 1)))
    charges[:, 0] = -1
    return _least_dual(jobs, charges, processors, slot, steps)


def least_violations(
    queries: Sequence[SimulatedQuery], processors: int = 1, slot: float = 0.1, steps: int = 300
) -> float:
    """Violations that nobody could do without: runs of m instances with more than k losses; see `satisfied_bound`."""
    jobs = [_jobs(each, slot) for each in queries]
    remembered = max(
        1, *(len(each.seconds) - 1 for each in jobs), *(q.query.constraint.m - 1 for q in queries)
    )
    states = np.arange(2**remembered)
    charges = np.zeros((len(jobs), 2, len(states)))
    for own, simulated in zip(charges, queries, strict=True):
        k, m = simulated.query.constraint.k, simulated.query.constraint.m
        lost = np.bitwise_count(states & (2 ** (m - 1) - 1))
        own[:] = [lost > k, lost + 1 > k]
    return max(0.0, -_least_dual(jobs, charges, processors, slot, steps))


def _least_dual(jobs: Sequence[_Jobs], charges: Floats, processors: int, slot: float, steps: int) -> float:
    """The smallest upper bound found on what outcomes bring, where they are charged so.

    Args:
        jobs: of each query.
        charges: float64[queries, 2, states] of an instance in time and of a lost one, by which of the last ones were lost: a bit
            each, the last one lowest.
        processors: how many there are.
        slot: seconds.
        steps: of the subgradient method.
    """
    seconds = np.concatenate([each.seconds[0] for each in jobs])
    released = np.concatenate([each.slots[0][:, 0] for each in jobs])
    slots = max(int(each.slots[0].max()) for each in jobs) + 1
    worth = 1 / float(np.mean(seconds))
    prices = _first_prices(seconds, released, slots, round(2.0 / slot), slot * processors)
    least = float("inf")
    for step in range(steps):
        value, taken, bases = _best_choices([each.paid(prices) for each in jobs], charges)
        least = min(least, value + float(prices.sum()) * slot * processors)
        asked = np.sum(
            [each.asked(prices, *own) for each, *own in zip(jobs, taken, bases, strict=True)], axis=0
        )
        prices = np.maximum(0.0, prices + 0.1 * worth / (1 + step / 5) * (asked / slot - processors))
    return least


def _best_choices(paid: Sequence[Floats], charges: Floats) -> tuple[float, Bools, Ints]:
    """What every query chooses for itself.

    Returns:
        What that brings, and bool[queries, instances], whether each is taken, and int64[queries, instances], from which base.
    """
    states = charges.shape[2]
    half, number = states // 2, np.arange(len(paid))
    # as many bits as are set from the lowest on were lost since the one to carry from
    lost_since = np.bitwise_count(np.arange(states) & ~(np.arange(states) + 1)).astype(np.int64)
    base = np.minimum(lost_since, np.array([[each.shape[1] - 1] for each in paid]))
    in_time = -np.stack([each[:, own] for each, own in zip(paid, base, strict=True)], axis=1) - charges[:, 0]
    value = np.full((len(paid), states), -np.inf)
    value[:, 0] = 0.0
    forgotten = np.empty((len(in_time), len(paid), states), bool)
    for gains, bit in zip(in_time, forgotten, strict=True):
        after = np.empty_like(value)
        for lost, found in enumerate((value + gains, value - charges[:, 1])):
            without, having = found[:, :half], found[:, half:]
            bit[:, lost::2] = having > without
            after[:, lost::2] = np.maximum(without, having)
        value = after
    state = value.argmax(axis=1)
    best = float(value[number, state].sum())
    taken, bases = np.empty((2, len(in_time), len(paid)), np.int64)
    for place in range(len(in_time) - 1, -1, -1):
        taken[place] = 1 - (state & 1)
        state = (state >> 1) + half * forgotten[place, number, state]
        bases[place] = base[number, state]
    return best, taken.T == 1, bases.T


def _jobs(simulated: SimulatedQuery, slot: float) -> _Jobs:
    created, spans, deadline = simulated.created, simulated.spans, simulated.query.deadline
    begun = np.floor(created / slot + 1e-6).astype(np.int64)
    due = np.ceil((created + deadline) / slot - 1e-6).astype(np.int64)
    seconds, slots = [], []
    fresh = np.array([sum(simulated.costs.parts(number, span, None)) for number, span in enumerate(spans)])
    for back in range(1, _overlapping(simulated) + 2):
        carried = [
            sum(simulated.costs.parts(number, span, base))
            for number, (span, base) in enumerate(zip(spans[back:], spans, strict=False), back)
        ]
        seconds.append(fresh.copy())
        if simulated.query.incremental:
            seconds[-1][back:] = np.minimum(fresh[back:], carried)
        first = begun[np.maximum(np.arange(len(begun)) - back + 1, 0)]
        slots.append(np.minimum(first[:, None] + np.arange(int((due - first).max())), due[:, None] - 1))
    return _Jobs(np.array(seconds), slots, slot)


def _overlapping(simulated: SimulatedQuery) -> int:
    """How many instances before it an instance can have tuples in common with; none where they are not carried."""
    spans, count = simulated.spans, 0
    if simulated.query.incremental:
        while any(base.last > span.first for span, base in zip(spans[count + 1 :], spans, strict=False)):
            count += 1
    return count


def _first_prices(seconds: Floats, released: Ints, slots: int, block: int, capacity: float) -> Floats:
    """Prices at which about as much is taken, cheapest first, as a block of slots has room for."""
    prices = np.zeros(slots)
    blocks = released // block
    for number in range(int(blocks.max()) + 1):
        own = np.sort(seconds[blocks == number])
        over = np.searchsorted(np.cumsum(own), capacity * block)
        if over < len(own):
            prices[number * block : (number + 1) * block] = 1 / own[over]
    return prices
