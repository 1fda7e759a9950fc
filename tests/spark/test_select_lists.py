"""SELECT lists of selections: no name stands twice, and a sink gets as many columns as its table declares."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.errors import DuplicateNameError, SqlError, TypeMismatchError
from penstock.spark.engine import Engine

pytestmark = pytest.mark.spark

TABLE = "CREATE TABLE orders (id INT, city STRING, amount DOUBLE, at TIMESTAMP) USING csv OPTIONS (path '{}', event_time 'at')"
#: a sink is declared where it is written to
CONSOLE = "CREATE TABLE console USING console;\n"
TWO = "CREATE TABLE two (a INT, b STRING) USING console;\n"
#: the last statement of a script, the column that stands twice, and what is underlined
REPEATED = [
    ("CREATE VIEW v AS SELECT *, amount * 2 AS amount FROM orders", "amount", "amount * 2 AS amount"),
    ("CREATE VIEW v AS SELECT *, id AS id FROM orders", "id", "id AS id"),
    ("CREATE VIEW v AS SELECT id AS ID, * FROM orders", "id", "*"),
    ("CREATE VIEW v AS SELECT *, * FROM orders", "id", "*"),
    ("CREATE VIEW v AS SELECT id, amount AS Id FROM orders WHERE id > 1", "Id", "amount AS Id"),
    ("CREATE VIEW v AS SELECT id, city, id FROM orders", "id", "id"),
    ("CREATE VIEW v AS SELECT id + 1, city, id + 1 FROM orders", "(id + 1)", "id + 1"),
    ("CREATE VIEW v AS SELECT id + 1, city AS `(ID + 1)` FROM orders", "(ID + 1)", "city AS `(ID + 1)`"),
    (
        "CREATE VIEW a AS SELECT id, amount AS x FROM orders;\nCREATE VIEW v AS SELECT X AS y, * , 1 AS Y FROM a",
        "Y",
        "1 AS Y",
    ),
    ("CREATE VIEW a AS SELECT id, amount AS x FROM orders;\nCREATE VIEW v AS SELECT X, * FROM a", "x", "*"),
    (f"{CONSOLE}INSERT INTO console SELECT *, 1 AS city FROM orders", "city", "1 AS city"),
]


def engine_on(spark: SparkSession, folder: Path) -> Engine:
    (folder / "in").mkdir(exist_ok=True)
    (folder / "in" / "1.csv").write_text("1,Bern,20,2026-01-01T00:00:00\n")
    return Engine(spark).execute(TABLE.format(folder / "in"))


def underlined(error: SqlError) -> str:
    return error.text[error.start : error.end]


@pytest.mark.parametrize(("script", "name", "place"), REPEATED)
def test_two_columns_of_one_name_are_refused(
    spark: SparkSession, tmp_path: Path, script: str, name: str, place: str
) -> None:
    engine = engine_on(spark, tmp_path)
    with pytest.raises(DuplicateNameError) as told:
        engine.execute(script)
    assert told.value.message.startswith(f"Two columns have the name {name}. ")
    assert underlined(told.value) == place
    assert engine.declared == {"orders": []}, "nothing of the script is declared"


def test_names_that_differ_are_no_repetition(spark: SparkSession, tmp_path: Path) -> None:
    engine_on(spark, tmp_path).execute("CREATE VIEW v AS SELECT *, id + 1, id + 2, -id AS less FROM orders")


def test_conditions_that_cannot_be_meant_are_told(spark: SparkSession, tmp_path: Path) -> None:
    engine = engine_on(spark, tmp_path)
    hours = "SELECT window(at, '1 hour') AS w, count(*) AS n FROM orders WHERE {} GROUP BY w"
    for query in ("SELECT id FROM orders WHERE {}", hours):
        with pytest.raises(SqlError, match="This divides by zero") as told:
            engine.view("v", query.format("id = 1 OR amount / 0 > 1"))
        assert underlined(told.value) == "amount / 0"
    engine.view("v", "SELECT id FROM orders WHERE amount = NULL").view(
        "w", hours.format("upper(city) = NULL")
    )
    engine.view("x", "SELECT id FROM v WHERE id > 5")
    assert [warning.splitlines()[0] for warning in engine.warnings] == [
        f"{name}: A comparison with NULL is never true. Use IS NULL or IS NOT NULL."
        for name in ("v", "w", "x")
    ]


VIEWS = (
    "CREATE VIEW three AS SELECT id, id + 1, city FROM orders;\n"
    "CREATE VIEW hours AS SELECT city, window(at, '1 hour') AS w, count(*) AS n FROM orders GROUP BY city, w;\n"
    "CREATE VIEW days AS SELECT window(w, '1 day') AS d, sum(n) AS n, max(n) AS most FROM hours GROUP BY d;\n"
    "CREATE VIEW due AS SELECT /*+ DEADLINE('3 seconds') */ city, window(at, '1 hour') AS w, count(*) AS n FROM orders "
    "GROUP BY city, w;\n"
    "CREATE VIEW pairs AS SELECT a.id, b.city, a.at FROM orders a JOIN orders b ON a.id = b.id AND b.at BETWEEN a.at AND "
    "a.at + INTERVAL 1 HOUR;\n"
)


@pytest.mark.parametrize(
    ("query", "columns"),
    [
        ("SELECT * FROM three", "id, (id + 1), city"),
        ("SELECT * FROM orders", "id, city, amount, at"),
        ("SELECT *, 1 AS one FROM orders WHERE id > 1", "id, city, amount, at, one"),
        ("SELECT id FROM orders", "id"),
        ("SELECT * FROM hours", "city, w, n"),
        ("SELECT * FROM days", "d, n, most"),
        ("SELECT * FROM due", "city, w, n"),
        ("SELECT * FROM pairs", "id, city, at"),
    ],
)
def test_a_sink_is_given_as_many_columns_as_it_declares(
    spark: SparkSession, tmp_path: Path, query: str, columns: str
) -> None:
    engine = engine_on(spark, tmp_path).execute(VIEWS)
    with pytest.raises(TypeMismatchError) as told:
        engine.execute(f"{TWO}INSERT INTO two {query}")
    given = len(columns.split(", "))
    assert f"two has 2 columns (a, b), the query has {given} ({columns})." in told.value.message
    assert underlined(told.value).endswith(query)
    engine.execute(f"{CONSOLE}{TWO}INSERT INTO console {query}; INSERT INTO two SELECT id, city FROM orders")


def test_explain_names_each_compared_column_once(spark: SparkSession, tmp_path: Path) -> None:
    told = (
        engine_on(spark, tmp_path)
        .execute(
            "CREATE VIEW v AS SELECT id FROM orders WHERE amount > 900;"
            "CREATE VIEW w AS SELECT id FROM orders WHERE city = 'Bern' AND length(city) > 3"
        )
        .explain()
    )
    assert "\n  compared columns: amount double, city string\n" in told
