"""Conditions as trees: conjunctions and disjunctions of tests, each of one attribute, or of two that are equal.

Three-valued logic has been resolved before, as in `penstock.plan.selection`: a test names exactly the
values of its attribute for which its predicate is as the tree needs it, so a tree holds no NOT.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from penstock.plan.patterns import Form, TextPattern
from penstock.plan.value_sets import ValueSet, complement, without_null


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
class EqualTexts:
    """The strings of an attribute that equal the same tuple's string of another, or those that do not, with NULL or without.

    Attributes:
        other: index of the other attribute.
        forms: the functions that both strings pass through before they are compared, the attribute's first.
        if_null: what a NULL of each becomes behind them; None: NULL.
        is_match: whether the strings are equal.
        null: whether the set has what is compared where one of both is NULL.
    """

    other: int
    forms: tuple[Form, Form]
    if_null: tuple[str | None, str | None]
    is_match: bool = True
    null: bool = False


Values = ValueSet | TextSet | EqualTexts


@dataclass(frozen=True, slots=True)
class Test:
    """The value of an attribute is in a set.

    Attributes:
        attribute: its index.
        values: the set.
    """

    attribute: int
    values: Values


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


def others(values: Values) -> Values:
    """The values, NULL among them, that are not in a set."""
    if isinstance(values, ValueSet):
        return complement(values)
    return replace(values, is_match=not values.is_match, null=not values.null)


def not_null(values: Values) -> Values:
    """The set without NULL."""
    return without_null(values) if isinstance(values, ValueSet) else replace(values, null=False)


def tested(test: Test) -> tuple[int, ...]:
    """The indices of the attributes that a test looks at."""
    return (test.attribute, test.values.other) if isinstance(test.values, EqualTexts) else (test.attribute,)


def tests(tree: Tree) -> Iterator[Test]:
    """The leaves of a tree, from left to right."""
    stack = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, Test):
            yield node
        else:
            stack.extend(reversed(node.parts))
