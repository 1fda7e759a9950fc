"""Selections over window views: early, corrected, withdrawn and final rows are those of their text over the view's."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from derived_cases import answers_of, assert_same_rows
from engine_cases import put_file
from penstock.errors import InputError
from penstock.monitor.folder import folder_status
from penstock.monitor.overview import view_rows
from penstock.spark.engine import Engine
from penstock.spark.run import Run
from penstock.trigger import Trigger
from whole_runs import run_to_end

pytestmark = pytest.mark.spark

START = 1_700_000_000_000_000
COLUMNS = "ts TIMESTAMP, key BIGINT, name STRING, value DOUBLE"
VIEWS = {
    "fares": "SELECT /*+ MAX_ERROR(0.2, 0.2) */ key, window(ts, '1 second', '500 milliseconds') AS w, count(*) AS n, "
    "round(sum(value), 6) AS s, max(name) FROM tuples WHERE value > 0.1 GROUP BY key, w",
    "busy": "SELECT key, n * 2 AS twice, w.start AS begun, s FROM fares WHERE n % 2 = 0",
    "busiest": "SELECT *, date_format(begun, 'mm:ss') AS at FROM busy WHERE s > 30 AND second(begun) % 3 <> 1",
    "all_of": "SELECT * FROM fares",
    "few": "SELECT name, window.end AS until, min(key), count(*) AS n, approx_percentile(key, 0.3) AS k FROM tuples "
    "GROUP BY name, window(ts, '2 seconds') HAVING count(*) < 680",
    "fewer": "SELECT until, n / 2 AS half FROM few WHERE name <> 'a' AND k > 0",
}


def write(folder: Path, numbers: range, rows: int = 2_000) -> Path:
    """Files of two seconds each, a tenth of their tuples late by up to 4 s."""
    folder.mkdir(exist_ok=True)
    for number in numbers:
        rng = np.random.default_rng(number)
        event = (number * rows + np.arange(rows)) * 1_000
        late = (rng.random(rows) < 0.1) * rng.integers(0, 4_000_000, rows)
        table = pa.table(
            {
                "ts": pa.array(START + event - late).cast(pa.timestamp("us", "UTC")),
                "key": pa.array(rng.integers(0, 5, rows), mask=rng.random(rows) < 0.05),
                "name": rng.choice(["a", "b", "c"], rows),
                "value": pa.array(rng.random(rows), mask=rng.random(rows) < 0.05),
            }
        )
        put_file(folder / f"{number:03d}.parquet", partial(pq.write_table, table))
    return folder


def engine_on(spark: SparkSession, data: Path) -> Engine:
    return Engine(spark, correction_seconds=0, correction_span_seconds=0.1).execute(
        f"CREATE TABLE tuples ({COLUMNS}) USING parquet "
        f"OPTIONS (path '{data}', event_time 'ts', max_files_per_trigger '2')"
    )


def expected(spark: SparkSession, data: Path, views: dict[str, str]) -> dict[str, DataFrame]:
    """What Spark answers over the table of a folder."""
    spark.read.schema(COLUMNS).parquet(str(data)).createOrReplaceTempView("tuples")
    return answers_of(spark, views)


def assert_shared(explained: str, *views: str) -> None:
    """One operator computes all of these."""
    operators = explained.split("window group ")[1:]
    assert any(all(f"    {view}: windows" in each for view in views) for each in operators), explained


def wait_for(run: Run, count: int) -> None:
    """Until so many tuples of the stream have been published."""
    deadline = time.monotonic() + 300
    while run.status().streams["tuples"].tuples < count:
        assert time.monotonic() < deadline, "in time"
        time.sleep(0.2)


@pytest.mark.long
def test_every_revision_is_that_of_the_text_over_the_view_beneath(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    for number, files in enumerate((range(4), range(4, 8))):
        write(data, files)
        engine = engine_on(spark, data).add_views(VIEWS)
        engine.execute(
            "CREATE TABLE shown USING console; INSERT INTO shown SELECT key, n AS much FROM fares WHERE n > 90"
        )
        assert_shared(engine.explain(), "fares", "busy", "busiest", "all_of")
        assert_shared(engine.explain(), "few", "fewer")
        run = engine.start(out, trigger=Trigger.available_now(ended=number == 1))
        run.await_termination()
        run.stop()
    counts = {
        name: assert_same_rows(run.results(name), wanted).total()
        for name, wanted in expected(spark, data, VIEWS).items()
    }
    assert all(counts.values())
    shown = {row.name: row.rows for row in view_rows(folder_status(out))}
    # of a large group an estimate of the revision before is not known any more
    exact = VIEWS.keys() - {"few", "fewer"}
    assert {name: shown[name] for name in exact} == {name: counts[name] for name in exact}

    run.changes("fares").cache().createOrReplaceTempView("told")
    marks = "revision, coverage, slack, is_final"
    found = run.changes("busy").cache()
    upserts = spark.sql(
        f"SELECT key, n * 2 AS twice, w.start AS begun, s, {marks}, op FROM told WHERE n % 2 = 0"
    )
    assert_same_rows(found.where("op = 'upsert'"), upserts)
    withdrawn = spark.sql(
        f"SELECT key, 2 * before.n AS twice, w.start AS begun, before.s AS s, {marks}, 'delete' AS op FROM "
        "(SELECT *, lag(struct(n, s)) OVER (PARTITION BY key, w ORDER BY revision) AS before FROM told) "
        "WHERE n % 2 <> 0 AND before.n % 2 = 0"
    )
    assert assert_same_rows(found.where("op = 'delete'"), withdrawn)
    assert upserts.where("revision = 0").count()
    assert upserts.where("revision > 0 AND NOT is_final").count()
    shown = [line for line in capfd.readouterr().out.splitlines() if line.startswith("shown ")]
    assert len(shown) >= spark.table("told").where("n > 90").count() > 0


@pytest.mark.long
def test_a_view_beneath_is_redefined_and_dropped_while_the_engine_runs(
    spark: SparkSession, tmp_path: Path
) -> None:
    data, out = write(tmp_path / "data", range(2)), tmp_path / "out"
    names = ("fares", "busy", "busiest")
    views = {name: VIEWS[name] for name in names}
    engine = engine_on(spark, data).add_views(views)
    run = engine.start(out)
    wait_for(run, 4_000)
    with pytest.raises(InputError, match=r"View busy selects from fares\. Drop busy too"):
        engine.drop("fares")
    with pytest.raises(InputError, match="Column n does not exist"):
        engine.view("fares", VIEWS["fares"].replace(" AS n", " AS m"))
    newest = pc.max(pq.read_table(data).column("ts").cast(pa.int64())).as_py()
    views["fares"] = (
        VIEWS["fares"].replace("value > 0.1", "value > 0.3").replace("sum(value)", "sum(value + 1)")
    )
    engine.view("fares", views["fares"])
    write(data, range(2, 5))
    wait_for(run, 10_000)
    assert set(run.events("views_changed")[-1]["added"]) == set(names)
    assert_shared(run.explain(), *names)
    run.stop()
    run = run_to_end(engine, out, ended=True, seconds=None)
    since = f"begun + INTERVAL 1 SECOND > timestamp_micros({newest})"
    for name, wanted in expected(spark, data, views).items():
        moment = since.replace("begun", "w.start") if name == "fares" else since
        assert wanted.where(moment).count()
        assert_same_rows(run.results(name), wanted.where(moment))

    before = run.results("busy").count()
    engine.drop("fares", "busy", "busiest").view("dear", "SELECT key FROM tuples WHERE value > 0.9")
    write(data, range(5, 6))
    run = run_to_end(engine, out, seconds=None)
    assert run.results("busy").count() == before
    # what was a selection over windows becomes one over tuples
    engine.add_views({"fares": "SELECT key, value FROM tuples WHERE value > 0.5"})
    engine.add_views({"busy": "SELECT key FROM fares WHERE key = 1"})
    write(data, range(6, 7))
    run = run_to_end(engine, out, seconds=None)
    own = spark.read.parquet(str(data / "006.parquet")).where("value > 0.5 AND key = 1")
    assert run.results("busy").count() == own.count() > 0
