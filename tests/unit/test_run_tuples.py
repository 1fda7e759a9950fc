"""The tuples of an instance among sorted runs: those of its times, each once, with the entry it came with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from penstock.operators.deadlines.instances import Extent, Tuples
from penstock.operators.deadlines.run_tuples import tuples_of
from penstock.operators.joins.tuples import RunSlice
from penstock.operators.routing.routers import HashRouter
from penstock.operators.runs.run import Run, RunPlan, merge_runs, write_run

BY_TIME = RunPlan((), "t", HashRouter((), 1))


def _run(times: Sequence[int | None], entry: int, plan: RunPlan = BY_TIME) -> Run:
    """A run of one entry; x says time and entry of a tuple."""
    table = pa.table(
        {
            "t": pa.array(times, pa.timestamp("us")),
            "x": [f"{time}/{entry}" for time in times],
            "k": pa.array(range(len(times)), pa.int64()),
        }
    )
    sink = pa.BufferOutputStream()
    write_run(table, plan, sink)
    return Run(sink.getvalue())


def _merged(*sources: tuple[int, Run]) -> Run:
    sink = pa.BufferOutputStream()
    merge_runs(sources, sink)
    return Run(sink.getvalue())


def _told(tuples: Tuples) -> list[str]:
    assert tuples.columns.column_names == ["x"]
    found = tuples.columns.column("x").to_pylist()
    assert found == [f"{time}/{entry}" for time, entry in zip(tuples.times, tuples.entries, strict=True)]
    return sorted(found)


def test_tuples_are_found_by_time_in_runs_of_one_entry_and_in_merged_ones() -> None:
    first, second, third = _run([5, 1, None, 9, 5], 3), _run([4, 6, 20], 4), _run([5, 7], 7)
    merged = _merged((3, first), (4, second))
    within = [Extent(4, 7, 100)]
    expected = ["4/4", "5/3", "5/3", "5/7", "6/4"]
    single = [RunSlice(first, 2, 3), RunSlice(second, 3, 4), RunSlice(third, 6, 7)]
    assert _told(tuples_of(single, ["x"], within)) == expected
    assert _told(tuples_of([RunSlice(merged, -1, 4), RunSlice(third, 6, 7)], ["x"], within)) == expected


def test_of_a_merged_run_only_the_entries_that_are_meant_are_taken() -> None:
    merged = _merged((3, _run([5, 6], 3)), (4, _run([5, 6], 4)), (5, _run([5], 5)))
    within = [Extent(5, 6, 100)]
    assert _told(tuples_of([RunSlice(merged, 3, 5)], ["x"], within)) == ["5/4", "5/5"]
    assert _told(tuples_of([RunSlice(merged, -1, 3)], ["x"], within)) == ["5/3"]
    assert _told(tuples_of([RunSlice(merged, 5, 9)], ["x"], within)) == []


def test_extents_that_overlap_give_a_tuple_once_and_what_lies_between_others_is_left_out() -> None:
    run = RunSlice(_run(range(20), 0), -1, 0)
    assert _told(tuples_of([run], ["x"], [Extent(4, 7, 1), Extent(2, 5, 1)])) == [
        f"{n}/0" for n in range(2, 7)
    ]
    apart = tuples_of([run], ["x"], [Extent(9, 11, 1), Extent(2, 4, 1)])
    assert sorted(apart.times.tolist()) == [2, 3, 9, 10]
    rows = np.concatenate(
        [chunk.to_numpy(zero_copy_only=False) for chunk in apart.columns.column("x").chunks]
    )
    assert len(rows) == 4, "nothing else of the run is in the table"


def test_without_runs_there_are_no_tuples() -> None:
    found = tuples_of([], ["x"], [Extent(0, 9, 1)])
    assert (found.columns.num_rows, len(found.times), len(found.entries)) == (0, 0, 0)


def test_runs_that_cannot_be_read_by_time_are_refused() -> None:
    by_key = RunSlice(_run([1, 2], 0, RunPlan(("k",), "t", HashRouter((), 1))), -1, 0)
    with pytest.raises(ValueError, match=r"^a run is sorted by k; deadlines read runs sorted by event time$"):
        tuples_of([by_key], ["x"], [Extent(0, 9, 1)])
    with pytest.raises(ValueError, match=r"^a run has no column y; it has t, x, k$"):
        tuples_of([RunSlice(_run([1], 0), -1, 0)], ["y"], [Extent(0, 9, 1)])
