"""The clairvoyant bound, against trying everything."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest

from deadline_cases import played, simulated
from penstock.control.policies.deadlines.planning import PlannedDiscipline
from penstock_lab.simulate.deadline_bound import least_violations, satisfied_bound
from penstock_lab.simulate.deadlines import SimulatedQuery, jain, violations


def in_time(jobs: Sequence[tuple[float, float, float]]) -> bool:
    """Whether jobs of (release, deadline, seconds) can all be in time on one processor, preempted at will: for each release and
    deadline, what has to be done between them has room."""
    return all(
        sum(c for r, d, c in jobs if r >= begin and d <= end) <= end - begin + 1e-9
        for begin, _, _ in jobs
        for _, end, _ in jobs
        if end > begin
    )


def attainable(queries: Sequence[SimulatedQuery], late: bool = False) -> tuple[int, int]:
    """The most instances that can be in time and the fewest violations, by trying every subset; costs are what they are behind the
    ones chosen before.

    Args:
        queries: with as many instances each.
        late: instances may be worked out too late, too, so that the next one in time is carried from them.
    """
    each_count = len(queries[0].created)
    most, fewest = 0, len(queries) * each_count
    for chosen in product("-+~" if late else "-+", repeat=most + fewest):
        lost = np.array([each != "+" for each in chosen]).reshape(len(queries), -1)
        released = int((~lost).sum())
        runs = sum(violations(own, each.query.constraint) for own, each in zip(lost, queries, strict=True))
        if released <= most and runs >= fewest:
            continue
        jobs = [
            job
            for place, query in enumerate(queries)
            for job in jobs_of(query, chosen[place * each_count : (place + 1) * each_count])
        ]
        if in_time(jobs):
            most, fewest = max(most, released), min(fewest, runs)
    return most, fewest


def jobs_of(query: SimulatedQuery, chosen: Sequence[str]) -> list[tuple[float, float, float]]:
    """What is to be done of a query: (release, deadline, seconds) of what is in time (+) and of what is late (~), due with the next
    one that is in time."""
    jobs, base = [], None
    for number, taken in enumerate(chosen):
        following = next((later for later in range(number, len(chosen)) if chosen[later] == "+"), None)
        if taken == "-" or following is None:
            continue
        span = query.spans[number]
        ways = [sum(query.costs.parts(number, span, None))]
        if query.query.incremental and base is not None:
            ways.append(sum(query.costs.parts(number, span, base)))
        base = span
        due = float(query.created[following]) + query.query.deadline
        jobs.append((float(query.created[number]), due, min(ways)))
    return jobs


@pytest.mark.parametrize("incremental", [True, pytest.param(False, marks=pytest.mark.long)])
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


def test_nobody_gains_more_by_working_instances_out_late() -> None:
    """Bursts, and silence in between, in which what came can be worked out for a later instance."""
    rng = np.random.default_rng(5)
    gained = 0
    for _ in range(6):
        queries = [
            simulated(
                f"q{n}",
                rng.choice([0, 1, 6], 4).tolist(),
                3,
                float(rng.choice([0.5, 1.0])),
                (1, 3),
                unit=float(rng.uniform(0.1, 0.3)),
                expired=0.02,
                maintenance=float(rng.uniform(0, 0.3)),
                first=1,
            )
            for n in range(2)
        ]
        optimum, fewest = attainable(queries, late=True)
        gained += optimum - attainable(queries)[0]
        assert satisfied_bound(queries, slot=0.25, steps=200) >= optimum - 1e-9
        assert least_violations(queries, slot=0.25, steps=200) <= fewest + 1e-9
    assert gained > 0, "in some of them it pays to work one out late"


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
