"""The user's aggregate of `gates.sql`: `penstock run examples/gates.sql --functions examples/gates.py`."""

from __future__ import annotations

import random

import pyarrow as pa

#: draws for each flight
_DRAWS = 6_000


def occupied(dep_delay: pa.Array, distance: pa.Array) -> float:
    """How long the flights of a window keep their gates, by a simulation of each, as somebody writes it who does not think of speed.

    Args:
        dep_delay: minutes; NULL for a flight that was cancelled.
        distance: miles.

    Returns:
        Minutes, the mean of the draws, summed over the flights.
    """
    total = 0.0
    for delay, miles in zip(dep_delay.to_pylist(), distance.to_pylist(), strict=True):
        if delay is None:
            continue
        drawn = random.Random(delay * 10_000 + miles)
        turn = 35 + miles / 100
        total += sum(max(20.0, turn + delay + drawn.random() * 15) for _ in range(_DRAWS)) / _DRAWS
    return total


AGGREGATES = {"occupied": (occupied, "DOUBLE")}
