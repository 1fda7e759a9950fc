"""What `explain` says of a join view: how it is dealt out, in which order it is joined, and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.control.policies.output_rate import JoinStanding
from penstock.optimizer.join_model import StepFigures
from penstock.plan.joins import JoinOrder, JoinPlan, ProbeStep
from penstock.spark.lanes.joins.grid import shares_of
from penstock.spark.lanes.joins.orders import first_order


def explain_join(plan: JoinPlan, shares: Sequence[int], order: JoinOrder) -> Iterator[str]:
    """The join, its grid and an order.

    Args:
        plan: the join.
        shares: of its grid, by key.
        order: in which it is joined.
    """
    inputs = ", ".join(
        f"{each.alias} ({'static table' if each.is_static else 'stream'} {each.relation})"
        for each in plan.inputs
    )
    yield f"join view {plan.name}: {inputs}"
    for number, key in enumerate(plan.keys):
        columns = " = ".join(
            f"{plan.inputs[owner].alias}: {_text(plan, owner, column)}"
            for owner, column in enumerate(key.columns)
            if column is not None
        )
        yield f"  key {number}: {columns}, dealt out in {shares[number]}"
    for bound in plan.bounds:
        left, right = plan.inputs[bound.left].alias, plan.inputs[bound.right].alias
        yield f"  {right} is {bound.lower / 1e6:g} s to {bound.upper / 1e6:g} s behind {left}"
    left_to_spark = [*plan.residual, *(each.text for each in plan.outputs if each.column is None)]
    if left_to_spark:
        yield f"  left to Spark: {'; '.join(left_to_spark)}"
    for each in order.orders:
        steps = ", ".join(_step(plan, step) for step in each.steps)
        yield f"  new tuples of {plan.inputs[each.first].alias} meet {steps}"


def explain_first(plan: JoinPlan, cells: int) -> list[str]:
    """How a join will begin, given how many cells it is to have."""
    return list(explain_join(plan, shares_of(plan, cells), first_order(plan)))


def explain_standing(plan: JoinPlan, standing: JoinStanding) -> Iterator[str]:
    """What was measured of a running join, what its order is predicted to do, and why no other one is followed."""
    rates = ", ".join(
        f"{each.alias} {size:,.0f} tuples" if each.is_static else f"{each.alias} {rate:,.0f} tuples/s"
        for each, rate, size in zip(
            plan.inputs, standing.statistics.rates, standing.statistics.sizes, strict=True
        )
    )
    yield f"  measured: {rates}"
    for (key, left, right), share in sorted(standing.statistics.equal.items()):
        sides = f"{plan.inputs[left].alias} and {plan.inputs[right].alias}"
        yield f"  measured: key {key} is equal in {share:.3g} of the pairs of {sides}"
    for steps in standing.running:
        yield from (f"  predicted: {_figures(plan, step)}" for step in steps)
    yield (
        f"  predicted: {standing.output_rate:,.0f} rows/s put out, {standing.seconds:.3g} s of a processor for each second "
        f"of the streams; found by {standing.best.search}"
    )
    if standing.best.seconds < standing.seconds:
        yield f"  the best order would take {standing.best.seconds:.3g} s: too little less, or too soon after the last change"
    if standing.best.runner_up is not None:
        yield f"  the runner-up: {standing.best.runner_up.reason}"


def _step(plan: JoinPlan, step: ProbeStep) -> str:
    how = f"{step.method} by key {step.key}" if step.key is not None else str(step.method)
    return f"{plan.inputs[step.input].alias} ({how})"


def _figures(plan: JoinPlan, figures: StepFigures) -> str:
    return (
        f"{_step(plan, figures.step)}: {figures.rows:.3g} rows/s come, {figures.pairs:.3g} pairs are looked at, "
        f"{figures.output:.3g} go on, {figures.seconds:.3g} s"
    )


def _text(plan: JoinPlan, owner: int, name: str) -> str:
    return next(column.text for column in plan.inputs[owner].columns if column.name == name)
