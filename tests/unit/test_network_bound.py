"""What the bound of early answers says about a stream of which a known part never arrives."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from penstock.operators.windows.slack import RequiredSlack
from penstock.plan.windows import Aggregate, ErrorBound, WindowPlan, Windows
from penstock_lab.simulate.disorder import SECOND, Arrivals
from penstock_lab.simulate.networks.settings import NetworkSettings
from penstock_lab.simulate.networks.trace import NetworkTrace, simulate
from penstock_lab.simulate.windows import exact, play

#: so thin that one packet in six never comes, and others come by ten seconds late
SETTINGS = NetworkSettings(nodes=15, sources=5, load=40.0, max_speed=20.0, seconds=900.0, seed=7)
BOUND = ErrorBound(0.05, 0.1)
#: windows answered before the bound is promised
UNPROMISED = 15

Values = dict[int, float]


@pytest.fixture(scope="module")
def trace() -> NetworkTrace:
    return simulate(SETTINGS)


def _answers(trace: NetworkTrace, aggregate: Aggregate) -> tuple[Values, Values, Values]:
    """By start of a window: its early answer where the bound was promised, its answer over what arrived, and over what was created."""
    plan = WindowPlan("v", "t", Windows(3 * SECOND, 3 * SECOND), (), (aggregate,), BOUND)
    arrived, created = (
        Arrivals(
            "network",
            packets["created"].to_numpy(),
            packets[clock].to_numpy(),
            packets.select(["value"]),
        )
        for packets, clock in ((trace.arrivals(), "arrived"), (trace.packets, "created"))
    )
    played, _ = play(arrived, plan, RequiredSlack(BOUND), SECOND, 0)
    early, final, whole = (
        dict(zip(rows["start"].to_pylist(), rows["_a0"].to_pylist(), strict=True))
        for rows in (played.early, played.final, exact(created, plan))
    )
    return dict(list(early.items())[UNPROMISED:]), final, whole


def _errors(early: Values, truth: Values) -> npt.NDArray[np.float64]:
    return np.array([abs(value - truth[start]) / abs(truth[start]) for start, value in early.items()])


def test_a_count_is_within_the_bound_of_what_arrives_and_beyond_it_of_what_was_measured(
    trace: NetworkTrace,
) -> None:
    early, final, whole = _answers(trace, Aggregate("count", None, pa.int64()))
    of_arrived, of_created = _errors(early, final), _errors(early, whole)
    missing = _errors({start: final[start] for start in early}, whole)
    assert len(early) > 250
    # a share of delta, as far as so many windows can tell
    # every worker loads this module, and loading that one takes more than a second
    from scipy.stats import binom

    assert np.sum(of_arrived >= BOUND.epsilon) <= binom.ppf(0.975, len(early), BOUND.delta)
    # what the network loses is no lateness: no slack waits it out, and nothing tells of it
    assert np.mean(missing >= BOUND.epsilon) > 0.4
    assert np.mean(of_created >= BOUND.epsilon) > 0.4
    assert np.all(of_created <= of_arrived + missing + 1e-12)
    # a window of which nothing arrives is not answered at all
    assert whole.keys() - final.keys()


def test_a_mean_suffers_less_as_what_is_lost_is_like_what_arrives(trace: NetworkTrace) -> None:
    early, final, whole = _answers(trace, Aggregate("avg", "value", pa.float64()))
    assert np.mean(_errors(early, final) >= BOUND.epsilon) < BOUND.delta
    assert BOUND.delta < np.mean(_errors(early, whole) >= BOUND.epsilon) < 0.3
