"""Trees divided into what is known without calls of users' functions, and what calls then decide."""

from __future__ import annotations

from collections.abc import Collection
from math import prod

from penstock.plan.trees import ALWAYS, Every, Some, Test, Tree
from penstock.sql.conditions.normal_form import every, some

#: branches that a query may have
MOST_BRANCHES = 64

#: what must hold of everything else, and the tests of calls
Divided = tuple[Tree, tuple[Test, ...]]


class TooManyBranchesError(Exception):
    """A query has more than `MOST_BRANCHES`."""


def replaced(tree: Tree, called: Collection[int], instead: Tree) -> Tree:
    """A tree with another one in the place of each test of a call.

    Args:
        tree: the tree.
        called: the attributes that are calls.
        instead: what stands for such a test: `ALWAYS` or `NEVER`.
    """
    if isinstance(tree, Test):
        return instead if tree.attribute in called else tree
    join = every if isinstance(tree, Every) else some
    return join(replaced(part, called, instead) for part in tree.parts)


def divided(tree: Tree, called: Collection[int]) -> list[Divided]:
    """Conjunctions of tests of calls, each with everything else that it needs; their disjunction is the tree.

    Args:
        tree: the tree.
        called: the attributes that are calls.

    Returns:
        One for each set of tests; what needs no call has none.

    Raises:
        TooManyBranchesError: there are too many.
    """
    if isinstance(tree, Test):
        return [(ALWAYS, (tree,))] if tree.attribute in called else [(tree, ())]
    parts = [divided(part, called) for part in tree.parts]
    if isinstance(tree, Some):
        return _merged([branch for part in parts for branch in part])
    if prod(map(len, parts)) > MOST_BRANCHES:
        raise TooManyBranchesError
    found: list[Divided] = [(ALWAYS, ())]
    for part in parts:
        found = [
            (every((held, other)), _once((*tests, *others)))
            for held, tests in found
            for other, others in part
        ]
    return _merged(found)


def _merged(branches: list[Divided]) -> list[Divided]:
    """Branches with equal tests as one."""
    by_tests: dict[frozenset[Test], list[Divided]] = {}
    for branch in branches:
        by_tests.setdefault(frozenset(branch[1]), []).append(branch)
    if len(by_tests) > MOST_BRANCHES:
        raise TooManyBranchesError
    return [(some(held for held, _ in own), own[0][1]) for own in by_tests.values()]


def _once(tests: tuple[Test, ...]) -> tuple[Test, ...]:
    return tuple(dict.fromkeys(tests))
