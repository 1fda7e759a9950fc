"""Window views through the whole engine: early answers, corrections, and results that equal Spark's in the end."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from engine_cases import put_file
from forms import ALL
from joined_inputs import multiset
from penstock.errors import InputError, SqlError
from penstock.monitor.folder import folder_status
from penstock.monitor.overview import view_rows
from penstock.monitor.report import status_lines
from penstock.monitor.snapshot import take_snapshot
from penstock.spark.engine import Engine
from penstock.spark.run import Run
from penstock.spark.storage.layout import Layout
from penstock.trigger import Trigger
from whole_runs import run_to_end

START = 1_700_000_000_000_000
COLUMNS = "ts TIMESTAMP, key BIGINT, name STRING, value DOUBLE, price DECIMAL(10,2)"
VIEWS = {
    "sums": "SELECT /*+ MAX_ERROR(0.05, 0.05) */ key, window(ts, '1 second', '500 milliseconds') AS w, "
    "sum(value) AS s, count(*) AS n, avg(price) AS p FROM tuples GROUP BY key, w",
    "busy": "SELECT name, window.start AS begun, count(*) AS n, round(stddev(value), 6) AS deviation FROM tuples "
    "WHERE value > 0.2 GROUP BY name, window(ts, '2 seconds') HAVING count(*) > 120",
    "spread": "SELECT window(ts, '3 seconds', '1 second', '250 milliseconds') AS w, count(DISTINCT key) AS keys, "
    "median(value) AS middle, min(name) AS first, max(price) AS dearest FROM tuples GROUP BY w",
    # of so few values both Spark's sketch and ours know every one
    "sketched": "SELECT name, window(ts, '1 second') AS w, approx_percentile(key, 0.3) AS k, "
    "percentile_approx(value, 0.9) AS v, approx_percentile(ts, 1.0) AS t, approx_percentile(price, 0.5, 5000) AS p, "
    "approx_count_distinct(key) AS n FROM tuples GROUP BY name, w",
}


def tuples(number: int, rows: int) -> pa.Table:
    """A file of tuples, some of them late by up to 4 s; the last one by 20 s."""
    rng = np.random.default_rng(number)
    event = (number * rows + np.arange(rows)) * 1_000
    late = (rng.random(rows) < 0.1) * rng.integers(0, 4_000_000, rows)
    late[-1] = 20_000_000
    price = pa.array(rng.integers(0, 10_000, rows)).cast(pa.decimal128(19, 0))
    return pa.table(
        {
            "ts": pa.array(START + event - late).cast(pa.timestamp("us", "UTC")),
            "key": pa.array(rng.integers(0, 5, rows), mask=rng.random(rows) < 0.05),
            "name": rng.choice(["a", "b", "c"], rows),
            "value": pa.array(rng.random(rows), mask=rng.random(rows) < 0.05),
            "price": price.cast(pa.decimal128(10, 2), safe=False),
        }
    )


def write(folder: Path, numbers: range, rows: int = 2_000) -> Path:
    folder.mkdir(exist_ok=True)
    for number in numbers:
        put_file(folder / f"{number:03d}.parquet", partial(pq.write_table, tuples(number, rows)))
    return folder


def engine_on(spark: SparkSession, data: Path, **tune: float) -> Engine:
    return Engine(spark, **tune).execute(
        f"CREATE TABLE tuples ({COLUMNS}) USING parquet "
        f"OPTIONS (path '{data}', event_time 'ts', max_files_per_trigger '2')"
    )


def rounded(frame: DataFrame) -> DataFrame:
    kinds = dict(frame.dtypes)
    return frame.selectExpr(
        *(f"round(`{c}`, 6) AS `{c}`" if kinds[c] == "double" else f"`{c}`" for c in frame.columns)
    )


def assert_equal_to_spark(
    spark: SparkSession, found: DataFrame, files: Sequence[Path], sql: str, since: datetime | None = None
) -> None:
    """Compares the rows of a view, or those of its windows that end after a moment."""
    spark.read.schema(COLUMNS).parquet(*map(str, files)).createOrReplaceTempView("tuples")
    expected = spark.sql(sql)
    if since is not None:
        end = F.col("w.end") if "w" in expected.columns else F.expr("begun + INTERVAL 2 SECONDS")
        expected = expected.where(end > F.lit(since))
    assert found.schema.simpleString() == expected.schema.simpleString()
    assert multiset(rounded(found)) == multiset(rounded(expected))


@pytest.mark.parametrize("map_in_scan", [True, pytest.param(False, marks=pytest.mark.long)])
def test_final_results_equal_spark_over_all_tuples(
    spark: SparkSession, tmp_path: Path, map_in_scan: bool
) -> None:
    data = write(tmp_path / "data", range(8))
    run = (
        engine_on(spark, data, map_in_scan=map_in_scan)
        .add_views(VIEWS)
        .start(tmp_path / "out", trigger=Trigger.available_now(ended=True))
    )
    run.await_termination()
    for name, sql in VIEWS.items():
        assert_equal_to_spark(spark, run.results(name), [data], sql)
    changes = run.changes("sums").select("revision", "is_final").collect()
    kinds = {(row.revision == 0, row.is_final) for row in changes}
    assert {(True, False), (False, True)} <= kinds
    run.stop()


@pytest.mark.long
def test_views_that_differ_in_their_condition_share_an_operator(spark: SparkSession, tmp_path: Path) -> None:
    data, out = write(tmp_path / "data", range(8)), tmp_path / "out"
    conditions = (
        "value > 0.2",
        "value < 0.05",
        "key = 3",
        "name = 'a' AND value BETWEEN 0.5 AND 0.7",
        "value > 2",
    )
    views = {
        f"v{number}": "SELECT key, window(ts, '1 second', '500 milliseconds') AS w, sum(value) AS s, count(*) AS n, "
        f"max(name) AS last, count(DISTINCT name) AS names FROM tuples WHERE {condition} GROUP BY key, w"
        for number, condition in enumerate(conditions)
    }
    other = {
        "other": views["v0"].replace("sum(value)", "avg(value)").replace("0.2", "0.3"),
        "every": VIEWS["sums"],
    }
    engine = engine_on(spark, data).add_views({**views, **other})
    assert ", keys key, each tuple aggregated once for 5 conditions" in engine.explain()
    run = engine.start(out, trigger=Trigger.available_now(ended=True))
    run.await_termination()
    for name, sql in {**views, **other}.items():
        assert_equal_to_spark(spark, run.results(name), [data], sql)
    run.stop()
    layout = Layout(out, out / "_penstock/checkpoint")
    assert len(list(layout.operators("tuples"))) == 3


def test_late_tuples_and_sums_too_large_are_told(spark: SparkSession, tmp_path: Path) -> None:
    data, out = write(tmp_path / "data", range(10)), tmp_path / "out"
    text = "SELECT window(ts, '1 second') AS w, {}(key + 9000000000000000000) AS s FROM tuples GROUP BY w"
    engine = engine_on(spark, data, max_delay_seconds=1)
    run = engine.view("huge", text.format("sum")).start(out, trigger=Trigger.available_now())
    run.await_termination()
    assert_equal_to_spark(spark, run.results("huge"), [data], text.format("try_sum"))
    too_large = run.results("huge").where("s IS NULL").count()
    (line,) = (stream.line() for stream in take_snapshot(run.status().to_dict()["streams"]))
    assert "for a SUM or AVG that does not fit its type in huge" in line
    run.stop()
    assert "NULL for a SUM or AVG that does not fit its type" in "\n".join(
        status_lines(folder_status(out), verbose=True)
    )
    events = [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]
    windows = [event for event in events if event["kind"] == "windows"]
    # the last tuple of each file is 20 s late; those of the last files are of final windows
    assert sum(event["late_beyond"] for event in windows) >= 2
    assert sum(event["late_tuples"] for event in windows) >= 2
    assert sum(event["views"].get("huge", {}).get("overflowed", 0) for event in windows) >= too_large > 1


def test_sinks_get_every_revision(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data = write(tmp_path / "data", range(4))
    handed: list[tuple[int, list[str], list[Row]]] = []

    def keep(rows: DataFrame, batch: int) -> None:
        handed.append((batch, rows.columns, rows.collect()))

    engine = engine_on(spark, data).add_views({name: VIEWS[name] for name in ("sums", "busy")})
    engine.sink("sums", keep)
    engine.execute("CREATE TABLE shown USING console; INSERT INTO shown SELECT * FROM busy")
    run = engine.start(tmp_path / "out", trigger=Trigger.available_now())
    run.await_termination()
    told = run.changes("sums")
    assert Counter(row[:-2] for _, _, rows in handed for row in rows) == Counter(
        tuple(row) for row in told.collect()
    )
    places = [(row.penstock_batch, row.penstock_ordinal) for _, _, rows in handed for row in rows]
    assert len(set(places)) == len(places)
    assert handed[0][1] == [*told.columns, "penstock_ordinal", "penstock_batch"]
    lines = [line for line in capfd.readouterr().out.splitlines() if line.startswith("shown ")]
    assert len(lines) == run.changes("busy").count()
    run.stop()
    shown = {row.name: row.rows for row in view_rows(folder_status(tmp_path / "out"))}
    assert shown == {name: run.results(name).count() for name in ("sums", "busy")}


@pytest.mark.long
def test_a_checkpoint_goes_on_after_the_end_of_a_run(spark: SparkSession, tmp_path: Path) -> None:
    data, out = write(tmp_path / "data", range(4)), tmp_path / "out"
    for more in (range(0), range(4, 8)):
        write(data, more)
        run = run_to_end(engine_on(spark, data).add_views(VIEWS), out, seconds=None)
    for name, sql in VIEWS.items():
        assert_equal_to_spark(spark, run.results(name), [data], sql)


def test_a_first_window_view_joins_a_running_engine_and_the_last_one_leaves(
    spark: SparkSession, tmp_path: Path
) -> None:
    data, out = write(tmp_path / "data", range(2)), tmp_path / "out"
    engine = engine_on(spark, data).view("dear", "SELECT * FROM tuples WHERE price > 99")
    run = engine.start(out)
    wait_for(run, 4_000)
    since = newest_of(data)
    views = VIEWS if ALL else {name: VIEWS[name] for name in ("sums", "busy")}
    engine.add_views(views)
    write(data, range(2, 6))
    wait_for(run, 12_000)
    run.stop()
    run = engine.start(out, trigger=Trigger.available_now())
    run.await_termination()
    own = [data / f"{number:03d}.parquet" for number in range(6)]
    for name, sql in views.items():
        assert_equal_to_spark(spark, run.results(name), own, sql, since)
    run.stop()
    engine.drop(*views)
    write(data, range(6, 8))
    run = engine.start(out, trigger=Trigger.available_now())
    run.await_termination()
    assert run.results("dear").count() == spark.read.parquet(str(data)).where("price > 99").count()
    for name, sql in views.items():
        assert_equal_to_spark(spark, run.results(name), own, sql, since)
    run.stop()


def newest_of(data: Path) -> datetime:
    """The newest event time of a folder."""
    newest = pc.max(pq.read_table(data).column("ts").cast(pa.int64())).as_py()
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=newest)


def wait_for(run: Run, count: int, seconds: float = 300) -> None:
    """Until so many tuples of the stream have been published."""
    deadline = time.monotonic() + seconds
    while run.status().streams["tuples"].tuples < count:
        assert time.monotonic() < deadline, "in time"
        time.sleep(0.2)


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("SELECT window(ts, '0 seconds') AS w, count(*) AS n FROM tuples GROUP BY w", "0 seconds"),
        ("SELECT window(ts, '-1 second') AS w, count(*) AS n FROM tuples GROUP BY w", "-1 second"),
        (
            "SELECT window(ts, '1 second') AS w, histogram_numeric(key, 3) AS n FROM tuples GROUP BY w",
            "HISTOGRAM_NUMERIC is not supported",
        ),
        (
            "SELECT /*+ MAX_ERROR(2, 0.05) */ window(ts, '1 second') AS w, count(*) AS n FROM tuples GROUP BY w",
            "epsilon",
        ),
        ("SELECT window(ts, '1 second') AS w, count(*) AS _row FROM tuples GROUP BY w", "reserved"),
        (
            "SELECT window(ts, '1 second') AS w, approx_percentile(value, 0.5, 0) AS n FROM tuples GROUP BY w",
            "from 1 to 10000",
        ),
    ],
)
def test_mistakes_are_told_before_anything_starts(
    spark: SparkSession, tmp_path: Path, sql: str, told: str
) -> None:
    engine = engine_on(spark, write(tmp_path / "data", range(1), 10))
    with pytest.raises(InputError, match=told):
        engine.view("v", sql)


def test_a_process_killed_before_its_first_batch_leaves_nothing_in_the_way(
    spark: SparkSession, tmp_path: Path
) -> None:
    data, out = write(tmp_path / "data", range(2)), tmp_path / "out"
    layout = Layout(out, out / "_penstock/checkpoint")
    layout.open()
    left = [layout.spark("tuples") / f"{folder}/.0.5ee1.tmp" for folder in ("offsets", "commits")]
    left.append(layout.window_states("tuples") / "0000000000-00000-5ee1.state")
    for unfinished in left:
        unfinished.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_text("v1")
    run = engine_on(spark, data).view("sums", VIEWS["sums"]).start(out, trigger=Trigger.available_now())
    run.await_termination()
    assert_equal_to_spark(spark, run.results("sums"), [data], VIEWS["sums"])
    run.stop()


def test_explain_tells_what_each_window_view_promises(spark: SparkSession, tmp_path: Path) -> None:
    told = engine_on(spark, write(tmp_path / "data", range(1), 10)).add_views(VIEWS).explain()
    assert (
        "sums: windows of 1 second every 0.5 seconds; sum(value), count(*), avg(price); "
        "slack policy required: at most 5 % of early answers are off by 5 % or more"
    ) in told
    assert "busy: windows of 2 seconds; count(*), stddev_samp(value); HAVING count(*) > 120;" in told


def test_a_window_is_over_the_event_time(spark: SparkSession, tmp_path: Path) -> None:
    data = write(tmp_path / "data", range(1), 10)
    engine = Engine(spark).execute(f"CREATE TABLE tuples ({COLUMNS}) USING parquet OPTIONS (path '{data}')")
    with pytest.raises(SqlError, match="event_time 'column'"):
        engine.view("v", "SELECT window(ts, '1 second') AS w, count(*) AS n FROM tuples GROUP BY w")
