"""Which inputs new tuples meet first and how these are searched: the plan with the largest output rate.

Orders of different inputs do not touch each other, and what a step takes depends on the set of inputs met before
it, so dynamic programming over sets finds what trying all orders finds. Past `EXACT_INPUTS` the
next input is the one whose step is the cheapest, and the plan says so.

Source: Song, Zhang, Lu, Yu, algorithm 1; instead of trees whose inner windows would be state, each input has an order of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.optimizer.join_model import JoinModel, StepFigures
from penstock.optimizer.output_rate import output_rate
from penstock.plan.joins import JoinOrder, Method, ProbeOrder

#: up to so many inputs the best plan is found, past it a good one
EXACT_INPUTS = 10


@dataclass(frozen=True, slots=True)
class PlannedOrder:
    """A probe order with what it is predicted to do.

    Attributes:
        first: the input that has new tuples.
        steps: in order.
    """

    first: int
    steps: tuple[StepFigures, ...]

    @property
    def seconds(self) -> float:
        """Processor seconds that a second of the streams takes."""
        return sum(step.seconds for step in self.steps)

    @property
    def order(self) -> ProbeOrder:
        """The order alone."""
        return ProbeOrder(self.first, tuple(step.step for step in self.steps))


@dataclass(frozen=True, slots=True)
class RunnerUp:
    """The second-best plan: one input has another order, or with two inputs another method.

    Attributes:
        order: the plan.
        seconds: C_time, processor seconds that a second of the streams takes.
        output_rate: predicted, joined rows a second.
        reason: why it lost.
    """

    order: JoinOrder
    seconds: float
    output_rate: float
    reason: str


#: share of the time by which the runner-up must be worse to be told of
_ALIKE = 0.0005


@dataclass(frozen=True, slots=True)
class PlannedJoin:
    """The chosen plan.

    Attributes:
        orders: by input that may have new tuples.
        pairs: C_out, joined rows that a second of the streams gives rise to.
        search: how it was found.
        runner_up: None where there is only one plan.
    """

    orders: tuple[PlannedOrder, ...]
    pairs: float
    search: str
    runner_up: RunnerUp | None

    @property
    def order(self) -> JoinOrder:
        """What the executor is told."""
        return JoinOrder(tuple(each.order for each in self.orders))

    @property
    def seconds(self) -> float:
        """C_time: processor seconds that a second of the streams takes."""
        return sum(each.seconds for each in self.orders)

    @property
    def lost(self) -> str:
        """Why the runner-up lost; "" without one, and where it would take as long or do the same in words."""
        other = self.runner_up
        return other.reason if other is not None and other.seconds > self.seconds * (1 + _ALIKE) else ""

    @property
    def output_rate(self) -> float:
        """r_o: predicted, joined rows a second."""
        return output_rate(self.pairs, self.seconds)


def plan_joins(model: JoinModel) -> PlannedJoin:
    """The plan with the largest output rate, among equal ones that with the least work, without cross products where there
    are others."""
    exact = model.inputs <= EXACT_INPUTS
    search = _two_best if exact else _greedy
    found = [search(model, first, _cheapest) for first in model.firsts()]
    orders = tuple(each[0] for each in found)
    pairs = model.pairs()
    return PlannedJoin(
        orders,
        pairs,
        "dynamic programming over all orders"
        if exact
        else f"greedy: more than {EXACT_INPUTS} inputs, so that better orders may exist",
        _runner_up(model, orders, [each[1:] for each in found], pairs),
    )


def cardinality_order(model: JoinModel, cheapest_methods: bool = False) -> JoinOrder:
    """The baseline: orders with the least sum of intermediate cardinalities.

    Args:
        model: of the join.
        cheapest_methods: whether methods are those of the least work; else hash wherever there is a key.
    """
    choose = _cheapest if cheapest_methods else _hashed
    found = [_two_best(model, first, choose, lambda step: step.output)[0] for first in model.firsts()]
    return JoinOrder(tuple(each.order for each in found))


def _cheapest(steps: list[StepFigures]) -> StepFigures:
    return min(steps, key=lambda step: step.seconds)


def _hashed(steps: list[StepFigures]) -> StepFigures:
    return next((step for step in steps if step.step.method is Method.HASH), steps[0])


def _seconds(step: StepFigures) -> float:
    return step.seconds


def _next(model: JoinModel, met: int) -> list[int]:
    """The inputs that may be met next: those that make no cross product, all where there are none; an optional one last."""
    rest = [number for number in range(model.inputs) if not met >> number & 1]
    rest = [number for number in rest if number not in model.plan.optional] or rest
    return [number for number in rest if model.is_linked(met, number)] or rest


def _two_best(
    model: JoinModel,
    first: int,
    choose: Callable[[list[StepFigures]], StepFigures],
    cost: Callable[[StepFigures], float] = _seconds,
) -> list[PlannedOrder]:
    """The order of the least cost and the next one, if there is another."""
    every = (1 << model.inputs) - 1
    best: dict[int, list[tuple[float, tuple[StepFigures, ...]]]] = {1 << first: [(0.0, ())]}
    # what is added to a set makes a larger number of it
    for met in range(1 << first, every):
        for number in _next(model, met) if met in best else ():
            step = choose(model.steps(first, met, number))
            longer = [(spent + cost(step), (*steps, step)) for spent, steps in best[met]]
            whole = met | 1 << number
            best[whole] = sorted(best.get(whole, []) + longer, key=lambda each: each[0])[:2]
    return [PlannedOrder(first, steps) for _, steps in best[every]]


def _greedy(
    model: JoinModel, first: int, choose: Callable[[list[StepFigures]], StepFigures]
) -> list[PlannedOrder]:
    met = 1 << first
    steps: list[StepFigures] = []
    while len(steps) < model.inputs - 1:
        step = choose([choose(model.steps(first, met, number)) for number in _next(model, met)])
        steps.append(step)
        met |= 1 << step.step.input
    return [PlannedOrder(first, tuple(steps))]


def _runner_up(
    model: JoinModel, orders: tuple[PlannedOrder, ...], others: list[list[PlannedOrder]], pairs: float
) -> RunnerUp | None:
    candidates = [(place, other) for place, own in enumerate(others) for other in own]
    if not candidates:
        candidates = [
            (place, other) for place, own in enumerate(orders) for other in _other_methods(model, own)
        ]
    if not candidates:
        return None
    place, other = min(candidates, key=lambda each: each[1].seconds - orders[each[0]].seconds)
    chosen = orders[place]
    changed = (*orders[:place], other, *orders[place + 1 :])
    seconds = sum(each.seconds for each in changed)
    return RunnerUp(
        JoinOrder(tuple(each.order for each in changed)),
        seconds,
        output_rate(pairs, seconds),
        _why(model, chosen, other),
    )


def _other_methods(model: JoinModel, order: PlannedOrder) -> list[PlannedOrder]:
    met, found = 1 << order.first, []
    for place, own in enumerate(order.steps):
        found += [
            PlannedOrder(order.first, (*order.steps[:place], step, *order.steps[place + 1 :]))
            for step in model.steps(order.first, met, own.step.input)
            if step.step != own.step
        ]
        met |= 1 << own.step.input
    return found


def _why(model: JoinModel, chosen: PlannedOrder, other: PlannedOrder) -> str:
    """What the first steps that differ would do instead; "" where that is the same in words."""
    names = [each.alias for each in model.plan.inputs]

    def told(step: StepFigures) -> str:
        return (
            f"{step.step.method} on {names[step.step.input]}, {step.pairs:.3g} pairs compared and "
            f"{step.output:.3g} rows out a second"
        )

    own, theirs = next((a, b) for a, b in zip(chosen.steps, other.steps, strict=True) if a.step != b.step)
    if told(theirs) == told(own):
        # they differ in the key by which they search, or in what both find
        return ""
    ratio = other.seconds / chosen.seconds if chosen.seconds else 1.0
    return f"new tuples of {names[chosen.first]} would take {_longer(ratio)}: {told(theirs)}, instead of {told(own)}"


def _longer(ratio: float) -> str:
    """Format how much longer something takes: '12 % longer', '3.4 times as long', 'more than 100 times as long'."""
    if ratio < 2:
        return f"{100 * (ratio - 1):.0f} % longer"
    return f"{ratio:.3g} times as long" if ratio <= 100 else "more than 100 times as long"
