"""Nine queries of equal cost with three deadlines and three allowances in each, as in figure 6 of Wu, Gu, Lyu and Yu."""

from __future__ import annotations

import numpy as np
import pytest

from deadline_cases import played, simulated
from penstock.control.policies.deadlines.disciplines import EDF, PAPER, Discipline
from penstock_lab.simulate.deadlines import Outcome

DEADLINES, ALLOWANCES = (2.0, 4.0, 6.0), ((1, 4), (1, 6), (1, 8))
SECONDS, TUPLES = 300, 10


def _satisfied(discipline: Discipline, load: float) -> np.ndarray:
    """Shares of windows in time, a row for each deadline, a column for each allowance."""
    random = np.random.default_rng(1)
    queries = [
        simulated(
            f"{deadline}{constraint}",
            random.poisson(TUPLES, SECONDS).tolist(),
            size=3,
            deadline=deadline,
            constraint=constraint,
            unit=load / (9 * TUPLES),
        )
        for deadline in DEADLINES
        for constraint in ALLOWANCES
    ]
    result, _, _ = played(queries, discipline)
    shares = [(result.queries[each.query.name].outcomes == Outcome.RELEASED).mean() for each in queries]
    return np.array(shares).reshape(3, 3)


@pytest.mark.parametrize("load", [1.3, 1.6, 2.0])
def test_edf_treats_allowances_alike_and_does_not_starve_long_deadlines(load: float) -> None:
    """The paper saw EDF starve long deadlines. Here they wait until they are the earliest, and short ones are late by then."""
    shares = _satisfied(EDF, load)
    assert np.ptp(shares, axis=1).max() <= 0.15
    assert shares[2].min() >= 0.95
    assert shares[0].max() <= 0.05


@pytest.mark.parametrize("load", [1.6, 2.0])
def test_the_papers_rule_satisfies_tighter_allowances_more_within_a_deadline(load: float) -> None:
    shares = _satisfied(PAPER, load)
    assert (np.diff(shares, axis=1) >= -0.05).all()
    assert (shares[:, 2] - shares[:, 0]).max() >= 0.4
    assert shares[:, 2].min() >= 0.4
