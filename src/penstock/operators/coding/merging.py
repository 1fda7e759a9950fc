"""Coded selections by difference: few are coded and merged with the many that are."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from penstock.kernels.spans import spans
from penstock.operators.coding.regions import CodedSelections, RegionCoding, order_key
from penstock.plan.picking import picked
from penstock.plan.value_sets import Key

Ints = npt.NDArray[np.int64]
#: what each code of a coding becomes as the low and as the high end of a range
_Codes = tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]


def merge_coded(one: CodedSelections, other: CodedSelections, order: Ints) -> CodedSelections:
    """Some queries of two sets, over the regions of both.

    Takes time in proportion to the sets' arrays, and to the constants of `other` alone as Python values. Constants of queries
    that are left out remain.

    Args:
        one, other: the sets. Codings of one name are of one attribute; those of the first keep their numbers.
        order: int64[queries], the queries wanted: numbers of the first's, then, numbered on, of the second's.
    """
    places = {coding.name: place for place, coding in enumerate(one.codings)}
    codings = list(one.codings)
    moved = np.zeros(len(other.codings), np.int16)
    recoded_one: dict[int, _Codes] = {}
    recoded_other: dict[int, _Codes] = {}
    for number, coding in enumerate(other.codings):
        place = places.setdefault(coding.name, len(codings))
        moved[number] = place
        if place == len(codings):
            codings.append(coding)
            continue
        known = codings[place]
        inserted = _missing(known, coding)
        if inserted:
            codings[place] = _united(known, inserted)
            numbers = np.arange(len(known.constants))
            before = np.searchsorted([position for position, _ in inserted], numbers, side="right")
            recoded_one[place] = _recoded(numbers + before, codings[place])
        recoded_other[number] = _recoded(_positions(coding.constants, codings[place]), codings[place])
    one = _with_codes(one, recoded_one)
    other = _by_attribute(_with_codes(other, recoded_other), moved)
    return _ordered(_concatenated(one, other, tuple(codings)), order)


def _missing(coding: RegionCoding, other: RegionCoding) -> list[tuple[int, Key]]:
    """The constants of another coding that this one lacks, ascending, and before which of its own each belongs."""
    own = coding.constants
    places = zip(_positions(other.constants, coding).tolist(), other.constants, strict=True)
    return [
        (place, constant)
        for place, constant in places
        if place == len(own) or order_key(own[place]) != order_key(constant)
    ]


def _positions(constants: Sequence[Key], coding: RegionCoding) -> Ints:
    """How many constants of a coding are less than each of some."""
    found = [bisect_left(coding.constants, order_key(each), key=order_key) for each in constants]
    return np.asarray(found, np.int64)


def _united(coding: RegionCoding, inserted: Sequence[tuple[int, Key]]) -> RegionCoding:
    constants = list(coding.constants)
    for place, constant in reversed(inserted):
        constants.insert(place, constant)
    return replace(coding, constants=tuple(constants))


def _recoded(places: Ints, united: RegionCoding) -> _Codes:
    """What the codes of a coding are in one that has its constants, at these places, and more."""
    count = len(places)
    low, high = np.empty(2 * count + 2, np.uint32), np.empty(2 * count + 2, np.uint32)
    low[0], high[2 * count] = 0, 2 * len(united.constants)
    low[2 : 2 * count + 1 : 2] = 2 * places + 2
    high[0 : 2 * count : 2] = 2 * places
    for codes in (low, high):
        codes[1 : 2 * count : 2] = 2 * places + 1
        codes[2 * count + 1] = united.null_code
    return low, high


def _with_codes(coded: CodedSelections, recoded: dict[int, _Codes]) -> CodedSelections:
    if not recoded:
        return coded
    attribute = np.repeat(coded.predicate_attribute, np.diff(coded.predicate_start))
    lows, highs = coded.range_low.copy(), coded.range_high.copy()
    for place, (low, high) in recoded.items():
        own = attribute == place
        lows[own], highs[own] = low[lows[own]], high[highs[own]]
    return replace(coded, range_low=lows, range_high=highs)


def _by_attribute(coded: CodedSelections, moved: npt.NDArray[np.int16]) -> CodedSelections:
    """The same with attributes by other numbers, ascending within each term."""
    attribute = moved[coded.predicate_attribute]
    term = np.repeat(np.arange(len(coded.term_query)), np.diff(coded.term_start))
    return _with_predicates(replace(coded, predicate_attribute=attribute), np.lexsort((attribute, term)))


def _concatenated(
    one: CodedSelections, other: CodedSelections, codings: tuple[RegionCoding, ...]
) -> CodedSelections:
    return CodedSelections(
        [*one.names, *other.names],
        codings,
        np.concatenate([one.term_query, other.term_query + np.int32(len(one.names))]),
        np.concatenate([one.term_start, other.term_start[1:] + one.term_start[-1]]),
        np.concatenate([one.predicate_attribute, other.predicate_attribute]),
        np.concatenate([one.predicate_start, other.predicate_start[1:] + one.predicate_start[-1]]),
        np.concatenate([one.range_low, other.range_low]),
        np.concatenate([one.range_high, other.range_high]),
    )


def _ordered(coded: CodedSelections, order: Ints) -> CodedSelections:
    """Some of the queries, in another order."""
    first = np.searchsorted(coded.term_query, np.arange(len(coded.names) + 1))
    counts = np.diff(first)[order]
    terms = spans(first[:-1][order], counts)
    sizes = np.diff(coded.term_start)[terms]
    return _with_predicates(
        replace(
            coded,
            names=picked(coded.names, order),
            term_query=np.repeat(np.arange(len(order), dtype=np.int32), counts),
            term_start=_starts(sizes),
        ),
        spans(coded.term_start[:-1][terms], sizes),
    )


def _with_predicates(coded: CodedSelections, predicates: Ints) -> CodedSelections:
    """The same terms with other predicates, by their numbers."""
    counts = np.diff(coded.predicate_start)[predicates]
    ranges = spans(coded.predicate_start[:-1][predicates], counts)
    return replace(
        coded,
        predicate_attribute=coded.predicate_attribute[predicates],
        predicate_start=_starts(counts),
        range_low=coded.range_low[ranges],
        range_high=coded.range_high[ranges],
    )


def _starts(counts: Ints) -> Ints:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
