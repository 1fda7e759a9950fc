"""What a binder bound at different times, as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import attrgetter

from penstock.plan.selection import Query, SelectionSet, Term
from penstock.sql.conditions.bind import BoundSelections
from penstock.sql.conditions.raising import renumbered


def merged(one: BoundSelections, other: BoundSelections, names: Sequence[str]) -> BoundSelections:
    """Some queries of two results of one binder.

    Args:
        one, other: the results. Attributes of the first keep their numbers.
        names: of the queries wanted, in order; where both have a name, the query is the second's.
    """
    places = {place: number for number, place in enumerate(one.places)}
    attributes = list(one.selections.attributes)
    for place, attribute in zip(other.places, other.selections.attributes, strict=True):
        if place not in places:
            places[place] = len(attributes)
            attributes.append(attribute)
    order = {number: places[place] for number, place in enumerate(other.places)}
    queries = _chosen(one.selections.queries, other.selections.queries, order, names)
    own = {query.name for query in other.selections.queries}
    errors = {query.name: query for query in one.error_queries if query.name not in own}
    errors |= {query.name: _moved(query, order) for query in other.error_queries}
    return BoundSelections(
        SelectionSet(tuple(attributes), queries),
        tuple({each.name: each for each in (*one.derived, *other.derived)}.values()),
        tuple(errors[name] for name in names if name in errors),
        other.warnings,
        tuple({each.name: each for each in (*one.columns, *other.columns)}.values()),
        tuple(places),
    )


def _chosen(
    one: Sequence[Query], other: Sequence[Query], order: Mapping[int, int], names: Sequence[str]
) -> tuple[Query, ...]:
    known = dict(zip(map(attrgetter("name"), one), one, strict=True))
    known.update((query.name, _moved(query, order)) for query in other)
    return tuple(map(known.__getitem__, names))


def _moved(query: Query, order: Mapping[int, int]) -> Query:
    """A query over attributes by other numbers."""
    terms = tuple(
        Term(tuple(sorted(((order[each], values) for each, values in term.predicates), key=_attribute)))
        for term in query.terms
    )
    return replace(query, terms=terms, tree=None if query.tree is None else renumbered(query.tree, order))


def _attribute(predicate: tuple[int, object]) -> int:
    return predicate[0]
