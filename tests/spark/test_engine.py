"""The engine on Spark against `spark.sql` over the same tuples."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from engine_cases import (
    COLUMNS,
    DERIVED_VIEWS,
    VIEWS,
    after_each_batch,
    expected,
    folder_bag,
    rows,
    script,
    write_orders,
)
from penstock.errors import CheckpointError, InputError
from penstock.monitor.folder import folder_status
from penstock.monitor.problems import problem_lines
from penstock.spark.engine import Engine
from penstock.spark.publication import publish
from penstock.trigger import Trigger
from whole_runs import run_to_end

pytestmark = pytest.mark.spark


def _answers(engine: Engine, output: Path, views: dict[str, str]) -> dict[str, object]:
    run = run_to_end(engine, output, seconds=None)
    return {name: rows(run.results(name)) for name in views}


@pytest.mark.parametrize("views", [VIEWS, {**VIEWS, **DERIVED_VIEWS}], ids=["in_scan", "derived"])
def test_results_equal_spark_sql_on_parquet(
    spark: SparkSession, tmp_path: Path, views: dict[str, str]
) -> None:
    write_orders(tmp_path / "in", files=3, rows=2_000)
    engine = Engine(spark).execute(script(tmp_path / "in", views, options=", max_files_per_trigger '1'"))
    place = "fast path" if views is VIEWS else "slower path"
    assert place in engine.explain()
    answers = _answers(engine, tmp_path / "out", views)
    tuples = spark.read.schema(COLUMNS).parquet(str(tmp_path / "in"))
    assert answers == expected(spark, tuples, views)
    assert sum(sum(bag.values()) for bag in answers.values()) > 1000


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_results_equal_spark_sql_on_text_files(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    write_orders(tmp_path / "parquet", files=1, rows=2_000)
    tuples = (
        spark.read.schema(COLUMNS)
        .parquet(str(tmp_path / "parquet"))
        .where("NOT isnan(price) OR price IS NULL")
    )
    tuples.write.format(kind).save(str(tmp_path / "in"))
    views = {**VIEWS, **DERIVED_VIEWS}
    engine = Engine(spark).execute(script(tmp_path / "in", views, source=kind))
    assert _answers(engine, tmp_path / "out", views) == expected(spark, tuples, views)


def test_any_streaming_dataframe_and_views_on_views(spark: SparkSession, tmp_path: Path) -> None:
    write_orders(tmp_path / "in", files=2, rows=1_000)
    frame = spark.readStream.schema(COLUMNS).parquet(str(tmp_path / "in")).withColumnRenamed("name", "region")
    engine = Engine(spark).stream("orders", frame, event_time="seen")
    engine.view("large", "SELECT id, amount * 2 AS twice, region FROM orders WHERE amount > 500")
    engine.view("huge", "SELECT id FROM large WHERE twice > 1800 AND region = 'north'")
    answers = _answers(engine, tmp_path / "out", {"large": "", "huge": ""})
    tuples = spark.read.schema(COLUMNS).parquet(str(tmp_path / "in")).withColumnRenamed("name", "region")
    wanted = expected(
        spark,
        tuples,
        {
            "large": "SELECT id, amount * 2, region FROM orders WHERE amount > 500",
            "huge": "SELECT id FROM orders WHERE amount * 2 > 1800 AND amount > 500 AND region = 'north'",
        },
    )
    assert answers == wanted
    assert wanted["huge"]


def test_expression_that_raises_is_counted_and_stops_nobody(spark: SparkSession, tmp_path: Path) -> None:
    write_orders(tmp_path / "in", files=1, rows=3_000)
    engine = Engine(spark).execute(script(tmp_path / "in", DERIVED_VIEWS))
    run = run_to_end(engine, tmp_path / "out", seconds=None)
    tuples = spark.read.schema(COLUMNS).parquet(str(tmp_path / "in"))
    raising = tuples.where("amount = 0 AND name <> 'south'").count()
    assert raising > 0
    assert run.status().streams["orders"].errors == {"ratio": raising}
    (raised,) = run.events("expression_raised")
    assert "amount" in raised["expressions"]["ratio"]
    (problem,) = problem_lines(folder_status(tmp_path / "out"))
    assert f"ratio {raising:,} (`{raised['expressions']['ratio']}`)" in problem


def test_views_come_and_go_by_batch(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every tuple is answered by exactly the views registered at its batch."""
    write_orders(tmp_path / "in", files=6, rows=500)
    engine = Engine(spark).execute(script(tmp_path / "in", VIEWS, options=", max_files_per_trigger '1'"))
    seen: list[int] = []

    def change(batch: int) -> None:
        seen.append(batch)
        if batch == 1:
            engine.drop("north").view("early", "SELECT * FROM orders WHERE amount < 50")
        if batch == 3:
            engine.view("large", "SELECT * FROM orders WHERE amount > 990")

    after_each_batch(monkeypatch, change)
    run_to_end(engine, tmp_path / "out", seconds=None)
    assert seen == list(range(6))
    tuples = spark.read.schema(COLUMNS).parquet(str(tmp_path / "in"))
    bag = folder_bag(tmp_path / "out", "orders", by_manifest=True)
    assert bag == folder_bag(tmp_path / "out", "orders", by_manifest=False)
    conditions = {
        "large": "amount > IF(id < 2000, 900, 990)",
        "cheap_or_unknown": "price < 5.5 OR price IS NULL",
        "north": "name LIKE 'nor%' AND amount BETWEEN 100 AND 500 AND id < 1000",
        "early": "amount < 50 AND id >= 1000",
    }
    for view, condition in conditions.items():
        ids = {row.id for row in tuples.where(condition).collect()}
        assert {key for key, query in bag if query == view} == ids
    assert max(bag.values()) == 1


def test_stopped_run_goes_on_where_it_stopped(spark: SparkSession, tmp_path: Path) -> None:
    write_orders(tmp_path / "in", files=2, rows=500)
    text = script(tmp_path / "in", VIEWS)
    _answers(Engine(spark).execute(text), tmp_path / "out", VIEWS)
    write_orders(tmp_path / "in", files=4, rows=500)
    answers = _answers(Engine(spark).execute(text), tmp_path / "out", VIEWS)
    tuples = spark.read.schema(COLUMNS).parquet(str(tmp_path / "in"))
    assert answers == expected(spark, tuples, VIEWS)


def test_compaction_changes_no_answer(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a batch waits for merged files however long they take
    monkeypatch.setattr(publish, "PATIENCE_SECONDS", None)
    write_orders(tmp_path / "in", files=9, rows=300)
    text = script(tmp_path / "in", VIEWS, options=", max_files_per_trigger '1'")
    engine = Engine(spark, compact_every_batches=4).execute(text)
    answers = _answers(engine, tmp_path / "out", VIEWS)
    tuples = spark.read.schema(COLUMNS).parquet(str(tmp_path / "in"))
    assert answers == expected(spark, tuples, VIEWS)
    assert len(list((tmp_path / "out/matches/orders").glob("*-to-*.parquet"))) == 2


def test_output_of_another_checkpoint_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    write_orders(tmp_path / "in", files=1, rows=100)
    text = script(tmp_path / "in", VIEWS)
    engine = Engine(spark).execute(text)
    run = engine.start(tmp_path / "out", tmp_path / "one", trigger=Trigger.available_now())
    run.await_termination()
    run.stop()
    with pytest.raises(CheckpointError, match=r"its checkpoint .* does not exist"):
        Engine(spark).execute(text).start(tmp_path / "out", tmp_path / "two")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CREATE TABLE t (a INT) USING parquet OPTIONS (path '/no/such/place');", "does not exist"),
        ("CREATE TABLE t (a INT) USING parquet;", "set the option path"),
        ("CREATE TABLE t (a INT) USING sqlite OPTIONS (path 'x');", "Use parquet"),
        ("CREATE TABLE t (__penstock_step INT) USING parquet OPTIONS (path '{path}');", "reserved"),
        (
            "CREATE TABLE t (a INT) USING parquet OPTIONS (path '{path}', event_time 'b');",
            "existing columns: a",
        ),
        (
            "CREATE TABLE t (a INT) USING parquet OPTIONS (path '{path}', event_time 'a');",
            "must be a timestamp",
        ),
        (
            "CREATE TABLE t (a INT) USING parquet OPTIONS (path '{path}'); CREATE VIEW v AS SELECT * FROM t WHERE b > 1",
            "b",
        ),
        (
            "CREATE TABLE t (a INT) USING parquet OPTIONS (path '{path}'); CREATE VIEW v AS SELECT * FROM u WHERE b > 1",
            "u",
        ),
        ("CREATE TABLE t (a INT) USING kafka OPTIONS (subscribe 'x');", "kafka.bootstrap.servers is missing"),
        (
            "CREATE TABLE t (a INT) USING kafka OPTIONS (subscribe 'x', kafka.bootstrap.servers '127.0.0.1:9');",
            "no Kafka broker answers",
        ),
        (
            "CREATE TABLE t USING replay OPTIONS (path '{path}', arrival_time 'seen', speed 'fast');",
            "speed is 'fast'",
        ),
    ],
)
def test_mistakes_are_told_before_anything_starts(
    spark: SparkSession, tmp_path: Path, text: str, message: str
) -> None:
    write_orders(tmp_path / "in", files=1, rows=10)
    with pytest.raises(InputError, match=message):
        Engine(spark).execute(text.replace("{path}", str(tmp_path / "in")))
    assert not spark.streams.active


def test_column_names_of_any_kind(spark: SparkSession, tmp_path: Path) -> None:
    names = ["a.b", "c`d", "e f", "ключ", "select"]
    frame = spark.createDataFrame([(1, 2, 3, 4, 5), (10, 20, 30, 40, 50)], names)
    frame.write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema(frame.schema).parquet(str(tmp_path / "in"))
    engine = Engine(spark).stream("odd", stream)
    engine.view("plain", "SELECT * FROM odd WHERE `a.b` > 1 AND `c``d` < 100 AND `e f` = 30")
    engine.view("computed", "SELECT `c``d`, `ключ` + 1 AS next FROM odd WHERE `a.b` + `select` > 7")
    answers = _answers(engine, tmp_path / "out", {"plain": "", "computed": ""})
    assert answers == {"plain": {(10, 20, 30, 40, 50): 1}, "computed": {(20, 41): 1}}


def test_redefining_and_dropping_views_that_others_select_from(spark: SparkSession, tmp_path: Path) -> None:
    write_orders(tmp_path / "in", files=1, rows=1_000)
    engine = Engine(spark).execute(script(tmp_path / "in", {}))
    engine.view("large", "SELECT id, amount FROM orders WHERE amount > 500")
    engine.view("huge", "SELECT id FROM Large WHERE amount > 900")
    with pytest.raises(InputError, match="huge selects from Large"):
        engine.drop("large")
    with pytest.raises(InputError, match="selects from itself"):
        engine.view("large", "SELECT * FROM huge")
    with pytest.raises(InputError, match="is a table or stream"):
        engine.view("Orders", "SELECT * FROM orders")
    engine.view("LARGE", "SELECT id, amount FROM orders WHERE amount > 950")
    answers = _answers(engine, tmp_path / "out", {"large": "", "huge": ""})
    tuples = spark.read.schema(COLUMNS).parquet(str(tmp_path / "in"))
    assert answers["huge"] == rows(tuples.where("amount > 950").select("id"))
    engine.drop("huge", "large")
    assert engine.declared == {"orders": []}


def test_reconcile_follows_views_and_inserts(spark: SparkSession, tmp_path: Path) -> None:
    write_orders(tmp_path / "in", files=1, rows=100)
    console = "CREATE TABLE shown USING console;"
    text = script(tmp_path / "in", VIEWS) + console
    engine = Engine(spark).execute(text + "INSERT INTO shown SELECT * FROM large;")
    changed = dict(
        VIEWS, large="SELECT * FROM orders WHERE amount > 950", extra="SELECT * FROM large WHERE id < 5"
    )
    del changed["north"]
    insert = "INSERT INTO shown SELECT id FROM never WHERE id > 1;"
    told = engine.reconcile(script(tmp_path / "in", changed) + console + insert)
    assert (told.added, told.redefined, told.dropped, told.kept) == (["extra"], ["large"], ["north"], 3)
    (hidden,) = set(engine.declared["orders"]) - set(changed)
    assert hidden.startswith("insert_into_shown_")
    same = script(tmp_path / "in", changed)
    assert engine.reconcile(same + console).dropped == [hidden]
    assert set(engine.declared["orders"]) == set(changed)
    for text, refusal in (
        (same + console + "CREATE TABLE other (a INT) USING nothing;", "Use parquet"),
        (same, "no longer declares table shown.* restart the run"),
        (
            same.replace("amount INT", "amount BIGINT") + console,
            "Table orders has other columns than the run",
        ),
        (
            same.replace("seen'", "seen', max_files_per_trigger '1'") + console,
            "other options .*\n.*line 1: CREATE",
        ),
        (script(tmp_path / "in", {}) + console, "The script has no view"),
        ("", "The script has no view"),
    ):
        with pytest.raises(InputError, match=refusal):
            engine.reconcile(text)
    assert set(engine.declared["orders"]) == set(changed)


def test_parquet_files_of_any_nullability_name_and_age(spark: SparkSession, tmp_path: Path) -> None:
    """Required and optional columns, another suffix, a missing column, dates Python does not know."""
    folder = tmp_path / "in"
    folder.mkdir()
    for number, nullable in enumerate((False, True)):
        schema = pa.schema(
            [pa.field("id", pa.int64(), nullable), pa.field("at", pa.timestamp("us", "UTC"), nullable)]
        )
        far = pa.array([10**18 + number, -(10**17)], pa.int64()).cast(pa.timestamp("us", "UTC"))
        table = pa.table([pa.array([number * 10, number * 10 + 1]), far], schema=schema)
        pq.write_table(table, folder / f"{number}.{'parquet' if nullable else 'parq'}")
    pq.write_table(pa.table({"id": pa.array([20, 21])}), folder / "2.parquet")
    (folder / "3.parquet").write_bytes(b"PAR1 this is no Parquet file PAR1")
    engine = Engine(spark).execute(
        f"CREATE TABLE t (id BIGINT, at TIMESTAMP) USING parquet OPTIONS (path '{folder}');"
        "CREATE VIEW far AS SELECT id FROM t WHERE at > TIMESTAMP '2020-01-01' OR at IS NULL;"
        "CREATE VIEW old AS SELECT id FROM t WHERE at < TIMESTAMP '1900-01-01' AND id >= 0;"
    )
    run = run_to_end(engine, tmp_path / "out", seconds=None)
    assert run.await_termination()
    assert sorted(row.id for row in run.results("FAR").collect()) == [0, 10, 20, 21]
    assert sorted(row.id for row in run.results("old").collect()) == [1, 11]
    assert sum(run.status().streams["t"].quarantined.values()) == 1


def test_row_groups_are_skipped_by_statistics_and_nothing_is_missed(
    spark: SparkSession, tmp_path: Path
) -> None:
    count = 2_000
    numbers = list(range(count))
    table = pa.table(
        {
            "i": pa.array(numbers, pa.int32()),
            "f": pa.array([float("nan") if n % 500 == 0 else n / 2 for n in numbers]),
            "s": pa.array([f"k{n:05d}" if n >= 100 else None for n in numbers]),
            "d": pa.array(numbers, pa.int32()).cast(pa.date32()),
            "m": pa.array(numbers, pa.int64()).cast(pa.decimal128(20, 0)).cast(pa.decimal128(12, 2)),
        }
    )
    (tmp_path / "in").mkdir()
    pq.write_table(table, tmp_path / "in" / "0.parquet", row_group_size=40)
    conditions = {
        "i": "i BETWEEN 1010 AND 1015",
        "s": "s = 'k00777'",
        "d": "d = DATE '1970-03-01'",
        "m": "m > 1998.5",
        "none": "s IS NULL AND i > 90",
        "nan": "f > 1e300 AND i < 30",
    }
    stored = spark.read.parquet(str(tmp_path / "in"))
    stored.createOrReplaceTempView("sorted")
    columns = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in stored.schema)
    engine = Engine(spark).execute(
        f"CREATE TABLE sorted ({columns}) USING parquet OPTIONS (path '{tmp_path / 'in'}')"
    )
    engine.add_views({name: f"SELECT * FROM sorted WHERE {text}" for name, text in conditions.items()})
    run = run_to_end(engine, tmp_path / "out", seconds=None)
    # Spark's own pushdown believes statistics that leave NaN out, and would miss it
    spark.conf.set("spark.sql.parquet.filterPushdown", "false")
    for name, text in conditions.items():
        assert rows(run.results(name)) == rows(spark.sql(f"SELECT * FROM sorted WHERE {text}")), name
    spark.conf.unset("spark.sql.parquet.filterPushdown")
    (batch,) = run.events("batch")
    assert batch["tuples"] == count
    assert batch["skipped"] >= count - 7 * 40


def test_inserts_into_one_table_and_a_projection_that_raises(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_orders(tmp_path / "in", files=1, rows=10)
    text = script(tmp_path / "in", {"all_of_them": "SELECT id, 1 div id AS inverse FROM orders"})
    text += "CREATE TABLE Shown USING console; INSERT INTO shown SELECT * FROM all_of_them;"
    text += "INSERT INTO Shown SELECT id FROM orders WHERE id = 3; INSERT INTO shown SELECT id FROM orders WHERE id = 4;"
    _answers(Engine(spark).execute(text), tmp_path / "out", {})
    shown = capsys.readouterr().out
    assert '{"id":0,"inverse":null}' in shown
    assert '{"id":1,"inverse":1}' in shown
    assert shown.count('{"id":3}') == shown.count('{"id":4}') == 1


def test_warnings_of_views_come_and_go_with_them(spark: SparkSession, tmp_path: Path) -> None:
    write_orders(tmp_path / "in", files=1, rows=10)
    views = {"cast": "SELECT * FROM orders WHERE name > 5", "fine": "SELECT * FROM orders WHERE name > '5'"}
    engine = Engine(spark).execute(script(tmp_path / "in", views))
    (warning,) = engine.warnings
    assert warning.startswith("cast: `name` is STRING")
    engine.view("cast", "SELECT * FROM orders WHERE name > '5'")
    assert engine.warnings == []


@pytest.mark.parametrize(
    ("setting", "value"),
    [("ansi.enabled", "false"), ("caseSensitive", "true"), ("timestampType", "TIMESTAMP_NTZ")],
)
def test_a_session_in_which_conditions_mean_something_else_is_refused(
    spark: SparkSession, tmp_path: Path, setting: str, value: str
) -> None:
    write_orders(tmp_path / "in", files=1, rows=10)
    engine = Engine(spark).execute(script(tmp_path / "in", VIEWS))
    name = f"spark.sql.{setting}"
    before = spark.conf.get(name)
    spark.conf.set(name, value)
    try:
        with pytest.raises(InputError, match=f"{setting} is {value}"):
            Engine(spark)
        with pytest.raises(InputError, match=f"{setting} is {value}"):
            engine.start(tmp_path / "out")
    finally:
        spark.conf.set(name, before or "")
