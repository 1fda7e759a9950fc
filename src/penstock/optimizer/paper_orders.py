"""The order of a join by algorithm 1 as printed, for an executor that keeps no inner results.

The tree with the largest output rate by the printed formulas is followed from each stream to the root: new tuples meet the streams of
the other side of each join, by the method that the tree has for that direction. Bounds become one window, half as
long as they are wide on average.

Source: Song, Zhang, Lu, Yu, sections 4.3 and 5; following a tree without its inner results is ours.
"""

from __future__ import annotations

from itertools import combinations

from penstock.optimizer.join_model import JoinModel
from penstock.optimizer.join_trees import Tree, TreeQuery, plan_tree
from penstock.optimizer.printed_rates import Form
from penstock.plan.joins import JoinOrder, JoinPlan, Method, ProbeOrder, ProbeStep

_MICROSECONDS = 1e6


def lacking_formula(plan: JoinPlan) -> str | None:
    """What of a join the paper has no formula for; None where it has all."""
    if any(each.is_static for each in plan.inputs):
        return "a static table"
    return str(plan.kind) if plan.optional else None


def paper_order(model: JoinModel) -> JoinOrder:
    """The order that the paper's plan means.

    Args:
        model: of a join of streams, see `lacking_formula`.
    """
    tree = plan_tree(_query(model)).tree
    return JoinOrder(tuple(_followed(model, tree, first) for first in model.firsts()))


def _query(model: JoinModel) -> TreeQuery:
    plan, statistics = model.plan, model.statistics
    spans = [(bound.upper - bound.lower) / _MICROSECONDS for bound in plan.bounds]
    pairs = list(combinations(range(model.inputs), 2))
    shares = {pair: _selectivity(model, *pair) for pair in pairs}
    conditions = {pair: share for pair, share in shares.items() if share is not None}
    if not _is_connected(model.inputs, list(conditions)):
        # what has no condition in common is joined by time alone
        conditions = {pair: 1.0 if share is None else share for pair, share in shares.items()}
    return TreeQuery(
        statistics.rates,
        conditions,
        sum(spans) / len(spans) / 2,
        nested_seconds=statistics.costs.nested,
        hash_seconds=statistics.costs.lookup,
        form=Form.PRINTED,
    )


def _selectivity(model: JoinModel, left: int, right: int) -> float | None:
    """Of the conditions on two inputs; None where there is none."""
    keys = [
        number
        for number, key in enumerate(model.plan.keys)
        if key.columns[left] is not None and key.columns[right] is not None
    ]
    satisfied = model.statistics.satisfied.get((left, right))
    if not keys and satisfied is None:
        return None
    share = 1.0 if satisfied is None else satisfied
    for key in keys:
        share *= model.statistics.equal_share(key, left, right)
    return share


def _is_connected(inputs: int, pairs: list[tuple[int, int]]) -> bool:
    reached, before = {0}, set[int]()
    while reached != before:
        before = set(reached)
        reached |= {each for pair in pairs if reached.intersection(pair) for each in pair}
    return len(reached) == inputs


def _followed(model: JoinModel, tree: Tree, first: int) -> ProbeOrder:
    """The steps of new tuples of a stream."""
    sides: list[tuple[Tree, Method]] = []
    node = tree
    while node.left is not None and node.right is not None:
        assert node.methods is not None, "it is a join"
        is_left = bool(node.left.streams >> first & 1)
        own, other = (node.left, node.right) if is_left else (node.right, node.left)
        sides.append((other, node.methods[0 if is_left else 1]))
        node = own
    met, steps = 1 << first, []
    for other, method in reversed(sides):
        rest = [number for number in range(model.inputs) if other.streams >> number & 1]
        while rest:
            number = next((each for each in rest if model.is_linked(met, each)), rest[0])
            steps.append(_step(model, first, met, number, method))
            met |= 1 << number
            rest.remove(number)
    return ProbeOrder(first, tuple(steps))


def _step(model: JoinModel, first: int, met: int, number: int, method: Method) -> ProbeStep:
    """A search by a method; by nested loops where there is no key to hash by."""
    steps = [each.step for each in model.steps(first, met, number)]
    wanted = [step for step in steps if step.method is method]
    return (wanted or [step for step in steps if step.method is Method.NESTED])[0]
