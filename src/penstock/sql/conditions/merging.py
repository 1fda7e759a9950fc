"""What a binder bound at different times, as one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from penstock.plan.calls import Branch, UserCall
from penstock.plan.picking import picked
from penstock.plan.selection import Query, SelectionSet, Term
from penstock.sql.conditions.bind import BoundSelections
from penstock.sql.conditions.raising import renumbered

Ints = npt.NDArray[np.int64]


def merged(
    one: BoundSelections, other: BoundSelections, queries: Ints, errors: Ints, branches: Ints
) -> BoundSelections:
    """Some queries of two results of one binder.

    Args:
        one, other: the results. Attributes of the first keep their numbers.
        queries: int64[], the queries wanted: numbers of the first's, then, numbered on, of the second's.
        errors, branches: likewise of error queries and of branches.
    """
    places = {place: number for number, place in enumerate(one.places)}
    attributes = list(one.selections.attributes)
    for place, attribute in zip(other.places, other.selections.attributes, strict=True):
        if place not in places:
            places[place] = len(attributes)
            attributes.append(attribute)
    order = {number: places[place] for number, place in enumerate(other.places)}
    chosen = tuple(
        picked([*one.branches, *(_moved_branch(each, order) for each in other.branches)], branches)
    )
    tested = {name for each in chosen for name, _ in each.tests}
    calls = {each.name: each for each in (*one.calls, *other.calls)}
    needed = _needed(calls, tested)
    given = {each.column for name in needed for each in calls[name].arguments}
    arguments = {each.name: each for each in (*one.arguments, *other.arguments)}
    return BoundSelections(
        SelectionSet(
            tuple(attributes), _chosen(one.selections.queries, other.selections.queries, order, queries)
        ),
        tuple({each.name: each for each in (*one.derived, *other.derived)}.values()),
        _chosen(one.error_queries, other.error_queries, order, errors),
        other.warnings,
        tuple({each.name: each for each in (*one.columns, *other.columns)}.values()),
        tuple(places),
        chosen,
        tuple(each for name, each in calls.items() if name in needed),
        tuple(each for name, each in arguments.items() if name in given),
    )


def _needed(calls: Mapping[str, UserCall], tested: Iterable[str]) -> set[str]:
    """The names of calls that are tested, and of those that are their arguments."""
    found: set[str] = set()
    remaining = list(tested)
    while remaining:
        name = remaining.pop()
        if name in calls and name not in found:
            found.add(name)
            remaining += [each.column for each in calls[name].arguments if each.column is not None]
    return found


def _chosen(
    one: Sequence[Query], other: Sequence[Query], order: Mapping[int, int], wanted: Ints
) -> tuple[Query, ...]:
    return tuple(picked([*one, *(_moved(query, order) for query in other)], wanted))


def _moved(query: Query, order: Mapping[int, int]) -> Query:
    """A query over attributes by other numbers."""
    terms = tuple(
        Term(tuple(sorted(((order[each], values) for each, values in term.predicates), key=_attribute)))
        for term in query.terms
    )
    return replace(query, terms=terms, tree=None if query.tree is None else renumbered(query.tree, order))


def _moved_branch(branch: Branch, order: Mapping[int, int]) -> Branch:
    return replace(branch, query=_moved(branch.query, order))


def _attribute(predicate: tuple[int, object]) -> int:
    return predicate[0]
