"""Orders of joins as cuts hold them."""

from __future__ import annotations

from penstock.plan.joins import JoinOrder, JoinPlan, Method, ProbeOrder, ProbeStep
from penstock.spark.lanes.joins.grid import searched_keys
from penstock.spark.storage.codec import Codec

#: on disk
ORDERS = Codec(JoinOrder)


def first_order(plan: JoinPlan) -> JoinOrder:
    """The order while nothing has been measured: what is joined by a key first, in the order of the query."""
    orders = []
    for first, each in enumerate(plan.inputs):
        if each.is_static:
            continue
        met, steps = {first}, []
        while len(met) < len(plan.inputs):
            step = _next(plan, met)
            steps.append(step)
            met.add(step.input)
        orders.append(ProbeOrder(first, tuple(steps)))
    return JoinOrder(tuple(orders))


def _next(plan: JoinPlan, met: set[int]) -> ProbeStep:
    rest = [number for number in range(len(plan.inputs)) if number not in met]
    for number in rest:
        for key in dict.fromkeys(searched_keys(plan)):
            columns = plan.keys[key].columns
            if columns[number] is not None and any(columns[other] is not None for other in met):
                return ProbeStep(number, Method.MERGE, key)
    # a static table that nothing is compared with by a key comes last
    return ProbeStep(
        min(rest, key=lambda number: (plan.inputs[number].is_static, number)), Method.NESTED, None
    )
