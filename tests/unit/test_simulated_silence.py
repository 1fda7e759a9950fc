"""In virtual time, too, a silent stream moves on with the clock."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from penstock.operators.windows.slack_policies import FixedSlack
from penstock.plan.windows import Aggregate, ErrorBound, WindowPlan, Windows
from penstock_lab.simulate.disorder import SECOND, Arrivals
from penstock_lab.simulate.windows import Played, play

MINUTE = 60 * SECOND
PLAN = WindowPlan(
    "v", "t", Windows(MINUTE, MINUTE), (), (Aggregate("count", None, pa.int64()),), ErrorBound(0.05, 0.05)
)


def _evening_and_morning(idle: int) -> Played:
    """A tuple a second for ten minutes, an hour of nothing, and ten minutes more; the evening's last tuple comes after half an hour."""
    evening = np.arange(0, 10 * MINUTE, SECOND)
    event = np.concatenate([evening, evening[-1:], evening + 70 * MINUTE])
    arrival = event.copy()
    arrival[len(evening)] += 30 * MINUTE
    arrivals = Arrivals("night", event, arrival, pa.table({"t": event}))
    played, _ = play(arrivals, PLAN, FixedSlack(2 * MINUTE), MINUTE // 2, MINUTE, idle=idle)
    return played


@pytest.mark.parametrize(("idle", "waited"), [(SECOND, 2.5), (0, 60.5)])
def test_the_evenings_last_window_is_answered_by_night_or_in_the_morning(idle: int, waited: float) -> None:
    played = _evening_and_morning(idle)
    last = played.early.filter(pa.compute.equal(played.early.column("end"), 10 * MINUTE)).to_pylist()
    assert len(last) == 1
    assert last[0]["slack"] / MINUTE == pytest.approx(waited, abs=0.6)
    assert last[0]["_a0"] == (60 if idle else 61)


def test_what_is_final_is_the_same_whether_silence_was_answered_or_not() -> None:
    one, other = (_evening_and_morning(idle).final.sort_by("end") for idle in (SECOND, 0))
    assert one.select(["end", "_a0"]) == other.select(["end", "_a0"])
    assert one.filter(pa.compute.equal(one.column("end"), 10 * MINUTE)).column("_a0").to_pylist() == [61]
