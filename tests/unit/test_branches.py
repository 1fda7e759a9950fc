"""Trees divided at calls of functions: every branch of a tree together say what the tree says."""

from __future__ import annotations

import random

import pytest

from penstock.plan import trees
from penstock.plan.trees import ALWAYS, NEVER, Every, Some, Tree
from penstock.plan.value_sets import FALSE, TRUE
from penstock.sql.conditions.branches import MOST_BRANCHES, TooManyBranchesError, divided, replaced

ATTRIBUTES = 6
CALLED = {1, 3, 4}


def drawn(rng: random.Random, depth: int) -> Tree:
    if depth == 0 or rng.random() < 0.3:
        return trees.Test(rng.randrange(ATTRIBUTES), rng.choice((TRUE, FALSE)))
    kind = rng.choice((Every, Some))
    return kind(tuple(drawn(rng, depth - 1) for _ in range(rng.randint(1, 3))))


def holds(tree: Tree, row: list[bool]) -> bool:
    if isinstance(tree, trees.Test):
        return row[tree.attribute] == (tree.values == TRUE)
    parts = (holds(part, row) for part in tree.parts)
    return all(parts) if isinstance(tree, Every) else any(parts)


@pytest.mark.parametrize("seed", range(200))
def test_branches_together_are_the_tree(seed: int) -> None:
    rng = random.Random(seed)
    tree = drawn(rng, 3)
    try:
        branches = divided(tree, CALLED)
    except TooManyBranchesError:
        return
    for number in range(2**ATTRIBUTES):
        row = [bool(number >> place & 1) for place in range(ATTRIBUTES)]
        found = any(holds(held, row) and all(holds(each, row) for each in own) for held, own in branches)
        assert found == holds(tree, row)
        sure = holds(replaced(tree, CALLED, NEVER), row)
        assert sure <= found <= holds(replaced(tree, CALLED, ALWAYS), row)
    for held, own in branches:
        assert not CALLED.intersection(each.attribute for each in trees.tests(held))
        assert CALLED.issuperset(each.attribute for each in own)
    assert len({frozenset(own) for _, own in branches}) == len(branches)


def test_a_tree_without_calls_is_one_branch() -> None:
    tree = Every((trees.Test(0, TRUE), Some((trees.Test(2, TRUE), trees.Test(5, FALSE)))))
    assert divided(tree, CALLED) == [(tree, ())]


def test_a_tree_with_too_many_branches_is_refused() -> None:
    pairs = (Some((trees.Test(2 * number, TRUE), trees.Test(2 * number + 1, TRUE))) for number in range(7))
    with pytest.raises(TooManyBranchesError):
        divided(Every(tuple(pairs)), set(range(14)))
    assert MOST_BRANCHES < 2**7
