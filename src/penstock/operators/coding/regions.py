"""Region coding: the disjoint regions that a p-attribute's constants cut its domain into.

m distinct constants cut a domain into 2m + 1 regions (-inf,c1) [c1] (c1,c2) ... (cm,+inf). Their
numbers 0 .. 2m, and 2m + 1 for NULL, are the *codes* every kernel works on: constant c_i has code
2i + 1, the open region before it 2i. Every predicate then is a union of closed code ranges.

Source: Lee & Lee, definition 1 (region array); the NULL region is ours.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.plan.arrangement import Arrangement, ArrangementKind
from penstock.plan.selection import Attribute, Domain, SelectionSet, attributes_of
from penstock.plan.value_sets import Interval, Key, ValueSet


@dataclass(frozen=True, slots=True, eq=False)
class RegionCoding:
    """The regions of one p-attribute.

    Attributes:
        name: column name.
        type: Arrow type of the column.
        domain: how its values are ordered.
        constants: the m distinct constants, ascending (Spark's order: NaN last).
    """

    name: str
    type: pa.DataType
    domain: Domain
    constants: tuple[Key, ...]

    @property
    def null_code(self) -> int:
        """Code of NULL: 2m + 1."""
        return 2 * len(self.constants) + 1

    @property
    def codes(self) -> int:
        """Number of codes: 2m + 2."""
        return 2 * len(self.constants) + 2

    def is_same(self, other: RegionCoding) -> bool:
        """Whether both code values alike."""
        return (self.type, self.domain, self.constants) == (other.type, other.domain, other.constants)


@dataclass(frozen=True, slots=True, eq=False)
class CodedSelections:
    """A selection set over region codes, as arrays.

    Attributes:
        names: query names, k of them.
        codings: one region coding a p-attribute, n of them.
        term_query: int32[terms], the query of each term, ascending.
        term_start: int64[terms + 1], each term's first predicate.
        predicate_attribute: int16[P], ascending within a term.
        predicate_start: int64[P + 1], each predicate's first code range.
        range_low, range_high: uint32[R], closed code ranges, ascending and disjoint (and not
            adjacent) within a predicate.
    """

    names: list[str]
    codings: tuple[RegionCoding, ...]
    term_query: npt.NDArray[np.int32]
    term_start: npt.NDArray[np.int64]
    predicate_attribute: npt.NDArray[np.int16]
    predicate_start: npt.NDArray[np.int64]
    range_low: npt.NDArray[np.uint32]
    range_high: npt.NDArray[np.uint32]


def carried_over(coded: CodedSelections, names: Sequence[str]) -> Arrangement:
    """The order in which other selections' p-attributes were evaluated, for those of `coded`; new ones follow.

    Args:
        coded: the selections.
        names: columns, in the order known.
    """
    place = {name: number for number, name in enumerate(names)}
    used = np.flatnonzero(np.bincount(coded.predicate_attribute)).tolist()
    order = sorted(used, key=lambda each: (place.get(coded.codings[each].name, len(place)), each))
    return Arrangement(ArrangementKind.FIXED, tuple(order))


def order_key(value: Key) -> tuple[bool, Key]:
    """Sort key that puts NaN above every other value."""
    return (value != value, 0.0 if value != value else value)


def region_coding(attribute: Attribute, sets: Iterable[ValueSet]) -> RegionCoding:
    """Cuts an attribute's domain at the bounds of some sets."""
    bounds = {
        order_key(bound)
        for values in sets
        for interval in values.intervals
        for bound in (interval.low, interval.high)
        if bound is not None
    }
    constants = tuple(float("nan") if is_nan else key for is_nan, key in sorted(bounds))
    return RegionCoding(attribute.name, attribute.type, attribute.domain, constants)


def region_ranges(values: ValueSet, coding: RegionCoding) -> list[tuple[int, int]]:
    """The closed ranges of codes, ascending and not adjacent, that a set of values is.

    Args:
        values: its bounds are constants of the coding.
        coding: the regions.
    """
    return _code_ranges(values, [order_key(constant) for constant in coding.constants])


def code_selections(selections: SelectionSet) -> CodedSelections:
    """Cuts every p-attribute's domain at its constants and rewrites the predicates to code ranges.

    Attributes that trees alone test are left out.
    """
    sets: list[list[ValueSet]] = [[] for _ in selections.attributes]
    for query in selections.queries:
        for term in query.terms:
            for attribute, values in term.predicates:
                sets[attribute].append(values)
    of_trees = {
        each for query in selections.queries if query.tree is not None for each in attributes_of(query)
    }
    kept = [place for place, own in enumerate(sets) if own or place not in of_trees]
    places = {place: number for number, place in enumerate(kept)}
    codings = tuple(region_coding(selections.attributes[place], sets[place]) for place in kept)
    ordered = [[order_key(constant) for constant in coding.constants] for coding in codings]

    term_query: list[int] = []
    term_start = [0]
    predicate_attribute: list[int] = []
    predicate_start = [0]
    lows: list[int] = []
    highs: list[int] = []
    for number, query in enumerate(selections.queries):
        for term in query.terms:
            for attribute, values in term.predicates:
                for low, high in _code_ranges(values, ordered[places[attribute]]):
                    lows.append(low)
                    highs.append(high)
                predicate_attribute.append(places[attribute])
                predicate_start.append(len(lows))
            term_query.append(number)
            term_start.append(len(predicate_attribute))
    return CodedSelections(
        names=[query.name for query in selections.queries],
        codings=codings,
        term_query=np.asarray(term_query, np.int32),
        term_start=np.asarray(term_start, np.int64),
        predicate_attribute=np.asarray(predicate_attribute, np.int16),
        predicate_start=np.asarray(predicate_start, np.int64),
        range_low=np.asarray(lows, np.uint32),
        range_high=np.asarray(highs, np.uint32),
    )


def _code_ranges(values: ValueSet, constants: Sequence[tuple[bool, Key]]) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    for interval in values.intervals:
        low, high = _interval_codes(interval, constants)
        if ranges and low <= ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], max(high, ranges[-1][1]))
        elif low <= high:
            ranges.append((low, high))
    null_code = 2 * len(constants) + 1
    if values.null:
        if ranges and ranges[-1][1] == null_code - 1:
            ranges[-1] = (ranges[-1][0], null_code)
        else:
            ranges.append((null_code, null_code))
    return ranges


def _interval_codes(interval: Interval, constants: Sequence[tuple[bool, Key]]) -> tuple[int, int]:
    low, high = 0, 2 * len(constants)
    if interval.low is not None:
        position = bisect_left(constants, order_key(interval.low))
        low = 2 * position + (1 if interval.low_closed else 2)
    if interval.high is not None:
        position = bisect_left(constants, order_key(interval.high))
        high = 2 * position + (1 if interval.high_closed else 0)
    return low, high
