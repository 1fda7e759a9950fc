"""Misspelt types, sources, columns and functions: the message underlines them and names what may be meant."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock import Engine
from penstock.errors import InputError, MistakesError, SqlError

TABLE = "CREATE TABLE orders (id INT, weight DOUBLE) USING csv OPTIONS (path '{path}', header 'true');\n"


@pytest.mark.parametrize(
    ("text", "told", "marked"),
    [
        (
            TABLE.replace("id INT,", "id INTEGR,"),
            "table orders: type INTEGR does not exist; did you mean INTEGER?",
            "INTEGR",
        ),
        (
            TABLE.replace("id INT,", "id VARCHAR(20),"),
            "table orders: VARCHAR(20) is not supported. Write STRING.",
            "VARCHAR(20)",
        ),
        (
            TABLE.replace("id INT,", "id MAP<STRING, char ( 3 )>,"),
            "table orders: char ( 3 ) is not supported. Write STRING.",
            "char ( 3 )",
        ),
        (
            TABLE.replace("id INT,", "id VARCHAR,"),
            "table orders: VARCHAR is not supported. Write STRING.",
            "VARCHAR",
        ),
        (
            TABLE.replace("id INT,", "id STRUCT<at: TIMESTAMP(3)>,"),
            "table orders: times have microseconds. Write TIMESTAMP without the digits of its seconds.",
            "(3)",
        ),
        (
            TABLE.replace("id INT,", "id foo bar,"),
            "table orders: Syntax error at or near 'bar': extra input 'bar'.",
            "id",
        ),
        (
            TABLE.replace("csv", "kafak"),
            "table orders: source kafak is not supported; did you mean kafka? Use parquet, csv, ",
            "kafak",
        ),
        (
            f"{TABLE}CREATE VIEW v AS SELECT * FROM orders WHERE wieght > 1;",
            "Column wieght does not exist; did you mean weight? Existing columns: id, weight",
            "wieght",
        ),
        (
            f"{TABLE}CREATE VIEW v AS SELECT * FROM orders WHERE abs(wieght) > 1;",
            "Column wieght does not exist; did you mean weight? Existing columns: id, weight",
            "wieght",
        ),
        (
            f"{TABLE}CREATE VIEW v AS SELECT * FROM orders WHERE upperr(id) = 'x';",
            "Function upperr does not exist; did you mean upper?",
            "upperr(id)",
        ),
    ],
)
def test_a_misspelt_name_is_underlined_with_what_may_be_meant(
    spark: SparkSession, tmp_path: Path, text: str, told: str, marked: str
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.csv").write_text("id,weight\n1,2\n")
    with pytest.raises(InputError) as raised:
        Engine(spark).execute(text.replace("{path}", str(tmp_path / "in")))
    first, line, under = str(raised.value).splitlines()
    assert first.startswith(told)
    place = under.index("^")
    assert line[place : len(under)] == marked


def test_a_text_with_a_length_hides_no_other_mistake(spark: SparkSession) -> None:
    script = (
        "CREATE TABLE a (id VARCHAR(20)) USING csv OPTIONS (path 'x'); CREATE TABLE b (id CHAR(2)) USING csv OPTIONS (path 'x');"
        "CREATE VIEW v AS SELECT id FROM a"
    )
    with pytest.raises(MistakesError) as raised:
        Engine(spark).execute(script)
    told = [each.message for each in raised.value.mistakes if isinstance(each, SqlError)]
    assert told == [
        "table a: VARCHAR(20) is not supported. Write STRING.",
        "table b: CHAR(2) is not supported. Write STRING.",
    ]
