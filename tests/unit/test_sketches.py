"""Sketches: near the truth, merged in any order, NULL where there is no value."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.operators.windows.aggregates import Parts, lower
from penstock.operators.windows.required_slack import ARRIVAL, END, WindowHistory
from penstock.operators.windows.sketches import Sketch
from penstock.plan.windows import Aggregate, ErrorBound

DISTINCT = Aggregate("approx_count_distinct", "v", pa.int64(), None, 0.02)


def percentile(fraction: float, kind: pa.DataType, accuracy: float = 10_000) -> Aggregate:
    return Aggregate("approx_percentile", "v", kind, fraction, accuracy)


def results(aggregate: Aggregate, tuples: pa.Table, pieces: int) -> list[Any]:
    """By group, over partials lifted in pieces and merged in another order."""
    parts = Parts.of([aggregate])
    lifted = [
        parts.lift(tuples.filter(pa.array(np.arange(tuples.num_rows) % pieces == piece)), ["k"])
        for piece in reversed(range(pieces))
    ]
    merged = parts.merge(pa.concat_tables(lifted), ["k"])
    answers = lower(aggregate, merged, None, ["k"]).to_pylist()
    return [answer for _, answer in sorted(zip(merged.column("k").to_pylist(), answers, strict=True))]


def test_estimates_stay_within_their_accuracy_however_they_are_merged() -> None:
    rng = np.random.default_rng(5)
    keys, values = rng.integers(0, 4, 200_000), rng.integers(0, 30_000, 200_000)
    tuples = pa.table({"k": keys, "v": values})
    for pieces in (1, 7):
        counts = results(DISTINCT, tuples, pieces)
        middles = results(percentile(0.9, pa.int64(), 200), tuples, pieces)
        for key, count, middle in zip(range(4), counts, middles, strict=True):
            own = values[keys == key]
            assert count == pytest.approx(len(np.unique(own)), rel=4 * 0.02)
            assert np.mean(own < middle) - 3 / 200 <= 0.9 <= np.mean(own <= middle) + 3 / 200


@pytest.mark.parametrize(
    ("values", "kind", "middle"),
    [
        ([5, 1, 3, None, 9, 7], pa.int32(), 5),
        ([2**53, -(2**53), 1], pa.int64(), 1),
        ([2**63 - 1] * 3, pa.int64(), 2**63 - 1024),
        ([0.5, -0.0, float("nan")], pa.float64(), 0.5),
        ([Decimal("1.25"), Decimal("-3.00"), Decimal("7.50")], pa.decimal128(10, 2), Decimal("1.25")),
        ([Decimal("9" * 38)] * 2, pa.decimal128(38, 0), Decimal("99999999999999997748809823456034029568")),
        ([date(2024, 2, 29), date(1960, 1, 1), date(2024, 3, 1)], pa.date32(), date(2024, 2, 29)),
        ([None, None], pa.float64(), None),
    ],
)
def test_percentiles_of_few_values_are_values_of_their_type(
    values: list[Any], kind: pa.DataType, middle: object
) -> None:
    tuples = pa.table({"k": [0] * len(values), "v": pa.array(values, kind)})
    assert results(percentile(0.5, kind), tuples, 2) == [middle]


@pytest.mark.parametrize(
    "values",
    [
        pa.array(["a", "b", None, "a"]),
        pa.array([0.0, -0.0, None, 1.0]),
        pa.array([float("nan"), float("nan"), None, 1.0]),
        pa.array([True, False, None, True]),
        pa.array([b"x", b"y", None, b"x"]),
        pa.array([Decimal("1.5"), Decimal("2.5"), None, Decimal("1.5")]),
    ],
)
def test_distinct_values_of_any_type_are_counted_as_spark_tells_them_apart(values: pa.Array) -> None:
    assert results(DISTINCT, pa.table({"k": [0] * 4, "v": values}), 3) == [2]


def test_a_group_without_values_has_no_distinct_ones() -> None:
    assert results(DISTINCT, pa.table({"k": [0], "v": pa.array([None], pa.int64())}), 1) == [0]


def test_a_sketch_is_as_small_as_its_accuracy_permits() -> None:
    assert Sketch.of(DISTINCT).size == 12
    assert Sketch.of(percentile(0.5, pa.int64(), 1)).size == 8
    assert Sketch.of(percentile(0.5, pa.int64(), 10_000)).size == 65_535


def test_a_group_without_values_needs_no_slack() -> None:
    aggregate = percentile(0.5, pa.timestamp("us"))
    nothing = pa.table({"k": [0], "v": pa.array([None], pa.timestamp("us"))})
    rows = Parts.of([aggregate]).lift(nothing, ["k"])
    rows = rows.append_column(ARRIVAL, pa.array([90])).append_column(END, pa.array([5]))
    assert WindowHistory(rows, {}, [END, "k"]).required_slack(
        [aggregate], ErrorBound(0.05, 0.05)
    ).tolist() == [[0]]


def test_the_required_slack_of_sketches_is_that_of_their_values() -> None:
    aggregates = [DISTINCT, percentile(1.0, pa.int64())]
    parts = Parts.of(aggregates)
    # what comes at 30 brings nothing new: 20 is needed by both
    steps = [(10, [1, 2, 3]), (20, [4, 9]), (30, [3, 9])]
    rows = pa.concat_tables(
        parts.lift(pa.table({"k": [0] * len(own), "v": own}), ["k"]).append_column(
            ARRIVAL, pa.array([arrival])
        )
        for arrival, own in steps
    )
    history = WindowHistory(rows.append_column(END, pa.array([5] * 3)), {}, [END, "k"])
    for aggregate in aggregates:
        assert history.required_slack([aggregate], ErrorBound(0.05, 0.05)).tolist() == [[16]]
