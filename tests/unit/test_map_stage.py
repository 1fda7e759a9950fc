"""What the map stage counts and hands on, by the meaning of each query: checked against the tuples one by one."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pyarrow as pa
import pytest

from penstock.operators.ingest.map_stage import MapStage
from penstock.operators.ingest.outcomes import Kind, Outcomes
from penstock.operators.ingest.stage_counts import StageCounts
from penstock.operators.ingest.stream_program import StreamProgram
from penstock.operators.selection.selector import Strategy, compile_selections
from penstock.operators.windows.aggregates import Parts
from penstock.operators.windows.pane_plan import PanePlan, PaneProgram
from penstock.plan.selection import Attribute, Query, SelectionSet, Term
from penstock.plan.value_sets import Interval, ValueSet
from penstock.settings import Settings

#: inclusive bounds of `a` by what satisfying them means, and of which view or condition
RANGES = {
    (Kind.VIEW, 0): (0, 40),
    (Kind.VIEW, 1): (30, 99),
    (Kind.CONDITION, 0): (10, 19),
    (Kind.CONDITION, 1): (15, 60),
    (Kind.VIEW_ERROR, 1): (5, 8),
    (Kind.CONDITION_ERROR, 1): (90, 95),
    (Kind.CONDITION_ERROR, 0): (70, 72),
}
#: conditions of the window operators
OPERATORS = (1, None, 0, 1)


def program() -> StreamProgram:
    queries = tuple(
        Query(f"q{number}", (Term(((0, ValueSet((Interval(low, high),))),)),))
        for number, (low, high) in enumerate(RANGES.values())
    )
    plan = compile_selections(SelectionSet((Attribute("a", pa.int64(), "`a`"),), queries))
    operators = tuple(
        PanePlan(number, () if selection is None else (selection,), (), (), (), Parts.of(()), 1_000, 0)
        for number, selection in enumerate(OPERATORS)
    )
    panes = PaneProgram("t", operators, 1)
    outcomes = Outcomes.numbered(2, 2, (1, 3, 2))
    return StreamProgram("s", 0, plan, outcomes, ("a", "t"), "t", None, Settings(), panes)


def batch(rows: int, seed: int) -> pa.RecordBatch:
    draws = np.random.default_rng(seed)
    times = pa.array(draws.integers(0, 10_000, rows)).cast(pa.timestamp("us", "UTC"))
    return pa.record_batch({"a": draws.integers(-5, 105, rows), "t": times})


def holds(values: list[int], kind: Kind, number: int) -> list[int]:
    low, high = RANGES[kind, number]
    return [row for row, value in enumerate(values) if low <= value <= high]


@pytest.mark.parametrize("rows", [0, 1, 5_000])
def test_each_match_is_counted_for_what_its_query_means(rows: int) -> None:
    stage = MapStage(program())
    assert stage.panes is not None
    given: list[list[int]] = []
    stage.panes.add = lambda _, __, selected, *_rest: given.extend(
        selected.rows_of(number).tolist() for number in range(2)
    )  # type: ignore[method-assign]
    tuples = batch(rows, 1)
    values = tuples.column("a").to_pylist()
    mask, queries = stage.process(tuples)
    views = [holds(values, Kind.VIEW, number) for number in range(2)]
    assert queries.to_pylist() == [
        found
        for row in range(rows)
        if (found := [f"q{number}" for number in range(2) if row in views[number]])
    ]
    assert np.flatnonzero(mask).tolist() == sorted({*views[0], *views[1]})
    conditions = [holds(values, Kind.CONDITION, number) for number in range(2)]
    assert given == conditions
    counts = stage.finish()
    assert counts.view_pairs.tolist() == [len(own) for own in views]
    lost = [len(holds(values, Kind.CONDITION_ERROR, number)) for number in range(2)]
    assert counts.view_errors.tolist() == [0, len(holds(values, Kind.VIEW_ERROR, 1))]
    assert counts.window_errors.tolist() == [lost[1], 0, lost[0], lost[1]]
    if rows > 1:
        assert all(lost), "errors of both conditions were drawn"


def test_the_counts_of_two_tasks_add_up_to_those_of_one() -> None:
    whole, first, second = (MapStage(program()) for _ in range(3))
    tuples = batch(9_000, 2)
    limits = {"time_limit": 9_900, "time_floor": 100, "kept_ahead": 50}
    for stage in (whole, first, second):
        stage.begin(**limits)
    whole.process(tuples)
    first.process(tuples.slice(0, 2_000))
    second.process(tuples.slice(2_000))
    none = StageCounts.none(program())
    added, known = none + first.finish() + second.finish(), whole.finish()
    by_time = ("index_tuples", "index_ns", "asc_tuples", "asc_tried", "asc_ns", "evaluations")
    by_task = ("encode_ns", "match_ns", "pane_ns", "write_ns", "middles", "coded", "coding_ns")
    measured = (*by_time, *by_task)
    for name in (each.name for each in fields(StageCounts) if each.name not in measured):
        assert np.array_equal(getattr(added, name), getattr(known, name)), name
    assert [times for times, _ in added.middles] == [2_000, 7_000]
    assert known.future_event_times > 0
    assert known.ahead_event_times > 0
    assert known.oldest_event_time is not None
    assert known.oldest_recent_event_time is not None
    assert known.oldest_event_time < 100 <= known.oldest_recent_event_time
    empty = none + StageCounts.none(program())
    assert (empty.oldest_event_time, empty.furthest_event_time, empty.tuples) == (None, None, 0)


@pytest.mark.parametrize(("strategy", "is_sampled"), [("index", False), ("auto", True), ("asc", True)])
def test_a_sample_is_taken_where_ascs_may_answer(strategy: Strategy, is_sampled: bool) -> None:
    stage = MapStage(replace(program(), settings=Settings(strategy=strategy)))
    stage.process(batch(100, 3))
    assert (stage.sample is not None) == is_sampled
    assert (stage.finish().coded > 0) == is_sampled
