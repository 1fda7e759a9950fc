"""Queries with deadlines over recorded arrivals, with drawn costs: what `deadlines.py` runs."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from penstock.plan.deadlines import DeadlineQuery, LossConstraint
from penstock_lab.simulate.deadlines import DrawnCosts, Floats, SimulatedQuery, sliding

TRACES = {"Bellcore": "BCAUG89.interarrival.txt.gz", "DEC": "DEC-PKT-1-UDP.interarrival.txt.gz"}
#: the default of the paper: Z, H and D in seconds
SIZE, HOP, DEADLINE = 1.5, 0.3, 0.5
GROUPS = (0.5, 1.0, 1.5)
CONSTRAINTS = (LossConstraint(1, 4), LossConstraint(1, 6), LossConstraint(1, 8))
#: what removing a tuple takes of what adding it does, and Pm's share of an instance's time
REMOVING, MAINTENANCE = 0.25, 0.5


def arrivals(folder: Path, name: str, seconds: float) -> Floats:
    """Arrival times of a trace's packets, seconds from its begin."""
    with gzip.open(folder / TRACES[name]) as file:
        times = np.cumsum(np.loadtxt(file))
    return times[times < seconds]


def drawn_costs(
    packets: Floats, seconds: float, instances: int, tuples: float, maintenance: float, seed: int = 1
) -> DrawnCosts:
    """Costs of an instance whose tuples take so many seconds on average, and Pm so many.

    Args:
        packets: arrival times.
        seconds: how long they come.
        instances: how many.
        tuples: seconds of adding the packets of one second, on average; each takes between 0.5 and 1.5 of the mean.
        maintenance: seconds, on average; each takes between 0.9 and 1.1 of it.
        seed: of the draws; the same in every run.
    """
    rng = np.random.default_rng(seed)
    new, expired = rng.uniform(0.5, 1.5, (2, len(packets))) * tuples * seconds / len(packets)
    return DrawnCosts(
        np.append(0.0, np.cumsum(new)),
        np.append(0.0, np.cumsum(expired)) * REMOVING,
        rng.uniform(0.9, 1.1, instances) * maintenance,
    )


def nine(
    packets: Floats,
    seconds: float,
    at_load: float,
    incremental: bool,
    constraints: Sequence[LossConstraint] = CONSTRAINTS,
    processors: int = 1,
) -> list[SimulatedQuery]:
    """The nine queries, which take so much of the processors."""
    created, spans = sliding(packets, SIZE, HOP, seconds)
    step = at_load * processors * HOP / 9
    of_tuples = step * (1 - MAINTENANCE) / (HOP * (1 + REMOVING) if incremental else SIZE)
    costs = drawn_costs(packets, seconds, len(created), of_tuples, step * MAINTENANCE)
    return [
        SimulatedQuery(
            DeadlineQuery(f"q{number + 1}", GROUPS[number // 3], constraints[number % 3], incremental),
            created,
            spans,
            costs,
        )
        for number in range(9)
    ]


def one(
    packets: Floats, seconds: float, size: float, hop: float, deadline: float, at_load: float
) -> list[SimulatedQuery]:
    """A query as formula 5 is printed: an instance takes what came with its hop, whatever was processed before; a tuple takes
    longer the larger the window, as in a join or a sorted window. The load is that of the default."""
    created, spans = sliding(packets, hop, hop, seconds)
    costs = drawn_costs(packets, seconds, len(created), 0.99 * at_load * size / SIZE, 0.01 * at_load * HOP)
    return [SimulatedQuery(DeadlineQuery("q", deadline, incremental=False), created, spans, costs)]


def doubled(query: SimulatedQuery, packets: Floats, change: float) -> DrawnCosts:
    place = int(np.searchsorted(packets, change))
    later = np.maximum(np.arange(len(packets) + 1), place)
    costs = query.costs
    return DrawnCosts(
        costs.new + costs.new[later] - costs.new[place],
        costs.expired + costs.expired[later] - costs.expired[place],
        costs.maintenance * np.where(query.created >= change, 2.0, 1.0),
    )
