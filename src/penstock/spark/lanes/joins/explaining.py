"""What `explain` says of a join view: how it is dealt out, in which order it is joined, and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from penstock.control.policies.output_rate import JoinStanding, OperatorsStanding
from penstock.monitor.figures import counted
from penstock.optimizer.join_measures import StepCount
from penstock.optimizer.join_model import StepFigures
from penstock.plan.joins import JoinOrder, JoinPlan, OptionalJoin, ProbeStep
from penstock.spark.lanes.joins.grid import shares_of
from penstock.spark.lanes.joins.orders import first_order
from penstock.sql.text.intervals import length_text


def explain_join(plan: JoinPlan, shares: Sequence[int], order: JoinOrder, *, by_spark: bool) -> Iterator[str]:
    """The join, its grid and an order.

    Args:
        plan: the join.
        shares: of its grid, by key.
        order: in which it is joined.
        by_spark: whether Spark computes what is computed of the rows.
    """
    inputs = ", ".join(
        f"{each.alias} ({_optional(plan) if number in plan.optional else ''}"
        f"{'static table' if each.is_static else 'stream'} {each.relation})"
        for number, each in enumerate(plan.inputs)
    )
    yield f"join view {plan.name}: {inputs}"
    for number, key in enumerate(plan.keys):
        columns = " = ".join(
            f"{plan.inputs[owner].alias}: {_text(plan, owner, column)}"
            for owner, column in enumerate(key.columns)
            if column is not None
        )
        yield f"  key {number}: {columns}, split in {counted(shares[number], 'part')}"
    for bound in plan.bounds:
        left, right = plan.inputs[bound.left].alias, plan.inputs[bound.right].alias
        if plan.looks_back_forever:
            kept = "the newest row of each key remains" if plan.keeps_newest else "all rows remain"
            yield f"  the newest row of {right} by its key, {length_text(-bound.upper)} or more before {left}"
            yield f"  of rows of {right} beyond the history, {kept}"
        else:
            yield f"  {right} is {length_text(bound.lower)} to {length_text(bound.upper)} later than {left}"
    for bound in plan.wider:
        yield f"  STATE_TTL: pairs {length_text(bound.lower)} to {length_text(bound.upper)} apart that the bound leaves out are counted"
    for lookup in plan.lookups:
        texts = {column.name: column.text for each in plan.relations for column in each.columns}
        sides = [
            f"{texts[left or '']} = {texts[right or '']}"
            for left, right in (key.columns for key in lookup.keys)
        ]
        sides += [f"{texts[each.left]} {each.operator} {texts[each.right]}" for each in lookup.comparisons]
        sides += [texts[name] for name in lookup.required]
        one = lookup.input
        yield f"  then looked up in {one.alias} (optional static table {one.relation}): {' AND '.join(sides)}"
    computed = [
        *plan.residual,
        *plan.filters,
        *(each.text for each in plan.outputs if each.column is None),
    ]
    if computed:
        yield f"  computed by {'Spark' if by_spark else 'the workers'}: {'; '.join(computed)}"
    if plan.predicates:
        yield f"  checked last, by your functions: {', '.join(each.text for each in plan.predicates)}"
    yield from (f"  {each}" for each in told_orders(plan, order))


def _optional(plan: JoinPlan) -> str:
    return "optional " if plan.kind is OptionalJoin.LEFT else f"{plan.kind} "


def told_orders(plan: JoinPlan, order: JoinOrder) -> list[str]:
    """An order in words, a text for each input that may have new tuples."""
    return [
        f"new tuples of {plan.inputs[each.first].alias} meet {', '.join(_step(plan, step) for step in each.steps)}"
        for each in order.orders
    ]


def explain_first(plan: JoinPlan, cells: int, *, by_spark: bool) -> list[str]:
    """How a join will begin, given how many cells it is to have; `by_spark` as in `explain_join`."""
    return list(explain_join(plan, shares_of(plan, cells), first_order(plan), by_spark=by_spark))


def standing_document(
    plan: JoinPlan, standing: JoinStanding, predicates: OperatorsStanding | None = None
) -> dict[str, Any]:
    """What was measured of a running join, what its order is predicted to do, and why no other one is followed.

    Args:
        plan: the join.
        standing: of its order.
        predicates: of the order of its user predicates; None before all were measured.

    Returns:
        JSON values: `inputs` and `selectivities` (texts), `steps` (each with `first`, `step`, what is `predicted` and what was
        `measured` of it: null, or `rows`, `pairs`, `output` and `seconds` in a second of the streams), `predicted_rate`,
        `measured_rate` (rows put out a second; null where nothing is predicted, or measured), `seconds`, `best_seconds`, `search`,
        `runner_up` (why it lost; null where there is none), `predicates` (each with `text`, `rate` of rows that come, `selectivity`
        and `seconds`, in order), `best_predicates` (the best order where that is another; otherwise null).
    """
    statistics, best = standing.statistics, standing.best
    return {
        "inputs": [
            f"{each.alias} {size:,.0f} tuples" if each.is_static else f"{each.alias} {rate:,.4g} tuples/s"
            for each, rate, size in zip(plan.inputs, statistics.rates, statistics.sizes, strict=True)
        ],
        "selectivities": [
            f"key {key} is equal in a share of {share:.3g} of the pairs of {plan.inputs[left].alias} and {plan.inputs[right].alias}"
            for (key, left, right), share in sorted(statistics.equal.items())
        ],
        "steps": [
            {
                "first": plan.inputs[order.first].alias,
                "step": _step(plan, figures.step),
                "predicted": _counts(figures) if standing.is_known else None,
                "measured": None
                if (did := standing.measured_of(order.first, figures)) is None
                else _counts(did),
            }
            for order in standing.running
            for figures in order.steps
        ],
        "predicted_rate": standing.output_rate if standing.is_known else None,
        "measured_rate": standing.measured_rate,
        "seconds": standing.seconds,
        "best_seconds": best.seconds,
        "search": best.search,
        "runner_up": _runner_up(standing),
        **_predicates(predicates),
    }


def _runner_up(standing: JoinStanding) -> str | None:
    """Why the runner-up lost; None where nothing tells them apart."""
    return (standing.best.lost or None) if standing.is_known else None


def _predicates(standing: OperatorsStanding | None) -> dict[str, Any]:
    if standing is None:
        return {"predicates": [], "best_predicates": None}
    told = [
        {
            "text": each.operator.name,
            "rate": each.rate,
            "selectivity": each.operator.selectivity,
            "seconds": each.operator.seconds,
        }
        for each in standing.running
    ]
    is_best = standing.best == tuple(each.operator.name for each in standing.running)
    return {"predicates": told, "best_predicates": None if is_best else list(standing.best)}


def _step(plan: JoinPlan, step: ProbeStep) -> str:
    how = f"{step.method} by key {step.key}" if step.key is not None else str(step.method)
    return f"{plan.inputs[step.input].alias} ({how})"


def _counts(figures: StepFigures | StepCount) -> dict[str, float]:
    return {name: getattr(figures, name) for name in ("rows", "pairs", "output", "seconds")}


def _text(plan: JoinPlan, owner: int, name: str) -> str:
    return next(column.text for column in plan.inputs[owner].columns if column.name == name)
