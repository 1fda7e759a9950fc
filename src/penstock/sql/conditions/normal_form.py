"""Conditions in three-valued logic to disjunctive normal form over value sets.

For every part of a condition one of four sets of tuples is wanted: where it is TRUE, where it is
FALSE, or the complements of these. NOT exchanges TRUE and FALSE, and AND and OR distribute over all
four, so negation and NULL are resolved at the predicates, each a set of one attribute's values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from math import prod

from penstock.plan.selection import ValueSet
from penstock.plan.value_sets import EVERYTHING, complement, intersect, union, without_null
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
    true: ValueSet
    false: ValueSet | None = None

    def where(self, wanted: Wanted) -> ValueSet:
        """The values for which the predicate is as wanted."""
        match wanted:
            case Wanted.TRUE:
                return self.true
            case Wanted.NOT_TRUE:
                return complement(self.true)
        false = without_null(complement(self.true)) if self.false is None else self.false
        return false if wanted is Wanted.FALSE else complement(false)


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


@dataclass(frozen=True, slots=True)
class NormalForm:
    """Rewrites conditions to disjunctions of conjunctions.

    Attributes:
        resolve: a predicate as value sets, or as the truth value it has for every tuple.
        derive: any condition as a boolean attribute of its own.
        max_terms: a part that needs more conjunctions is derived.
    """

    resolve: Callable[[Predicate], Truth | bool | None]
    derive: Callable[[Condition], Truth]
    max_terms: int

    def terms(self, condition: Condition, wanted: Wanted = Wanted.TRUE) -> list[Conjunction]:
        """Conjunctions whose disjunction says that the condition is as wanted; []: never."""
        if isinstance(condition, Not):
            return self.terms(condition.child, _NEGATED[wanted])
        if isinstance(condition, Junction):
            multiply = condition.conjunctive is (wanted in (Wanted.TRUE, Wanted.NOT_FALSE))
            return self._junction(condition, wanted, multiply=multiply)
        if isinstance(condition, Is):
            return self._is(condition, positive=wanted in (Wanted.TRUE, Wanted.NOT_FALSE))
        truth = self.resolve(condition)
        if isinstance(truth, Truth):
            return _simplified([{truth.attribute: truth.where(wanted)}])
        return [{}] if truth in _SATISFIED[wanted] else []

    def _junction(self, condition: Junction, wanted: Wanted, *, multiply: bool) -> list[Conjunction]:
        parts = [self.terms(child, wanted) for child in condition.children]
        if not multiply:
            merged = _disjoined(parts)
            return merged if len(merged) <= self.max_terms else self._derived(condition, wanted)
        while prod(len(part) for part in parts) > self.max_terms:
            longest = max(range(len(parts)), key=lambda index: len(parts[index]))
            parts[longest] = self._derived(condition.children[longest], wanted)
        return conjoined(parts)

    def _is(self, condition: Is, *, positive: bool) -> list[Conjunction]:
        child = condition.child
        if condition.truth is not None:
            affirmed, denied = (
                (Wanted.TRUE, Wanted.NOT_TRUE) if condition.truth else (Wanted.FALSE, Wanted.NOT_FALSE)
            )
            return self.terms(child, affirmed if positive else denied)
        if not positive:
            return _disjoined([self.terms(child, Wanted.TRUE), self.terms(child, Wanted.FALSE)])
        parts = [self.terms(child, Wanted.NOT_TRUE), self.terms(child, Wanted.NOT_FALSE)]
        if len(parts[0]) * len(parts[1]) > self.max_terms:
            return self._derived(condition, Wanted.TRUE)
        return conjoined(parts)

    def _derived(self, condition: Condition, wanted: Wanted) -> list[Conjunction]:
        truth = self.derive(condition)
        return [{truth.attribute: truth.where(wanted)}]


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
