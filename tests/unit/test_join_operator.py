"""The join of a cut in a cell: what it holds in memory, what it costs, what it counts, and what it refuses."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from join_cases import TIME, rows_of, written
from penstock.kernels.partners import narrow
from penstock.operators.joins.as_of import CellAsOfJoin
from penstock.operators.joins.cell import CellJoin
from penstock.operators.joins.changes import DELETE, INSERT, Due
from penstock.operators.joins.left import CellLeftJoin
from penstock.operators.joins.tuples import InputRuns, RunSlice
from penstock.operators.routing.routers import Dimension, Grid, GridRouter, HashRouter
from penstock.operators.runs.run import Run, RunPlan, hash_numbers, merge_runs
from penstock.plan.joins import (
    JoinColumn,
    JoinInput,
    JoinKey,
    JoinOrder,
    JoinPlan,
    Method,
    OptionalJoin,
    ProbeOrder,
    ProbeStep,
    TimeBound,
)
from penstock.plan.times import BEFORE_ALL

ALL = (-1, 1 << 30)


def plan_of(kind: pa.DataType, within: int, others: Sequence[pa.DataType] = ()) -> JoinPlan:
    """Two streams `a` and `b` with a key `k` and a time `t`, and columns `x0`, `x1`, ... of the first one."""
    inputs = tuple(
        JoinInput(
            alias,
            alias,
            False,
            None,
            (
                JoinColumn(f"{alias}_k", "k", kind),
                JoinColumn(f"{alias}_t", "t", TIME),
                *(
                    JoinColumn(f"x{place}", "x", other)
                    for place, other in enumerate(others if alias == "a" else ())
                ),
            ),
            f"{alias}_t",
        )
        for alias in "ab"
    )
    keys = (JoinKey(("a_k", "b_k"), kind),)
    return JoinPlan("j", inputs, keys, (TimeBound(0, 1, -within, within),), (), (), ())


def order_of(method: Method, key: int | None = 0) -> JoinOrder:
    return JoinOrder(tuple(ProbeOrder(first, (ProbeStep(1 - first, method, key),)) for first in range(2)))


def run_of(alias: str, keys: pa.Array, times: Any, **others: pa.Array) -> Run:
    grid = Grid((Dimension("k", (str(keys.type),), 1),))
    columns = {f"{alias}_k": keys, f"{alias}_t": pa.array(times, pa.int64()).cast(TIME), **others}
    return written(
        pa.table(columns), RunPlan((f"{alias}_k",), f"{alias}_t", GridRouter(grid, ((f"{alias}_k",),)))
    )


def runs(new: Sequence[Run] = (), old: Sequence[Run] = ()) -> dict[int | None, InputRuns]:
    return {
        0: InputRuns(tuple(RunSlice(run, *ALL) for run in new), tuple(RunSlice(run, *ALL) for run in old))
    }


def test_a_hot_key_of_a_hundred_million_pairs_is_joined_in_bounded_memory() -> None:
    program = """
import resource
import numpy as np, pyarrow as pa
from test_join_operator import *

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10

def joined(rows):
    one = run_of("a", pa.array(np.zeros(rows, np.int64)), np.arange(rows))
    other = run_of("b", pa.array(np.zeros(10_000, np.int64)), np.arange(10_000))
    plan = plan_of(pa.int64(), 10_000)
    join = CellJoin(plan, order_of(Method.MERGE), 0, [runs([one]), runs(old=[other])], ["a_t", "b_k"])
    return max(batch.num_rows for batch in batches(join)), join.decoded.rows

def batches(join):
    yield from join.batches()

joined(10)
before = peak()
largest, pairs = joined(10_000)
print(largest, pairs, peak() - before)
"""
    folders = [Path(__file__).parent, Path(__file__).parents[1]]
    path = f"import sys; sys.path[:0] = {[str(folder) for folder in folders]}\n"
    done = subprocess.run([sys.executable, "-c", path + program], capture_output=True, text=True, check=True)
    largest, pairs, megabytes = map(int, done.stdout.split())
    assert pairs == 100_000_000
    assert largest <= 1 << 17
    assert megabytes < 32


@pytest.mark.parametrize("kind", [pa.int64(), pa.string()])
def test_nothing_of_the_window_is_copied(kind: pa.DataType) -> None:
    rows = 1_000_000
    rng = np.random.default_rng(0)

    def keys(numbers: Any) -> pa.Array:
        return pa.array(numbers, pa.int64()).cast(kind)

    old = run_of("b", keys(rng.integers(0, rows, rows)), rng.integers(0, 1_000, rows))
    sink = pa.BufferOutputStream()
    merge_runs([(0, old), (1, run_of("b", keys([5]), [0]))], sink)
    merged = Run(sink.getvalue())
    new = run_of("a", keys(np.arange(1_000)), np.zeros(1_000, np.int64))
    inputs = [runs([new]), {0: InputRuns((), (RunSlice(merged, -1, 0),))}]
    pairs = 0
    for measured in (False, True):
        join = CellJoin(
            plan_of(kind, 1_000), order_of(Method.MERGE), 0, inputs, ["a_t", "b_t"], piece_rows=1_000
        )
        tracemalloc.start()
        pairs = sum(batch.num_rows for batch in join.batches())
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        if measured:
            assert peak < 500_000
    # the row of entry 1 is looked at, but not meant
    step = join.steps[0][0]
    assert pairs == step.pairs == step.looked - 1 == join.decoded.rows
    assert (step.tuples, step.built) == (1_000, 0)


@pytest.mark.parametrize(
    ("method", "looked", "built"), [(Method.MERGE, 2, 0), (Method.HASH, 4, 5), (Method.NESTED, 8, 5)]
)
def test_what_a_step_looks_at_is_counted(method: Method, looked: int, built: int) -> None:
    new = run_of("a", pa.array([1, 1]), [10, 11])
    # of key 1 three pairs are in time; far away there is a tuple that no new one can meet
    old = run_of("b", pa.array([1, 1, 2, 3, 4, 1]), [9, 12, 10, 11, 10, 500])
    join = CellJoin(
        plan_of(pa.int64(), 1), order_of(method), 0, [runs([new]), runs(old=[old])], ["a_t", "b_t"]
    )
    assert sum(batch.num_rows for batch in join.batches()) == 2
    step = join.steps[0][0]
    assert (step.tuples, step.looked, step.pairs, step.built) == (2, looked, 2, built)


def test_a_burst_is_not_searched_by_nested_loops() -> None:
    rows = 3_000
    new = run_of("a", pa.array(np.arange(rows)), np.zeros(rows, np.int64))
    old = run_of("b", pa.array(np.arange(rows)), np.zeros(rows, np.int64))
    join = CellJoin(
        plan_of(pa.int64(), 1), order_of(Method.NESTED), 0, [runs([new]), runs(old=[old])], ["a_t", "b_t"]
    )
    assert sum(batch.num_rows for batch in join.batches()) == rows
    assert rows <= join.steps[0][0].looked < 3 * rows


def test_parts_out_of_time_are_not_looked_at() -> None:
    new = run_of("a", pa.array([1]), [1_000])
    old = [run_of("b", pa.array([1, 1]), [time, time + 9]) for time in range(0, 2_000, 10)]
    plan = plan_of(pa.int64(), 10)
    join = CellJoin(plan, order_of(Method.HASH), 0, [runs([new]), runs(old=old)], ["a_t", "b_t"])
    assert sum(batch.num_rows for batch in join.batches()) == 5
    assert join.steps[0][0].built == 5


def test_keys_whose_hashes_collide_are_told_apart() -> None:
    words = pa.array(np.char.add("word ", np.arange(400_000).astype(str)))
    numbers = hash_numbers(pa.table({"k": words}), ("k",))
    found, counts = np.unique(numbers, return_counts=True)
    alike = np.flatnonzero(numbers == found[counts > 1][0])
    assert len(alike) > 1, "among so many words some collide"
    keys = words.take(pa.array(alike))
    for method in Method:
        inputs = [runs([run_of("a", keys, [0] * len(keys))]), runs([run_of("b", keys, [0] * len(keys))])]
        join = CellJoin(plan_of(pa.string(), 0), order_of(method), 0, inputs, ["a_k", "b_k"])
        rows = [row for batch in join.batches() for row in rows_of(batch)]
        assert sorted(rows) == sorted(zip(keys.to_pylist(), keys.to_pylist(), strict=True))
        assert join.steps[0][0].looked == len(keys) ** 2


VALUES: dict[pa.DataType, list[Any]] = {
    pa.list_(pa.int32()): [[1, None], [], None, [2]],
    pa.struct([("a", pa.int8()), ("b", pa.string())]): [{"a": 1, "b": "x"}, None, {"a": None, "b": ""}, None],
    pa.map_(pa.string(), pa.int32()): [[("a", 1)], [], None, [("b", None)]],
    pa.large_string(): ["", None, "ä", "longer than a word"],
    pa.large_binary(): [b"", None, b"\0", b"longer than a word"],
    pa.binary(3): [b"abc", None, b"def", b"\0\0\0"],
    pa.decimal256(50, 2): [None, 1, 2, 3],
    pa.decimal128(38, 0): [None, 10**37, -1, 3],
    pa.bool_(): [True, None, False, True],
    pa.null(): [None] * 4,
    pa.int16(): [None, 1, -2, 3],
    pa.float32(): [None, 1.5, -2.0, 3.0],
    pa.duration("us"): [None, 1, 2, 3],
    pa.dictionary(pa.int8(), pa.string()): ["a", None, "b", "a"],
}


@pytest.mark.parametrize("kind", [*VALUES])
def test_columns_of_any_type_are_decoded(kind: pa.DataType) -> None:
    values = pa.array(VALUES[kind], kind)
    # rows of two runs, and of the middle of a buffer
    parts = [values.slice(1, 3), values.slice(0, 2)]
    new = [
        run_of("a", pa.array(range(len(part)), pa.int64()), [place] * len(part), x0=part)
        for place, part in enumerate(parts)
    ]
    other = run_of("b", pa.array([0, 1, 2, 1]), [0, 0, 0, 1])
    inputs = [runs(new), runs(old=[other])]
    join = CellJoin(plan_of(pa.int64(), 0, [kind]), order_of(Method.MERGE), 0, inputs, ["a_k", "a_t", "x0"])
    found = [row for batch in join.batches() for row in rows_of(batch)]
    expected = [(row, 0, value) for row, value in enumerate(parts[0].to_pylist())] + [
        (1, 1, parts[1][1].as_py())
    ]
    assert sorted(repr((k, int(t.timestamp() * 1e6), x)) for k, t, x in found) == sorted(map(repr, expected))
    for batch in join.batches():
        assert batch.schema.field("x0").type == kind
        batch.validate(full=True)


def test_batches_have_no_more_text_than_is_said() -> None:
    texts = pa.array(["x" * 1_000] * 50)
    new = run_of("a", pa.array(np.zeros(50, np.int64)), [0] * 50, x0=texts)
    other = run_of("b", pa.array([0, 0]), [0, 0])
    plan = plan_of(pa.int64(), 0, [pa.string()])
    join = CellJoin(
        plan, order_of(Method.MERGE), 0, [runs([new]), runs(old=[other])], ["x0"], text_bytes=7_000
    )
    sizes = [batch.num_rows for batch in join.batches()]
    assert sum(sizes) == 100
    assert max(sizes) <= 7


def test_times_at_the_end_of_time_have_no_partners_behind_it() -> None:
    times = np.array([-(2**63), -(2**63) + 1, 0, 2**63 - 2, 2**63 - 1])
    least, most = np.int64(-(2**63)), np.int64(2**63 - 1)

    def narrowed(lower: int, upper: int) -> list[tuple[int, int]]:
        low, high = np.full(5, least), np.full(5, most)
        narrow(times, lower, upper, low, high)
        return list(zip(low.tolist(), high.tolist(), strict=True))

    for lower, upper in [(-1, 1), (1, 2), (-2, -1), (0, 0)]:
        for (low, high), time in zip(narrowed(lower, upper), times.tolist(), strict=True):
            exact = range(max(time + lower, -(2**63)), min(time + upper, 2**63 - 1) + 1)
            assert (low, high) == (exact.start, exact.stop - 1) if exact else low > high


STEP = ProbeStep(1, Method.MERGE, 0)
RUN = run_of("a", pa.array([1]), [0])
OTHER = run_of("b", pa.array([1]), [0])
LEFT, ORDER = replace(plan_of(pa.int64(), 0), optional=(1,)), order_of(Method.MERGE)


@pytest.mark.parametrize(
    ("order", "inputs", "columns", "message"),
    [
        ([ProbeOrder(0, (STEP,))], [runs([RUN]), runs(old=[OTHER])], [], "columns none"),
        ([ProbeOrder(0, (STEP,))], [runs([RUN]), runs(old=[OTHER])], ["z"], "columns z"),
        ([ProbeOrder(0, (STEP,))], [runs([RUN])], ["a_k"], "2 inputs"),
        ([], [runs([RUN]), runs(old=[OTHER])], ["a_k"], r"new tuples of inputs \[0\]"),
        ([ProbeOrder(0, ())], [runs([RUN]), runs(old=[OTHER])], ["a_k"], "every input once"),
        (
            [ProbeOrder(0, (ProbeStep(1, Method.HASH, None),))],
            [runs([RUN]), runs(old=[OTHER])],
            ["a_k"],
            "no hash",
        ),
        (
            [ProbeOrder(0, (STEP,))],
            [runs([RUN]), {None: runs(old=[OTHER])[0]}],
            ["a_k"],
            r"sorted by its key; there are runs by \[None\]",
        ),
    ],
)
def test_an_order_that_does_not_fit_is_refused(
    order: list[ProbeOrder], inputs: list[Any], columns: list[str], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        CellJoin(plan_of(pa.int64(), 0), JoinOrder(tuple(order)), 0, inputs, columns)


@pytest.mark.parametrize(
    ("plan", "order"),
    [
        (plan_of(pa.int64(), 0), ORDER),
        (replace(LEFT, residual=("f(a_k, b_k)",)), ORDER),
        (LEFT, JoinOrder(ORDER.orders[1:])),
    ],
    ids=["inner", "left to Spark", "no order of the anchor"],
)
def test_a_left_join_whose_matches_kernels_do_not_judge_is_refused(plan: JoinPlan, order: JoinOrder) -> None:
    with pytest.raises(ValueError, match="j is not an outer join whose matches kernels judge"):
        CellLeftJoin(plan, order, 0, [runs([RUN]), runs([OTHER])], ["a_k"], Due(-1, 0), 0)


def test_one_partner_is_enough_to_have_one() -> None:
    old = run_of("a", pa.array([1, 2]), [0, 0])
    other = run_of("b", pa.array([1] * 1_000), [0] * 1_000)
    join = CellLeftJoin(LEFT, ORDER, 0, [runs(old=[old]), runs(old=[other])], ["a_k"], Due(-1, 0), 0)
    told = [row[:-1] for batch in join.batches() for row in rows_of(batch)]
    assert told == [(2, INSERT)]
    assert join.alone.looked == 1


@pytest.mark.parametrize(("lacks_before", "told"), [(0, [(1,)]), (1, [])])
def test_a_semi_join_tells_no_row_again_whose_partners_may_be_gone(
    lacks_before: int, told: list[tuple[int]]
) -> None:
    left, partner = run_of("a", pa.array([1]), [0]), run_of("b", pa.array([1]), [0])
    plan, inputs = replace(LEFT, kind=OptionalJoin.SEMI), [runs(old=[left]), runs([partner])]
    join = CellLeftJoin(plan, ORDER, 0, inputs, ["a_k"], None, 0, lacks_before=lacks_before)
    assert [row for batch in join.batches() for row in rows_of(batch)] == told


@pytest.mark.parametrize(("lacks_before", "ops"), [(5, [DELETE, INSERT]), (6, [])])
def test_an_as_of_join_leaves_rows_as_they_are_whose_partners_may_be_gone(
    lacks_before: int, ops: list[str]
) -> None:
    """The left row's partner of the time 7 is gone: a late one of the time 6 must not be told beside it."""
    left, late = run_of("a", pa.array([1]), [8]), run_of("b", pa.array([1]), [6])
    plan = replace(LEFT, kind=OptionalJoin.LEFT_AS_OF, bounds=(TimeBound(0, 1, -3, 0),))
    inputs = [runs(old=[left]), runs([late])]
    join = CellAsOfJoin(plan, ORDER, 0, inputs, ["a_k", "b_t"], Due(8, 8), 0, lacks_before=lacks_before)
    told = [op for batch in join.batches() for op in batch.column("op").to_pylist()]
    assert told == ops


@pytest.mark.parametrize("exact_from", [-(10**9), 0, 10**9])
@pytest.mark.parametrize("kind", [OptionalJoin.AS_OF, OptionalJoin.LEFT_AS_OF])
def test_partners_of_any_age_that_are_gone_are_so_before_1970_too(
    kind: OptionalJoin, exact_from: int
) -> None:
    """The base of versions is exact from a moment on; what it says of the left row before it is not known."""
    for moment, is_known in ((exact_from - 1, False), (exact_from, True)):
        left, late = run_of("a", pa.array([1]), [moment]), run_of("b", pa.array([1]), [moment - 5])
        plan = replace(LEFT, kind=kind, bounds=(TimeBound(0, 1, BEFORE_ALL, 0),))
        inputs, due = [runs(old=[left]), runs([late])], Due(moment, moment)
        join = CellAsOfJoin(
            plan, ORDER, 0, inputs, ["a_k", "b_t"], due, 0, lacks_before=exact_from + BEFORE_ALL
        )
        told = [op for batch in join.batches() for op in batch.column("op").to_pylist()]
        assert bool(told) == is_known


@pytest.mark.parametrize("first", [0, 1])
def test_versions_of_one_time_are_told_apart_by_nested_columns(first: int) -> None:
    """Whichever comes first; the row of the other one is another row."""
    values = pa.array([{"x": 1}, {"x": 2}], pa.struct([("x", pa.int64())]))
    plan = replace(LEFT, kind=OptionalJoin.AS_OF)
    right = replace(plan.inputs[1], columns=(*plan.inputs[1].columns, JoinColumn("b_s", "s", values.type)))
    plan = replace(plan, inputs=(plan.inputs[0], right))
    left = run_of("a", pa.array([1]), [0])
    both = [run_of("b", pa.array([1]), [0], b_s=values.slice(place, 1)) for place in (first, 1 - first)]
    told = []
    for new, old, due in (([both[0]], [], Due(-1, 0)), ([both[1]], [both[0]], Due(0, 0))):
        mine = runs([left]) if not old else runs(old=[left])
        join = CellAsOfJoin(plan, ORDER, 0, [mine, runs(new, old)], ["b_s"], due, 0)
        told += [row for batch in join.batches() for row in rows_of(batch)]
    there = Counter({(row[0]["x"], row[-1]): 0 for row in told})
    for value, op, name in told:
        there[value["x"], name] += 1 if op == INSERT else -1
    ((newest, _),) = [row for row, count in there.items() if count]
    assert newest == _newest_of(values, left, plan)


def _newest_of(values: pa.Array, left: Run, plan: JoinPlan) -> int:
    """What both versions at once say."""
    both = run_of("b", pa.array([1, 1]), [0, 0], b_s=values)
    join = CellAsOfJoin(plan, ORDER, 0, [runs([left]), runs([both])], ["b_s"], Due(-1, 0), 0)
    (row,) = [row for batch in join.batches() for row in rows_of(batch)]
    return int(row[0]["x"])


def test_rows_of_both_sides_of_a_full_join_have_names_of_their_own() -> None:
    run, other = run_of("a", pa.array([1]), [0]), run_of("b", pa.array([1]), [0])
    plan = replace(LEFT, kind=OptionalJoin.FULL)
    left = CellLeftJoin(plan, ORDER, 0, [runs([run]), runs()], ["a_k", "b_k"], Due(-1, 0), 0)
    inputs = [runs([other]), runs()]
    right = CellLeftJoin(plan.turned(), ORDER.turned(), 0, inputs, ["a_k", "b_k"], Due(-1, 0), 0, turned=True)
    (one,), (two,) = ([row for batch in each.batches() for row in rows_of(batch)] for each in (left, right))
    assert one[:-1] == (1, None, INSERT)
    assert two[:-1] == (None, 1, INSERT)
    assert one[-1] != two[-1]


def test_a_lane_withdraws_rows_of_its_own_and_of_no_other() -> None:
    left, partner = run_of("a", pa.array([1]), [0]), run_of("b", pa.array([1]), [0])

    def told(lane: int, inputs: list[Any], due: Due) -> dict[str, bytes]:
        join = CellLeftJoin(LEFT, ORDER, 0, inputs, ["a_k", "b_k"], due, lane)
        rows = [row for batch in join.batches() for row in rows_of(batch)]
        return {op: name for *_, op, name in rows if name is not None}

    alone = [told(lane, [runs([left]), runs()], Due(-1, 0))[INSERT] for lane in range(3)]
    gone = told(1, [runs(old=[left]), runs([partner])], Due(0, 0))[DELETE]
    assert [name == gone for name in alone] == [False, True, False]


def test_runs_that_are_not_dealt_out_along_a_grid_are_refused() -> None:
    columns = {"a_k": pa.array([1]), "a_t": pa.array([0], pa.int64()).cast(TIME)}
    run = written(pa.table(columns), RunPlan(("a_k",), "a_t", HashRouter(("a_k",), 2)))
    join = CellJoin(plan_of(pa.int64(), 0), order_of(Method.MERGE), 0, [runs([run]), runs([OTHER])], ["a_k"])
    with pytest.raises(ValueError, match="not along a grid"):
        next(join.batches())
