"""Windows merged from kept partials of panes equal those of all tuples, whatever came late, was lost or was kept."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forms import examples
from penstock.operators.deadlines.instances import Extent, Tuples
from penstock.operators.deadlines.order import OrderPlan, merge_from_panes, work_out, work_out_merged
from penstock.operators.deadlines.pane_partials import PanePartials
from penstock.operators.python_values import python_values
from penstock.plan.windows import Aggregate, ErrorBound, WindowPlan, Windows
from penstock.spark.lanes.deadlines.kept_partials import KeptPartials

AGGREGATES = (
    Aggregate("count", None, pa.int64()),
    Aggregate("sum", "x", pa.int64()),
    Aggregate("avg", "d", pa.decimal128(14, 6)),
    Aggregate("min", "x", pa.int64()),
    Aggregate("max", "f", pa.float64()),
    Aggregate("count_distinct", "x", pa.int64()),
    Aggregate("percentile", "x", pa.float64(), 0.25),
    Aggregate("approx_percentile", "f", pa.float64(), 0.5, 100),
)
KEYS = {(): (), ("k",): (("k", pa.float64()),)}
#: event time, entry, key, value
tuples = st.lists(
    st.tuples(
        st.integers(-5, 40),
        st.integers(0, 9),
        st.sampled_from([None, 0.0, -0.0, float("nan"), 1.0]),
        st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.integers(-3, 3)),
    ),
    max_size=60,
)
#: begin of a window in hops, newest entry, whether the worker has lost its partials before
orders = st.lists(st.tuples(st.integers(-3, 12), st.integers(0, 9), st.booleans()), max_size=12)


def _tuples(rows: list[tuple[int, int, float | None, int | None]], after: int, until: int) -> Tuples:
    """Those that came with the entries behind one and up to another."""
    own = [row for row in rows if after < row[1] <= until]
    values = [row[3] for row in own]
    columns = {
        "k": pa.array([row[2] for row in own], pa.float64()),
        "x": pa.array(values, pa.int64()),
        "d": pa.array([None if x is None else Decimal(x % 1000) / 100 for x in values], pa.decimal128(10, 2)),
        "f": pa.array([None if x is None else float(x) for x in values], pa.float64()),
    }
    times, entries = (np.array([row[place] for row in own], np.int64) for place in (0, 1))
    return Tuples(pa.table(columns), times, entries)


def _rows(table: pa.Table) -> Counter[tuple[object, ...]]:
    columns = [[repr(each) for each in python_values(column)] for column in table.columns]
    return Counter(zip(*columns, strict=True))


@settings(max_examples=examples(150), deadline=None)
@given(tuples, orders, st.sampled_from([(4, 4), (6, 2), (6, 4), (7, 3), (2, 4)]), st.sampled_from(list(KEYS)))
def test_windows_of_kept_partials_are_those_of_all_tuples(
    rows: list[tuple[int, int, float | None, int | None]],
    given_orders: list[tuple[int, int, bool]],
    shape: tuple[int, int],
    keys: tuple[str, ...],
) -> None:
    windows = Windows(*shape, 1)
    plan = OrderPlan(WindowPlan("v", "ts", windows, KEYS[keys], AGGREGATES, ErrorBound(0.1, 0.1)))
    kept: PanePartials | None = None
    for hop, entry, is_lost in given_orders:
        start = windows.start + hop * windows.slide
        extent = Extent(start, start + windows.size, entry + 1)
        # as the log says: entries before it have nothing from the start of the window on
        reaching = [each[1] for each in rows if each[0] >= start]
        after = min(reaching, default=10) - 1
        afresh = work_out(plan, extent, _tuples(rows, -1, 9))
        base = None if is_lost or kept is None or not kept.serves(extent, after) else kept
        read = _tuples(rows, after if base is None else max(after, base.until), entry)
        merged, kept = merge_from_panes(plan, extent, read, after, base)
        found = work_out_merged(plan, merged)
        assert found.rows.schema == afresh.rows.schema
        assert _rows(found.rows) == _rows(afresh.rows)
        assert found.work.new <= len(read.times)
        assert found.work.carried == (base is not None and bool(found.rows.num_rows))


def _partials(rows: int) -> PanePartials:
    plan = OrderPlan(WindowPlan("v", "ts", Windows(4, 4), (), AGGREGATES[:1], ErrorBound(0.1, 0.1)))
    spread: list[tuple[int, int, float | None, int | None]] = [
        (4 * number, 0, None, 1) for number in range(rows)
    ]
    return merge_from_panes(plan, Extent(0, 4, 1), _tuples(spread, -1, 0), -1, None)[1]


def test_partials_that_take_too_much_are_not_kept() -> None:
    small, large = _partials(10), _partials(1_000)
    size = small.content.nbytes
    kept = KeptPartials(most_of_name=size, most=2 * size)
    kept.put("a", small)
    assert kept.of("a") is small
    kept.put("b", large)
    assert (kept.of("b"), kept.is_too_large("b"), kept.is_too_large("c")) == (None, True, False)
    kept.put("c", small)
    assert kept.of("a") is small
    kept.put("d", small)
    assert kept.of("c") is None, "that was used last of all longest ago"
    assert kept.of("a") is small
    assert not kept.is_too_large("c")


@pytest.mark.parametrize(("start", "entries", "after"), [(-1, 3, 0), (0, 1, 0), (0, 3, -2)])
def test_partials_serve_no_window_whose_tuples_they_lack(start: int, entries: int, after: int) -> None:
    """It begins before them, has fewer entries, or had tuples that came before theirs."""
    plan = OrderPlan(WindowPlan("v", "ts", Windows(4, 4), (), AGGREGATES[:1], ErrorBound(0.1, 0.1)))
    _, kept = merge_from_panes(plan, Extent(0, 4, 2), _tuples([(0, 0, None, 1)], -1, 1), -1, None)
    assert kept.serves(Extent(0, 4, 3), 0)
    assert not kept.serves(Extent(start, start + 4, entries), after)
