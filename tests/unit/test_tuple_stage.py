"""The tuples of a task that readers of the log asked for: each demand gets those of its condition, its columns of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.operators.ingest import tuple_stage
from penstock.operators.ingest.tuple_stage import TuplePlan, TupleProgram, TupleStage
from penstock.operators.routing.routers import HashRouter
from penstock.operators.runs.run import Run, RunPlan, write_run
from penstock.operators.windows.event_times import event_times
from penstock.operators.windows.pane_plan import PaneColumn
from penstock.operators.windows.satisfied import Satisfied

TIME = pa.timestamp("us", "UTC")
RUN = RunPlan(("k",), "ts", HashRouter(("k",), 2))
#: an INT kept as BIGINT, for the other input of the join has that
LARGE = TuplePlan(3, 0, (PaneColumn("a", "k", pa.int64()), PaneColumn("ts", "ts", TIME)), (), RUN)
ALL = TuplePlan(
    5,
    None,
    (PaneColumn("s", "k", pa.string()), PaneColumn("ts", "ts", TIME), PaneColumn("a", "v", pa.int32())),
    ("failed",),
    RUN,
)

rows = st.lists(
    st.tuples(
        st.one_of(st.none(), st.integers(-9, 9)),
        st.sampled_from(["x", "y", None]),
        st.integers(0, 99),
        st.booleans(),
    ),
    max_size=30,
)


def batch(tuples: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
    a, s, ts, failed = zip(*tuples, strict=True) if tuples else [()] * 4
    return pa.record_batch(
        {
            "a": pa.array(a, pa.int32()),
            "s": pa.array(s, pa.string()),
            "ts": pa.array(ts, TIME),
            "failed": pa.array(failed, pa.bool_()),
        }
    )


def satisfied(rows: int, chosen: Sequence[int]) -> Satisfied:
    """One condition, by the rows that satisfy it."""
    offsets = np.append(0, np.cumsum(np.isin(np.arange(rows), chosen)))
    return Satisfied.by_row(offsets, np.zeros(len(chosen), np.int32), 1)


@given(tuples=rows, cuts=st.lists(st.integers(0, 30)), held=st.integers(1, 20))
def test_each_demand_gets_its_tuples_once(tuples: list[tuple[Any, ...]], cuts: list[int], held: int) -> None:
    stage = TupleStage(TupleProgram((LARGE, ALL)))
    found: dict[int, Counter[Any]] = {LARGE.id: Counter(), ALL.id: Counter()}

    def take(*, all_held: bool) -> None:
        for plan, table in stage.runs(all_held=all_held):
            assert table.num_rows
            sink = pa.BufferOutputStream()
            write_run(table, plan.run, sink)
            run = Run(sink.getvalue())
            assert run.schema == pa.schema([(each.name, each.type) for each in plan.columns])
            for number in run.parts:
                part = run.part(number)
                assert part is not None
                found[plan.id].update(tuple(row.values()) for row in part.tuples.to_pylist())

    edges = sorted({0, len(tuples), *(min(cut, len(tuples)) for cut in cuts)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuple_stage, "_HELD_ROWS", held)
        for low, high in pairwise(edges):
            piece = batch(tuples).slice(low, high - low)
            chosen = [row for row, (a, *_) in enumerate(tuples[low:high]) if a is not None and a > 0]
            stage.add(piece, satisfied(piece.num_rows, chosen))
            take(all_held=False)
        take(all_held=True)
        take(all_held=True)
    times = batch(tuples).column("ts").to_pylist()
    whole = [(a, s, time, failed) for (a, s, _, failed), time in zip(tuples, times, strict=True)]
    assert found[3] == Counter((a, time) for a, _, time, _ in whole if a is not None and a > 0)
    assert found[5] == Counter((s, time, a) for a, s, time, failed in whole if not failed)
    assert stage.raised.tolist() == [0, sum(failed for *_, failed in tuples)]
    stage.begin()
    assert list(stage.runs(all_held=True)) == []


def test_what_is_too_far_ahead_is_kept_by_no_demand_and_what_has_no_time_is() -> None:
    piece = batch([(1, "x", 5, False), (2, "x", 99, False), (3, "y", None, False)])
    times = event_times(piece.column("ts"), limit=10, kept_ahead=10)
    assert times.future == 1
    stage = TupleStage(TupleProgram((LARGE, ALL)))
    stage.add(piece, satisfied(piece.num_rows, [0, 1, 2]), times.not_future)
    kept = {plan.id: table for plan, table in stage.runs(all_held=True)}
    assert kept[LARGE.id].column("k").to_pylist() == [1, 3]
    assert kept[ALL.id].column("v").to_pylist() == [1, 3]
    assert event_times(piece.column("ts"), limit=100).not_future is None


def test_a_program_names_the_columns_it_needs() -> None:
    program = TupleProgram((LARGE, ALL))
    assert program.columns == ("a", "ts", "s", "failed")
    assert program.wants_every_tuple
    assert not TupleProgram((LARGE,)).wants_every_tuple
