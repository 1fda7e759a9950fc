"""UNION ALL views and views over them: what the engine publishes equals what Spark says of their texts over the same tuples."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from joined_inputs import Inputs, multiset
from penstock.errors import InputError
from penstock.monitor.folder import folder_status
from penstock.monitor.report import status_lines
from penstock.page.views import kind_of
from penstock.spark.engine import Engine
from penstock.spark.reporting.catalog import read_catalog
from penstock.spark.results.read_plain import plain_rows
from penstock.spark.run import Run
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.unions import UNIONS
from read_results import bag, published
from spark_answers import frames_of
from whole_runs import run_to_end

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1_800)]

BOTH = "SELECT ts, k, n AS v, name FROM flights WHERE n > 1 UNION ALL SELECT w.ts, w.n, w.x, upper(w.name) FROM weather w WHERE x >= 0"
TEXTS = {
    "fast": "SELECT ts AS at, k * 2 AS twice, x FROM flights WHERE name <> ''",
    "every": BOTH,
    "same": "SELECT k FROM flights UNION ALL SELECT k FROM flights WHERE k > 3 UNION ALL (SELECT n FROM flights)",
    "stars": "SELECT * FROM flights UNION ALL SELECT * FROM weather WHERE day > DATE '2022-01-08'",
    "over_selection": "SELECT at, twice FROM fast UNION ALL SELECT ts, n FROM weather UNION ALL SELECT ts, x FROM delays WHERE k = 1",
    "chosen": "SELECT v * 2 AS y, name FROM every WHERE k IS NOT NULL AND v > 1",
    "chosen_again": "SELECT y + 1 AS z FROM chosen e WHERE e.y < 7",
    "inline": "SELECT u.k + 1 AS k, s FROM (SELECT k, name AS s FROM flights UNION ALL SELECT 7, 'w' FROM weather WHERE k = 2) u WHERE u.k > 2",
    "of_unions": "SELECT v FROM every UNION ALL SELECT z FROM chosen_again UNION ALL SELECT x FROM delays",
}
WINDOWS = {
    "per_time": "SELECT window(ts, '10 seconds') AS w, count(*) AS c, sum(v) AS s, max(name) AS last FROM every GROUP BY w",
    "by_key": "SELECT k % 3 AS g, window(e.ts, '10 seconds', '4 seconds').start AS begun, count(DISTINCT v) AS d, avg(v) AS m "
    "FROM every e WHERE k > 0 GROUP BY k % 3, window(e.ts, '10 seconds', '4 seconds') HAVING count(*) > 2",
    "in_from": "SELECT window(ts, '20 seconds') AS w, count(*) AS c FROM (SELECT ts, k FROM flights UNION ALL SELECT ts, k FROM delays) "
    "GROUP BY w",
    "running": "SELECT k, count(*) AS c, max(v) AS top FROM every GROUP BY k HAVING count(*) > 1",
    "distinct_keys": "SELECT DISTINCT k FROM (SELECT ts, k FROM flights UNION ALL SELECT ts, k FROM delays)",
    "of_chosen": "SELECT name, count(*) AS c FROM chosen GROUP BY name",
    "odd": "SELECT w.start AS at, c FROM per_time WHERE c % 2 = 1",
}


def register(spark: SparkSession, inputs: Inputs) -> None:
    """Lets Spark's own queries see what was fed so far."""
    for name in inputs.tuples:
        inputs.frame(spark, name).createOrReplaceTempView(name)


def check(spark: SparkSession, inputs: Inputs, run: Run, views: Mapping[str, str]) -> None:
    """Every view has the rows and columns that Spark answers."""
    register(spark, inputs)
    for name, wanted in frames_of(spark, views).items():
        rows = multiset(wanted)
        assert rows, f"a test that compares nothing: {name}"
        assert run.results(name).schema.simpleString() == wanted.schema.simpleString(), name
        assert bag(published(run, name)) == rows, name


def answered(engine: Engine, output: Path, *, ended: bool = False) -> Run:
    """A run over what is there."""
    return run_to_end(engine, output, ended=ended, seconds=900)


def wait_for(run: Run, is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 240
    while not is_so():
        assert run.active
        assert time.monotonic() < deadline, "in time"
        time.sleep(0.5)


def test_unions_and_what_is_over_them_equal_spark_after_each_run(spark: SparkSession, tmp_path: Path) -> None:
    """Three runs, the last one to the end of the streams: in the second a view is away, and the streams have come so far that windows are final
    whichever stream was read first."""
    inputs = Inputs(tmp_path / "in", np.random.default_rng(4))
    views = {**TEXTS, **WINDOWS}
    finals = []
    without = {name: text for name, text in views.items() if name != "by_key"}
    lives = [(4, views, False), (3, without, False), (1, views, True)]
    for files, present, ended in lives:
        inputs.feed(files)
        engine = Engine(spark, correction_seconds=0, max_delay_seconds=2, least_horizon_seconds=65)
        engine.execute(inputs.script()).add_views(present)
        run = answered(engine, tmp_path / "out", ended=ended)
        check(spark, inputs, run, present)
        told = run.changes("per_time").cache()
        finals.append(told.where("is_final").count())
    assert 0 < finals[-2] < finals[-1], "some are final before the end"
    told = run.changes("per_time")
    assert max(multiset(told).values()) == 1, "nothing is told twice"
    assert told.count() > run.results("per_time").count(), "some are told again"
    known = UNIONS.read(Layout.of(str(tmp_path / "out"), None))
    assert known.next_number == len(known.views), "a start goes on with the lanes that exist"
    found = plain_rows(Layout.of(str(tmp_path / "out"), None), "every", 0, False)
    assert found is not None
    assert found.rows.num_rows == run.results("every").count()


def test_what_is_told_of_a_union(spark: SparkSession, tmp_path: Path) -> None:
    inputs = Inputs(tmp_path / "in", np.random.default_rng(5))
    inputs.feed(2)
    sink = tmp_path / "sink"
    engine = Engine(spark).execute(inputs.script())
    engine.execute(
        f"CREATE VIEW every AS {BOTH}; CREATE VIEW in_from AS {WINDOWS['in_from']}; "
        f"CREATE TABLE files USING parquet OPTIONS (path '{sink}'); INSERT INTO files SELECT * FROM every"
    )
    explained = engine.explain()
    assert "view every: UNION ALL of 2 selections" in explained
    assert "of stream weather: ts AS ts, CAST((n" in explained
    assert "windows over it: over ts" in explained
    inner = next(name for name in engine.views if name.startswith("union_"))
    assert f"rows of view {inner}: 1 view" in explained
    run = answered(engine, tmp_path / "out")
    assert run.status().views["every"].kind == "union"
    assert "stream flights" in run.explain()
    register(spark, inputs)
    assert multiset(spark.read.parquet(str(sink)).select("ts", "k", "v", "name")) == multiset(spark.sql(BOTH))
    status = folder_status(tmp_path / "out")
    assert status["views"]["every"]["branches"] == 2
    assert any(
        line.startswith("UNION ALL every of flights, weather: ")
        for line in status_lines(status, verbose=True)
    )
    assert kind_of(read_catalog(Layout.of(run.output, None))["views"]["every"]) == "union"
    with pytest.raises(InputError, match="View every is a UNION ALL"):
        engine.why("every", {"k": 1})
    with pytest.raises(InputError, match="View every is a UNION ALL"):
        engine.backtest("every")


@pytest.mark.long
def test_unions_come_and_go_and_change_while_the_engine_runs(spark: SparkSession, tmp_path: Path) -> None:
    inputs = Inputs(tmp_path / "in", np.random.default_rng(6))
    inputs.feed(2)
    engine = (
        Engine(spark, correction_seconds=0, idle_seconds=0.5).execute(inputs.script()).view("every", BOTH)
    )
    run = engine.start(tmp_path / "out")
    register(spark, inputs)
    wait_for(run, lambda: multiset(run.results("every")) == multiset(spark.sql(BOTH)))
    engine.view("in_from", WINDOWS["in_from"])
    inner = next(name for name in engine.views if name.startswith("union_"))
    assert {"unions.0", "unions.1", f"unions.1.{inner}.results"} <= run._execution.lanes.running.keys()
    inputs.feed(1)
    wait_for(run, lambda: run.results("in_from").count() > 0)
    engine.view("in_from", "SELECT name, count(*) AS c FROM every GROUP BY name")
    assert inner not in engine.views, "nobody reads it any more"
    assert "unions.1" not in run._execution.lanes.running
    wait_for(run, lambda: run.results("in_from").count() > 0)
    engine.view("every", "SELECT name FROM flights UNION ALL SELECT name FROM delays")
    assert {"unions.2", "unions.2.every.results"} <= run._execution.lanes.running.keys()
    assert "unions.0" not in run._execution.lanes.running
    inputs.feed(1)
    wait_for(run, lambda: run.results("in_from").count() > 0)
    with pytest.raises(InputError, match=r"View in_from selects from every\. Drop in_from too"):
        engine.drop("every")
    engine.drop("in_from", "every")
    assert not [name for name in run._execution.lanes.running if name.startswith("unions.")]
    assert run.active
    run.stop()


def test_a_changed_script_keeps_the_union_in_from(spark: SparkSession, tmp_path: Path) -> None:
    inputs = Inputs(tmp_path / "in", np.random.default_rng(7))
    inputs.feed(1)
    tables = inputs.script()
    script = f"{tables};\nCREATE VIEW in_from AS {WINDOWS['in_from']};"
    engine = Engine(spark).execute(script)
    before = dict(engine.views)
    told = engine.reconcile(f"{script}\nCREATE VIEW every AS {BOTH};")
    assert told.added == ["every"]
    assert told.dropped == []
    assert before.items() <= dict(engine.views).items()
    told = engine.reconcile(f"{tables};\nCREATE VIEW every AS {BOTH};")
    assert told.dropped == ["in_from"]
    assert list(engine.views) == ["every"]


MISTAKES = [
    ("SELECT k FROM flights UNION SELECT k FROM weather", "UNION without ALL is not supported yet"),
    (
        "SELECT k FROM flights UNION ALL SELECT k, n FROM weather",
        "This branch has 2 columns, the first one has 1",
    ),
    (
        "SELECT k FROM flights UNION ALL SELECT array(k) FROM weather",
        "Column 1 of this branch is ARRAY<BIGINT>",
    ),
    ("SELECT k FROM flights UNION ALL SELECT nn FROM weather", "nn"),
    ("SELECT k, n AS k FROM flights UNION ALL SELECT k, n FROM weather", "Two columns have the name k"),
    (
        "SELECT k FROM flights UNION ALL SELECT count(*) FROM weather",
        "that joins or aggregates is not supported",
    ),
    (
        "SELECT k FROM flights UNION ALL SELECT c FROM per_time",
        "per_time is a window view; a UNION ALL cannot read it",
    ),
    ("SELECT k FROM flights UNION ALL SELECT k FROM airports", "Table airports is static"),
    ("SELECT yy FROM every", "yy"),
    ("SELECT k FROM flights UNION ALL SELECT k FROM weather WHERE yy > 1", "yy"),
    (
        "SELECT e.k FROM every e JOIN flights f ON f.k = e.k",
        "every is a UNION ALL; a join view cannot read it yet",
    ),
    (
        "SELECT window(ts, '1 day') AS d, count(*) AS c FROM shifted GROUP BY d",
        "Columns that are one: at",
    ),
    (
        "SELECT /*+ MAX_ERROR(0.1, 0.1) */ window(ts, '1 day') AS d, count(*) AS c FROM every GROUP BY d",
        "Hints are not supported over",
    ),
    (
        "SELECT window(w, '1 day') AS d, count(*) AS n FROM per_time GROUP BY d",
        "per_time aggregates a UNION ALL; an aggregation",
    ),
]


def test_mistakes_are_told(spark: SparkSession, tmp_path: Path) -> None:
    inputs = Inputs(tmp_path / "in", np.random.default_rng(8))
    inputs.feed(1)
    shifted = (
        "SELECT ts AS at, ts + INTERVAL 1 DAY AS ts, k FROM flights UNION ALL SELECT ts, ts, k FROM weather"
    )
    views = {"every": BOTH, "per_time": WINDOWS["per_time"], "shifted": shifted}
    engine = Engine(spark).execute(inputs.script()).add_views(views)
    for text, told in MISTAKES:
        with pytest.raises(InputError) as raised:
            engine.view("wrong", text)
        assert told in str(raised.value), text
