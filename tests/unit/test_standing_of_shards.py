"""How a view stands is said by the shards that have windows of it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.operators.windows.aggregates import Parts
from penstock.operators.windows.panes import PANE
from penstock.operators.windows.shard import PARTIALS, Envelope, LogRecord, OperatorPlan, Shard, WindowProgram
from penstock.plan.windows import Aggregate, ErrorBound, WindowPlan, Windows
from penstock.spark.lanes.windows.standing import standing_of
from window_cases import stream_of

PLAN = WindowPlan(
    "v", "t", Windows(10, 10), (), (Aggregate("count", None, pa.int64()),), ErrorBound(0.1, 0.2)
)
PARTS = Parts.of(PLAN.aggregates)
PROGRAM = WindowProgram(0, (OperatorPlan(1, (PLAN,), PARTS, 10),), gamma=5, least_horizon=0)


def record(newest: int, envelopes: list[Envelope]) -> LogRecord:
    return LogRecord(PROGRAM, newest, np.array([0 if newest % 7 else 4]), False, envelopes)


def test_a_shard_without_groups_of_a_view_says_nothing_of_its_slack() -> None:
    """A view without keys has one group, in one shard; the others never hear of a window."""
    own, other = Shard(), Shard()
    for moment in range(400):
        tuples = pa.table({PANE: [moment // 10 * 10]})
        own.process(record(moment, [Envelope(1, PARTIALS, stream_of(PARTS.lift(tuples, [PANE])))]))
        other.process(record(moment, []))
        if not moment:
            assert not standing_of([other.standing()])["v"]["promised"]
    told = standing_of([own.standing(), other.standing()])["v"]
    assert own.standing()["v"].promised
    assert not other.standing()["v"].promised
    assert told["promised"]
    assert told["slack"] == own.standing()["v"].slack < other.standing()["v"].slack
