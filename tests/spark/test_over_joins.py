"""Views over join views: what the engine publishes equals what Spark says of their texts over the same tuples."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from forms import ALL
from joined_inputs import Inputs, multiset
from penstock.errors import InputError
from penstock.monitor.folder import folder_status
from penstock.spark.engine import Engine
from penstock.spark.reporting.catalog import read_catalog
from penstock.spark.run import Run
from penstock.spark.storage.layout import Layout
from read_results import bag, published
from spark_answers import frames_of
from whole_runs import run_to_end

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1_800)]

JOINS = {
    "pairs": "SELECT f.k, f.n, f.ts, w.ts AS seen, w.x, f.n + w.n AS total FROM flights f JOIN weather w ON f.k = w.k "
    "AND w.ts BETWEEN f.ts - INTERVAL 5 SECONDS AND f.ts + INTERVAL 3 SECONDS",
    "named": "SELECT f.ts AS at, f.k, a.name FROM flights f JOIN airports a ON f.k = a.k",
}
SELECTIONS = {
    "few": "SELECT k, x * 2 AS twice, seen FROM pairs p WHERE p.total > 4 AND x >= 0",
    "fewer": "SELECT twice + k AS y FROM few WHERE second(seen) % 2 = 0",
    "norths": "SELECT *, k % 2 AS odd FROM named WHERE name = 'north' OR k > 5",
}
WINDOWS = {
    "by_ts": "SELECT window(ts, '10 seconds') AS w, count(*) AS c, sum(total) AS s, max(n) AS top FROM pairs WHERE n > 1 "
    "GROUP BY w",
    "by_seen": "SELECT p.k % 3 AS g, window(p.seen, '10 seconds', '4 seconds').start AS begun, count(DISTINCT n) AS d, "
    "avg(x) AS mean FROM pairs p GROUP BY p.k % 3, window(p.seen, '10 seconds', '4 seconds') HAVING count(*) > 2",
    "of_few": "SELECT window(seen, '20 seconds') AS w, sum(twice) AS t FROM few GROUP BY w",
    "of_named": "SELECT name, window(at, '15 seconds') AS w, count(*) AS c FROM named GROUP BY name, w",
    "odd": "SELECT w.start AS at, c FROM by_ts WHERE c % 2 = 1",
}


def answered(engine: Engine, output: Path, *, ended: bool = False) -> Run:
    """A run over what is there."""
    return run_to_end(engine, output, ended=ended, seconds=900)


def check(spark: SparkSession, inputs: Inputs, run: Run, views: Mapping[str, str]) -> None:
    inputs.register(spark)
    for name, wanted in frames_of(spark, views).items():
        rows = multiset(wanted)
        assert rows, "a test that compares nothing"
        assert run.results(name).schema.simpleString() == wanted.schema.simpleString()
        assert bag(published(run, name)) == rows, views[name]


def test_windows_over_joins_equal_spark_after_each_run(spark: SparkSession, tmp_path: Path) -> None:
    """Three runs, the last one to the end of the streams; one view is away in the second."""
    inputs = Inputs(tmp_path / "in", np.random.default_rng(4))
    views = {**JOINS, "few": SELECTIONS["few"], **WINDOWS}
    finals = []
    without = {name: text for name, text in views.items() if name != "by_seen"}
    for files, present, ended in ((4, views, False), (3, without, False), (1, views, True)):
        inputs.feed(files)
        engine = Engine(spark, correction_seconds=0, max_delay_seconds=2, least_horizon_seconds=65)
        engine.execute(inputs.script()).add_views(present)
        run = answered(engine, tmp_path / "out", ended=ended)
        check(spark, inputs, run, present)
        told = run.changes("by_ts").cache()
        assert told.where("is_final AND coverage <> 1 OR slack IS NULL").count() == 0
        finals.append(told.where("is_final").count())
    assert 0 < finals[1] < finals[2], "some are final before the end"
    for name in WINDOWS:
        told = run.changes(name)
        assert max(multiset(told).values()) == 1, "nothing is told twice"
        assert told.where("is_final").count() >= run.results(name).count()
    told = run.changes("by_ts")
    assert told.where("revision > 0 AND NOT is_final").count() > 0, "late tuples"
    shown = folder_status(tmp_path / "out")["views"]["by_ts"]
    assert shown["early"] == told.where("revision = 0").select("w").distinct().count()


@pytest.mark.long
def test_windows_over_joins_come_and_go_and_change_while_the_engine_runs(
    spark: SparkSession, tmp_path: Path
) -> None:
    inputs = Inputs(tmp_path / "in", np.random.default_rng(5))
    inputs.feed(2)
    taken: list[pa.Table] = []
    text = WINDOWS["by_ts"]
    engine = (
        Engine(spark, correction_seconds=0, idle_seconds=0.5)
        .execute(inputs.script())
        .view("pairs", JOINS["pairs"])
    )
    run = engine.start(tmp_path / "out")
    wait_for(run, lambda: run.results("pairs").count() > 0)
    engine.view("by_ts", text)
    engine.sink("by_ts", lambda rows, _: taken.append(rows.toArrow()))
    inputs.feed(1)
    assert "rows of view pairs: 1 view" in run.explain()
    wait_for(run, lambda: is_told(spark, inputs, run))
    wait_for(run, lambda: sum(rows.num_rows for rows in taken) >= run.changes("by_ts").count())
    assert run.status().streams["flights"].to_dict()["lanes"]["joins.0.pairs.results"]["active"]

    engine.view("pairs", JOINS["pairs"] + " WHERE f.k > 2")
    assert {"joins.1", "joins.1.pairs.results"} <= run._execution.lanes.running.keys()
    assert not {"joins.0", "joins.0.pairs.results"} & run._execution.lanes.running.keys()
    assert run.results("by_ts").count() == 0, "it begins anew with what it is over"
    inputs.feed(2)
    wait_for(run, lambda: run.results("by_ts").count() > 0)
    engine.drop("by_ts", "pairs")
    assert not [name for name in run._execution.lanes.running if name.startswith("joins.")]
    assert run.active
    run.stop()
    assert all(
        read_catalog(Layout.of(run.output, None))["views"][name]["dropped"] for name in ("by_ts", "pairs")
    )


def is_told(spark: SparkSession, inputs: Inputs, run: Run) -> bool:
    """Whether all windows that all streams have passed are told as Spark has them."""
    inputs.register(spark)
    spark.sql(JOINS["pairs"]).createOrReplaceTempView("pairs")
    ends = (spark.sql(f"SELECT max(ts) AS t FROM {name}").first() for name in ("flights", "weather"))
    passed = min(row.t for row in ends if row is not None).isoformat()
    due = f"w.end + INTERVAL 3 SECONDS <= TIMESTAMP '{passed}'"
    wanted = multiset(spark.sql(WINDOWS["by_ts"]).where(due))
    return wanted.total() > 0 and multiset(run.results("by_ts").where(due)) == wanted


def wait_for(run: Run, is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 240
    while not is_so():
        assert run.active
        assert time.monotonic() < deadline, "in time"
        time.sleep(0.5)


def test_mistakes_are_told(spark: SparkSession, tmp_path: Path) -> None:
    inputs = Inputs(tmp_path / "in", np.random.default_rng(9))
    inputs.feed(1)
    shifted = "SELECT ts, seen + INTERVAL 1 DAY AS tomorrow FROM pairs"
    left = JOINS["pairs"].replace(" JOIN", " LEFT JOIN").replace(", f.n + w.n AS total", "")
    views = {**JOINS, "by_ts": WINDOWS["by_ts"], "shifted": shifted, "outer": left}
    engine = Engine(spark).execute(inputs.script()).add_views(views)
    assert "rows of view pairs: 1 view\n    by_ts: windows of 10 seconds" in engine.explain()
    day = "window({0}, '1 day') AS d, count(*) AS c FROM {1} GROUP BY d"
    for text, told in (
        ("SELECT " + day.format("tomorrow", "shifted"), "over the event time .* Columns that are one: ts"),
        (
            "SELECT " + day.format("ts + INTERVAL 1 DAY", "pairs"),
            "needs a column of it that is the event time",
        ),
        (
            "SELECT /*+ MAX_ERROR(0.1, 0.1) */ " + day.format("ts", "pairs"),
            "Hints are not supported over join view pairs",
        ),
        ("SELECT " + day.format("w", "by_ts"), "by_ts aggregates a join view; an aggregation over it"),
        (
            "SELECT " + day.format("ts", "outer"),
            "outer has a LEFT JOIN with a stream; a window view over one",
        ),
    ):
        with pytest.raises(InputError, match=told):
            engine.view("wrong", text)
    with pytest.raises(InputError, match=r"View by_ts selects from pairs\. Drop by_ts too"):
        engine.drop("pairs")


def test_selections_over_joins_equal_spark_over_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    inputs = Inputs(tmp_path / "in", np.random.default_rng(3))
    views = {**JOINS, **SELECTIONS}
    for files in (3, 2) if ALL else (2, 1):
        inputs.feed(files)
        run = answered(Engine(spark).execute(inputs.script()).add_views(views), tmp_path / "out")
        check(spark, inputs, run, views)
    assert folder_status(tmp_path / "out")["views"]["fewer"]["rows"] == run.results("fewer").count()
