"""Moments and bits by partials: whatever the pieces and their order, the answer is that of all tuples at once, worked out from whole numbers in Python."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import reduce
from operator import and_, or_, xor

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forms import examples
from merged_pieces import merged_pieces
from penstock.operators.windows.aggregates import Parts, lower
from penstock.operators.windows.required_slack import ARRIVAL, END, WindowHistory
from penstock.plan.windows import PAIRED, Aggregate, ErrorBound

ALONE = ("stddev_samp", "stddev_pop", "var_samp", "var_pop", "skewness", "kurtosis")
BITS: dict[str, Callable[[int, int], int]] = {"bit_and": and_, "bit_or": or_, "bit_xor": xor}
AGGREGATES = (
    *(Aggregate(function, "x", pa.float64()) for function in ALONE),
    *(Aggregate(function, "x", pa.float64(), by="y") for function in sorted(PAIRED)),
    Aggregate("corr", "x", pa.float64(), by="x"),
    Aggregate("count", "x", pa.int64()),
    Aggregate("sum", "y", pa.int64()),
    Aggregate("kurtosis", "y", pa.float64()),
    *(Aggregate(function, "y", pa.int64()) for function in BITS),
)
_Row = tuple[int | None, int | None]


def _expected(aggregate: Aggregate, rows: list[_Row]) -> float | int | None:
    """Exact until the last steps; rows are of (x, y)."""
    place = 0 if aggregate.argument == "x" else 1
    values = [row[place] for row in rows if row[place] is not None]
    function = aggregate.function
    if function == "count":
        return len(values)
    if not values:
        return None
    if function == "sum":
        return sum(values)
    if function in BITS:
        return reduce(BITS[function], values)
    if aggregate.by is None:
        pairs = [(each, each) for each in values]
    else:
        second = 0 if aggregate.by == "x" else 1
        pairs = [
            (row[place], row[second]) for row in rows if row[place] is not None and row[second] is not None
        ]
    n = len(pairs)
    if not n:
        return None
    y, x = (Fraction(sum(own), n) for own in zip(*pairs, strict=True))
    yy, xx, xy, third, fourth = (
        sum((one - y) ** p * (other - x) ** q for one, other in pairs)
        for p, q in ((2, 0), (0, 2), (1, 1), (3, 0), (4, 0))
    )
    match function:
        case "stddev_samp" | "var_samp" | "covar_samp":
            if n == 1:
                return None
            found = float(Fraction(xy if function == "covar_samp" else yy) / (n - 1))
            return math.sqrt(found) if function == "stddev_samp" else found
        case "stddev_pop" | "var_pop":
            found = float(Fraction(yy) / n)
            return math.sqrt(found) if function == "stddev_pop" else found
        case "covar_pop":
            return float(Fraction(xy) / n)
        case "skewness":
            return math.sqrt(n) * float(third) / math.sqrt(float(yy) ** 3) if yy else None
        case "kurtosis":
            return float(n * fourth / Fraction(yy) ** 2) - 3 if yy else None
        case "corr":
            return float(xy) / math.sqrt(float(xx * yy)) if xx and yy else None
        case "regr_slope":
            return float(xy / Fraction(xx)) if xx else None
        case "regr_intercept":
            return float(y - xy / Fraction(xx) * x) if xx else None
        case "regr_r2":
            return (float(xy**2 / Fraction(xx * yy)) if yy else 1.0) if xx else None
    return float({"regr_sxx": xx, "regr_syy": yy, "regr_sxy": xy}[function])


def _same(found: object, wanted: float | int | None, scale: float) -> bool:
    if wanted is None or not isinstance(wanted, float):
        return bool(found == wanted)
    return isinstance(found, float) and math.isclose(found, wanted, rel_tol=1e-8, abs_tol=1e-11 * scale)


def _drawn(rng: np.random.Generator, count: int, far: int, near: int) -> list[int | None]:
    """Whole numbers around one that is far away, some of them NULL; of `near` 1 all are equal."""
    return [None if rng.random() < 0.15 else far + int(each) for each in rng.integers(0, near, count)]


@settings(max_examples=examples(60))
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([0, -7, 10**6]),
    st.sampled_from([1, 2, 9]),
    st.sampled_from([1, 9]),
    st.booleans(),
)
def test_any_pieces_in_any_order(seed: int, far: int, near_x: int, near_y: int, keyed: bool) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 40))
    xs, ys = _drawn(rng, count, far, near_x), _drawn(rng, count, far, near_y)
    keys = rng.choice(["a", "b", "c"], count) if keyed else np.array(["a"] * count)
    tuples = pa.table({"k": keys, "x": pa.array(xs, pa.int64()), "y": pa.array(ys, pa.int64())})
    parts = Parts.of(AGGREGATES)
    partials = merged_pieces(parts, tuples, rng)
    merged = parts.merge(partials, ["k"])
    for aggregate in AGGREGATES:
        found = lower(aggregate, merged, None, ["k"])
        assert found.type == aggregate.type
        for key, value in zip(merged.column("k").to_pylist(), found.to_pylist(), strict=True):
            rows = [(x, y) for x, y, k in zip(xs, ys, keys, strict=True) if k == key]
            wanted = _expected(aggregate, rows)
            assert _same(value, wanted, 1 + abs(far)), (aggregate, rows, value, wanted)


def test_equal_values_have_no_moments() -> None:
    """Their mean by sums is another number, and a remainder would be an answer where Spark says NULL."""
    tuples = pa.table({"k": [1] * 7, "x": [0.1] * 7, "y": [0.7] * 7})
    parts = Parts.of(AGGREGATES[:-3])
    partials = [parts.lift(tuples.slice(first, size), ["k"]) for first, size in ((0, 1), (1, 4), (5, 2))]
    merged = parts.merge(pa.concat_tables(partials), ["k"])
    found = {each.function: lower(each, merged, None, ["k"]).to_pylist()[0] for each in AGGREGATES[:15]}
    assert {name for name, value in found.items() if value is None} == {
        *("skewness", "kurtosis", "corr", "regr_slope", "regr_intercept", "regr_r2")
    }
    assert {value for value in found.values() if value is not None} == {0.0}


@pytest.mark.parametrize("number", range(len(AGGREGATES)))
@settings(max_examples=examples(10))
@given(st.integers(0, 2**32 - 1), st.sampled_from([0, 10**6]), st.sampled_from([(0.05, False), (0.3, True)]))
def test_the_required_slack_is_that_of_each_answer_by_itself(
    number: int, seed: int, far: int, epsilon: tuple[float, bool]
) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 40))
    aggregate, bound = AGGREGATES[number], ErrorBound(epsilon[0], 0.05, epsilon[1])
    tuples = pa.table(
        {
            END: np.sort(rng.choice([20, 40], count)),
            "k": rng.integers(0, 3, count),
            ARRIVAL: rng.integers(0, 70, count),
            "x": pa.array(_drawn(rng, count, far, 5), pa.int64()),
            "y": pa.array(_drawn(rng, count, far, 9), pa.int64()),
        }
    )
    partials = Parts.of([aggregate]).lift(tuples, [END, "k", ARRIVAL]).sort_by([(END, "ascending")])
    history = WindowHistory(partials, {}, [END, "k"])
    (found,) = history.required_slack([aggregate], bound)
    groups = partials.select([END, "k"]).group_by([END, "k"], use_threads=False).aggregate([])
    rows = tuples.to_pylist()
    for group, slack in zip(groups.to_pylist(), found.tolist(), strict=True):
        own = [row for row in rows if (row[END], row["k"]) == (group[END], group["k"])]
        final = _expected(aggregate, [(row["x"], row["y"]) for row in own])
        needed, is_close = 0, False
        for arrival in {row[ARRIVAL] for row in own}:
            early = _expected(aggregate, [(row["x"], row["y"]) for row in own if row[ARRIVAL] < arrival])
            if early is None or final is None:
                is_right = early is None and final is None
            else:
                apart = abs(early - final)
                is_right = apart < bound.epsilon * (1 if bound.absolute else abs(final)) or apart < 1e-9
                # of 0 any remainder of what is added up is the whole error
                is_close |= 0 < apart < 1e-9 or (not bound.absolute and abs(final) < 1e-9)
            if not is_right:
                needed = max(needed, arrival - group[END] + 1)
        if not is_close:
            assert slack == needed, (aggregate, own, slack, needed)


def test_bits_are_of_whole_numbers() -> None:
    with pytest.raises(pa.ArrowNotImplementedError):
        Parts.of([Aggregate("bit_and", "x", pa.int64())]).lift(pa.table({"k": [1], "x": [[1]]}), ["k"])
