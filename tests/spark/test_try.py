"""`Engine.backtest` and `penstock try`: the counts and rows are those of `spark.sql` over the same tuples."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from engine_cases import COLUMNS, DERIVED_VIEWS, VIEWS, write_orders
from forms import ALL
from penstock.cli.main import main
from penstock.errors import InputError, UnknownNameError
from penstock.spark.engine import Engine
from penstock.trigger import Trigger

pytestmark = pytest.mark.spark

#: division by NULL or another number than 0 only
_SAFE = {name: text for name, text in {**VIEWS, **DERIVED_VIEWS}.items() if name != "ratio"}
WINDOWS = "SELECT name, count(*) AS n, max(price) AS dearest FROM large GROUP BY window(seen, '1 minute'), name HAVING count(*) > 1"
JOIN = "SELECT o.id, n.side FROM orders o JOIN names n ON o.name = n.name WHERE o.amount > 900 AND n.side <> 'left'"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_orders(tmp_path / "in", 2, 300)
    (tmp_path / "names").mkdir()
    (tmp_path / "names" / "1.csv").write_text("name,side\nnorth,left\nsouth,right\nsouth,down\n")
    views = ";\n".join(f"CREATE VIEW {name} AS {text}" for name, text in _SAFE.items())
    (tmp_path / "script.sql").write_text(
        f"CREATE TABLE orders ({COLUMNS}) USING parquet OPTIONS (path '{tmp_path}/in', event_time 'seen');\n"
        f"CREATE TABLE names (name STRING, side STRING) USING csv OPTIONS (path '{tmp_path}/names', header 'true', static 'true');\n"
        f"{views};\nCREATE VIEW busy AS {WINDOWS};\nCREATE VIEW sides AS {JOIN};\n"
    )
    return tmp_path


@pytest.fixture
def engine(spark: SparkSession, folder: Path) -> Engine:
    spark.read.parquet(f"{folder}/in").createOrReplaceTempView("orders")
    spark.read.option("header", "true").csv(f"{folder}/names").createOrReplaceTempView("names")
    spark.sql(VIEWS["large"]).createOrReplaceTempView("large")
    return Engine(spark).execute((folder / "script.sql").read_text())


def test_counts_are_those_of_spark(spark: SparkSession, engine: Engine) -> None:
    for name, text in list(_SAFE.items())[:: 1 if ALL else 3]:
        found = engine.backtest(name, rows=1000)
        expected = spark.sql(text)
        assert (found.tuples, found.matches) == ({"orders": 600}, expected.count()), name
        assert [list(row) for row in found.rows[:1]] == [expected.columns][: found.matches]
        assert len(found.rows) == found.matches
        by_hour = spark.sql(
            f"SELECT CAST(date_trunc('hour', seen) AS STRING) AS hour, count(*) AS n FROM orders WHERE {text.partition('WHERE')[2]} GROUP BY 1"
        )
        own = {each.of: each.matches for each in found.counts if each.matches}
        assert own == {row.hour: row.n for row in by_hour.collect()}, name
        assert sum(each.tuples or 0 for each in found.counts) == 600


def test_each_part_of_a_condition_lets_through_what_spark_says(spark: SparkSession, engine: Engine) -> None:
    # as Spark's WHERE stops where an expression raises, the third is asked in a form that does not
    parts = {
        "amount > 900": "amount > 900",
        "price < 50 OR name = 'north'": "price < 50 OR name = 'north'",
        "1000 / amount > 20": "try_divide(1000, amount) > 20",
    }
    found = engine.backtest(
        "draft", sql=f"SELECT * FROM orders WHERE {' AND '.join(f'({part})' for part in parts)}"
    )
    assert {each.text: each.tuples for each in found.parts} == {
        part: spark.sql(f"SELECT * FROM orders WHERE {safe}").count() for part, safe in parts.items()
    }
    assert engine.backtest("large").parts == (), "one part lets through what matches"


def test_a_window_view_is_counted_by_window(spark: SparkSession, engine: Engine) -> None:
    found = engine.backtest("busy", rows=1000)
    expected = spark.sql(
        f"SELECT w.start AS of, n FROM ({WINDOWS.replace('SELECT', 'SELECT window AS w,', 1)})"
    )
    rows = expected.collect()
    assert found.by == "window"
    assert (found.matches, found.tuples) == (len(rows), {"orders": 600})
    counts: dict[str, int] = {}
    for row in rows:
        counts[str(row.of)] = counts.get(str(row.of), 0) + 1
    assert {each.of: each.matches for each in found.counts} == counts
    assert sorted(row["n"] for row in found.rows) == sorted(row.n for row in rows)
    assert set(found.rows[0]) == {"name", "n", "dearest"}


@pytest.mark.long
def test_a_join_view_reads_the_files_of_its_tables(spark: SparkSession, engine: Engine) -> None:
    found = engine.backtest("sides", rows=1000)
    expected = spark.sql(JOIN).collect()
    assert found.tuples == {"orders": 600, "names": 3}
    assert sorted((row["id"], row["side"]) for row in found.rows) == sorted(map(tuple, expected))
    assert sum(each.matches for each in found.counts) == found.matches == len(expected) > 0
    with pytest.raises(InputError, match="View sides is a join view"):
        engine.backtest("sides", over="/tmp")


def test_a_draft_is_tried_and_not_declared(engine: Engine) -> None:
    found = engine.backtest("draft", sql="SELECT id FROM large WHERE amount < 950")
    assert found.matches > 0
    assert found.sql == "SELECT id FROM large WHERE amount < 950"
    assert "draft" not in engine.views
    changed = engine.backtest("large", sql="SELECT * FROM orders WHERE amount > 990")
    assert 0 < changed.matches < engine.backtest("large").matches
    with pytest.raises(UnknownNameError, match="Column amont does not exist"):
        engine.backtest("draft", sql="SELECT * FROM orders WHERE amont > 1")


@pytest.mark.long
def test_a_condition_that_raises_is_no_match_and_counted(engine: Engine, spark: SparkSession) -> None:
    found = engine.backtest("draft", sql="SELECT * FROM orders WHERE 1000 / (amount % 2) > 2 OR id = 0")
    odd = spark.sql("SELECT count(*) FROM orders WHERE amount % 2 = 1 OR id = 0").first()
    even = spark.sql("SELECT count(*) FROM orders WHERE amount % 2 = 0 AND id <> 0").first()
    assert odd is not None
    assert even is not None
    assert (found.matches, found.errors) == (odd[0], even[0])


@pytest.mark.long
def test_tuples_of_a_span_and_of_other_places(engine: Engine, spark: SparkSession, folder: Path) -> None:
    span = {"since": "2026-01-01 00:01", "until": "2026-01-01 00:03"}
    expected = spark.sql(f"{VIEWS['large']} AND seen >= '{span['since']}' AND seen < '{span['until']}'")
    found = engine.backtest("large", **span)
    assert (found.matches, found.tuples) == (expected.count(), {"orders": 150})
    assert engine.backtest("large", over=folder / "in" / "000.parquet").tuples == {"orders": 300}
    before = sorted(path.name for path in folder.rglob("*"))
    assert engine.backtest("large", over=str(folder / "in")).tuples == {"orders": 600}
    assert sorted(path.name for path in folder.rglob("*")) == before
    with engine.start(folder / "out", trigger=Trigger.available_now(ended=True)) as run:
        run.await_termination()
    stored = engine.backtest("large", over=folder / "out")
    assert stored.matches == engine.backtest("large").matches
    assert "only tuples of orders that a view matched" in stored.notes[0]
    with pytest.raises(InputError, match="Path nowhere does not exist"):
        engine.backtest("large", over="nowhere")
    with pytest.raises(InputError, match="since 'soon' is not a date or timestamp"):
        engine.backtest("large", since="soon")


def test_a_stream_without_event_time_is_counted_by_file_and_one_without_files_needs_a_place(
    spark: SparkSession, folder: Path
) -> None:
    (folder / "csv").mkdir()
    (folder / "csv" / "a.csv").write_text("id,city\n1,Bern\n2,Rome\nx,Rome\n")
    (folder / "csv" / "b.csv").write_text("id,city\n3,Bern\n")
    engine = Engine(spark).execute(
        f"CREATE TABLE places (id INT, city STRING) USING csv OPTIONS (path '{folder}/csv', header 'true');"
        "CREATE VIEW bern AS SELECT * FROM places WHERE city = 'Bern';"
    )
    found = engine.backtest("bern")
    assert (found.by, found.set_aside, found.tuples) == ("file", 1, {"places": 3})
    assert [(each.of.rpartition("/")[2], each.tuples, each.matches) for each in found.counts] == [
        ("a.csv", 2, 1),
        ("b.csv", 1, 1),
    ]
    with pytest.raises(InputError, match="Stream places has no event time"):
        engine.backtest("bern", since="2026-01-01")
    engine.stream("ticks", spark.readStream.format("rate").load()).view(
        "odd", "SELECT value FROM ticks WHERE value > 1"
    )
    with pytest.raises(InputError, match="Stream ticks is a streaming DataFrame"):
        engine.backtest("odd")


@pytest.mark.usefixtures("spark")
def test_the_command_prints_the_answer(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def call(*arguments: object) -> int:
        monkeypatch.setattr(sys, "argv", ["penstock", *map(str, arguments)])
        try:
            main()
        except SystemExit as ended:
            return int(ended.code or 0)
        return 0

    script = folder / "script.sql"
    assert call("try", script, "--sql", "SELECT id FROM orders WHERE id < 3", "--limit", 1) == 0
    assert capsys.readouterr().out.splitlines() == [
        "draft: 3 matches in 600 tuples of orders",
        f"orders: {folder}/in",
        "matches by hour:",
        f"  2026-01-01 00:00:00        3 {'#' * 40}",
        "rows, 1 of 3:",
        "  id = 0",
    ]
    assert call("try", script, "large", "--format", "json") == 0
    assert json.loads(capsys.readouterr().out)["tuples"] == {"orders": 600}
    assert call("try", script, "larg") == 2
    assert "did you mean large?" in capsys.readouterr().err
    assert call("try", script) == 2
