"""Rankings, whatever the order of arrival and however often they are stored and read: the first tuples of each partition of all."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from functools import cmp_to_key
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from forms import examples
from penstock.operators.running.groups import RunningGroups
from penstock.operators.windows.content import Content
from penstock.operators.windows.rankings import RankedParts
from penstock.operators.windows.shard import RunningPlan
from penstock.plan.rankings import KEPT, PLACE_TYPE, RANKINGS, ROW_NUMBER, OrderKey, RankedPlan, Ranking
from penstock.plan.windows import ALL_TIME, Aggregate, ErrorBound

TYPES = {
    "_x0": pa.float64(),
    "_x1": pa.string(),
    "_x2": pa.decimal128(30, 2),
    "_x3": pa.list_(pa.int32()),
    "_x4": pa.date32(),
    "_x5": pa.bool_(),
}
ORDERED = ("_x0", "_x1", "_x2", "_x4", "_x5")
VALUES = {
    "_x0": st.sampled_from([None, float("nan"), -0.0, 0.0, -1.5, math.inf, 2.0]),
    "_x1": st.sampled_from([None, "", "a", "B", "é", "\U0001f600", "\uffff"]),
    "_x2": st.sampled_from([None, Decimal("-1.00"), Decimal("0.01"), Decimal(10) ** 25]),
    "_x3": st.sampled_from([None, [], [1], [1, None]]),
    "_x4": st.sampled_from([None, -3, 0, 20_000]),
    "_x5": st.sampled_from([None, False, True]),
}
TUPLES = st.lists(st.tuples(st.sampled_from([None, 1, 2]), *VALUES.values()), max_size=12)
ORDERS = st.lists(st.tuples(st.sampled_from(ORDERED), st.booleans(), st.booleans()), min_size=1, max_size=3)

Row = tuple[Any, ...]


def table(tuples: list[Row]) -> pa.Table:
    columns = list(zip(*tuples, strict=True)) or [()] * (len(TYPES) + 1)
    kinds = {"_k0": pa.int64(), **TYPES}
    return pa.table(
        {name: pa.array(list(own), kind) for (name, kind), own in zip(kinds.items(), columns, strict=True)}
    )


def plan_of(ranking: Ranking) -> RunningPlan:
    aggregates = [Aggregate(KEPT, name, kind) for name, kind in TYPES.items()]
    aggregates += [Aggregate(function, None, PLACE_TYPE) for function in RANKINGS]
    keys = (("_k0", pa.int64()), *([] if ranking.is_one_row else [("_k1", PLACE_TYPE)]))
    view = RankedPlan("v", "", ALL_TIME, keys, tuple(aggregates), ErrorBound(0.1, 0.1), ranking=ranking)
    return RunningPlan(0, (view,), RankedParts(ranking, tuple(TYPES)), tuple(TYPES.items()))


def spelled(value: Any) -> Any:
    """A value that equals itself: NaN has one spelling, zero too."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0
    return repr(value) if isinstance(value, list) else value


def compared(one: Any, other: Any) -> int:
    """Spark's order of two values that are not NULL."""
    if isinstance(one, float):
        one, other = ((math.isnan(each), 0.0 if math.isnan(each) else each) for each in (one, other))
    if isinstance(one, list):
        one, other = repr(one), repr(other)
    if isinstance(one, str):
        one, other = one.encode(), other.encode()
    return int(one > other) - int(one < other)


def comparison(order: tuple[OrderKey, ...]) -> Callable[[Row, Row], int]:
    places = {name: number for number, name in enumerate(TYPES, 1)}

    def compare(one: Row, other: Row) -> int:
        for key in order:
            left, right = one[places[key.argument]], other[places[key.argument]]
            if left is None or right is None:
                found = (left is None) - (right is None)
                found = -found if key.nulls_first else found
            else:
                found = -compared(left, right) if key.is_descending else compared(left, right)
            if found:
                return found
        return 0

    return compare


def reference(tuples: list[Row], ranking: Ranking) -> set[tuple[Any, ...]]:
    """Keys, ranks and values in the order of each kept tuple."""
    compare = comparison(ranking.order)
    others = tuple(
        OrderKey(name, False, True) for name in TYPES if name not in {k.argument for k in ranking.order}
    )
    ties = comparison(others)

    def whole(one: Row, other: Row) -> int:
        return compare(one, other) or ties(one, other)

    found = set()
    for key in {row[0] for row in tuples}:
        own = sorted((row for row in tuples if row[0] == key), key=cmp_to_key(whole))
        rank = dense = 0
        for number, row in enumerate(own, 1):
            if number == 1 or compare(own[number - 2], row):
                rank, dense = number, dense + 1
            ranks = dict(zip(RANKINGS, (number, rank, dense), strict=True))
            if ranks[ranking.function] <= ranking.limit:
                found.add((key, number, rank, dense, *map(spelled, row[1:])))
    return found


@settings(deadline=None, max_examples=examples(100))
@given(
    cuts=st.lists(st.tuples(TUPLES, st.booleans(), st.booleans()), min_size=1, max_size=6),
    order=ORDERS,
    function=st.sampled_from(RANKINGS),
    limit=st.integers(1, 4),
)
def test_answers_come_to_the_first_tuples(
    cuts: list[tuple[list[Row], bool, bool]], order: list[tuple[str, bool, bool]], function: str, limit: int
) -> None:
    ranking = Ranking(function, tuple(OrderKey(*each) for each in order), limit)
    plan = plan_of(ranking)
    (view,) = plan.views
    names = [name for name, _ in view.keys]
    groups, pieces = RunningGroups(plan), list[bytes]()
    told: dict[Row, Row] = {}
    every: list[Row] = []
    for number, (tuples, is_restored, ended) in enumerate(cuts):
        every += tuples
        lifted = Content(plan.parts.lift(table(tuples), ["_k0"]), {}) if tuples else None
        for answer in groups.take_in(lifted, number, None, ended=ended):
            for row in answer.rows.drop_columns(["_overflowed"]).to_pylist():
                key = tuple(row.pop(name) for name in names)
                values = tuple(map(spelled, row.values()))
                if values[len(TYPES)] is None:
                    assert function != ROW_NUMBER
                    del told[key]
                else:
                    assert answer.final or told.get(key) != values, "only what differs is published"
                    told[key] = values
        for _, staying, following in groups.take_changes():
            pieces = pieces[:staying] + following
        if is_restored:
            groups = RunningGroups(plan, pieces)
        found = {(key[0], *row[len(TYPES) :], *row[: len(TYPES)]) for key, row in told.items()}
        assert len(found) == len(told)
        assert found == _dates(reference(every, ranking))


def _dates(rows: set[tuple[Any, ...]]) -> set[tuple[Any, ...]]:
    """The rows with dates in the place of numbers of days."""
    days = 4 + list(TYPES).index("_x4")
    return {
        (
            *row[:days],
            None if row[days] is None else pa.scalar(row[days], pa.date32()).as_py(),
            *row[days + 1 :],
        )
        for row in rows
    }


@settings(deadline=None)
@given(tuples=TUPLES, order=ORDERS)
def test_only_kept_tuples_are_stored(tuples: list[Row], order: list[tuple[str, bool, bool]]) -> None:
    ranking = Ranking(ROW_NUMBER, tuple(OrderKey(*each) for each in order), 2)
    plan = plan_of(ranking)
    groups = RunningGroups(plan)
    for number in range(5):
        groups.take_in(Content(plan.parts.lift(table(tuples), ["_k0"]), {}), number, None, ended=False)
    # the first two of each, and never what did not come among the first two
    assert groups.rows <= 4 * len({row[0] for row in tuples})
