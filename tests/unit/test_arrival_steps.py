"""A batch cut into arrival steps is to windows what as many small batches are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from hypothesis import event, given, settings
from hypothesis import strategies as st

from forms import examples
from penstock.operators.windows.aggregates import Parts
from penstock.operators.windows.answers import Answer
from penstock.operators.windows.arrival_steps import (
    OffsetSteps,
    StepTimes,
    file_steps,
    merged_by_step,
    steps_told,
    times_by_step,
)
from penstock.operators.windows.clocks import StreamTime
from penstock.operators.windows.event_times import event_times
from penstock.operators.windows.pane_plan import PaneColumn, PanePlan, PaneProgram
from penstock.operators.windows.pane_stage import PaneStage
from penstock.operators.windows.satisfied import Satisfied
from penstock.operators.windows.shard import LogRecord, OperatorPlan, Shard, WindowProgram
from penstock.operators.windows.shard_state import read_state
from penstock.plan.times import AFTER_ALL, BEFORE_ALL
from penstock.plan.windows import Aggregate, ErrorBound, WindowPlan, Windows
from penstock.spark.log.entries import Entry

PLAN = WindowPlan(
    "v",
    "t",
    Windows(20, 10),
    (("_k0", pa.int64()),),
    (Aggregate("count", None, pa.int64()), Aggregate("percentile", "_x0", pa.float64(), 0.5)),
    ErrorBound(0.1, 0.2),
)
PARTS = Parts.of(PLAN.aggregates)
SHORT = WindowProgram(0, (OperatorPlan(7, (PLAN,), PARTS, 10),), gamma=5, least_horizon=0)
#: no window is final or corrected before the end
LONG = replace(SHORT, gamma=1_000, least_horizon=1_000)
MAP_STAGE = PaneProgram(
    "t",
    (
        PanePlan(
            7,
            (),
            (PaneColumn("k", "_k0", pa.int64()),),
            (PaneColumn("v", "_x0", pa.float64()),),
            (),
            PARTS,
            10,
            0,
        ),
    ),
    1,
)
tuples = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 2)), min_size=1, max_size=80)


def record(
    times: Sequence[int],
    keys: Sequence[int],
    steps: Sequence[int],
    before: int | None,
    tasks: int = 1,
    program: WindowProgram = SHORT,
) -> LogRecord:
    """A batch of tuples, dealt out to tasks; one step: it has none."""
    stages = [PaneStage(MAP_STAGE) for _ in range(tasks)]
    found: dict[int, StepTimes] = {}
    envelopes = []
    for task, stage in enumerate(stages):
        own = slice(task, None, tasks)
        moments, numbers = np.array(times[own], np.int64), np.array(steps[own], np.int8)
        has_steps = len(set(steps)) > 1
        stage.begin(has_steps=has_steps)
        if not len(moments):
            continue
        batch = pa.record_batch(
            {
                "t": pa.array(moments, pa.timestamp("us", "UTC")),
                "k": pa.array(keys[own], pa.int64()),
                "v": pa.array(moments % 7, pa.float64()),
            }
        )
        taken = event_times(batch.column("t"), AFTER_ALL)
        stage.add(batch, taken, Satisfied.none(batch.num_rows), numbers if has_steps else None)
        if has_steps:
            found = merged_by_step(found, times_by_step(taken.values, numbers, BEFORE_ALL))
        envelopes += [envelope for _, envelope in stage.envelopes()]
    newest = max(times) if before is None else max(before, *times)
    delay = 0 if before is None else max(0, before - min(times))
    return LogRecord(
        program, newest, np.array([delay]), False, envelopes, steps=steps_told(found, before), flush=True
    )


def groups(answers: Sequence[Answer]) -> dict[tuple[int, int], tuple[int, float]]:
    """The final results by window and group."""
    return {
        (answer.end, row["_k0"]): (row["_a0"], row["_a1"])
        for answer in answers
        if answer.final
        for row in answer.rows.to_pylist()
    }


def learned(shard: Shard) -> tuple[StreamTime, dict[tuple[int, int], list[int]]]:
    """What a shard knows of time, and of (window, arrival) what slack its groups needed by what had arrived by then."""
    operator = read_state(shard.scalars()).operators[7]
    required = {
        (end, each.heard): each.outcome.required.tolist()
        for end, each in operator.views["v"].judged.watched.items()
        if each.outcome is not None
    }
    return operator.time, required


def ended(program: WindowProgram) -> LogRecord:
    return LogRecord(program, None, np.zeros(0, np.int64), True, [])


@settings(max_examples=examples(60), deadline=None)
@given(tuples, st.integers(1, 6), st.integers(1, 3))
def test_steps_of_one_batch_leave_what_as_many_batches_leave(
    rows: list[tuple[int, int]], number: int, tasks: int
) -> None:
    times, keys = [each for each, _ in rows], [each for _, each in rows]
    steps = sorted(place * number // len(rows) for place in range(len(rows)))
    apart, together = Shard(), Shard()
    answers = together.process(record(times, keys, steps, None, tasks, LONG))
    others: list[Answer] = []
    newest = None
    for step in sorted(set(steps)):
        own = [place for place, each in enumerate(steps) if each == step]
        batch = record([times[n] for n in own], [keys[n] for n in own], [0] * len(own), newest)
        is_last = step == steps[-1]
        others += apart.process(LogRecord(LONG, batch.newest, batch.delays, False, batch.envelopes, is_last))
        newest = batch.newest
    (time, required), (other_time, other_required) = learned(together), learned(apart)
    assert time == other_time
    both = required.keys() & other_required.keys()
    assert {place: required[place] for place in both} == {place: other_required[place] for place in both}
    event("windows that both heard of" if both else "no window that both heard of")
    answers += together.process(ended(LONG))
    others += apart.process(ended(LONG))
    assert groups(answers) == groups(others)


@settings(max_examples=examples(60), deadline=None)
@given(tuples, tuples, st.integers(1, 6))
def test_final_answers_are_those_over_all_tuples_whatever_the_steps(
    first: list[tuple[int, int]], second: list[tuple[int, int]], number: int
) -> None:
    shard = Shard()
    answers = []
    newest = None
    for rows in (first, second):
        steps = [place * number // len(rows) for place in range(len(rows))]
        program = SHORT if rows is second else LONG
        batch = record([t for t, _ in rows], [k for _, k in rows], steps, newest, program=program)
        answers += shard.process(batch)
        newest = batch.newest
    answers += shard.process(ended(SHORT))
    assert shard.take_beyond() == []
    expected = Counter((end, key) for time, key in first + second for end in PLAN.windows.ends(time))
    assert {place: count for place, (count, _) in groups(answers).items()} == expected
    told = Counter((answer.end, answer.revision) for answer in answers)
    assert set(told.values()) == {1}


@given(tuples)
def test_a_batch_of_one_step_has_no_steps_in_its_entry(rows: list[tuple[int, int]]) -> None:
    times = [each for each, _ in rows]
    assert not record(times, times, [3] * len(rows), None).steps


def test_of_windows_that_begin_and_are_final_in_one_batch_only_the_final_answer_is_given() -> None:
    shard = Shard()
    shard.process(record([0], [0], [0], None))
    times = list(range(1, 400))
    answers = shard.process(record(times, [0] * 399, [place // 25 for place in range(399)], 0))
    finals = [answer for answer in answers if answer.final]
    assert finals
    assert all(answer.revision == 0 and not answer.replaced.num_rows for answer in finals)
    assert len({answer.end for answer in answers}) == len(answers)


def test_a_batch_tells_of_a_window_once_whatever_its_steps() -> None:
    shard = Shard()
    program = replace(LONG, gamma=0)
    shard.process(record([0], [0], [0], None, program=program))
    times = [place + late for place in range(0, 400, 4) for late in (0, -40, -60)]
    batch = record(times, [0] * len(times), [place // 12 for place in range(len(times))], 0, program=program)
    answers = shard.process(batch)
    corrected = Counter(answer.end for answer in answers if answer.revision)
    assert corrected
    assert set(Counter(answer.end for answer in answers).values()) == {1}


def test_rows_without_a_step_are_of_the_last_one() -> None:
    stepped = record([5, 25, 45], [0, 0, 0], [0, 1, 2], None)
    plain = record([6], [0], [0], None)
    both = LogRecord(
        SHORT, 45, stepped.delays, False, [*plain.envelopes, *stepped.envelopes], steps=stepped.steps
    )
    alone, shard = Shard(), Shard()
    alone.process(replace(stepped, program=LONG))
    shard.process(replace(both, program=LONG))
    assert learned(alone)[1] == {(10, -1): [0], (20, -1): [0]}
    # the step before the last one had come to 25
    assert learned(shard)[1] == {(10, 25): [16], (20, 25): [6]}


def test_rows_of_a_step_that_the_entry_does_not_tell_of_are_taken_in_all_the_same() -> None:
    stepped = record([5, 25, 45, 46], [0] * 4, [0, 1, 2, 3], None)
    told = [step for step in stepped.steps if step.number in (0, 2)]
    shard = Shard()
    answers = shard.process(replace(stepped, steps=told)) + shard.process(ended(SHORT))
    expected = Counter((end, 0) for time in (5, 25, 45, 46) for end in PLAN.windows.ends(time))
    assert {place: count for place, (count, _) in groups(answers).items()} == expected


def test_delays_of_a_step_are_by_what_came_before_it() -> None:
    times = {1: StepTimes(0, 50, 0), 2: StepTimes(-100, 40, 45), 4: StepTimes(60, 70, None)}
    steps = steps_told(times, 20)
    assert [(each.number, each.newest, each.delays) for each in steps] == [
        (1, 50, (20,)),
        (2, 50, (150, 5)),
        (4, 70, (0,)),
    ]


def test_an_entry_keeps_its_steps_and_one_of_before_has_none() -> None:
    steps = steps_told({0: StepTimes(1, 2, 1), 3: StepTimes(0, 5, 0)}, 1)
    entry = Entry(3, 3, 0, 3, 5, steps=steps)
    assert Entry.of(entry.document(), Path("log")) == entry
    document = Entry(3, 3, 0, 3, 5).document()
    assert "steps" not in document
    assert Entry.of(document, Path("log")).steps == ()


def test_steps_are_equal_parts_of_each_partition() -> None:
    steps = OffsetSteps({(None, 0): (100, 108), (None, 1): (0, 1), (None, 2): (7, 7)}, 4)
    partitions = np.array([0, 0, 0, 0, 1, 2, 9])
    offsets = np.array([100, 102, 105, 107, 0, 7, 3])
    assert steps.of(None, partitions, offsets).tolist() == [0, 1, 2, 3, 2, 3, 3]
    topics = OffsetSteps({("a", 0): (0, 2), ("b", 0): (0, 4)}, 2)
    found = topics.of(pa.array(["a", "b", "b"]), np.zeros(3, np.int64), np.array([1, 1, 2]))
    assert found.tolist() == [1, 0, 1]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 100)), min_size=1), st.integers(1, 16))
def test_steps_of_files_follow_their_times(files: list[tuple[int, int]], number: int) -> None:
    steps = file_steps(files, number)
    assert all(0 <= step < number for step in steps)
    order = sorted(zip((time for time, _ in files), steps, strict=True))
    assert [step for _, step in order] == sorted(steps)
