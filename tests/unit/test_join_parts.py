"""Parts of the join lane: grids, which entries hold partners, the register of views, versions of static tables."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from penstock.plan.joins import (
    JoinColumn,
    JoinInput,
    JoinKey,
    JoinOrder,
    JoinOutput,
    JoinPlan,
    Method,
    ProbeOrder,
    ProbeStep,
    TimeBound,
)
from penstock.spark.lanes.joins.grid import KeptRuns, demand_of, grid_of, kept_runs, shares_of
from penstock.spark.lanes.joins.needed import Span, needed_spans
from penstock.spark.lanes.joins.orders import first_order
from penstock.spark.sources.static_tables import StaticTable
from penstock.spark.storage.joins import JOINS, JoinDefinition
from penstock.spark.storage.lane_views import LaneViewsRegister, StreamBeginning
from penstock.spark.storage.layout import Layout

pytestmark = pytest.mark.usefixtures("own_commits")

TS = pa.timestamp("us", "UTC")


def joined(*keys: tuple[str | None, ...], static: tuple[int, ...] = ()) -> JoinPlan:
    """A join of as many inputs as the keys have places, with bounds of a second between all streams."""
    count = len(keys[0])
    inputs = tuple(
        JoinInput(
            alias=f"a{number}",
            relation=f"r{number}",
            is_static=number in static,
            condition=None,
            columns=(
                *(() if number in static else (JoinColumn(f"t{number}", "ts", TS),)),
                *(JoinColumn(key[number], "k", pa.int64()) for key in keys if key[number]),
            ),
            time=None if number in static else f"t{number}",
        )
        for number in range(count)
    )
    streams = [number for number in range(count) if number not in static]
    bounds = tuple(
        TimeBound(left, right, -1_000_000, 2_000_000) for left in streams for right in streams if left < right
    )
    outputs = (JoinOutput("t", "t0", TS, "t0"),)
    return JoinPlan("j", inputs, tuple(JoinKey(key, pa.int64()) for key in keys), bounds, (), (), outputs)


def test_shares_copy_no_stream_where_one_key_is_common_to_all() -> None:
    plan = joined(("x0", "x1", "x2"), ("y0", "y1", None))
    assert shares_of(plan, 8) == (8, 1)
    assert grid_of(plan, (8, 1)).cells == 8


def test_static_tables_are_copied_rather_than_streams() -> None:
    assert shares_of(joined(("x0", "x1", None), (None, "y1", "y2"), static=(2,)), 4) == (4, 1)
    assert shares_of(joined(("x0", None, "x2"), (None, "y1", "y2"), static=(0,)), 4) == (1, 4)


def test_a_join_without_keys_has_one_cell() -> None:
    plan = JoinPlan("j", joined(("x0", "x1")).inputs, (), (TimeBound(0, 1, 0, 0),), (), (), ())
    assert shares_of(plan, 8) == ()
    assert grid_of(plan, ()).cells == 1
    assert kept_runs(plan) == (KeptRuns(0, None), KeptRuns(1, None))


def test_of_keys_of_the_same_inputs_one_has_runs() -> None:
    plan = joined(("x0", "x1", None), ("y0", "y1", None), (None, "z1", "z2"))
    assert kept_runs(plan) == (KeptRuns(0, 0), KeptRuns(1, 0), KeptRuns(1, 2), KeptRuns(2, 2))


def test_left_rows_are_made_of_runs_that_leave_out_none_for_lack_of_a_key_of_the_optional_input() -> None:
    inner = joined(("x0", "x1", None), ("y0", None, "y2"), (None, "z1", "z2"))
    assert kept_runs(replace(inner, optional=(2,))) == (
        *(KeptRuns(0, 0), KeptRuns(0, 1), KeptRuns(1, 0), KeptRuns(1, 2)),
        *(KeptRuns(2, 1), KeptRuns(2, 2)),
    )
    by_time = joined(("x0", None, "x2"))
    assert kept_runs(replace(by_time, optional=(2,))) == (
        *(KeptRuns(0, None), KeptRuns(0, 0), KeptRuns(1, None), KeptRuns(2, 0)),
    )
    table = replace(joined(("x0", None, "x2"), static=(2,)), optional=(2,))
    assert kept_runs(table) == (KeptRuns(0, None), KeptRuns(1, None), KeptRuns(2, 0))
    pairs = replace(joined(("x0", "x1")), optional=(1,))
    assert kept_runs(pairs) == (KeptRuns(0, 0), KeptRuns(1, 0))


def test_the_first_order_follows_keys() -> None:
    plan = joined(("x0", None, "x2"), (None, "y1", "y2"), static=(1,))
    assert first_order(plan) == JoinOrder(
        (
            ProbeOrder(0, (ProbeStep(2, Method.MERGE, 0), ProbeStep(1, Method.MERGE, 1))),
            ProbeOrder(2, (ProbeStep(0, Method.MERGE, 0), ProbeStep(1, Method.MERGE, 1))),
        )
    )


def test_equal_demands_are_one() -> None:
    plan = joined(("x0", "x1"))
    asked = demand_of(plan, grid_of(plan, (2,)), KeptRuns(0, 0))
    assert asked.key == ("x0",)
    assert asked.columns == (("ts", "t0"), ("k", "x0"))
    assert asked == demand_of(joined(("x0", "x1")), grid_of(plan, (2,)), KeptRuns(0, 0))


def test_spans_of_partners_follow_the_bounds_of_both_sides() -> None:
    plan = joined(("x0", "x1", "x2"))
    second = 1_000_000
    assert needed_spans(plan, {0: Span(10 * second, 20 * second)}) == {
        1: Span(9 * second, 22 * second),
        2: Span(9 * second, 22 * second),
    }
    found = needed_spans(plan, {1: Span(10 * second, 10 * second), 2: Span(50 * second, 50 * second)})
    assert found == {
        0: Span(8 * second, 51 * second),
        1: Span(48 * second, 51 * second),
        2: Span(9 * second, 12 * second),
    }


def test_the_register_keeps_numbers_for_ever_and_rows_of_views_that_come_back(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "out", tmp_path / "checkpoint")
    begun = (StreamBeginning("r0", -1), StreamBeginning("r1", 4, 17))
    one, other = (JoinDefinition("j", name, "SELECT", joined(("x0", "x1"))) for name in ("a", "b"))
    empty: LaneViewsRegister[JoinDefinition] = LaneViewsRegister(JOINS.name)
    register = empty.with_view(one, begun, (2,))
    JOINS.store(layout, register)
    assert JOINS.read(layout) == register
    assert register.of("j") == register.views[0]
    gone = register.without(["j"])
    assert (gone.views, gone.gone) == ((), register.views)
    assert gone.with_view(one, begun, (2,)).views[0].before == (0,)
    changed = gone.with_view(other, begun, (2,))
    assert (changed.views[0].before, changed.views[0].lane, changed.next_number) == ((), "joins.1", 2)


@pytest.fixture
def table(tmp_path: Path) -> StaticTable:
    folder = tmp_path / "airports"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "a.parquet").write_bytes(b"abc")
    return StaticTable("airports", str(folder), "parquet", StructType(), {})


def test_the_version_of_a_static_table_follows_names_sizes_and_times(table: StaticTable) -> None:
    folder = Path(table.path)
    seen = {table.version()}
    (folder / "b.parquet").write_bytes(b"abc")
    seen.add(table.version())
    os.utime(folder / "b.parquet", ns=(1, 1))
    seen.add(table.version())
    (folder / "b.parquet").rename(folder / "c.parquet")
    seen.add(table.version())
    assert len(seen) == 4
    before = table.version()
    (folder / "_SUCCESS").touch()
    (folder / ".c.crc").touch()
    assert table.version() == before


def test_a_static_table_without_files_has_no_version(table: StaticTable) -> None:
    (Path(table.path) / "sub" / "a.parquet").unlink()
    assert table.version() is None
    (Path(table.path) / "sub").rmdir()
    Path(table.path).rmdir()
    assert table.version() is None
