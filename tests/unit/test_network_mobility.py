"""Movements: within the square, no faster than allowed, and no drift of the mean speed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forms import examples
from penstock_lab.simulate.networks.mobility import Floats, gauss_markov, random_waypoint, standing

SIDE, STEP = 1000.0, 0.2


def moving(model: str, seed: int, nodes: int, fastest: float, pause: float = 0.0) -> Iterator[Floats]:
    rng = np.random.default_rng(seed)
    if model == "waypoint":
        return random_waypoint(rng, nodes, SIDE, fastest, pause, STEP)
    return gauss_markov(rng, nodes, SIDE, fastest, STEP)


def speeds(positions: Iterator[Floats], steps: int) -> Floats:
    """Metres a second by step and node."""
    places = np.array([each.copy() for each in islice(positions, steps + 1)])
    return np.linalg.norm(np.diff(places, axis=0), axis=2) / STEP


@settings(max_examples=examples(30), deadline=None)
@given(
    st.sampled_from(["waypoint", "gauss-markov"]),
    st.integers(0, 2**32),
    st.floats(0.1, 50),
    st.sampled_from([0.0, 3.0]),
)
def test_nodes_stay_in_the_square_and_keep_the_limit(
    model: str, seed: int, fastest: float, pause: float
) -> None:
    rng_positions = moving(model, seed, 10, fastest, pause)
    places = np.array([each.copy() for each in islice(rng_positions, 300)])
    assert places.min() >= 0
    assert places.max() <= SIDE
    assert np.linalg.norm(np.diff(places, axis=0), axis=2).max() <= fastest * STEP * (1 + 1e-9)


def test_the_mean_speed_of_random_waypoint_does_not_decay() -> None:
    seen = speeds(moving("waypoint", 1, 400, 20), 4500)
    # stationary: trips last by length / speed, so the mean is 1 / E[1 / v]
    expected = 18 / np.log(10)
    for since in (0, 1500, 3000):
        assert seen[since : since + 1500].mean() == pytest.approx(expected, rel=0.04)


def test_gauss_markov_keeps_its_mean_and_remembers() -> None:
    seen = speeds(moving("gauss-markov", 1, 200, 10), 1500)
    assert seen.mean() == pytest.approx(5, rel=0.05)
    one_second = np.corrcoef(seen[:-5].ravel(), seen[5:].ravel())[0, 1]
    assert 0.6 < one_second < 0.85


def test_resting_nodes_do_not_move() -> None:
    rests = speeds(moving("waypoint", 3, 200, 20, 30.0), 500) == 0
    assert 0.2 < rests.mean() < 0.6
    still = standing(np.random.default_rng(1), 5, SIDE)
    assert np.array_equal(next(still), next(still))
