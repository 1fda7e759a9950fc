"""Messages of mistakes name the rule that was broken, in the words of the script."""

from __future__ import annotations

import pytest

from penstock.errors import InputError, MistakesError, SqlError, meant
from penstock.sql.script.script import parse_script
from penstock.sql.text.intervals import length_text

TABLES = "CREATE TABLE t USING parquet OPTIONS (path 'x'); CREATE TABLE u USING parquet OPTIONS (path 'x');"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            'CREATE VIEW "quoted" AS SELECT * FROM t',
            "A string cannot be a name. Quote names with backticks: `quoted`.",
        ),
        (
            "CREATE VIEW v AS SELECT t.a FROM t ASOF JOIN u MATCH_CONDITION (t.x >= u.x)",
            "An ASOF JOIN needs ON with an equality, as in ON t.key = u.key: the newest row is that of a key.",
        ),
        (
            "CREATE VIEW v AS SELECT t.a FROM t LEFT ASOF JOIN u MATCH_CONDITION (t.x >= u.x)",
            "A LEFT ASOF JOIN needs ON with an equality, as in ON t.key = u.key: the newest row is that of a key.",
        ),
        (
            "CREATE VIEW v AS SELECT /*+ CUMULATE('25 minutes') */ window(x, '10 minutes') AS w, count(*) AS n FROM t GROUP BY w",
            "CUMULATE: the length of time must be a multiple of the window's 10 minutes, and longer.",
        ),
        (
            "CREATE VIEW v AS SELECT a FROM t; CREATE VIEW w AS SELECT a FROM t; DROP VIEW v, w;",
            "DROP VIEW takes one view. Write a statement for each: DROP VIEW a; DROP VIEW b;",
        ),
        (
            "CREATE TABLE s AS SELECT a FROM t",
            "A table is an input or a sink. To name a query, write CREATE VIEW s AS SELECT ...",
        ),
    ],
)
def test_a_mistake_is_named_by_its_rule(text: str, told: str) -> None:
    with pytest.raises(SqlError) as refused:
        parse_script(TABLES + text)
    assert refused.value.message == told


@pytest.mark.parametrize(
    ("marked", "told"),
    [
        (
            "CREATE VIEW v AS SELECT window«(»x, '1 hour', n FROM t GROUP BY w",
            "This parenthesis is not closed.",
        ),
        ("CREATE VIEW v AS SELECT round«(»a, 2 AS b FROM t", "This parenthesis is not closed."),
        (
            "CREATE VIEW v AS SELECT x FROM t GROUP BY x, window«(»at, '1 hour'",
            "This parenthesis is not closed.",
        ),
        ("CREATE VIEW v AS SELECT a FROM t WHERE (a > 3)«)»", "This parenthesis closes none."),
        ("CREATE VIEW v AS SELECT a «FORM» t WHERE a > 3", "Expected FROM here."),
        (
            "CREATE STREAM s AS SELECT a FROM t",
            "This statement is not supported. Write CREATE VIEW name AS SELECT ...",
        ),
        ("CREATE STREAM s (a INT)", "This statement is not supported. Write CREATE TABLE name (columns)"),
    ],
)
def test_a_mistake_is_told_where_it_is(marked: str, told: str) -> None:
    text = marked.replace("«", "").replace("»", "")
    with pytest.raises(SqlError) as refused:
        parse_script(TABLES + text)
    assert refused.value.message.startswith(told)
    place = refused.value.start - len(TABLES), refused.value.end - len(TABLES)
    if "STREAM" not in marked:
        assert place == (marked.index("«"), marked.index("»") - 1)


def test_inputs_are_not_offered_as_sinks() -> None:
    tables = (
        "CREATE TABLE a USING kafka OPTIONS (subscribe 'x'); CREATE TABLE b USING kafka OPTIONS (topic 'x');"
        "CREATE TABLE c USING parquet OPTIONS (path 'x', eventTime 'at'); CREATE TABLE d USING delta OPTIONS (path 'x');"
    )
    with pytest.raises(SqlError) as refused:
        parse_script(
            f"{TABLES}{tables} CREATE VIEW v AS SELECT a FROM t JOIN u; INSERT INTO e SELECT a FROM t"
        )
    assert "existing ones: b, d." in str(refused.value)


def test_lengths_of_time_are_in_the_units_of_scripts() -> None:
    lengths = (600_000_000, 5_400_000_000, 1_500_000, 0, -20_000_000, 3_600_000_000)
    assert [length_text(each) for each in lengths] == [
        *("10 minutes", "1 hour 30 minutes", "1.5 seconds", "0 seconds", "-20 seconds", "1 hour"),
    ]


def test_letters_that_changed_places_are_a_near_name() -> None:
    assert meant("cvs", ["json", "csv"]) == "; did you mean csv?"
    assert meant("xyz", ["json", "csv"]) == "."


def test_a_message_has_the_first_mistakes_and_all_on_demand() -> None:
    error = MistakesError([InputError(f"mistake {number}") for number in range(28)])
    assert str(error).endswith("mistake 19\n\nand 8 more")
    assert error.whole.split("\n\n") == [
        "The script has 28 mistakes.",
        *(f"mistake {number}" for number in range(28)),
    ]
