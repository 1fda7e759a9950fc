"""Conditions as trees: conjunctions and disjunctions of tests, each of one attribute.

Three-valued logic has been resolved before, as in `penstock.plan.selection`: a test names exactly the
values of its attribute for which its predicate is as the tree needs it, so a tree holds no NOT.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from penstock.plan.patterns import TextPattern
from penstock.plan.selection import Query, ValueSet
from penstock.plan.value_sets import complement, without_null


@dataclass(frozen=True, slots=True)
class TextSet:
    """The strings that match a pattern, or those that do not, with NULL or without.

    Attributes:
        pattern: the pattern.
        is_match: whether the strings match it.
        null: whether NULL belongs to the set.
    """

    pattern: TextPattern
    is_match: bool = True
    null: bool = False


@dataclass(frozen=True, slots=True)
class Test:
    """The value of an attribute is in a set.

    Attributes:
        attribute: its index.
        values: the set.
    """

    attribute: int
    values: ValueSet | TextSet


@dataclass(frozen=True, slots=True)
class Every:
    """All parts hold; without parts: always."""

    parts: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class Some:
    """One part holds at least; without parts: never."""

    parts: tuple[Tree, ...]


Tree = Test | Every | Some
ALWAYS, NEVER = Every(()), Some(())


def others(values: ValueSet | TextSet) -> ValueSet | TextSet:
    """The values, NULL among them, that are not in a set."""
    if isinstance(values, ValueSet):
        return complement(values)
    return TextSet(values.pattern, not values.is_match, not values.null)


def not_null(values: ValueSet | TextSet) -> ValueSet | TextSet:
    """The set without NULL."""
    return without_null(values) if isinstance(values, ValueSet) else replace(values, null=False)


def tests(tree: Tree) -> Iterator[Test]:
    """The leaves of a tree, from left to right."""
    stack = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, Test):
            yield node
        else:
            stack.extend(reversed(node.parts))


def attributes_of(query: Query) -> set[int]:
    """The indices of the attributes that a query tests."""
    if query.tree is not None:
        return {test.attribute for test in tests(query.tree)}
    return {attribute for term in query.terms for attribute, _ in term.predicates}
