"""The virtual-time runner of join plans: drawn arrivals, joined cut by cut, with drawn costs.

Which pairs there are depends on the arrivals alone, so each step that some order could take is counted once (`count`), and any plan
or policy is played over the counts (`play`): one processor, cut after cut, each with the new tuples of the next
`cut_seconds`, begun when these have arrived and the cut before is done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from penstock.control.actions import Action, ReorderOperators, SwitchJoin
from penstock.control.controller import Controller, Decision
from penstock.control.events import (
    Event,
    JoinBound,
    JoinMeasured,
    OperatorMeasure,
    OperatorsBound,
    OperatorsMeasured,
)
from penstock.optimizer.join_measures import JoinMeasures, Work, equal_pairs, work_of_step
from penstock.optimizer.join_model import JoinModel, SortOrders, first_keys
from penstock.optimizer.join_statistics import JoinStatistics
from penstock.plan.joins import JoinOrder, JoinPlan, Method, ProbeOrder, ProbeStep
from penstock_lab.simulate.joins import Bools, Floats, Ints, Phase, Trace

#: tuples of an input that a cut compares to estimate selectivities
_SAMPLE = 200


@dataclass(frozen=True, slots=True)
class StepCounts:
    """What a step has to do in a cut, by any method.

    Attributes:
        rows: that come to it.
        bounded: pairs of a row and a tuple within its bounds.
        merged: by key, those of them that are equal in it.
        hashed: by key, pairs of a row and a tuple of the table that are equal in it.
        table: tuples that the new ones of the cut may reach.
        kept: tuples the input keeps.
        output: rows put out.
    """

    rows: int
    bounded: int
    merged: dict[int, int]
    hashed: dict[int, int]
    table: int
    kept: int
    output: int


@dataclass(frozen=True, slots=True, eq=False)
class CutCounts:
    """A cut, counted.

    Attributes:
        phase: its number.
        tuples: by input, new ones that passed the operators.
        passed: by input, a bool array an operator: which of the arrivals pass it.
        steps: by (first, bit set of the inputs met, input): each step that an order could take.
        output: joined rows.
        newest: sum over joined rows of the arrival of their newest tuple, seconds.
        samples: by input and key, some values of its new tuples.
    """

    phase: int
    tuples: tuple[int, ...]
    passed: tuple[dict[str, Bools], ...]
    steps: dict[tuple[int, int, int], StepCounts]
    output: int
    newest: float
    samples: tuple[dict[int, Ints], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Counted:
    """A join over drawn arrivals, counted cut by cut."""

    plan: JoinPlan
    phases: tuple[Phase, ...]
    cut_seconds: float
    sorted_by: SortOrders
    cuts: tuple[CutCounts, ...]


def count(
    plan: JoinPlan,
    phases: Sequence[Phase],
    traces: Sequence[Trace],
    cut_seconds: float,
    sorted_by: SortOrders | None = None,
    seed: int = 0,
) -> Counted:
    """Counts every step that an order could take.

    Args:
        plan: the join: streams, keys and bounds; comparisons are not looked at.
        phases: what was drawn.
        traces: by input what arrives.
        cut_seconds: event time of a cut.
        sorted_by: see `JoinModel`.
        seed: of the samples.
    """
    rng = np.random.default_rng(seed)
    ends = np.cumsum([phase.seconds for phase in phases])
    cuts = []
    for number in range(round(float(ends[-1]) / cut_seconds)):
        begin, end = number * cut_seconds, (number + 1) * cut_seconds
        phase = int(np.searchsorted(ends, begin + cut_seconds / 2))
        cuts.append(_Cut(plan, traces, begin, end).count(phase, rng))
    return Counted(plan, tuple(phases), cut_seconds, sorted_by or first_keys(plan), tuple(cuts))


class _Cut:
    """Joins a cut in all orders, for their counts."""

    def __init__(self, plan: JoinPlan, traces: Sequence[Trace], begin: float, end: float) -> None:
        self._plan = plan
        bounds = {(each.left, each.right): (each.lower / 1e6, each.upper / 1e6) for each in plan.bounds}
        self._bounds = bounds | {
            (right, left): (-upper, -lower) for (left, right), (lower, upper) in bounds.items()
        }
        self._inputs = range(len(plan.inputs))
        self._times: list[Floats] = []
        self._keys: list[dict[int, Ints]] = []
        self._first_new: list[int] = []
        self._arrived: list[dict[str, Bools]] = []
        for number, trace in enumerate(traces):
            oldest = min(lower for (left, _), (lower, _) in self._bounds.items() if left == number)
            oldest = min(
                oldest, *(-upper for (left, _), (_, upper) in self._bounds.items() if left == number)
            )
            low, new, high = np.searchsorted(trace.times, [begin + oldest, begin, end])
            passes = trace.passes[low:high]
            self._times.append(trace.times[low:high][passes])
            self._keys.append({key: each[low:high][passes] for key, each in trace.keys.items()})
            self._first_new.append(int(np.count_nonzero(passes[: new - low])))
            self._arrived.append({name: each[new:high] for name, each in trace.verdicts.items()})
        self._steps: dict[tuple[int, int, int], StepCounts] = {}

    def count(self, phase: int, rng: np.random.Generator) -> CutCounts:
        """All steps of all orders."""
        output, newest = 0, 0.0
        for first in self._inputs:
            begin = self._first_new[first]
            new = np.arange(begin, len(self._times[first]))
            known: dict[int, dict[int, Ints]] = {1 << first: {first: new}}
            for order in permutations([each for each in self._inputs if each != first]):
                met = 1 << first
                for number in order:
                    whole = met | 1 << number
                    if (first, met, number) not in self._steps:
                        known.setdefault(whole, self._join(first, known[met], met, number))
                    met = whole
            rows = known[(1 << len(self._inputs)) - 1]
            output += len(rows[first])
            newest += float(np.max([self._times[n][rows[n]] for n in self._inputs], axis=0).sum())
        samples = tuple(
            {
                key: rng.permutation(values[self._first_new[number] :])[:_SAMPLE]
                for key, values in self._keys[number].items()
            }
            for number in self._inputs
        )
        tuples = tuple(len(self._times[n]) - self._first_new[n] for n in self._inputs)
        return CutCounts(phase, tuples, tuple(self._arrived), self._steps, output, newest, samples)

    def _join(self, first: int, rows: dict[int, Ints], met: int, number: int) -> dict[int, Ints]:
        """Rows with their partners in one more input."""
        size = len(rows[first])
        # pairs are told once: by the first of the inputs where both are new
        known = len(self._times[number]) if number > first else self._first_new[number]
        times = self._times[number][:known]
        low, high = np.full(size, -np.inf), np.full(size, np.inf)
        for other, own in rows.items():
            lower, upper = self._bounds[other, number]
            low = np.maximum(low, self._times[other][own] + lower)
            high = np.minimum(high, self._times[other][own] + upper)
        keys = [
            key
            for key in self._keys[number]
            if any(self._plan.keys[key].columns[other] is not None for other in rows)
        ]
        wanted = {
            key: next(self._keys[other][key][own] for other, own in rows.items() if key in self._keys[other])
            for key in keys
        }
        begins, ends = np.searchsorted(times, low), np.searchsorted(times, high, "right")
        bounded = int(np.maximum(0, ends - begins).sum())
        new = self._times[first][self._first_new[first] :]
        lower, upper = self._bounds[first, number]
        reached = np.searchsorted(times, [new[0] + lower, new[-1] + upper]) if len(new) else np.zeros(2, int)
        table = slice(int(reached[0]), int(reached[1]))
        merged, hashed = {}, {}
        found: tuple[Ints, Ints] | None = None
        for key in keys:
            ranges = self._equal(number, key, known, wanted[key], low, high)
            merged[key] = int(ranges[2].sum())
            values, counts = np.unique(self._keys[number][key][:known][table], return_counts=True)
            place = np.searchsorted(values, wanted[key])
            inside = place < len(values)
            inside[inside] = values[place[inside]] == wanted[key][inside]
            hashed[key] = int(counts[place[inside]].sum())
            if key == min(merged, key=merged.__getitem__):
                found = _pairs(ranges)
        if found is None:
            found = _pairs((np.arange(known), begins, np.maximum(0, ends - begins)))
        own, partners = found
        right = np.ones(len(own), np.bool_)
        for key in keys:
            right &= self._keys[number][key][partners] == wanted[key][own]
        own, partners = own[right], partners[right]
        self._steps[first, met, number] = StepCounts(
            size, bounded, merged, hashed, table.stop - table.start, known, len(own)
        )
        return {**{other: each[own] for other, each in rows.items()}, number: partners}

    def _equal(
        self, number: int, key: int, known: int, wanted: Ints, low: Floats, high: Floats
    ) -> tuple[Ints, Ints, Ints]:
        """Of each row the range of tuples, in the order given, that are equal in a key and within its bounds."""
        values, times = self._keys[number][key][:known], self._times[number][:known]
        order = np.lexsort((times, values))
        if not known or not len(wanted):
            return order, np.zeros(len(wanted), np.int64), np.zeros(len(wanted), np.int64)
        # key and time as one number: the keys further apart than any times
        apart = float(times[-1] - times[0]) + 1
        placed = values[order] * apart + (times[order] - times[0])
        begins = np.searchsorted(placed, wanted * apart + np.clip(low - times[0], 0, apart))
        ends = np.searchsorted(placed, wanted * apart + np.clip(high - times[0], -1e-9, apart - 0.5), "right")
        return order, begins, np.maximum(0, ends - begins)


def _pairs(ranges: tuple[Ints, Ints, Ints]) -> tuple[Ints, Ints]:
    """Rows and their partners, of ranges in an order."""
    order, begins, counts = ranges
    own = np.repeat(np.arange(len(counts)), counts)
    offsets = np.arange(len(own)) - np.repeat(np.cumsum(counts) - counts, counts)
    return own, order[np.repeat(begins, counts) + offsets]


def works(counts: StepCounts, step: ProbeStep, lies_by_time: bool) -> tuple[Work, ...]:
    """The work of a step in a cut by the method it says: its table where it makes one, and its search; no seconds."""
    looked = counts.bounded
    if step.key is not None and step.method is not Method.NESTED:
        looked = (counts.hashed if step.method is Method.HASH else counts.merged)[step.key]
    search = work_of_step(step.method, counts.rows, looked, counts.output, counts.kept, seconds=0.0)
    has_table = step.method is Method.HASH or (step.method is Method.NESTED and not lies_by_time)
    return (Work(built=counts.table), search) if has_table else (search,)


def order_seconds(counted: Counted, order: ProbeOrder) -> Floats:
    """What a probe order takes in each cut at the true costs, float64[cuts]."""
    found = np.zeros(len(counted.cuts))
    for number, cut in enumerate(counted.cuts):
        costs = counted.phases[cut.phase].costs
        met = 1 << order.first
        for step in order.steps:
            lies = None in counted.sorted_by[step.input]
            for work in works(cut.steps[order.first, met, step.input], step, lies):
                found[number] += work.seconds_at(costs)
            met |= 1 << step.input
    return found


def every_order(counted: Counted, first: int) -> list[ProbeOrder]:
    """All probe orders of an input with all methods; nested loops by one key, they take the same time by any."""
    model = JoinModel(
        counted.plan,
        JoinStatistics((1.0,) * len(counted.plan.inputs), (0.0,) * len(counted.plan.inputs), {}),
        counted.sorted_by,
    )
    found: list[ProbeOrder] = []
    for order in permutations([each for each in range(model.inputs) if each != first]):
        chosen: list[tuple[ProbeStep, ...]] = [()]
        met = 1 << first
        for number in order:
            steps = [each.step for each in model.steps(first, met, number)]
            ways = [each for each in steps if each.method is not Method.NESTED or each == steps[0]]
            chosen = [(*before, way) for before in chosen for way in ways]
            met |= 1 << number
        found += [ProbeOrder(first, steps) for steps in chosen]
    return found


#: chooses orders by what was measured: an event in, actions out
Deciding = Callable[[Callable[[], float]], Controller]


@dataclass(frozen=True, slots=True, eq=False)
class PlayedPlan:
    """What a plan or a policy came to, cut by cut.

    Attributes:
        join_seconds: of the processor, joining.
        operator_seconds: of the processor, in unary operators.
        visible: when the cut's rows are there, seconds.
        output: joined rows of each cut.
        delay: mean time from the arrival of a row's newest tuple until the row is visible, NaN without rows.
        orders: the join order of each cut.
        decisions: of the controller.
    """

    join_seconds: Floats
    operator_seconds: Floats
    visible: Floats
    output: Ints
    delay: Floats
    orders: tuple[JoinOrder, ...]
    decisions: tuple[Decision, ...]


@dataclass(frozen=True, slots=True)
class Start:
    """The plan that runs first.

    Attributes:
        order: of the join.
        operators: by input, the names of its unary operators.
    """

    order: JoinOrder
    operators: tuple[tuple[str, ...], ...]


def play(
    counted: Counted,
    start: Start,
    deciding: Deciding,
    period_seconds: float,
    noise: float = 0.1,
    seed: int = 1,
) -> PlayedPlan:
    """Plays a policy over counted cuts.

    Args:
        counted: the cuts.
        start: the plan that runs until the policy says another.
        deciding: makes the controller, given the virtual clock; without policies the plan is static.
        period_seconds: stream time between two reports to it.
        noise: standard deviation of the logarithm of what a piece of work takes.
        seed: of the noise.
    """
    player = _Player(counted, start, noise, np.random.default_rng(seed))
    controller = deciding(lambda: player.now)
    inputs = counted.plan.inputs
    controller.handle(JoinBound("joined", 0, counted.plan, start.order, counted.sorted_by))
    for number, names in enumerate(start.operators):
        controller.handle(OperatorsBound(inputs[number].alias, 0, names))
    each_period = max(1, round(period_seconds / counted.cut_seconds))
    for number in range(len(counted.cuts)):
        player.cut(number)
        if (number + 1) % each_period:
            continue
        for event in player.report(each_period * counted.cut_seconds):
            for action in controller.handle(event):
                if isinstance(action, SwitchJoin):
                    player.order = action.order
                elif isinstance(action, ReorderOperators):
                    place = [each.alias for each in inputs].index(action.stream)
                    player.operators[place] = action.order
    return player.played(tuple(controller.story()))


def measured_statistics(
    counted: Counted, start: Start, period_seconds: float, noise: float = 0.1, seed: int = 2
) -> list[JoinMeasures]:
    """What the reports of a static plan say of its join, period by period."""
    found: list[JoinMeasures] = []

    class _Listening:
        def handle(self, event: Event) -> list[Action]:
            if isinstance(event, JoinMeasured):
                found.append(event.measures)
            return []

    play(counted, start, lambda clock: Controller([_Listening()], clock), period_seconds, noise, seed)
    return found


class _Player:
    """One processor that answers cut after cut, and what it measures."""

    def __init__(self, counted: Counted, start: Start, noise: float, rng: np.random.Generator) -> None:
        self._counted = counted
        self._noise, self._rng = noise, rng
        self.order = start.order
        self.operators = list(start.operators)
        self.now = 0.0
        self._lines: list[tuple[float, float, float, int, float, JoinOrder]] = []
        self._begin_period()

    def cut(self, number: int) -> None:
        """Answers a cut."""
        cut = self._counted.cuts[number]
        phase = self._counted.phases[cut.phase]
        unary = sum(self._filter(place, cut, phase) for place in range(len(self.operators)))
        joining = 0.0
        for order in self.order.orders:
            met = 1 << order.first
            for step in order.steps:
                lies = None in self._counted.sorted_by[step.input]
                for work in works(cut.steps[order.first, met, step.input], step, lies):
                    seconds = work.seconds_at(phase.costs) * self._drawn()
                    self._work.append(_timed(work, seconds))
                    joining += seconds
                met |= 1 << step.input
        self.now = max(self.now, (number + 1) * self._counted.cut_seconds) + unary + joining
        delay = self.now - cut.newest / cut.output if cut.output else float("nan")
        self._lines.append((joining, unary, self.now, cut.output, delay, self.order))
        self._cuts.append(cut)

    def report(self, seconds: float) -> list[JoinMeasured | OperatorsMeasured]:
        """What was measured since the last report."""
        plan = self._counted.plan
        equal: dict[tuple[int, int, int], tuple[float, float]] = {}
        for key, each in enumerate(plan.keys):
            parts = [number for number, column in enumerate(each.columns) if column is not None]
            samples = {
                number: np.concatenate([cut.samples[number][key] for cut in self._cuts]) for number in parts
            }
            for place, left in enumerate(parts):
                for right in parts[place + 1 :]:
                    equal[key, left, right] = equal_pairs(samples[left], samples[right])
        tuples = tuple(sum(cut.tuples[number] for cut in self._cuts) for number in range(len(plan.inputs)))
        measures = JoinMeasures(
            seconds, len(self._cuts), tuples, (0,) * len(tuples), equal, work=tuple(self._work)
        )
        events: list[JoinMeasured | OperatorsMeasured] = [JoinMeasured("joined", 0, measures)]
        for number, measured in enumerate(self._measured):
            if measured:
                operators = tuple(
                    OperatorMeasure(name, int(came), int(passed), spent)
                    for name, (came, passed, spent) in measured.items()
                )
                events.append(OperatorsMeasured(plan.inputs[number].alias, 0, seconds, operators))
        self._begin_period()
        return events

    def played(self, decisions: tuple[Decision, ...]) -> PlayedPlan:
        """All cuts."""
        joining, unary, visible, output, delay, orders = zip(*self._lines, strict=True)
        return PlayedPlan(
            np.array(joining),
            np.array(unary),
            np.array(visible),
            np.array(output),
            np.array(delay),
            orders,
            decisions,
        )

    def _begin_period(self) -> None:
        self._cuts: list[CutCounts] = []
        self._work: list[Work] = []
        self._measured: list[dict[str, tuple[float, float, float]]] = [{} for _ in self.operators]

    def _filter(self, place: int, cut: CutCounts, phase: Phase) -> float:
        """Runs an input's unary operators; the seconds it took."""
        known = {operator.name: operator for operator in phase.operators[place]}
        passing: Bools | None = None
        total = 0.0
        for name in self.operators[place]:
            verdict = cut.passed[place][name]
            came = len(verdict) if passing is None else int(np.count_nonzero(passing))
            passing = verdict if passing is None else passing & verdict
            seconds = came * known[name].seconds * self._drawn()
            before = self._measured[place].get(name, (0.0, 0.0, 0.0))
            self._measured[place][name] = (
                before[0] + came,
                before[1] + int(np.count_nonzero(passing)),
                before[2] + seconds,
            )
            total += seconds
        return total

    def _drawn(self) -> float:
        return float(self._rng.lognormal(-(self._noise**2) / 2, self._noise))


def _timed(work: Work, seconds: float) -> Work:
    return Work(work.probes, work.pairs, work.outputs, work.nested, work.built, work.lookups, seconds)
