"""Retention of a run: where it is written, which rows leave, and what keeps them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from engine_cases import rows, script, write_orders
from penstock.errors import SqlError, UnsupportedError
from penstock.spark.engine import Engine
from penstock.spark.pruning import prune
from penstock.spark.storage.layout import Layout
from penstock.trigger import Trigger

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

WINDOWS = "SELECT name, window(seen, '1 minute') AS w, count(*) AS n FROM orders GROUP BY name, w"
VIEWS = {"large": "SELECT * FROM orders WHERE amount > 900"}
OVER = "SELECT window(w.end, '1 hour') AS h, sum(n) AS n FROM by_name GROUP BY h"
ONCE = Trigger.available_now()


def _script(folder: Path, retain: str = "") -> str:
    return script(folder, VIEWS, options=f", max_files_per_trigger '1'{retain}")


def test_old_rows_leave_and_sinks_get_all(spark: SparkSession, tmp_path: Path) -> None:
    taken: list[int] = []

    def take(frame: DataFrame, _: int) -> None:
        taken.extend(row.id for row in frame.select("id").collect())

    write_orders(tmp_path / "in", 4, 300)

    def engine() -> Engine:
        made = Engine(spark, replaced_seconds=60).execute(_script(tmp_path / "in", ", retain '1 second'"))
        return made.view("by_name", WINDOWS, retain="1 second").sink("large", take)

    with engine().start(tmp_path / "out", trigger=ONCE) as run:
        assert run.await_termination(600)
        first = rows(run.results("large"))
        windows = rows(run.results("by_name"))
    time.sleep(1.5)
    write_orders(tmp_path / "in", 6, 300)
    with engine().start(tmp_path / "out", trigger=ONCE) as run:
        assert run.await_termination(600)
        left = {(event.get("stream"), event.get("view")) for event in run.events("rows_removed")}
        assert left == {("orders", None), (None, "by_name")}
        kept, all_windows = rows(run.results("large")), rows(run.results("by_name"))
    assert set(first) - set(kept), "rows of the first run have left"
    assert len(taken) == len(set(taken))
    assert set(taken) >= {row[0] for row in (*first, *kept)}
    assert set(windows) - set(all_windows)


@pytest.mark.long
def test_views_over_views_keep_rows(spark: SparkSession, tmp_path: Path) -> None:
    write_orders(tmp_path / "in", 4, 300)
    text = _script(tmp_path / "in")
    with pytest.raises(SqlError, match="View by_name has retain, and view by_hour aggregates its rows"):
        Engine(spark).execute(text).view("by_name", WINDOWS, retain="1 day").view("by_hour", OVER)
    with pytest.raises(
        SqlError,
        match="View large is a selection: its rows are in the files",
    ):
        Engine(spark).execute(text).view("large", VIEWS["large"], retain="1 day")
    with pytest.raises(SqlError, match="retain needs a length of time above 0"):
        Engine(spark).execute(_script(tmp_path / "in", ", retain 'soon'"))
    engine = Engine(spark, retain_seconds=0.1).execute(text).view("by_name", WINDOWS).view("by_hour", OVER)
    for files in (4, 6):
        write_orders(tmp_path / "in", files, 300)
        with engine.start(tmp_path / "out", trigger=ONCE) as run:
            assert run.await_termination(600)
            removed = [event.get("view") or event["stream"] for event in run.events("rows_removed")]
            whole = rows(run.results("by_name"))
        time.sleep(0.5)
    assert "orders" in removed
    assert "by_name" not in removed
    layout = Layout.of(tmp_path / "out", None)
    found = prune(layout, -1)
    held = [(each.name, each.by) for each in found if each.held]
    assert held == [("by_name", ("view by_hour",))]
    with Engine(spark).execute(text).view("by_name", WINDOWS).start(tmp_path / "out", trigger=ONCE) as run:
        assert run.await_termination(600)
        assert rows(run.results("by_name")) == whole
    assert prune(layout, -1, "by_name")[0].held == 0
    with pytest.raises(UnsupportedError, match="rows of view by_name have left the results folder"):
        engine.start(tmp_path / "out", trigger=ONCE)
