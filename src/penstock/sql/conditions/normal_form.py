"""Conditions in three-valued logic to trees over value sets, and these to disjunctions of conjunctions.

For every part of a condition one of four sets of tuples is wanted: where it is TRUE, where it is
FALSE, or the complements of these. NOT exchanges TRUE and FALSE, and AND and OR distribute over all
four, so negation and NULL are resolved at the predicates, each a set of one attribute's values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from math import prod

from penstock.plan.trees import ALWAYS, NEVER, Every, Some, Test, Tree, Values, not_null, others
from penstock.plan.value_sets import EVERYTHING, ValueSet, intersect, union
from penstock.sql.conditions.nodes import Condition, Is, Junction, Not, Predicate

#: attribute index -> values; a conjunction
Conjunction = dict[int, ValueSet]


@dataclass(frozen=True, slots=True)
class Truth:
    """Where a predicate on one attribute is true and where it is false; elsewhere it is NULL.

    Attributes:
        attribute: index of the attribute.
        true: the values for which it is TRUE.
        false: those for which it is FALSE; None: every other value but NULL.
    """

    attribute: int
    true: Values
    false: Values | None = None

    def where(self, wanted: Wanted) -> Values:
        """The values for which the predicate is as wanted."""
        match wanted:
            case Wanted.TRUE:
                return self.true
            case Wanted.NOT_TRUE:
                return others(self.true)
        false = not_null(others(self.true)) if self.false is None else self.false
        return false if wanted is Wanted.FALSE else others(false)


Resolved = Truth | bool | None | tuple[Truth | None, ...]


class Wanted(Enum):
    """What a part of a condition is to be."""

    TRUE = 0
    FALSE = 1
    NOT_TRUE = 2
    NOT_FALSE = 3


_NEGATED = {
    Wanted.TRUE: Wanted.FALSE,
    Wanted.FALSE: Wanted.TRUE,
    Wanted.NOT_TRUE: Wanted.NOT_FALSE,
    Wanted.NOT_FALSE: Wanted.NOT_TRUE,
}
#: the truth values that satisfy each wish
_SATISFIED = {
    Wanted.TRUE: (True,),
    Wanted.FALSE: (False,),
    Wanted.NOT_TRUE: (False, None),
    Wanted.NOT_FALSE: (True, None),
}


class TooManyTermsError(Exception):
    """A condition needs more conjunctions than are wanted, or tests text, which no conjunction does."""


@dataclass(frozen=True, slots=True)
class NormalForm:
    """Rewrites conditions to trees of tests without NOT.

    Attributes:
        resolve: a predicate as value sets, as the truth value it has for every tuple, or as a disjunction of such.
    """

    resolve: Callable[[Predicate], Resolved]

    def tree(self, condition: Condition, wanted: Wanted = Wanted.TRUE) -> Tree:
        """The tree that holds where the condition is as wanted."""
        if isinstance(condition, Not):
            return self.tree(condition.child, _NEGATED[wanted])
        if isinstance(condition, Junction):
            parts = tuple(self.tree(child, wanted) for child in condition.children)
            is_every = condition.conjunctive is (wanted in (Wanted.TRUE, Wanted.NOT_FALSE))
            return every(parts) if is_every else some(parts)
        if isinstance(condition, Is):
            return self._is(condition, positive=wanted in (Wanted.TRUE, Wanted.NOT_FALSE))
        truth = self.resolve(condition)
        if not isinstance(truth, tuple):
            return _leaf(truth, wanted)
        join = some if wanted in (Wanted.TRUE, Wanted.NOT_FALSE) else every
        return join(_leaf(each, wanted) for each in truth)

    def _is(self, condition: Is, *, positive: bool) -> Tree:
        child = condition.child
        if condition.truth is not None:
            affirmed, denied = (
                (Wanted.TRUE, Wanted.NOT_TRUE) if condition.truth else (Wanted.FALSE, Wanted.NOT_FALSE)
            )
            return self.tree(child, affirmed if positive else denied)
        if not positive:
            return some((self.tree(child, Wanted.TRUE), self.tree(child, Wanted.FALSE)))
        return every((self.tree(child, Wanted.NOT_TRUE), self.tree(child, Wanted.NOT_FALSE)))


def _leaf(truth: Truth | bool | None, wanted: Wanted) -> Tree:
    if isinstance(truth, Truth):
        return _test(truth.attribute, truth.where(wanted))
    return ALWAYS if truth in _SATISFIED[wanted] else NEVER


def _test(attribute: int, values: Values) -> Tree:
    if values == EVERYTHING:
        return ALWAYS
    if isinstance(values, ValueSet) and not values.intervals and not values.null:
        return NEVER
    return Test(attribute, values)


def every(parts: Iterable[Tree]) -> Tree:
    """The conjunction of some trees."""
    return _joined(parts, Every)


def some(parts: Iterable[Tree]) -> Tree:
    """The disjunction of some trees."""
    return _joined(parts, Some)


def _joined(parts: Iterable[Tree], kind: type[Every] | type[Some]) -> Tree:
    ends = NEVER if kind is Every else ALWAYS
    flat: list[Tree] = []
    for part in parts:
        if part == ends:
            return ends
        if isinstance(part, kind):
            flat.extend(part.parts)
        else:
            flat.append(part)
    return flat[0] if len(flat) == 1 else kind(tuple(flat))


def terms(tree: Tree, most: int) -> list[Conjunction]:
    """Conjunctions whose disjunction is a tree; []: never.

    Args:
        tree: the tree.
        most: conjunctions that any part of it may need.

    Raises:
        TooManyTermsError: it needs more, or tests text.
    """
    if isinstance(tree, Test):
        if not isinstance(tree.values, ValueSet):
            raise TooManyTermsError
        return [{tree.attribute: tree.values}]
    parts = [terms(part, most) for part in tree.parts]
    if isinstance(tree, Every):
        if prod(map(len, parts)) > most:
            raise TooManyTermsError
        return conjoined(parts)
    merged = _disjoined(parts)
    if len(merged) > most:
        raise TooManyTermsError
    return merged


def conjoined(parts: list[list[Conjunction]]) -> list[Conjunction]:
    """The conjunction of disjunctions, multiplied out; halves first, for sets of values grow as they are merged."""
    if not parts:
        return [{}]
    if len(parts) == 1:
        return _simplified(parts[0])
    middle = len(parts) // 2
    left, right = conjoined(parts[:middle]), conjoined(parts[middle:])
    return _simplified([_merged(one, other) for one in left for other in right])


def _merged(left: Conjunction, right: Conjunction) -> Conjunction:
    term = dict(left)
    for attribute, values in right.items():
        term[attribute] = intersect(term[attribute], values) if attribute in term else values
    return term


def _disjoined(parts: list[list[Conjunction]]) -> list[Conjunction]:
    """All conjunctions; those on one and the same attribute alone become one."""
    single: dict[int, list[ValueSet]] = {}
    several: dict[frozenset[tuple[int, ValueSet]], Conjunction] = {}
    for part in parts:
        for term in part:
            if len(term) == 1:
                ((attribute, values),) = term.items()
                single.setdefault(attribute, []).append(values)
            else:
                several.setdefault(frozenset(term.items()), term)
    alone: list[Conjunction] = [{attribute: union(*values)} for attribute, values in single.items()]
    return _simplified([*alone, *several.values()])


def _simplified(terms: list[Conjunction]) -> list[Conjunction]:
    """Drops conjunctions that cannot hold and value sets that always do; [{}]: every tuple."""
    kept: list[Conjunction] = []
    for term in terms:
        needed = {attribute: values for attribute, values in term.items() if values != EVERYTHING}
        if not needed:
            return [{}]
        if all(values.intervals or values.null for values in needed.values()):
            kept.append(needed)
    return kept
