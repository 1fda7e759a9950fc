"""Sinks of a run: selections, computed columns, windows and joins in tables, beside a sink that fails."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from engine_cases import COLUMNS, rows, script, write_orders
from penstock.monitor.folder import folder_status
from penstock.monitor.report import status_lines
from penstock.spark.engine import Engine
from penstock.trigger import Trigger
from sink_cases import until

deltalake = pytest.importorskip("deltalake", reason="the package deltalake is not installed")
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

VIEWS = {
    "large": "SELECT * FROM orders WHERE amount > 900",
    "shouted": "SELECT id, upper(name) AS shouted, price * 2 AS doubled FROM orders WHERE amount > 700",
    "by_name": "SELECT name, window(seen, '1 minute') AS w, count(*) AS n FROM orders GROUP BY name, w",
    "pairs": "SELECT a.id AS one, b.id AS other FROM orders a JOIN orders b ON a.name = b.name AND a.amount = b.amount "
    "AND a.seen < b.seen AND b.seen <= a.seen + INTERVAL 2 MINUTES",
}


def tables(folder: Path, *views: str) -> str:
    """A Delta table for each view, and an INSERT INTO it."""
    return "".join(
        f"CREATE TABLE {view}_table USING delta OPTIONS (path '{folder / view}');"
        f"INSERT INTO {view}_table SELECT * FROM {view};"
        for view in views
    )


def in_spark(spark: SparkSession, path: Path) -> DataFrame:
    """A Delta table as Spark reads its files."""
    return spark.createDataFrame(deltalake.DeltaTable(path).to_pyarrow_table())


def test_tables_equal_the_views_whatever_they_are(spark: SparkSession, tmp_path: Path) -> None:
    write_orders(tmp_path / "in", 3, 300)
    engine = Engine(spark, compact_every_batches=2)
    engine.execute(script(tmp_path / "in", VIEWS, options=", max_files_per_trigger '1'"))
    engine.execute(tables(tmp_path, *VIEWS))
    with engine.start(tmp_path / "out", trigger=Trigger.available_now(ended=True)) as run:
        run.await_termination(600)
        for view in VIEWS:
            found = in_spark(spark, tmp_path / view)
            assert rows(found.drop("is_final")) == rows(run.results(view)), view
        status = run.status().sinks["large_table.large"]
        assert (status.view, status.kind, status.backlog, status.trouble) == ("large", "delta", 0, None)
        assert status.deliveries > 0
    assert "sink large_table.large (delta) | " in "\n".join(
        status_lines(folder_status(tmp_path / "out"), verbose=True)
    )


def test_a_sink_begun_later_gets_the_rows_of_before(spark: SparkSession, tmp_path: Path) -> None:
    write_orders(tmp_path / "in", 2, 300)
    text = script(tmp_path / "in", {"large": VIEWS["large"]}, options=", max_files_per_trigger '1'")
    with Engine(spark).execute(text).start(tmp_path / "out", trigger=Trigger.available_now()) as run:
        run.await_termination(600)
    write_orders(tmp_path / "in", 3, 300)
    engine = Engine(spark).execute(text).execute(tables(tmp_path, "large"))
    with engine.start(tmp_path / "out", trigger=Trigger.available_now()) as run:
        run.await_termination(600)
        assert rows(in_spark(spark, tmp_path / "large")) == rows(run.results("large"))


def test_a_sink_that_fails_stops_nobody_and_is_a_problem_until_it_works(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_orders(tmp_path / "in", 1, 300)
    mended = tmp_path / "mended"
    taken: list[int] = []

    def pager(given: DataFrame, _: int) -> None:
        if not mended.exists():
            raise ConnectionError("nobody is there")
        taken.extend(row.id for row in given.select("id").collect())

    engine = Engine(spark, retry_seconds=0.1).execute(script(tmp_path / "in", {"large": VIEWS["large"]}))
    engine.execute(tables(tmp_path, "large")).sink("large", pager)
    with engine.start(tmp_path / "out") as run:
        until(lambda: bool(run.events("sink_retried")), 300)
        write_orders(tmp_path / "in", 3, 300)
        until(lambda: run.status().streams["orders"].tuples == 900, 300)
        until(lambda: rows(in_spark(spark, tmp_path / "large")) == rows(run.results("large")), 300)
        assert run.status().streams["orders"].state == "running"
        told = "\n".join(status_lines(folder_status(tmp_path / "out"), verbose=True))
        assert "RETRYING: sink pager of view large failed: ConnectionError: nobody is there" in told
        trouble = run.status().sinks["pager.large"].trouble
        assert trouble is not None
        assert trouble.state == "retrying"
        mended.touch()
        tuples = spark.read.schema(COLUMNS).parquet(str(tmp_path / "in"))
        wanted = sorted(row.id for row in tuples.where("amount > 900").collect())
        until(lambda: sorted(taken) == wanted, 300)
        until(lambda: run.status().sinks["pager.large"].trouble is None, 60)


def test_rows_of_a_running_view_go_on_behind_the_end_of_the_stream(
    spark: SparkSession, tmp_path: Path
) -> None:
    text = script(
        tmp_path / "in",
        {"totals": "SELECT name, count(*) AS n, max(amount) AS most FROM orders GROUP BY name"},
    )
    for files in (1, 3):
        write_orders(tmp_path / "in", files, 300)
        engine = Engine(spark).execute(text).execute(tables(tmp_path, "totals"))
        # the rows of the first run are final when it ends, and are replaced by the next one
        with engine.start(tmp_path / "out", trigger=Trigger.available_now(ended=files == 1)) as run:
            run.await_termination(600)
            assert rows(in_spark(spark, tmp_path / "totals")) == rows(run.results("totals"))
    (counted,) = in_spark(spark, tmp_path / "totals").selectExpr("sum(n)").first()
    assert counted == 900


def test_changes_of_a_left_join_are_netted_by_equal_rows(spark: SparkSession, tmp_path: Path) -> None:
    def feed(name: str, number: int, *rows: tuple[int | None, int]) -> None:
        (tmp_path / name).mkdir(exist_ok=True)
        moments = pa.array([(1_700_000_000 + second) * 1_000_000 for _, second in rows])
        times = moments.cast(pa.timestamp("us", "UTC"))
        table = pa.table({"k": pa.array([key for key, _ in rows], pa.int64()), "ts": times})
        pq.write_table(table, tmp_path / name / f"{number}.parquet")

    tables = "".join(
        f"CREATE TABLE {name} (k BIGINT, ts TIMESTAMP) USING parquet OPTIONS (path '{tmp_path / name}', event_time 'ts');"
        for name in ("l", "r")
    )
    text = (
        f"{tables} CREATE TABLE lake USING delta OPTIONS (path '{tmp_path / 'lake'}', mode 'changes');"
        "CREATE VIEW pairs AS SELECT l.k, r.k AS other FROM l LEFT JOIN r "
        "ON l.k = r.k AND r.ts BETWEEN l.ts AND l.ts + INTERVAL 9 SECONDS; INSERT INTO lake SELECT * FROM pairs;"
    )
    feed("l", 0, (1, 100), (2, 100), (1, 100), (3, 100), (None, 100))
    feed("r", 0, (2, 101))
    for number in range(2):
        with (
            Engine(spark)
            .execute(text)
            .start(tmp_path / "out", trigger=Trigger.available_now(ended=True)) as run
        ):
            assert run.await_termination(300)
            changes, expected = run.changes("pairs"), rows(run.results("pairs"))
            assert changes.columns == ["k", "other", "op"]
            told = rows(changes)
        if not number:
            feed("r", 1, (1, 105), (1, 106))
    found = in_spark(spark, tmp_path / "lake")
    assert found.columns == ["k", "other", "op"]
    assert rows(found) == told
    found.createOrReplaceTempView("netted")
    net = spark.sql(
        "SELECT k, other, count_if(op = 'insert') - count_if(op = 'delete') AS n FROM netted GROUP BY ALL HAVING n > 0"
    )
    assert found.where("op = 'delete'").count() == 2
    assert rows(net.selectExpr("k", "other", "explode(sequence(1L, n))").drop("col")) == expected
