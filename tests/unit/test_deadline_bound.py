"""The clairvoyant bound, against trying everything."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest

from deadline_cases import played, simulated
from penstock.control.policies.deadlines.planning import PlannedDiscipline
from penstock.simulate.deadline_bound import least_violations, satisfied_bound
from penstock.simulate.deadlines import SimulatedQuery, jain, violations


def in_time(jobs: Sequence[tuple[float, float, float]]) -> bool:
    """Whether jobs of (release, deadline, seconds) can all be in time on one processor, preempted at will: for each release and
    deadline, what has to be done between them has room."""
    return all(
        sum(c for r, d, c in jobs if r >= begin and d <= end) <= end - begin + 1e-9
        for begin, _, _ in jobs
        for _, end, _ in jobs
        if end > begin
    )


def attainable(queries: Sequence[SimulatedQuery]) -> tuple[int, int]:
    """The most instances that can be in time and the fewest violations, by trying every subset; costs are what they are behind the
    ones chosen before."""
    most, fewest = 0, len(queries) * len(queries[0].created)
    places = [(query, number) for query in queries for number in range(len(query.created))]
    for chosen in product([False, True], repeat=len(places)):
        jobs, bases = [], dict.fromkeys(each.query.name for each in queries)
        for (query, number), taken in zip(places, chosen, strict=True):
            if not taken:
                continue
            name, span = query.query.name, query.spans[number]
            ways = [sum(query.costs.parts(number, span, None))]
            if query.query.incremental and bases[name] is not None:
                ways.append(sum(query.costs.parts(number, span, bases[name])))
            bases[name] = span
            created = float(query.created[number])
            jobs.append((created, created + query.query.deadline, min(ways)))
        lost = ~np.array(chosen).reshape(len(queries), -1)
        runs = sum(violations(own, each.query.constraint) for own, each in zip(lost, queries, strict=True))
        if (len(jobs) > most or runs < fewest) and in_time(jobs):
            most, fewest = max(most, len(jobs)), min(fewest, runs)
    return most, fewest


@pytest.mark.parametrize("incremental", [True, False])
def test_no_schedule_has_more_or_violates_less(incremental: bool) -> None:
    rng = np.random.default_rng(8)
    gaps, needed = [], []
    for _ in range(12):
        queries = [
            simulated(
                f"q{n}",
                rng.integers(0, 5, 5).tolist(),
                3,
                float(rng.choice([1.0, 1.5, 2.0])),
                (1, 3),
                unit=float(rng.uniform(0.05, 0.4)),
                expired=0.1,
                maintenance=float(rng.uniform(0, 0.5)),
                incremental=incremental,
                first=1,
            )
            for n in range(2)
        ]
        optimum, fewest = attainable(queries)
        bound = satisfied_bound(queries, slot=0.5, steps=200)
        assert bound >= optimum - 1e-9
        gaps.append(bound - optimum)
        result, _, _ = played(queries, PlannedDiscipline())
        assert result.released <= optimum
        least = least_violations(queries, slot=0.5, steps=200)
        assert least <= fewest + 1e-9
        needed.append((least, fewest))
    # parts of instances count, and what is carried may be begun with the first instance that is passed over
    assert np.mean(gaps) < (1.5 if incremental else 0.6)
    assert sum(least for least, _ in needed) > 0.3 * sum(fewest for _, fewest in needed) > 0


def test_it_is_exact_where_no_part_of_an_instance_is_taken() -> None:
    """Twelve instances of a quarter of a second, all in one second: four."""
    queries = [simulated(f"q{n}", [1], 1, 1.0, unit=0.25) for n in range(12)]
    assert satisfied_bound(queries, slot=0.25, steps=300) == pytest.approx(4, abs=0.05)
    assert satisfied_bound(queries, processors=2, slot=0.25, steps=300) == pytest.approx(8, abs=0.1)


def test_all_of_a_load_that_fits() -> None:
    queries = [simulated("q", [1] * 20, 1, 1.0, unit=0.1)]
    assert satisfied_bound(queries, slot=0.5, steps=300) == pytest.approx(20, abs=0.2)


def test_jains_index() -> None:
    assert jain(np.array([0.0, 0.0])) == 1
    assert jain(np.array([1.0, 1.0])) == 1
    assert jain(np.array([1.0, 0.0, 0.0, 0.0])) == 0.25
