"""All mistakes of a script in one message."""

from __future__ import annotations

import pickle

import pytest

from penstock.errors import ConnectionFailedError, InputError, MistakesError, SqlError
from penstock.sql.script.mistakes import Mistakes
from penstock.sql.script.script import parse_script

TABLE = "CREATE TABLE t (a INT, b STRING) USING csv OPTIONS (path 'x');\n"


def found(script: str) -> list[str]:
    """The messages of a script's mistakes, each with the text that is underlined."""
    mistakes = Mistakes()
    parse_script(TABLE + script, aggregates=["score"], mistakes=mistakes)
    assert all(isinstance(each, SqlError) for each in mistakes.found)
    return [
        f"{each.message.split('.')[0]}: {each.text[each.start : each.end]}"
        for each in mistakes.found
        if isinstance(each, SqlError)
    ]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("CREATE VIEW v AS SELECT * FROM t; CREATE VIEW w AS SELECT * FROM v;", []),
        (
            "CREATE VIEW v AS SELECT * FROM tt; CREATE VIEW w AS SELECT * FROM ttt;",
            ["Table or view tt does not exist: tt", "Table or view ttt does not exist: ttt"],
        ),
        # what follows from a mistake is not one
        (
            "CREATE VIEW v AS SELECT * FROM tt; CREATE VIEW w AS SELECT * FROM v; CREATE VIEW x AS SELECT * FROM w;"
            "CREATE TABLE s USING console; INSERT INTO s SELECT * FROM x;",
            ["Table or view tt does not exist: tt"],
        ),
        (
            "CREATE VIEW v SELECT * FROM t; CREATE VIEW w AS SELECT * FROM v; CREATE VIEW x AS SELECT * FROM nowhere;",
            ["Expected AS here: SELECT", "Table or view nowhere does not exist: nowhere"],
        ),
        (
            "CREATE OR REPLACE TABLE v USING csv; CREATE VIEW w AS SELECT * FROM v;",
            ["This statement is not supported: CREATE OR"],
        ),
        # what a view that was refused declares can be dropped
        (
            "CREATE VIEW v AS SELECT FROM t; DROP VIEW v; DROP VIEW x;",
            ["Expected a column or expression here: FROM", "View x does not exist: x"],
        ),
        # behind it the name may be declared anew, and what reads it is judged
        (
            "CREATE VIEW v AS SELECT FROM t; DROP VIEW v; CREATE VIEW w AS SELECT * FROM v;"
            "CREATE VIEW v AS SELECT * FROM t; CREATE VIEW x AS SELECT FROM v; CREATE VIEW y AS SELECT FROM v",
            [
                "Expected a column or expression here: FROM",
                "Table or view v does not exist: v",
                "Expected a column or expression here: FROM",
                "Expected a column or expression here: FROM",
            ],
        ),
        (
            "CREATE VIEW v AS SELECT FROM t; DROP VIEW v; CREATE VIEW v AS SELECT * FROM u; CREATE VIEW x AS SELECT * FROM v; DROP VIEW v;"
            "DROP VIEW v",
            [
                "Expected a column or expression here: FROM",
                "Table or view u does not exist: u",
                "View v does not exist: v",
            ],
        ),
        # a view that a mistaken statement was to replace or drop is not what it was
        (
            "CREATE VIEW v AS SELECT * FROM t; CREATE OR REPLACE VIEW v AS SELECT FROM t; CREATE VIEW w AS SELECT FROM v; DROP VIEW v; DROP VIEW v",
            [
                "Expected a column or expression here: FROM",
                "Expected a column or expression here: FROM",
                "View v does not exist: v",
            ],
        ),
        (
            "CREATE VIEW v AS SELECT * FROM t; CREATE VIEW w AS SELECT * FROM v; DROP VIEW v; CREATE VIEW v AS SELECT a FROM t; CREATE VIEW x AS SELECT FROM v",
            ["View w reads view v: v", "Expected a column or expression here: FROM"],
        ),
        (
            "CREATE VIEW v AS SELECT * FROM t; DROP VIEW v w; CREATE VIEW v AS SELECT a FROM t; CREATE VIEW x AS SELECT FROM v",
            [
                "Expected the end of the statement here: w",
                "Expected a column or expression here: FROM",
            ],
        ),
        # views on what was declared before a mistake are judged
        (
            "SELECT * FROM t; CREATE VIEW v AS SELECT * FROM t; CREATE VIEW w AS SELECT * FROM vv;",
            ["This statement is not supported: SELECT", "Table or view vv does not exist: vv"],
        ),
        (
            "CREATE VIEW v AS SELECT * FROM t CREATE VIEW w AS SELECT * FROM v CREATE VIEW x AS SELECT * FROM y",
            [
                "The ; before this statement is missing: CREATE",
                "The ; before this statement is missing: CREATE",
                "Table or view y does not exist: y",
            ],
        ),
        (
            "CREATE VIEW v AS SELECT * FROM t; CREATE VIEW V AS SELECT * FROM t; CREATE VIEW w AS SELECT * FROM y;",
            ["V exists already: V", "Table or view y does not exist: y"],
        ),
        # any name may be one of a file of rules
        (
            "CREATE VIEWS FROM 'rules' ON t; CREATE VIEW v AS SELECT * FROM rule; CREATE VIEW w AS SELECT * FROM y y y;",
            ["The path does not end in a format of rules: 'rules'", "Expected"],
        ),
        (
            "CREATE VIEWS FROM 'r.sql' ON tt; CREATE VIEW v AS SELECT * FROM rule;",
            ["Table or view tt does not exist: tt"],
        ),
        # the target of an insert with a mistake is a target
        (
            "CREATE TABLE s USING console; INSERT INTO s SELECT FROM t; INSERT INTO s SELECT * FROM y; INSERT INTO v SELECT * FROM t",
            ["", "Table or view y does not exist: y", "Table v does not exist: v"],
        ),
        (
            "INSERT INTO t SELECT * FROM t; CREATE VIEW w AS SELECT * FROM y",
            [
                "Table or view y does not exist: y",
                "INSERT INTO cannot write to t, because the script reads it as a stream: t",
            ],
        ),
        # behind an open quote nothing can be told apart
        (
            "CREATE VIEW v AS SELECT * FROM y; CREATE VIEW w AS SELECT * FROM t WHERE b = 'x; CREATE VIEW x AS SELECT * FROM y;",
            ["Table or view y does not exist: y", ""],
        ),
    ],
)
def test_mistakes_are_found_together_and_what_follows_is_left_out(script: str, expected: list[str]) -> None:
    messages = found(script)
    assert len(messages) == len(expected), messages
    for message, begin in zip(messages, expected, strict=True):
        assert message == begin or (":" not in begin and message.startswith(begin)), messages


def test_tables_that_inserts_with_mistakes_write_to_are_known() -> None:
    script = "CREATE TABLE s USING console; CREATE TABLE `x y` USING console; INSERT INTO s SELECT FROM t; INSERT INTO `x y` SELECT 1"
    assert parse_script(TABLE + script, mistakes=Mistakes()).targets == {"S", "X Y"}


def test_a_single_mistake_is_raised_as_it_is() -> None:
    with pytest.raises(SqlError) as raised:
        parse_script(TABLE + "CREATE VIEW v AS SELECT * FROM tt")
    assert not isinstance(raised.value, MistakesError)


def test_the_message_lists_mistakes_by_place_and_counts_those_behind_the_twentieth() -> None:
    views = "".join(f"CREATE VIEW v{number} AS SELECT * FROM y{number};\n" for number in range(23))
    with pytest.raises(MistakesError) as raised:
        parse_script(f"{TABLE}INSERT INTO t SELECT * FROM t;\n{views}")
    error = raised.value
    assert error.exit_code == 2
    assert len(error.mistakes) == 24
    parts = str(error).split("\n\n")
    assert parts[0] == "The script has 24 mistakes."
    assert parts[1].startswith("INSERT INTO cannot write to t")
    assert "line 2: INSERT INTO t" in parts[1]
    assert parts[2].endswith(
        "line 3: CREATE VIEW v0 AS SELECT * FROM y0;\n                                          ^^"
    )
    assert parts[21:] == ["and 4 more"]
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_the_search_ends_at_a_hundred_mistakes() -> None:
    mistakes = Mistakes()
    for number in range(100):
        assert not mistakes.is_full
        mistakes.add(InputError(f"mistake {number}"))
    with pytest.raises(MistakesError, match=r"The script has at least 100 mistakes\.") as raised:
        mistakes.raise_any()
    assert str(raised.value).endswith("and at least 80 more")


def test_what_several_tables_lack_is_reported_once() -> None:
    mistakes = Mistakes()
    lack = "this Spark session has no JDBC driver for jdbc:x. Add its jar"
    for start, (table, reason) in enumerate([("b", lack), ("a b", lack), ("b", lack), ("c", "no answer")]):
        mistakes.add(ConnectionFailedError(f"table {table}: {reason}", TABLE, start, start + 1))
    mistakes.add(SqlError(f"table d: {lack}", TABLE, 9, 10))
    with pytest.raises(MistakesError) as raised:
        mistakes.raise_any()
    told = [each.message for each in raised.value.mistakes if isinstance(each, SqlError)]
    assert told == [f"tables b, a b: {lack}", "table c: no answer", f"table d: {lack}"]
    assert raised.value.mistakes[0].start == 0
