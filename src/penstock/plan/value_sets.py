"""The algebra of value sets: union, intersection and complement of predicates on one attribute.

A set is a union of disjoint intervals over the attribute's ordered domain and, apart from them, a
flag for NULL. NaN is the largest value of a floating domain and equal to itself. Every operation
works on *cuts*, the places between values where a set begins or ends: a cut before the value v and
one after it turn open and closed bounds into plain order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

#: a value of an attribute's domain: int (INTEGER), float (FLOAT) or bytes (BINARY).
Key = int | float | bytes


@dataclass(frozen=True, slots=True)
class Interval:
    """Values between two bounds; None is unbounded (and NULL never lies in an interval)."""

    low: Key | None
    high: Key | None
    low_closed: bool = True
    high_closed: bool = True


@dataclass(frozen=True, slots=True)
class ValueSet:
    """Disjoint intervals in ascending order, and whether NULL belongs to the set."""

    intervals: tuple[Interval, ...]
    null: bool = False


#: (rank, value, side): rank -1 is before every value, 1 is NaN, 2 is after every value; side 0 is
#: just before the value, 1 just after it.
_Cut = tuple[int, Key, int]
_START: _Cut = (-1, 0, 0)
_END: _Cut = (2, 0, 0)

NOTHING = ValueSet(())
NULL = ValueSet((), null=True)
NOT_NULL = ValueSet((Interval(None, None),))
EVERYTHING = ValueSet((Interval(None, None),), null=True)
#: the two values of a boolean attribute; together with NULL they are everything
TRUE = ValueSet((Interval(1, None),))
FALSE = ValueSet((Interval(None, 1, high_closed=False),))


def point(value: Key) -> ValueSet:
    """The set of one value."""
    return ValueSet((Interval(value, value),))


def union(*sets: ValueSet) -> ValueSet:
    """The values in any of some sets."""
    spans = sorted(span for each in sets for span in _spans(each))
    return ValueSet(_intervals(spans), any(each.null for each in sets))


def intersect(left: ValueSet, right: ValueSet) -> ValueSet:
    """The values in both sets."""
    ours, theirs = _spans(left), _spans(right)
    spans: list[tuple[_Cut, _Cut]] = []
    own = other = 0
    while own < len(ours) and other < len(theirs):
        high = min(ours[own][1], theirs[other][1])
        spans.append((max(ours[own][0], theirs[other][0]), high))
        # both lists are in order, and what ends first meets nothing more
        own, other = own + (ours[own][1] == high), other + (theirs[other][1] == high)
    return ValueSet(_intervals(spans), left.null and right.null)


def complement(values: ValueSet) -> ValueSet:
    """The values, NULL among them, that are not in the set."""
    spans: list[tuple[_Cut, _Cut]] = []
    position = _START
    for low, high in _spans(values):
        spans.append((position, low))
        position = high
    spans.append((position, _END))
    return ValueSet(_intervals(spans), not values.null)


def without_null(values: ValueSet) -> ValueSet:
    """The set without NULL."""
    return ValueSet(values.intervals) if values.null else values


def contains(values: ValueSet, value: Key | None) -> bool:
    """Whether a value (None: NULL) belongs to the set."""
    if value is None:
        return values.null
    before = _cut(value, 0)
    return any(low <= before < high for low, high in _spans(values))


def _cut(value: Key, side: int) -> _Cut:
    return (1, 0, side) if value != value else (0, value, side)


def _spans(values: ValueSet) -> list[tuple[_Cut, _Cut]]:
    return [
        (
            _START if interval.low is None else _cut(interval.low, 0 if interval.low_closed else 1),
            _END if interval.high is None else _cut(interval.high, 1 if interval.high_closed else 0),
        )
        for interval in values.intervals
    ]


def _intervals(spans: Iterable[tuple[_Cut, _Cut]]) -> tuple[Interval, ...]:
    """Merges spans given in ascending order; empty ones vanish."""
    merged: list[tuple[_Cut, _Cut]] = []
    for low, high in spans:
        if low >= high:
            continue
        if merged and low <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return tuple(
        Interval(_value(low), _value(high), low_closed=low[2] == 0, high_closed=high[2] == 1 or high is _END)
        for low, high in merged
    )


def _value(cut: _Cut) -> Key | None:
    if cut[0] in (-1, 2):
        return None
    return float("nan") if cut[0] == 1 else cut[1]
