"""Trees over attributes that may raise: where the others decide, and where what raises is missed.

Where an expression raises, its column is NULL and its error column TRUE.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from penstock.plan.trees import NEVER, EqualTexts, Every, Some, Test, Tree
from penstock.plan.value_sets import FALSE, TRUE
from penstock.sql.conditions.normal_form import every, some


def renumbered(tree: Tree, order: Mapping[int, int]) -> Tree:
    """A tree with its attributes by other numbers."""
    if isinstance(tree, Test):
        values = tree.values
        if isinstance(values, EqualTexts):
            values = replace(values, other=order[values.other])
        return Test(order[tree.attribute], values)
    return type(tree)(tuple(renumbered(part, order) for part in tree.parts))


def unraised(tree: Tree, errors: Mapping[int, int]) -> Tree:
    """Where a tree holds and nothing that it needs has raised: NULL of an expression that raised is no value.

    Args:
        tree: the tree.
        errors: attribute -> its error column.
    """
    if isinstance(tree, Test):
        if tree.attribute not in errors or not tree.values.null:
            return tree
        return Every((tree, Test(errors[tree.attribute], FALSE)))
    join = every if isinstance(tree, Every) else some
    return join(unraised(part, errors) for part in tree.parts)


def raised_tree(tree: Tree, errors: Mapping[int, int]) -> Tree:
    """Where something raises that a tree needs, while what cannot raise and what is needed before it hold.

    Args:
        tree: the tree.
        errors: attribute -> its error column.
    """
    if isinstance(tree, Test):
        return Test(errors[tree.attribute], TRUE) if tree.attribute in errors else NEVER
    cases = [(part, raised_tree(part, errors)) for part in tree.parts]
    if isinstance(tree, Some):
        return some(raised for _, raised in cases)
    held: list[Tree] = [part for part, raised in cases if raised == NEVER]
    found: list[Tree] = []
    for part, raised in cases:
        if raised != NEVER:
            found.append(every((*held, raised)))
            held.append(unraised(part, errors))
    return some(found)
