"""Arrivals before a window's first possible answer are merged: nothing that is said of any window depends on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from unittest import mock

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from forms import examples
from penstock.operators.windows import pane, panes
from penstock.operators.windows.aggregates import Parts, lift_values
from penstock.operators.windows.answers import Answer
from penstock.operators.windows.panes import PANE, Panes
from penstock.operators.windows.shard import (
    PARTIALS,
    VALUES,
    Envelope,
    LogRecord,
    OperatorPlan,
    Shard,
    WindowProgram,
)
from penstock.operators.windows.slack import RequiredSlack, WindowOutcome
from penstock.plan.windows import Aggregate, ErrorBound, WindowPlan, Windows
from window_cases import StoredPanes, store, stream_of

BOUND = ErrorBound(0.1, 0.4)
AGGREGATES = (
    Aggregate("count", None, pa.int64()),
    Aggregate("sum", "value", pa.float64()),
    Aggregate("max", "value", pa.float64()),
    Aggregate("count_distinct", "value", pa.int64()),
    Aggregate("percentile", "value", pa.float64(), 0.5),
    Aggregate("approx_count_distinct", "value", pa.int64(), accuracy=0.05),
)


@dataclass(frozen=True, slots=True)
class Step:
    """A record of the log and the tuples it brings, in any order."""

    record: LogRecord
    times: np.ndarray
    keys: np.ndarray
    values: np.ndarray


@st.composite
def streams(draw: st.DrawFn) -> list[Step]:
    """Two views, tuples that are late, silence with answers beforehand."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    slide = draw(st.sampled_from([5, 10, 30]))
    # with sketches and without
    aggregates = AGGREGATES[: draw(st.sampled_from([len(AGGREGATES), len(AGGREGATES) - 1]))]
    parts = Parts.of(aggregates)
    views = tuple(
        WindowPlan(
            f"v{n}",
            "t",
            Windows(slide * draw(st.integers(1, 4)), slide),
            (("k", pa.int64()),),
            aggregates,
            BOUND,
        )
        for n in range(2)
    )
    plan = OperatorPlan(0, views, parts, slide)
    program = WindowProgram(0, (plan,), draw(st.integers(0, 30)), draw(st.sampled_from([0, 40])))
    late, silent, advance = (
        draw(st.sampled_from([0.0, 0.3])),
        draw(st.sampled_from([0.0, 0.4])),
        rng.integers(1, 5),
    )
    steps: list[Step] = []
    newest: int | None = None
    for step in range(draw(st.integers(3, 50))):
        nothing = np.zeros(0, np.int64)
        if newest is not None and rng.random() < silent:
            reached, every = newest + int(rng.integers(0, 90)), bool(rng.random() < 0.3)
            record = LogRecord(program, newest, nothing, False, [], False, (), reached, every)
            steps.append(Step(record, nothing, nothing, np.zeros(0)))
            continue
        count = int(rng.integers(1, 8))
        times = step * advance + rng.integers(0, 4, count)
        times -= np.where(rng.random(count) < late, rng.integers(0, 60, count), 0)
        keys, values = rng.integers(0, 3, count), rng.integers(-3, 9, count).astype(np.float64)
        reached_by = np.maximum.accumulate(np.append(times[0] if newest is None else newest, times))[1:]
        newest = int(reached_by[-1])
        tuples = pa.table({PANE: times // slide * slide, "k": keys, "value": values})
        tables = {PARTIALS: parts.lift(tuples, [PANE, "k"])}
        tables |= {VALUES + name: lift_values(tuples, [PANE, "k"], name) for name in parts.values}
        envelopes = [Envelope(0, kind, stream_of(table)) for kind, table in tables.items()]
        steps.append(
            Step(LogRecord(program, newest, reached_by - times, False, envelopes), times, keys, values)
        )
    steps[-1] = replace(steps[-1], record=replace(steps[-1].record, ended=True))
    return steps


@dataclass(slots=True)
class Oracle:
    """All tuples with the stamp of their arrival, and what was said of each window: so many results a group."""

    results: int
    arrival: int | None = None
    newest: int | None = None
    times: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    keys: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    values: np.ndarray = field(default_factory=lambda: np.zeros(0))
    stamps: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    said: dict[tuple[str, int], dict[int, tuple[float, ...]]] = field(default_factory=dict)

    def arrive(self, step: Step, slide: int) -> None:
        newest = step.record.newest
        assert newest is not None
        if self.arrival is None:
            self.arrival = min([newest, *(step.times // slide * slide).tolist()]) - 1
        else:
            assert self.newest is not None
            self.arrival = max(self.arrival + 1, self.newest)
        self.newest = newest
        self.times = np.append(self.times, step.times)
        self.keys = np.append(self.keys, step.keys)
        self.values = np.append(self.values, step.values)
        self.stamps = np.append(self.stamps, np.full(len(step.times), self.arrival))

    def hear(self, answer: Answer) -> None:
        rows, replaced = _by_key(answer.rows), _by_key(answer.replaced)
        said = self.said.get((answer.view, answer.end), {})
        assert replaced == {key: said[key] for key in rows if key in said}
        assert answer.final or all(said.get(key) != row for key, row in rows.items())
        self.said[answer.view, answer.end] = rows if answer.final else said | rows

    def rows(self, start: int, end: int, until: int) -> dict[int, tuple[float, ...]]:
        """The window's results from what had arrived by then."""
        own = (self.times >= start) & (self.times < end) & (self.stamps <= until)
        return {
            key: _results(self.values[own & (self.keys == key)])[: self.results]
            for key in np.unique(self.keys[own]).tolist()
        }

    def required(self, start: int, end: int) -> list[int]:
        """The least slack of each group from which on no error reaches epsilon."""
        found = []
        own = (self.times >= start) & (self.times < end)
        for key in np.unique(self.keys[own]).tolist():
            values, stamps = (each[own & (self.keys == key)] for each in (self.values, self.stamps))
            candidates = sorted({0, *(max(0, int(stamp) - end + 1) for stamp in stamps)})
            least = 0
            for slack, following in zip(candidates, [*candidates[1:], None], strict=True):
                if _is_violated(values[stamps < end + slack], values):
                    assert following is not None, "an answer from all tuples has no error"
                    least = following
            found.append(least)
        return sorted(found)


def _by_key(rows: pa.Table) -> dict[int, tuple[float, ...]]:
    aggregates = [name for name in rows.column_names if name.startswith("_a")]
    columns = [rows.column(name).to_pylist() for name in ("k", *aggregates)]
    return {key: tuple(map(float, row)) for key, *row in zip(*columns, strict=True)}


def _results(values: np.ndarray) -> tuple[float, ...]:
    distinct = len(set(values.tolist()))
    return len(values), values.sum(), values.max(), distinct, float(np.median(values)), distinct


def _is_violated(early: np.ndarray, final: np.ndarray) -> bool:
    if not len(early):
        return True
    return any(
        first != last and (last == 0 or abs(first - last) / abs(last) >= BOUND.epsilon)
        for first, last in zip(_results(early), _results(final), strict=True)
    )


@contextmanager
def hearing() -> Iterator[list[WindowOutcome]]:
    """What policies are told of final windows."""
    heard: list[WindowOutcome] = []
    known = RequiredSlack.known

    def listen(policy: RequiredSlack, outcome: WindowOutcome, age: int, *, final: bool = False) -> None:
        if final:
            heard.append(outcome)
        known(policy, outcome, age, final=final)

    with mock.patch.object(RequiredSlack, "known", listen):
        yield heard


def content_of(shard: Shard) -> dict[int, list[str]]:
    """The rows of all panes, with their arrivals."""
    own = shard._operators[0].panes._panes if shard._operators else {}
    return {
        start: sorted(
            map(str, [*each.content.partials.to_pylist(), *each.content.values["value"].to_pylist()])
        )
        for start, each in own.items()
    }


def said_by(answer: Answer) -> tuple[object, ...]:
    """What an answer says, and what it replaces."""
    rows, replaced = (sorted(map(str, table.to_pylist())) for table in (answer.rows, answer.replaced))
    return answer.view, answer.end, answer.revision, answer.final, rows, replaced


@settings(max_examples=examples(40), deadline=None)
@given(streams(), st.sampled_from([(1, 2), (4, 3), (256, 16)]), st.integers(1, 4))
def test_answers_and_required_slacks_are_those_of_the_tuples(
    steps: list[Step], limits: tuple[int, int], stored_every: int
) -> None:
    program = steps[0].record.program
    views = {view.name: view.windows for view in program.operators[0].views}
    oracle = Oracle(len(program.operators[0].views[0].aggregates))
    shard, stored = Shard(), StoredPanes()
    undisturbed, undisturbed_store = Shard(), StoredPanes()
    with (
        mock.patch.object(pane, "_LEAST_ROWS", limits[0]),
        mock.patch.object(pane, "_MOST_ARRIVALS", limits[1]),
        mock.patch.object(pane, "_SMALL_BYTES", 500),
        mock.patch.object(panes, "_FEW_ROWS", limits[0] - 1),
        mock.patch.object(panes, "_ROWS_A_GROUP", 1),
    ):
        for number, step in enumerate(steps):
            oracle.arrive(step, program.operators[0].pane)
            with hearing() as heard:
                answers = shard.process(step.record)
            for answer in answers:
                oracle.hear(answer)
            at = oracle.arrival
            assert at is not None
            for answer in answers:
                if answer.final:
                    assert oracle.said[answer.view, answer.end] == oracle.rows(answer.start, answer.end, at)
            for name, view in shard._operators[0].views.items():
                size = views[name].size
                for end, told in view.windows.state.told.items():
                    if (name, end) in oracle.said:
                        assert oracle.said[name, end] == oracle.rows(end - size, end, told.arrival)
            expected = Counter(
                (answer.end, tuple(oracle.required(answer.start, answer.end)))
                for answer in answers
                if answer.final
            )
            assert Counter((each.end, tuple(sorted(each.required.tolist()))) for each in heard) <= expected

            # what is remembered from step to step says the same as what is read
            assert list(map(said_by, undisturbed.process(step.record))) == list(map(said_by, answers))
            assert content_of(shard) == content_of(undisturbed)
            assert shard.scalars() == undisturbed.scalars()
            store(shard, stored)
            if number % stored_every == 0:
                store(undisturbed, undisturbed_store)
            shard = Shard.restored(shard.scalars(), stored, {0: program}.__getitem__)


@settings(max_examples=examples(20), deadline=None)
@given(streams())
def test_it_is_as_if_no_arrivals_were_merged(steps: list[Step]) -> None:
    """Whatever an operator remembers, coverage, slack and debt included."""

    def remembered() -> list[bytes]:
        shard, found = Shard(), []
        for step in steps:
            shard.process(step.record)
            found.append(shard.scalars())
        return found

    with mock.patch.object(pane, "_LEAST_ROWS", 1), mock.patch.object(pane, "_MOST_ARRIVALS", 2):
        merged = remembered()
    with mock.patch.object(Panes, "merge_arrivals"):
        assert remembered() == merged
