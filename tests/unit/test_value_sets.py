"""The algebra of value sets against membership, value by value."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from penstock.plan.value_sets import (
    EVERYTHING,
    NOTHING,
    Interval,
    Key,
    ValueSet,
    complement,
    contains,
    intersect,
    point,
    union,
)

KEYS: list[float] = [-math.inf, -1.0, -0.0, 0.0, 0.5, 2.0, math.inf, math.nan]
PROBES: list[Key | None] = [None, *KEYS, 0.25, 1e9]


def _interval(bounds: tuple[float | None, float | None, bool, bool]) -> ValueSet:
    low, high, low_closed, high_closed = bounds
    return intersect(
        ValueSet((Interval(low, None, low_closed=low_closed),)),
        ValueSet((Interval(None, high, high_closed=high_closed),)),
    )


BOUND = st.none() | st.sampled_from(KEYS)
SETS = st.builds(
    lambda intervals, null: union(
        ValueSet((), null), _union_of([_interval(interval) for interval in intervals])
    ),
    st.lists(st.tuples(BOUND, BOUND, st.booleans(), st.booleans()), max_size=3),
    st.booleans(),
)


def _union_of(sets: list[ValueSet]) -> ValueSet:
    result = NOTHING
    for values in sets:
        result = union(result, values)
    return result


@given(SETS, SETS)
def test_operations_agree_with_membership(left: ValueSet, right: ValueSet) -> None:
    for probe in PROBES:
        assert contains(union(left, right), probe) == (contains(left, probe) or contains(right, probe))
        assert contains(intersect(left, right), probe) == (contains(left, probe) and contains(right, probe))
        assert contains(complement(left), probe) != contains(left, probe)


@given(SETS)
def test_intervals_are_ascending_and_apart(values: ValueSet) -> None:
    for same in (union(values, NOTHING), intersect(values, EVERYTHING), complement(complement(values))):
        assert repr(same) == repr(values)


def test_nan_is_the_largest_value_and_equal_to_itself() -> None:
    above = ValueSet((Interval(math.inf, None, low_closed=False),))
    assert contains(above, math.nan)
    assert contains(point(math.nan), math.nan)
    assert not contains(ValueSet((Interval(None, math.nan, high_closed=False),)), math.nan)


def test_adjacent_intervals_merge() -> None:
    below = ValueSet((Interval(None, 3, high_closed=False),))
    assert union(below, point(3)) == ValueSet((Interval(None, 3),))
