"""The selector against a literal reading of value sets, on random selection sets and data."""

from __future__ import annotations

import datetime as dt
import math
import random
from collections.abc import Callable
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.operators.selection.selector import Selector, compile_selections
from penstock.plan.selection import Attribute, Query, SelectionSet, Term
from penstock.plan.value_sets import Interval, Key, ValueSet

UTC = dt.UTC
EPOCH = dt.datetime(1970, 1, 1, tzinfo=UTC)


def _words(rng: random.Random) -> str:
    return rng.choice(["", "a", "ab", "abc", "b", "ba", "é", "zz", "AA", "abcdefghij", "abcdefghik"])


def _float(rng: random.Random) -> float:
    return rng.choice([math.nan, math.inf, -math.inf, 0.0, -0.0, 0.5, 1.5, -2.25, 1e300, 5e-324])


def _micros(value: dt.datetime) -> int:
    return (value - EPOCH) // dt.timedelta(microseconds=1)


#: Arrow type, a random value of the column, its key
KINDS: list[tuple[pa.DataType, Callable[[random.Random], Any], Callable[[Any], Key]]] = [
    (pa.int64(), lambda rng: rng.choice([-(2**63), 2**63 - 1, rng.randint(-9, 9)]), int),
    (pa.int32(), lambda rng: rng.randint(-5, 30), int),
    (pa.int8(), lambda rng: rng.randint(-128, 127), int),
    (pa.bool_(), lambda rng: rng.random() < 0.5, int),
    (pa.float64(), _float, float),
    (pa.float32(), lambda rng: float(np.float32(rng.choice([math.nan, -0.0, 0.0, 0.1, 2.5, 7.0]))), float),
    (pa.string(), _words, lambda value: value.encode()),
    (pa.binary(), lambda rng: _words(rng).encode(), bytes),
    (
        pa.date32(),
        lambda rng: dt.date(2020, 1, 1) + dt.timedelta(days=rng.randint(0, 20)),
        lambda value: (value - dt.date(1970, 1, 1)).days,
    ),
    (
        pa.timestamp("us", "UTC"),
        lambda rng: EPOCH + dt.timedelta(seconds=rng.randint(-9, 9) * 10**6),
        _micros,
    ),
    (pa.timestamp("ms", "UTC"), lambda rng: EPOCH + dt.timedelta(milliseconds=rng.randint(-9, 9)), _micros),
    (
        pa.decimal128(9, 2),
        lambda rng: Decimal(rng.randint(-300, 300)).scaleb(-2),
        lambda value: int(value.scaleb(2)),
    ),
    (
        pa.decimal128(25, 3),
        lambda rng: Decimal(rng.randint(-4, 4) * 10**20 + 1).scaleb(-3),
        lambda value: int(value.scaleb(3)),
    ),
]


def _rank(key: Key) -> tuple[bool, Key]:
    return (key != key, 0 if key != key else key)


def _contains(values: ValueSet, key: Key | None) -> bool:
    """Literally: does the value lie in one of the intervals?"""
    if key is None:
        return values.null
    for interval in values.intervals:
        above = interval.low is None or _rank(interval.low) < _rank(key)
        above = above or (interval.low_closed and _rank(interval.low) == _rank(key))
        below = interval.high is None or _rank(key) < _rank(interval.high)
        below = below or (interval.high_closed and _rank(key) == _rank(interval.high))
        if above and below:
            return True
    return False


def _value_set(rng: random.Random, draw: Callable[[], Key]) -> ValueSet:
    keys = sorted({_rank(draw()) for _ in range(rng.choice([1, 2, 2, 4, 6]))})
    bounds: list[Key] = [math.nan if is_nan else key for is_nan, key in keys]
    null = rng.random() < 0.2
    shape = rng.randrange(5)
    if shape == 0:
        return ValueSet(tuple(Interval(key, key) for key in bounds), null)
    if shape == 1:
        return ValueSet((Interval(None, bounds[0], True, rng.random() < 0.5),), null)
    if shape == 2:
        return ValueSet((Interval(bounds[0], None, rng.random() < 0.5, True),), null)
    if shape == 3:
        return ValueSet(
            (Interval(None, bounds[0], True, False), Interval(bounds[0], None, False, True)), null
        )
    pairs = zip(bounds[::2], bounds[1::2], strict=False)
    return ValueSet(
        tuple(Interval(low, high, rng.random() < 0.5, rng.random() < 0.5) for low, high in pairs), null
    )


def _selections(rng: random.Random, kinds: list[int], queries: int) -> SelectionSet:
    attributes = tuple(Attribute(f"a{i}", KINDS[kind][0], f"`a{i}`") for i, kind in enumerate(kinds))

    def term() -> Term:
        used = sorted(rng.sample(range(len(kinds)), rng.choice([0, 1, 1, 2, 3, 3, 4]) % (len(kinds) + 1)))
        predicates = []
        for attribute in used:
            _, draw, to_key = KINDS[kinds[attribute]]
            predicates.append(
                (attribute, _value_set(rng, lambda draw=draw, to_key=to_key: to_key(draw(rng))))
            )
        return Term(tuple(predicates))

    return SelectionSet(
        attributes,
        tuple(
            Query(f"q{i}", tuple(term() for _ in range(rng.choice([0, 1, 1, 1, 2, 3]))))
            for i in range(queries)
        ),
    )


def _expected(selections: SelectionSet, keys: list[list[Key | None]], rows: int) -> list[list[int]]:
    return [
        [
            number
            for number, query in enumerate(selections.queries)
            if any(
                all(_contains(values, keys[attribute][row]) for attribute, values in term.predicates)
                for term in query.terms
            )
        ]
        for row in range(rows)
    ]


@pytest.mark.parametrize("seed", range(60))
def test_selector_equals_value_sets(seed: int) -> None:
    rng = random.Random(seed)
    kinds = [rng.randrange(len(KINDS)) for _ in range(rng.randint(1, 5))]
    selections = _selections(rng, kinds, rng.choice([1, 5, 40, 200]))
    plan = compile_selections(selections)
    selectors = [Selector(plan, strategy) for strategy in ("index", "asc")]
    for rows in (0, 1, 63, rng.randint(64, 400)):
        values = [[None if rng.random() < 0.15 else KINDS[k][1](rng) for _ in range(rows)] for k in kinds]
        keys = [
            [None if value is None else KINDS[k][2](value) for value in column]
            for k, column in zip(kinds, values, strict=True)
        ]
        columns = []
        for kind, column in zip(kinds, values, strict=True):
            array = pa.array([*column[:1], *column], KINDS[kind][0])[min(1, rows) :]
            if rng.random() < 0.2 and not pa.types.is_boolean(array.type):
                array = array.dictionary_encode()
            columns.append(pa.chunked_array([array[: rows // 2], array[rows // 2 :]]))
        expected = _expected(selections, keys, rows)
        for selector in selectors:
            matches = selector.match(columns, rows)
            answered = [
                matches.queries[low:high].tolist() for low, high in pairwise(matches.offsets.tolist())
            ]
            assert answered == expected
            assert matches.offsets.dtype == np.int64
            assert matches.queries.dtype == np.int32
