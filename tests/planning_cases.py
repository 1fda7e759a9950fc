"""Joins to be planned: their shape from a few words, random statistics, and random arrivals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from penstock.optimizer.join_statistics import JoinStatistics, UnitCosts
from penstock.plan.joins import (
    Comparison,
    JoinColumn,
    JoinInput,
    JoinKey,
    JoinOutput,
    JoinPlan,
    Operator,
    TimeBound,
)

SECOND = 1_000_000


def join(
    inputs: int,
    keys: Sequence[Sequence[int]],
    span: float = 5.0,
    static: Sequence[int] = (),
    compared: Sequence[tuple[int, int]] = (),
    spans: Mapping[tuple[int, int], tuple[float, float]] | None = None,
) -> JoinPlan:
    """A join of inputs a, b, ... with columns a_0 (key 0), ..., a_t (time), a_v (to be compared).

    Args:
        inputs: how many.
        keys: of each the inputs that have a part in it.
        span: seconds that every two streams may be apart, either way.
        static: inputs that are static tables.
        compared: inputs whose values are compared by <.
        spans: bounds of single pairs, seconds.
    """
    names = "abcdefghijklmnop"[:inputs]
    bounds = []
    for pair in combinations([n for n in range(inputs) if n not in static], 2):
        lower, upper = (spans or {}).get(pair, (-span, span))
        bounds.append(TimeBound(*pair, int(lower * SECOND), int(upper * SECOND)))
    made = []
    for number, name in enumerate(names):
        columns = [
            JoinColumn(f"{name}_{key}", f"k{key}", pa.int64())
            for key, parts in enumerate(keys)
            if number in parts
        ]
        columns.append(JoinColumn(f"{name}_v", "v", pa.int64()))
        time = None
        if number not in static:
            time = f"{name}_t"
            columns.append(JoinColumn(time, "t", pa.timestamp("us")))
        made.append(JoinInput(name, f"table_{name}", number in static, None, tuple(columns), time))
    return JoinPlan(
        "joined",
        tuple(made),
        tuple(
            JoinKey(tuple(f"{n}_{key}" if i in parts else None for i, n in enumerate(names)), pa.int64())
            for key, parts in enumerate(keys)
        ),
        tuple(bounds),
        tuple(Comparison(f"{names[i]}_v", Operator.LESS, f"{names[j]}_v") for i, j in compared),
        (),
        (JoinOutput("v", "a_v", pa.int64(), "a_v"),),
    )


@st.composite
def planned(draw: st.DrawFn, most: int = 5) -> tuple[JoinPlan, JoinStatistics]:
    """A random join with random statistics."""
    inputs = draw(st.integers(2, most))
    numbers = list(range(inputs))
    static = draw(st.sets(st.sampled_from(numbers), max_size=inputs - 1))
    keys = draw(st.lists(st.sets(st.sampled_from(numbers), min_size=2), min_size=1, max_size=3))
    compared = draw(st.sets(st.sampled_from(list(combinations(numbers, 2))), max_size=2))
    plan = join(
        inputs,
        [sorted(key) for key in keys],
        draw(st.floats(0.5, 30)),
        sorted(static),
        sorted(compared),
    )
    share = st.floats(1e-5, 1)
    return plan, JoinStatistics(
        tuple(0.0 if n in static else draw(st.floats(1, 1e4)) for n in numbers),
        tuple(draw(st.floats(1, 1e5)) if n in static else 0.0 for n in numbers),
        {
            (key, *pair): draw(share)
            for key, parts in enumerate(keys)
            for pair in combinations(sorted(parts), 2)
        },
        {pair: draw(share) for pair in sorted(compared)},
        tuple(draw(st.floats(0, 2)) for _ in numbers),
        draw(st.floats(0.1, 5)),
        UnitCosts(*(draw(st.floats(1e-9, 1e-6)) for _ in range(6))),
    )


def arrivals(rate: float, seconds: float, rng: np.random.Generator) -> np.ndarray:
    """Times of a Poisson process."""
    return np.sort(rng.uniform(0, seconds, rng.poisson(rate * seconds)))
