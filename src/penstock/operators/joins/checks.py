"""What a cut's inputs and orders must be to be joined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.operators.joins.tuples import InputRuns
from penstock.plan.joins import JoinOrder, JoinPlan, Method, ProbeStep


def check(
    plan: JoinPlan,
    order: JoinOrder,
    inputs: Sequence[Mapping[int | None, InputRuns]],
) -> None:
    """Raises ValueError where an order does not fit its join."""
    what = f"join {plan.name}"
    every = set(range(len(plan.inputs)))
    if len(inputs) != len(every) or not all(inputs):
        raise ValueError(f"{what} has {len(every)} inputs; tuples are given of {sum(map(bool, inputs))}")
    ordered = [each.first for each in order.orders]
    missing = [number for number, orders in enumerate(inputs) if any(each.new for each in orders.values())]
    if len(set(ordered)) != len(ordered) or not set(missing) <= set(ordered):
        raise ValueError(f"{what}: orders for inputs {ordered}, new tuples of inputs {missing}")
    for each in order.orders:
        if sorted((each.first, *(step.input for step in each.steps))) != sorted(every):
            raise ValueError(f"{what}: not every input once: {each}")
        for step in each.steps:
            _check_step(what, step, plan, inputs[step.input])


def _check_step(what: str, step: ProbeStep, plan: JoinPlan, orders: Mapping[int | None, InputRuns]) -> None:
    if step.key is not None and plan.keys[step.key].columns[step.input] is None:
        raise ValueError(f"{what}: input {step.input} has no part in the key of {step}")
    if step.method is Method.HASH and step.key is None:
        raise ValueError(f"{what}: no hash without a key: {step}")
    if step.method is Method.MERGE and step.key not in orders:
        raise ValueError(f"{what}: {step} needs runs sorted by its key; there are runs by {list(orders)}")
