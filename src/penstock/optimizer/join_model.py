"""The OutrateModel of the executor that there is: sorted runs, mapped, joined cut by cut.

New tuples of each input search what the other inputs keep, one input after the other; only base tuples are kept, so a step's
work depends on which inputs were met before and not on their order. Nothing expires one by one: what is too old lies
outside the range that is searched. Work is said for one second of the streams (docs/decisions/0024).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import exp

import numpy as np
import numpy.typing as npt

from penstock.optimizer.join_statistics import JoinStatistics, search_steps
from penstock.optimizer.output_rate import output_rate
from penstock.plan.joins import JoinOrder, JoinPlan, Method, ProbeOrder, ProbeStep

#: points at which the volume of event times within the bounds is measured: good for about 1 % with six inputs
_POINTS = 4096
_MICROSECONDS = 1e6
#: share of what an input keeps that is taken to lie within the bounds at least: cuts differ, and what an average one never does is
#: not free
_LEAST_REACHED = 0.01
#: by input, numbers of the keys that there are runs sorted by; None: by event time alone
SortOrders = tuple[tuple[int | None, ...], ...]


@dataclass(frozen=True, slots=True)
class StepFigures:
    """What a step is predicted to do in one second of the streams.

    Attributes:
        step: the step.
        rows: that come to it.
        pairs: looked at.
        output: rows put out.
        seconds: of a processor.
    """

    step: ProbeStep
    rows: float
    pairs: float
    output: float
    seconds: float


class JoinModel:
    """Predicts work and output of a join under given statistics.

    Args:
        plan: the join.
        statistics: of its inputs.
        sorted_by: by input, numbers of the keys that there are runs sorted by; None: by event time alone. The first
            key it has a part in where not given.

    Raises:
        ValueError: the statistics are of another number of inputs.
    """

    def __init__(
        self, plan: JoinPlan, statistics: JoinStatistics, sorted_by: SortOrders | None = None
    ) -> None:
        self.plan = plan
        self.statistics = statistics
        self.inputs = len(plan.inputs)
        if len(statistics.rates) != self.inputs or len(statistics.sizes) != self.inputs:
            raise ValueError(
                f"the join has {self.inputs} inputs, "
                f"statistics are of {len(statistics.rates)} rates and {len(statistics.sizes)} sizes"
            )
        self.sorted_by = first_keys(plan) if sorted_by is None else sorted_by
        self._keys = [
            [key for key, each in enumerate(plan.keys) if each.columns[number] is not None]
            for number in range(self.inputs)
        ]
        self._compared = {
            (left, right)
            for left, right in combinations(range(self.inputs), 2)
            for comparison in plan.comparisons
            if {left, right} == {_owner(plan, comparison.left), _owner(plan, comparison.right)}
        }
        streams = self.firsts()
        bounds = tuple(
            (b.left, b.right, b.lower / _MICROSECONDS, b.upper / _MICROSECONDS) for b in plan.bounds
        )
        delays = tuple(round(statistics.delay(number), 3) for number in range(self.inputs))
        cuts = tuple(statistics.cut_seconds * statistics.pace(number) for number in range(self.inputs))
        self._volumes = [
            _Volumes(first, streams, bounds, delays, cuts) if first in streams else None
            for first in range(self.inputs)
        ]
        self._kept = [self._kept_tuples(number, bounds, delays) for number in range(self.inputs)]
        self._share: dict[int, float] = {}

    def rows(self, first: int, met: int) -> float:
        """Rows a second of new tuples of an input with all partners among the inputs of a bit set, itself included.

        Those without a partner in an optional input among them: partners are taken to be as many as a Poisson process has.
        """
        lacking = [number for number in self.plan.optional if met >> number & 1 and number != first]
        if not lacking:
            return self._paired(first, met)
        (optional,) = lacking
        rows = self._paired(first, met & ~(1 << optional))
        partners = self._paired(first, met) / rows if rows else 0.0
        return rows * (partners + exp(-partners))

    def _paired(self, first: int, met: int) -> float:
        """Rows a second, those alone that have a partner in each input."""
        others = self.plan.inputs
        statistics = self.statistics
        rows = statistics.rates[first] * self._selectivity(met) * self._volume(first, met)
        for number in range(self.inputs):
            if met >> number & 1 and number != first:
                rows *= statistics.sizes[number] if others[number].is_static else statistics.density(number)
        return rows

    def steps(self, first: int, met: int, number: int) -> list[StepFigures]:
        """Every way to search an input for partners of rows of the inputs of a bit set."""
        costs, cut = self.statistics.costs, self.statistics.cut_seconds
        rows = self.rows(first, met)
        output = self.rows(first, met | 1 << number)
        bounded = rows * self._reached(first, met, number)
        put = output * costs.output
        # tables hold what any new tuple of a cut may reach
        table = self._reached(first, 1 << first, number)
        kept = self._kept[number]
        if not self.plan.inputs[number].is_static:
            table += self.statistics.rates[number] * cut / 2
            kept += self.statistics.rates[number] * cut if number > first else 0.0
        building = table / cut * costs.build
        shares = {
            key: self._key_share(key, met, number) for key in self._keys[number] if self._partners(key, met)
        }
        lies = None in self.sorted_by[number]
        seconds = bounded * costs.nested + put + (0.0 if lies else building)
        # the key that drops the most comes first and is taken where all take the same time
        found = [
            StepFigures(ProbeStep(number, Method.NESTED, key), rows, bounded, output, seconds)
            for key in (*sorted(shares, key=shares.__getitem__), None)
        ]
        searching = search_steps(rows * cut, kept) / cut * costs.probe
        if lies:
            merge = ProbeStep(number, Method.MERGE, None)
            found.append(StepFigures(merge, rows, bounded, output, searching + bounded * costs.pair + put))
        for key, equal in shares.items():
            if key in self.sorted_by[number]:
                merge, pairs = ProbeStep(number, Method.MERGE, key), bounded * equal
                found.append(StepFigures(merge, rows, pairs, output, searching + pairs * costs.pair + put))
            pairs = rows * table * equal
            seconds = building + rows * costs.lookup + pairs * costs.pair + put
            found.append(StepFigures(ProbeStep(number, Method.HASH, key), rows, pairs, output, seconds))
        return found

    def step(self, first: int, met: int, step: ProbeStep) -> StepFigures:
        """A given step.

        Raises:
            ValueError: the input cannot be searched that way.
        """
        for found in self.steps(first, met, step.input):
            if found.step == step:
                return found
        raise ValueError(f"input {step.input} cannot be searched by {step.method} with key {step.key}")

    def follow(self, order: ProbeOrder) -> tuple[StepFigures, ...]:
        """The steps of a probe order."""
        met, found = 1 << order.first, []
        for step in order.steps:
            found.append(self.step(order.first, met, step))
            met |= 1 << step.input
        return tuple(found)

    def seconds(self, order: JoinOrder) -> float:
        """C_time: processor seconds that a second of the streams takes."""
        return sum(step.seconds for probe in order.orders for step in self.follow(probe))

    def pairs(self) -> float:
        """C_out: joined rows that a second of the streams gives rise to."""
        every = (1 << self.inputs) - 1
        return sum(self.rows(first, every) for first in self.firsts())

    def output_rate(self, order: JoinOrder) -> float:
        """r_o of an order, joined rows a second."""
        return output_rate(self.pairs(), self.seconds(order))

    def firsts(self) -> tuple[int, ...]:
        """The inputs that have new tuples: the streams."""
        return tuple(number for number, each in enumerate(self.plan.inputs) if not each.is_static)

    def is_linked(self, met: int, number: int) -> bool:
        """Whether an input has a key, a comparison or a bound in common with one of a bit set, so that meeting it next is
        no cross product."""
        stream = not self.plan.inputs[number].is_static
        for other in _members(met):
            if stream and not self.plan.inputs[other].is_static:
                return True
            if (min(number, other), max(number, other)) in self._compared:
                return True
        return any(self._partners(key, met) for key in self._keys[number])

    def _partners(self, key: int, met: int) -> list[int]:
        columns = self.plan.keys[key].columns
        return [number for number in _members(met) if columns[number] is not None]

    def _key_share(self, key: int, met: int, number: int) -> float:
        """Share of an input's tuples that are equal in a key to a row whose inputs are so already: as large as with the one
        that it equals most often, which is exact where the values of one input are among those of another."""
        return max(self.statistics.equal_share(key, other, number) for other in self._partners(key, met))

    def _selectivity(self, met: int) -> float:
        """Of all conditions but the bounds among the inputs of a bit set."""
        if met not in self._share:
            number = met.bit_length() - 1
            rest = met & ~(1 << number)
            share = 1.0
            if rest:
                share = self._selectivity(rest)
                for key in self._keys[number]:
                    if self._partners(key, rest):
                        share *= self._key_share(key, rest, number)
                for other in _members(rest):
                    if (other, number) in self._compared:
                        share *= self.statistics.satisfied_share(other, number)
            self._share[met] = share
        return self._share[met]

    def _volume(self, first: int, met: int) -> float:
        volumes = self._volumes[first]
        return 1.0 if volumes is None else volumes.of(met)

    def _reached(self, first: int, met: int, number: int) -> float:
        """Mean number of an input's tuples that lie within the bounds of a row."""
        if self.plan.inputs[number].is_static:
            return self.statistics.sizes[number]
        before = self._volume(first, met)
        span = self._volume(first, met | 1 << number) / before if before else 0.0
        return max(span * self.statistics.density(number), _LEAST_REACHED * self._kept[number])

    def _kept_tuples(
        self, number: int, bounds: tuple[tuple[int, int, float, float], ...], delays: tuple[float, ...]
    ) -> float:
        if self.plan.inputs[number].is_static:
            return self.statistics.sizes[number]
        spans = [0.0]
        for left, right, lower, upper in bounds:
            if number in (left, right):
                other = right if number == left else left
                ahead = upper if number == left else -lower
                spans.append(ahead + delays[other] - delays[number])
        return max(spans) * self.statistics.density(number)


class _Volumes:
    """How much event time the partners of a new tuple have that lie within the bounds and are met by it and not the other way
    round: those that arrived in earlier cuts, and of inputs behind its own those of the same cut.

    With one partner it is the length of an interval, with more the volume of a polytope, in seconds to the power of the number of
    partners, measured at fixed points. `cuts` are by input the seconds of event time that it goes through from cut to cut.
    """

    def __init__(
        self,
        first: int,
        streams: tuple[int, ...],
        bounds: tuple[tuple[int, int, float, float], ...],
        delays: tuple[float, ...],
        cuts: tuple[float, ...],
    ) -> None:
        self._streams = sum(1 << number for number in streams) & ~(1 << first)
        others = [number for number in streams if number != first]
        points = _points(len(others))
        self._length: dict[int, float] = dict.fromkeys(others, 0.0)
        times: dict[int, npt.NDArray[np.float64]] = {}
        for left, right, lower, upper in bounds:
            if first in (left, right):
                other, low, high = (right, lower, upper) if first == left else (left, -upper, -lower)
                # a new tuple has arrived half a cut before its end, on average
                half = cuts[other] / 2 if other > first else -cuts[other] / 2
                high = min(high, delays[first] - delays[other] + half)
                self._length[other] = max(0.0, high - low)
                times[other] = low + (high - low) * points[others.index(other)]
        self._within = {
            (left, right): (times[right] - times[left] >= lower) & (times[right] - times[left] <= upper)
            for left, right, lower, upper in bounds
            if first not in (left, right)
        }
        self._known: dict[int, tuple[float, npt.NDArray[np.bool_]]] = {0: (1.0, np.ones(_POINTS, np.bool_))}

    def of(self, met: int) -> float:
        """The volume for the streams of a bit set."""
        return self._of(met & self._streams)[0]

    def _of(self, met: int) -> tuple[float, npt.NDArray[np.bool_]]:
        if met not in self._known:
            number = met.bit_length() - 1
            rest = met & ~(1 << number)
            within = self._of(rest)[1]
            length = self._length[number]
            for other in _members(rest):
                within = within & self._within[other, number]
                length *= self._length[other]
            self._known[met] = (length * float(np.count_nonzero(within)) / _POINTS, within)
        return self._known[met]


@lru_cache
def _points(dimensions: int) -> npt.NDArray[np.float64]:
    """Points that fill the unit cube evenly, float64[dimensions, points]: multiples of powers of the root of
    x^(d + 1) = x + 1, modulo 1 (Roberts' R sequence)."""
    root = 2.0
    for _ in range(60):
        root = (1 + root) ** (1 / (dimensions + 1))
    steps = np.array([root ** -(1 + dimension) for dimension in range(dimensions)])
    return np.asarray((0.5 + steps[:, None] * np.arange(_POINTS)) % 1.0)


def first_keys(plan: JoinPlan) -> SortOrders:
    """By input the first key it has a part in."""
    return tuple(
        (next((key for key, each in enumerate(plan.keys) if each.columns[number] is not None), None),)
        for number in range(len(plan.inputs))
    )


def _owner(plan: JoinPlan, column: str) -> int:
    for number, each in enumerate(plan.inputs):
        if any(known.name == column for known in each.columns):
            return number
    raise ValueError(f"no input of {plan.name} has the column {column}")


def _members(bits: int) -> list[int]:
    return [number for number in range(bits.bit_length()) if bits >> number & 1]
