"""Window operators that begin after other batches of their stream: what they have not seen they never call final."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pytest

from penstock.operators.windows.aggregates import Parts
from penstock.operators.windows.answers import Answer
from penstock.operators.windows.operator import PaneBatch, WindowOperator
from penstock.operators.windows.panes import PANE
from penstock.operators.windows.shard import PARTIALS, Envelope, LogRecord, OperatorPlan, Shard, WindowProgram
from penstock.operators.windows.slack import RequiredSlack, SlackPolicy, WindowOutcome
from penstock.operators.windows.slack_policies import FixedSlack
from penstock.plan.times import BEFORE_ALL
from penstock.plan.windows import Aggregate, ErrorBound, WindowPlan, Windows
from window_cases import StoredPanes, store, stream_of

BOUND = ErrorBound(0.05, 0.05)
SUM = Aggregate("sum", "v", pa.float64())
COUNT = Aggregate("count", None, pa.int64())
VIEW = WindowPlan("v", "t", Windows(20, 5), (), (COUNT, SUM), BOUND)
PARTS = Parts.of(VIEW.aggregates)


def partials(times: np.ndarray) -> pa.Table:
    tuples = pa.table({PANE: times // 5 * 5, "v": times.astype(np.float64)})
    return PARTS.lift(tuples, [PANE])


def batches(number: int) -> list[np.ndarray]:
    """Tuples that are up to 30 late."""
    rng = np.random.default_rng(4)
    return [step * 4 + rng.integers(-30, 5, 12) for step in range(number)]


def feed(operator: WindowOperator, times: np.ndarray, newest: int) -> list[Answer]:
    delays = np.maximum(newest - times, 0)
    return operator.process(PaneBatch(partials(times), {}, max(newest, int(times.max())), delays))


def make_whole(operator: WindowOperator, earlier: Sequence[np.ndarray]) -> list[Answer]:
    nothing = np.zeros(0, np.int64)
    rows = partials(np.concatenate(earlier))
    return operator.process(PaneBatch(rows, {}, operator.newest, nothing, flush=True, makes_whole=True))


def newest_rows(answers: Sequence[Answer]) -> dict[int, list[dict[str, object]]]:
    return {answer.end: answer.rows.to_pylist() for answer in answers}


@dataclass
class Pupil(SlackPolicy):
    """A policy that keeps what it hears."""

    slack: int = 0
    promised: bool = True
    heard: list[int] = field(default_factory=list)

    def known(self, outcome: WindowOutcome, age: int, *, final: bool = False) -> None:  # noqa: ARG002
        self.heard.append(outcome.end)


@pytest.mark.parametrize("begun_at", [12, 25])
@pytest.mark.parametrize("whole_after", [1, 6, 30])
@pytest.mark.parametrize("slack", [0, 15])
def test_windows_are_final_once_whole_and_then_like_those_seen_from_the_start(
    begun_at: int, whole_after: int, slack: int
) -> None:
    every = batches(60)
    before, after = every[:begun_at], every[begun_at:]
    since = max(int(times.max()) for times in before)
    pupil = Pupil(slack)
    operator = WindowOperator([(VIEW, pupil)], gamma=10, least_horizon=60, since=since)
    answers: list[Answer] = []
    for number, times in enumerate(after):
        assert operator.newest is not None
        answers += feed(operator, times, operator.newest)
        if number + 1 == whole_after:
            unseen = [answer for answer in answers if answer.start <= since]
            assert unseen or whole_after == 1
            assert not any(a.final or a.promised or a.coverage is not None for a in unseen)
            counted = operator.late.registered
            answers += make_whole(operator, before)
            assert operator.late.registered == counted
    answers += operator.finish()

    expected = {}
    for end in range(-40, 300, 5):
        rows = np.concatenate(every)
        own = rows[(rows >= end - 20) & (rows < end)]
        if end > since and len(own):
            expected[end] = (len(own), float(own.sum()))
    final = {a.end: (a.rows["_a0"][0].as_py(), a.rows["_a1"][0].as_py()) for a in answers if a.final}
    assert final == expected
    assert all(answer.coverage == 1 for answer in answers if answer.final)
    assert len([a for a in answers if a.final]) == len(final), "final is said once"
    assert min(pupil.heard) - 20 > since, "what came when is not known of windows before"


def test_without_the_earlier_batches_windows_stay_as_they_are_for_good() -> None:
    every = batches(80)
    since = max(int(times.max()) for times in every[:20])
    operator = WindowOperator([(VIEW, RequiredSlack(BOUND))], gamma=0, since=since)
    answers: list[Answer] = []
    for times in every[20:]:
        assert operator.newest is not None
        answers += feed(operator, times, operator.newest)
    answers += operator.finish()
    unseen = [answer for answer in answers if answer.start <= since]
    assert {answer.end for answer in unseen} == set(range(since // 5 * 5 + 5, since + 21, 5))
    assert not any(answer.final or answer.promised or answer.coverage for answer in unseen)
    assert {answer.final for answer in answers if answer.start > since} >= {True}
    assert operator.late.before == sum(
        1
        for times in every[20:]
        for time in times
        for end in range(time // 5 * 5 + 5, time + 21, 5)
        if end <= since
    )
    assert max(operator.panes) <= since + 20 or min(p for p in operator.panes if p > since + 20) > since + 100


@pytest.mark.parametrize("floor", [BEFORE_ALL, 20, 45])
def test_a_floor_says_which_windows_are_answered(floor: int) -> None:
    every = batches(40)
    since = max(int(times.max()) for times in every[:20])
    operator = WindowOperator([(VIEW, FixedSlack(0))], gamma=0, since=since, floors={"v": floor})
    feed(operator, every[20], since)
    answers = make_whole(operator, every[:20])
    for times in every[21:]:
        assert operator.newest is not None
        answers += feed(operator, times, operator.newest)
    answers += operator.finish()
    tuples = np.concatenate(every)
    final = {answer.end: answer.rows["_a0"][0].as_py() for answer in answers if answer.final}
    assert final == {
        end: count
        for end in range(-40, 200, 5)
        if end > floor and (count := int(((tuples >= end - 20) & (tuples < end)).sum()))
    }


def test_a_restored_shard_knows_what_it_has_not_seen() -> None:
    every = batches(50)
    since = max(int(times.max()) for times in every[:20])
    plan = OperatorPlan(3, (VIEW,), PARTS, 5, since, (("v", since),))
    program = WindowProgram(1, (plan,), gamma=0, least_horizon=0)
    straight, interrupted = Shard(), Shard()
    stored: StoredPanes = {}
    newest = since
    for number, times in enumerate(every[20:]):
        rows = np.concatenate(every[:20]) if number == 7 else times
        newest = max(newest, int(times.max())) if number != 7 else newest
        envelope = Envelope(3, PARTIALS, stream_of(partials(rows)))
        whole = (3,) if number == 7 else ()
        record = LogRecord(program, newest, np.zeros(0, np.int64), False, [envelope], bool(whole), whole)
        told = [
            [(a.end, a.revision, a.final, a.coverage, a.rows.to_pylist()) for a in shard.process(record)]
            for shard in (straight, interrupted)
        ]
        assert told[0] == told[1]
        store(interrupted, stored)
        interrupted = Shard.restored(interrupted.scalars(), stored, {program.version: program}.__getitem__)
