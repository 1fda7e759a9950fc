"""What is stored of a shard: it is no pickle, and does not grow with the stream's age."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pytest

from penstock.operators.windows.aggregates import Parts
from penstock.operators.windows.content import Content
from penstock.operators.windows.operator import PaneBatch, WindowOperator
from penstock.operators.windows.panes import PANE
from penstock.operators.windows.shard import PARTIALS, Envelope, LogRecord, OperatorPlan, Shard, WindowProgram
from penstock.operators.windows.slack import SlackPolicy, WindowOutcome
from penstock.operators.windows.stored import packed, unpacked
from penstock.plan.windows import Aggregate, ErrorBound, WindowPlan, Windows
from window_cases import stream_of

BOUND = ErrorBound(0.05, 0.05)
SUM = Aggregate("sum", "v", pa.float64())
VIEW = WindowPlan("v", "t", Windows(20, 5), (("k", pa.int64()),), (SUM,), BOUND)
PARTS = Parts.of(VIEW.aggregates)


def partials(times: np.ndarray, groups: np.ndarray) -> pa.Table:
    tuples = pa.table({PANE: times // 5 * 5, "k": groups, "v": np.ones(len(times))})
    return PARTS.lift(tuples, [PANE, "k"])


@pytest.mark.parametrize("groups", [3, pytest.param(400, marks=pytest.mark.long)])
def test_what_is_stored_in_each_batch_does_not_grow_with_age(groups: int) -> None:
    """Late tuples, silence and answers beforehand, and far more windows than a policy remembers."""
    rng = np.random.default_rng(3)
    program = WindowProgram(
        0, (OperatorPlan(0, (VIEW,), PARTS, 5),), gamma=10, least_horizon=60, most_delay=100
    )
    shard, sizes, newest = Shard(), [], 0
    for step in range(900):
        count = 5 if groups == 3 else 800
        delay = np.where(rng.random(count) < 0.2, rng.integers(0, 60, count), 0)
        times = step * 5 + rng.integers(0, 5, count) - delay
        newest = max(newest, int(times.max()))
        envelope = Envelope(0, PARTIALS, stream_of(partials(times, rng.integers(0, groups, count))))
        shard.process(LogRecord(program, newest, delay, False, [envelope]))
        if rng.random() < 0.1:
            nothing = np.zeros(0, np.int64)
            shard.process(
                LogRecord(program, newest, nothing, False, [], reached=newest + 40, answer_all=True)
            )
        list(shard.take_changes())
        shard.take_beyond()
        sizes.append(len(shard.scalars()))
    tenth = len(sizes) // 10
    # a policy forgets once it remembers 400 windows
    assert max(sizes[-tenth:]) <= 1.1 * max(sizes[7 * tenth : 8 * tenth])


@dataclass
class Listener(SlackPolicy):
    """A policy that keeps what it hears; its slack is set from outside."""

    slack: int = 0
    outlasts_horizon: bool = False
    open: set[int] = field(default_factory=set)

    def known(self, outcome: WindowOutcome, age: int, *, final: bool = False) -> None:  # noqa: ARG002
        self.open.add(outcome.end)
        if final:
            self.open.remove(outcome.end)


def test_a_policy_does_not_hear_of_a_window_that_is_still_open() -> None:
    """Final as soon as it closes, the window would never be heard of again, and stay in the policy's memory."""
    listener = Listener()
    operator = WindowOperator([(VIEW, listener)], gamma=0)

    def feed(*times: int) -> None:
        now = np.array(times)
        rows = partials(now, np.zeros(len(times), np.int64))
        operator.process(PaneBatch(rows, {}, max(times), np.zeros(len(times), np.int64)))

    feed(1)
    operator.process(PaneBatch(None, {}, 1, np.zeros(0, np.int64), answer_all=True))
    listener.slack = 1_000
    feed(35)
    feed(39)
    feed(60)
    assert all(end > operator.newest - operator.horizon for end in listener.open)


def test_a_stored_part_is_a_line_of_json_and_arrow() -> None:
    table = pa.table({"a": [1, 2, 3], "b": ["x", None, "z"]})
    stored = packed({"": table.slice(1), "other": table.slice(0, 0)}, {"entry": "7"}, b"\n{rest")
    line = json.loads(stored.partition(b"\n")[0])
    assert line == {"format": 7, "tables": ["", "other"], "entry": "7"}
    found = unpacked(stored)
    assert found.tables == {"": table.slice(1), "other": table.slice(0, 0)}
    assert (found.header, found.rest) == ({"entry": "7"}, b"\n{rest")
    assert len(packed({"": pa.table({"a": range(100_000)}).slice(5, 1)})) < 1_000, "of a slice its own rows"


def test_a_pane_s_piece_is_read_as_it_was_stored() -> None:
    rows = pa.table({"k": [1, 2], "arrival": [5, 5], "rows": [1, 1], "hll:v": [b"\x00\xff", None]})
    again = Content.loaded(Content(rows, {"v": rows.slice(1)}).stored())
    assert again.partials == rows
    assert again.values == {"v": rows.slice(1)}
