"""Batches that move a stream on far beyond the ends of windows do not say which of their tuples were late."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from penstock.operators.windows.operator import PaneBatch, WindowOperator
from penstock.operators.windows.panes import PANE
from penstock.operators.windows.slack import RequiredSlack
from penstock.plan.windows import Aggregate, ErrorBound, WindowPlan, Windows

PLAN = WindowPlan(
    "v", "t", Windows(10, 10), (), (Aggregate("count", None, pa.int64()),), ErrorBound(0.05, 0.1)
)


def begun() -> tuple[WindowOperator, RequiredSlack]:
    policy = RequiredSlack.of(PLAN)
    return WindowOperator([(PLAN, policy)], gamma=10**9), policy


def feed(operator: WindowOperator, times: np.ndarray) -> None:
    """One batch."""
    before = int(times.min()) if operator.newest is None else operator.newest
    tuples = pa.table({PANE: times // 10 * 10})
    delays = np.maximum(before - times, 0)
    operator.process(PaneBatch(operator.parts.lift(tuples, [PANE]), {}, int(times.max()), delays))


def disordered(begin: int, end: int) -> np.ndarray:
    """A tuple a moment, every fifth 25 later than the others, in order of arrival."""
    times = np.arange(begin, end)
    return times[np.argsort(times + np.where(times % 5 == 0, 25, 0), kind="stable")]


def test_a_batch_of_many_windows_teaches_nothing_of_lateness_inside_it() -> None:
    operator, policy = begun()
    feed(operator, disordered(0, 10_000))
    feed(operator, np.arange(10_000, 10_010))
    assert not policy.promised
    assert len(policy.memory.sizes) <= 10_000 // 256 // 10 + 1


def test_catching_up_leaves_what_was_learned_from_small_batches() -> None:
    operator, policy = begun()
    for batch in np.split(disordered(0, 2_000), 400):
        feed(operator, batch)
    known, slack = len(policy.memory.sizes), policy.slack
    assert policy.promised
    assert 10 < slack <= 30
    feed(operator, disordered(2_000, 20_000))
    for batch in np.split(disordered(20_000, 20_200), 40):
        feed(operator, batch)
    assert policy.slack == pytest.approx(slack, abs=5)
    assert len(policy.memory.sizes) <= known + 40


def test_windows_that_a_long_batch_brings_nothing_of_are_learned_from() -> None:
    operator, policy = begun()
    for time in range(0, 100):
        feed(operator, np.array([time]))
    feed(operator, np.array([1_000]))
    # the last window of before the gap
    assert 100 in operator.views["v"].judge.state.watched or len(policy.memory.sizes)


def test_large_batches_become_what_batches_are_like() -> None:
    operator, policy = begun()
    for begin in range(0, 10_000, 50):
        feed(operator, np.arange(begin, begin + 50))
    assert policy.promised
    assert policy.slack <= 50
    assert len(policy.memory.sizes) == 60  # all that are remembered
