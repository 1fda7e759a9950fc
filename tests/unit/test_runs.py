"""Sorted runs: what is written is what is read, sorted, in the right cells, mapped; merged runs hold the same tuples."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forms import examples
from penstock.errors import CheckpointError, DamagedError
from penstock.kernels.radix import radix_order
from penstock.operators.routing.routers import Dimension, Grid, GridRouter, HashRouter
from penstock.operators.runs.run import Run, RunPlan, merge_runs, write_run
from penstock.spark.log import runs
from penstock.spark.log.runs import merge_run_files, open_run, write_run_file

TIME = pa.timestamp("us", "UTC")
SCHEMA = pa.schema([("k", pa.int32()), ("name", pa.string()), ("ts", TIME), ("x", pa.float64())])
GRID = Grid((Dimension("k", ("int32",), 3), Dimension("name", ("string",), 2)))
PLANS = [
    RunPlan(("k",), "ts", HashRouter(("k",), 3)),
    RunPlan(("name",), "ts", HashRouter(("name",), 2)),
    RunPlan(("x", "k"), "ts", HashRouter(("x",), 4)),
    RunPlan(("x",), "ts", HashRouter(("x",), 2)),
    RunPlan((), "ts", HashRouter((), 1)),
    RunPlan(("k",), "ts", GridRouter(GRID, (("k",), ()))),
    RunPlan(("name", "k"), "ts", GridRouter(GRID, (("k",), ("name",)))),
]

rows = st.lists(
    st.tuples(
        st.one_of(st.none(), st.integers(-5, 5), st.sampled_from([-(2**31), 2**31 - 1])),
        st.one_of(st.none(), st.sampled_from(["", "a", "bc", "ä"])),
        st.one_of(st.none(), st.integers(-50, 50), st.sampled_from([-(2**63), 2**63 - 1])),
        st.one_of(st.none(), st.sampled_from([0.0, -0.0, 1.5, math.nan])),
    ),
    max_size=40,
)


def table(tuples: Sequence[tuple[Any, ...]]) -> pa.Table:
    columns = zip(*tuples, strict=True) if tuples else [()] * 4
    return pa.table(
        [pa.array(column, kind) for column, kind in zip(columns, SCHEMA.types, strict=True)], schema=SCHEMA
    )


def written(tuples: pa.Table, plan: RunPlan) -> Run:
    sink = pa.BufferOutputStream()
    assert write_run(tuples, plan, sink) == tuples.num_rows
    return Run(sink.getvalue())


def merged(sources: Sequence[tuple[int, Run]]) -> Run:
    sink = pa.BufferOutputStream()
    merge_runs(sources, sink)
    return Run(sink.getvalue())


def bag(batches: Sequence[pa.RecordBatch | pa.Table]) -> Counter[str]:
    plain = [batch.set_column(2, "ts", batch.column("ts").cast(pa.int64())) for batch in batches]
    return Counter(repr(row) for batch in plain for row in batch.to_pylist())


def check(run: Run, expected: pa.Table) -> None:
    """A run has these tuples, each part's sorted and summed up, each in its cells."""
    plan = run.plan
    parts = [run.part(number) for number in run.parts]
    assert bag([part.tuples for part in parts if part]) == bag([expected])
    for part in parts:
        assert part is not None
        summary = part.summary
        assert (
            plan.router.deal(pa.Table.from_batches([part.tuples])).tolist() == [summary.part] * summary.rows
        )
        found = summary.rows - summary.loose
        assert len(part.keys) == len(part.times) == found
        order = list(zip(part.keys.tolist(), part.times.tolist(), strict=True))
        assert order == sorted(order)
        columns = [part.tuples.column(name) for name in (*plan.key, plan.time)]
        whole = [all(column[row].is_valid for column in columns) for row in range(summary.rows)]
        assert whole == [True] * found + [False] * summary.loose
        times = part.tuples.column("ts").cast(pa.int64())
        assert part.times.tolist() == times.to_pylist()[:found]
        valid = times.drop_null().to_pylist()
        assert (summary.oldest, summary.newest) == (min(valid, default=None), max(valid, default=None))
        if len(plan.key) == 1:
            equal: dict[Any, Any] = {}
            for number, key in zip(part.keys.tolist(), columns[0].to_pylist()[:found], strict=True):
                canonical = repr(key + 0.0) if isinstance(key, float) else key
                assert equal.setdefault(canonical, number) == number
    for cell in range(plan.router.cells):
        expected_parts = [part for part in run.parts if cell in plan.router.cells_of(part)]
        assert [part.summary.part for part in run.cell(cell)] == expected_parts


@pytest.mark.parametrize("plan", PLANS)
@settings(max_examples=examples(40))
@given(tuples=rows)
def test_what_is_written_is_read(plan: RunPlan, tuples: list[tuple[Any, ...]]) -> None:
    run = written(table(tuples), plan)
    assert run.entries is None
    assert (run.plan, run.schema, run.rows) == (plan, SCHEMA, len(tuples))
    check(run, table(tuples))


@pytest.mark.parametrize("plan", PLANS)
@given(
    entries=st.lists(rows, min_size=1, max_size=5), bounds=st.tuples(st.integers(0, 12), st.integers(0, 12))
)
def test_merged_runs_hold_the_tuples_of_all_and_tell_the_entries_apart(
    plan: RunPlan, entries: list[list[tuple[Any, ...]]], bounds: tuple[int, int]
) -> None:
    # entries 3, 5, 7, ...: numbers need not follow each other, for not every entry has tuples
    numbered = [(3 + 2 * place, table(tuples)) for place, tuples in enumerate(entries)]
    runs = [(number, written(tuples, plan)) for number, tuples in numbered]
    whole = pa.concat_tables([tuples for _, tuples in numbered])
    # at once, and in two levels
    halves = [merged(part) for part in (runs[:2], runs[2:]) if part]
    for run in (merged(runs), merged([(0, half) for half in halves])):
        check(run, whole)
        assert run.entries == (3, 3 + 2 * (len(entries) - 1))
        after, until = bounds
        chosen = []
        for number in run.parts:
            part = run.part(number)
            assert part is not None
            mask = part.rows_of(after, until)
            assert mask is not None
            chosen.append(part.tuples.filter(pa.array(mask)))
        assert bag(chosen) == bag([tuples for number, tuples in numbered if after < number <= until])


@given(words=st.lists(st.integers(0, 2**64 - 1)), small=st.booleans())
def test_the_radix_order_is_that_of_a_stable_sort(words: list[int], small: bool) -> None:
    numbers = np.asarray([word % 50 if small else word for word in words], np.uint64)
    bits = int(numbers.max()).bit_length() if len(numbers) else 0
    start = np.arange(len(numbers), dtype=np.uint32)[::-1].copy()
    expected = sorted(start.tolist(), key=lambda row: int(numbers[row]))
    assert radix_order(numbers, bits, start).tolist() == expected


def test_other_types_of_keys_are_hashed_or_searched_as_they_are() -> None:
    times = pa.array([3, 1, 2], TIME)
    for values, kind, exact in [
        ([2, 1, 2], pa.int8(), True),
        ([2**63, 1, 2**64 - 1], pa.uint64(), True),
        ([3, 1, 2], pa.date32(), True),
        ([3, 1, 2], pa.duration("us"), True),
        ([True, None, False], pa.bool_(), False),
        ([Decimal("1.5"), Decimal("1.5"), None], pa.decimal128(5, 2), False),
        ([b"x", b"", b"x"], pa.binary(), False),
    ]:
        tuples = pa.table({"k": pa.array(values, kind), "ts": times})
        run = written(tuples, RunPlan(("k",), "ts", HashRouter((), 1)))
        part = run.part(0)
        assert part is not None
        assert run.is_exact is exact
        assert part.keys.tolist() == sorted(part.keys.tolist())
        assert Counter(part.tuples.column("k").to_pylist()) == Counter(tuples.column("k").to_pylist())


def test_nothing_is_copied(tmp_path: Path) -> None:
    tuples = table([(n % 7, "a", n, 0.5) for n in range(10_000)])
    path = tmp_path / "run.arrow"
    write_run_file(path, tuples, PLANS[0])
    run = open_run(path)
    before = pa.total_allocated_bytes()
    parts = [run.part(number) for number in run.parts]
    assert pa.total_allocated_bytes() == before
    mapped = run.part(0)
    assert mapped is not None
    assert sum(len(part.keys) for part in parts if part) == 10_000
    assert not mapped.keys.flags.owndata
    assert mapped.keys.ctypes.data == mapped.tuples.column("k").buffers()[1].address


def test_runs_of_other_tuples_are_not_merged() -> None:
    one, other = written(table([]), PLANS[0]), written(table([]), PLANS[1])
    with pytest.raises(ValueError, match="runs of different tuples"):
        merged([(0, one), (1, other)])


def test_a_file_that_is_no_whole_run_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "5-0-0.arrow"
    write_run_file(path, table([(n, "a", n, 0.5) for n in range(1_000)]), PLANS[0])
    content = path.read_bytes()
    for length in (0, 5, 100, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises(CheckpointError, match=r"5-0-0\.arrow"):
            open_run(path)
    path.write_bytes(b"PAR1" * 400)
    with pytest.raises(CheckpointError, match=r"5-0-0\.arrow.*does not end with a checksum"):
        open_run(path)
    with pa.ipc.new_file(path, SCHEMA) as writer:
        writer.write_table(table([(1, "a", 1, 1.0)]))
    runs._seal(path)
    with pytest.raises(CheckpointError, match="without the directory of a run"):
        open_run(path)
    directory = {"format": 2, "key": [], "time": "ts", "router": {}, "entries": None, "parts": []}
    for changed, message in [
        (directory, "format 2, this version reads 1"),
        ({"format": 1, "key": []}, "its directory cannot be read"),
        ({**directory, "format": 1}, "no router"),
        (
            {**directory, "format": 1, "router": HashRouter((), 1).document(), "parts": [[0, 1, 0, 1, 1]]},
            "has 1 parts, it has 0",
        ),
    ]:
        schema = SCHEMA.with_metadata({"penstock.run": json.dumps(changed)})
        pa.ipc.new_file(path, schema).close()
        runs._seal(path)
        with pytest.raises(CheckpointError, match=message):
            open_run(path)
    path.write_bytes(content)
    assert open_run(path).rows == 1_000
    with pytest.raises(DamagedError, match=r"gone\.arrow .* is missing"):
        open_run(tmp_path / "gone.arrow")


def test_files_are_merged_into_one(tmp_path: Path) -> None:
    tables = [table([(n, "a", n + 100 * entry, 0.5) for n in range(50)]) for entry in range(4)]
    sources = []
    for entry, tuples in enumerate(tables):
        sources.append((entry, tmp_path / f"{entry}.arrow"))
        write_run_file(sources[-1][1], tuples, PLANS[0])
    merge_run_files(sources, tmp_path / "all.arrow")
    check(open_run(tmp_path / "all.arrow"), pa.concat_tables(tables))
    # nothing unfinished stays
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "0.arrow",
        "1.arrow",
        "2.arrow",
        "3.arrow",
        "all.arrow",
    ]
