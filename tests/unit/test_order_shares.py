"""Shares of an order are disjoint and complete, and what they merge to is what one task computes from all tuples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forms import examples
from penstock.operators.deadlines.divisible import are_divisible
from penstock.operators.deadlines.instances import Extent, Tuples
from penstock.operators.deadlines.order import (
    OrderPlan,
    lift_share,
    merge_from_panes,
    merge_shares,
    work_out,
    work_out_merged,
)
from penstock.operators.deadlines.pane_partials import since
from penstock.operators.deadlines.run_tuples import WHOLE, Share, tuples_of
from penstock.operators.joins.tuples import RunSlice
from penstock.operators.python_values import python_values
from penstock.operators.routing.routers import HashRouter
from penstock.operators.runs.run import Run, RunPlan, merge_runs, write_run
from penstock.operators.windows.aggregates import FUNCTIONS
from penstock.operators.windows.content import Content
from penstock.plan.windows import Aggregate, ErrorBound, WindowPlan, Windows
from penstock.spark.lanes.deadlines.shares import LEAST_TUPLES, shares_for

SCHEMA = pa.schema(
    [
        ("ts", pa.timestamp("us", "UTC")),
        ("number", pa.int64()),
        ("k", pa.float64()),
        ("x", pa.int64()),
        ("d", pa.decimal128(30, 2)),
        ("f", pa.float64()),
        ("t", pa.string()),
    ]
)
DIVISIBLE = (
    Aggregate("count", None, pa.int64()),
    Aggregate("count", "f", pa.int64()),
    Aggregate("sum", "x", pa.int64()),
    Aggregate("avg", "x", pa.float64()),
    Aggregate("sum", "d", pa.decimal128(38, 2)),
    Aggregate("avg", "d", pa.decimal128(34, 6)),
    Aggregate("min", "f", pa.float64()),
    Aggregate("max", "t", pa.string()),
    Aggregate("bit_and", "x", pa.int64()),
    Aggregate("bit_or", "x", pa.int64()),
    Aggregate("bit_xor", "x", pa.int64()),
    Aggregate("max_by", "t", pa.string(), by="f"),
    Aggregate("min_by", "x", pa.int64(), by="t"),
    Aggregate("count_distinct", "f", pa.int64()),
    Aggregate("sum_distinct", "x", pa.int64()),
    Aggregate("avg_distinct", "d", pa.decimal128(34, 6)),
    Aggregate("mode", "t", pa.string()),
    Aggregate("collect_list", "f", pa.list_(pa.float64())),
    Aggregate("collect_set", "t", pa.list_(pa.string())),
    Aggregate("percentile", "f", pa.float64(), 0.25),
)
NOT_DIVISIBLE = (
    *(Aggregate(name, "f", pa.float64()) for name in ("sum", "avg", "sum_distinct", "avg_distinct")),
    *(Aggregate(name, "x", pa.float64()) for name in ("stddev_samp", "stddev_pop", "var_samp", "var_pop")),
    *(Aggregate(name, "x", pa.float64()) for name in ("skewness", "kurtosis")),
    *(Aggregate(name, "x", pa.float64(), by="x") for name in ("corr", "covar_pop", "covar_samp")),
    *(Aggregate(f"regr_{name}", "x", pa.float64(), by="x") for name in ("slope", "intercept", "r2")),
    *(Aggregate(f"regr_{name}", "x", pa.float64(), by="x") for name in ("sxx", "sxy", "syy")),
    Aggregate("approx_count_distinct", "x", pa.int64(), accuracy=0.05),
    Aggregate("approx_percentile", "x", pa.int64(), 0.5, 100),
)
KEYS = {(): (), ("k",): (("k", pa.float64()),), ("t", "k"): (("t", pa.string()), ("k", pa.float64()))}
PLAN = RunPlan((), "ts", HashRouter((), 1))
#: event time, key, values
rows = st.lists(
    st.tuples(
        st.integers(-3, 12),
        st.sampled_from([None, 0.0, -0.0, float("nan"), 1.0]),
        st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.integers(-3, 3)),
        st.one_of(st.none(), st.sampled_from(["", "a", "b", "ab"])),
        st.sampled_from([None, 0.0, -0.0, float("nan"), 0.1, 1e300, -1e-300, 0.3]),
    ),
    max_size=50,
)
#: how many runs there are, and how many of the first ones are merged into one
layouts = st.tuples(st.integers(1, 5), st.integers(0, 5))


def runs_of(found: Sequence[tuple[object, ...]], count: int, merged: int) -> list[RunSlice]:
    """A run a log entry, the first ones merged into one."""

    def written(number: int) -> Run:
        own = [(place, *row) for place, row in enumerate(found) if place % count == number]
        values = [row[3] for row in own]
        columns = [
            pa.array([row[1] for row in own], pa.int64()).cast(pa.timestamp("us", "UTC")),
            pa.array([row[0] for row in own], pa.int64()),
            pa.array([row[2] for row in own], pa.float64()),
            pa.array(values, pa.int64()),
            pa.array([None if x is None else Decimal(x) / 100 for x in values], pa.decimal128(30, 2)),  # type: ignore[arg-type]
            pa.array([row[5] for row in own], pa.float64()),
            pa.array([row[4] for row in own], pa.string()),
        ]
        sink = pa.BufferOutputStream()
        write_run(pa.table(columns, schema=SCHEMA), PLAN, sink)
        return Run(sink.getvalue())

    runs = [written(number) for number in range(count)]
    if merged < 2:
        return [RunSlice(run, number - 1, number) for number, run in enumerate(runs)]
    sink = pa.BufferOutputStream()
    merge_runs(list(enumerate(runs[:merged])), sink)
    last = min(merged, count) - 1
    # the first entry is not meant
    slices = [RunSlice(Run(sink.getvalue()), 0, last)]
    return slices + [RunSlice(run, last + at, last + at + 1) for at, run in enumerate(runs[merged:])]


def bag(table: pa.Table) -> Counter[tuple[object, ...]]:
    columns = [[repr(each) for each in python_values(column)] for column in table.columns]
    return Counter(zip(*columns, strict=True))


def numbers(tuples: Tuples) -> list[tuple[int, int, int]]:
    own = tuples.columns.column("number").to_pylist()
    return list(zip(own, tuples.times.tolist(), tuples.entries.tolist(), strict=True))


@settings(max_examples=examples(200), deadline=None)
@given(rows, layouts, st.integers(1, 7), st.integers(-4, 8), st.integers(1, 9))
def test_shares_are_disjoint_complete_and_equally_large(
    found: list[tuple[object, ...]], layout: tuple[int, int], count: int, start: int, size: int
) -> None:
    runs, extents = runs_of(found, *layout), [Extent(start, start + size, 9)]
    whole = numbers(tuples_of(runs, ["number"], extents))
    shares = [numbers(tuples_of(runs, ["number"], extents, Share(at, count))) for at in range(count)]
    every = [each for share in shares for each in share]
    assert len(set(every)) == len(every)
    assert sorted(every) == sorted(whole)
    if layout[1] < 2:
        # one more or less of each run
        assert max(map(len, shares)) - min(map(len, shares)) <= layout[0]


@settings(max_examples=examples(150), deadline=None)
@given(
    rows,
    layouts,
    st.integers(1, 4),
    st.sampled_from([(4, 4), (6, 2), (5, 3)]),
    st.sampled_from(list(KEYS)),
    st.integers(-2, 4),
    st.booleans(),
)
def test_merged_shares_are_what_one_task_computes(
    found: list[tuple[object, ...]],
    layout: tuple[int, int],
    count: int,
    shape: tuple[int, int],
    keys: tuple[str, ...],
    hop: int,
    by_pane: bool,
) -> None:
    windows = Windows(*shape)
    plan = OrderPlan(WindowPlan("v", "ts", windows, KEYS[keys], DIVISIBLE, ErrorBound(0.1, 0.1)))
    extent = Extent(hop * windows.slide, hop * windows.slide + windows.size, 9)
    runs = runs_of(found, *layout)
    afresh = work_out(plan, extent, tuples_of(runs, plan.columns, [extent]))
    read = since(extent) if by_pane else extent
    pieces, new = [], 0
    for number in range(count):
        share = tuples_of(runs, plan.columns, [read], Share(number, count))
        content, tuples = lift_share(plan, extent, share, by_pane=by_pane)
        pieces.append(Content.loaded(content.stored()))
        new += tuples
    merged, kept = merge_shares(plan, extent, pieces, new, -1 if by_pane else None)
    together = work_out_merged(plan, merged)
    assert together.rows.schema == afresh.rows.schema
    assert bag(together.rows) == bag(afresh.rows)
    if not by_pane:
        assert kept is None
        assert new == afresh.work.new
        return
    # a later order goes on from them
    assert kept is not None
    later = replace(extent, start=extent.start + windows.slide, end=extent.end + windows.slide, entries=10)
    assert kept.serves(later, -1)
    nothing = tuples_of([], plan.columns, [later])
    own = Tuples(tuples_of(runs, plan.columns, [later]).columns.slice(0, 0), nothing.times, nothing.entries)
    found_later = work_out_merged(plan, merge_from_panes(plan, later, own, -1, kept)[0])
    assert bag(found_later.rows) == bag(work_out(plan, later, tuples_of(runs, plan.columns, [later])).rows)


def test_every_aggregate_is_divisible_or_known_not_to_be() -> None:
    assert {each.function for each in (*DIVISIBLE, *NOT_DIVISIBLE)} == FUNCTIONS
    assert are_divisible(DIVISIBLE, SCHEMA)
    for each in NOT_DIVISIBLE:
        assert not are_divisible((*DIVISIBLE, each), SCHEMA), each


@pytest.mark.parametrize(
    ("tuples", "processors", "shares"),
    [
        (0, 3, 1),
        (2 * LEAST_TUPLES - 1, 3, 1),
        (2 * LEAST_TUPLES, 3, 2),
        (9 * LEAST_TUPLES, 3, 3),
        (9 * LEAST_TUPLES, 1, 1),
    ],
)
def test_a_share_has_the_least_number_of_tuples_and_a_processor(
    tuples: int, processors: int, shares: int
) -> None:
    assert shares_for(tuples, processors) == shares


def test_one_share_is_all() -> None:
    assert WHOLE.within(3, 11) == (3, 11)
    ends = np.array([Share(number, 3).within(3, 11) for number in range(3)])
    assert ends.ravel().tolist() == [3, 5, 5, 8, 8, 11]
