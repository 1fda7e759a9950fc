"""Joins to be planned: random ones with random statistics, and random arrivals."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from hypothesis import strategies as st

from penstock.optimizer.join_statistics import JoinStatistics, UnitCosts
from penstock.plan.joins import JoinPlan
from penstock_lab.simulate.joins import shaped_join


@st.composite
def planned(draw: st.DrawFn, most: int = 5) -> tuple[JoinPlan, JoinStatistics]:
    """A random join with random statistics."""
    inputs = draw(st.integers(2, most))
    numbers = list(range(inputs))
    static = draw(st.sets(st.sampled_from(numbers), max_size=inputs - 1))
    keys = draw(st.lists(st.sets(st.sampled_from(numbers), min_size=2), min_size=1, max_size=3))
    compared = draw(st.sets(st.sampled_from(list(combinations(numbers, 2))), max_size=2))
    plan = shaped_join(
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
