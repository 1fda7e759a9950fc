"""CREATE OR REPLACE VIEW and DROP VIEW in a script."""

from __future__ import annotations

import pytest

from penstock.errors import DuplicateNameError, SqlError, UnknownNameError, UnsupportedError
from penstock.sql.script.known_names import KnownNames
from penstock.sql.script.rules import Rule, rules_of_file
from penstock.sql.script.script import parse_script

TABLES = "CREATE TABLE t (a INT) USING csv OPTIONS (path 'x'); CREATE TABLE s USING console;\n"


def views(script: str, known: KnownNames | None = None) -> dict[str, str]:
    """The views of a script by name, each with its text."""
    parsed = parse_script(TABLES + script, KnownNames() if known is None else known)
    return {view.name: view.text for view in parsed.views}


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("CREATE OR REPLACE VIEW v AS SELECT * FROM t", {"v": "SELECT * FROM t"}),
        # views of one shape are read without their tokens
        (
            "CREATE OR REPLACE VIEW v AS SELECT * FROM t WHERE a > 1; create or replace view V AS SELECT * FROM t WHERE a > 2;"
            "CREATE VIEW w AS SELECT * FROM v",
            {"V": "SELECT * FROM t WHERE a > 2", "w": "SELECT * FROM v"},
        ),
        ("CREATE VIEW v AS SELECT * FROM t; DROP VIEW V;", {}),
        (
            "CREATE VIEW v AS SELECT * FROM t; CREATE VIEW w AS SELECT * FROM v; DROP VIEW w; DROP VIEW v;"
            "CREATE VIEW v AS SELECT a FROM t",
            {"v": "SELECT a FROM t"},
        ),
        ("DROP VIEW IF EXISTS v; drop view if exists `a b`;", {}),
        (
            "CREATE VIEW if AS SELECT * FROM t; CREATE VIEW x AS SELECT * FROM t; DROP VIEW if",
            {"x": "SELECT * FROM t"},
        ),
    ],
)
def test_the_last_definition_of_a_script_counts(script: str, expected: dict[str, str]) -> None:
    assert views(script) == expected


@pytest.mark.parametrize(
    ("script", "kind", "told", "marked"),
    [
        ("DROP VIEW v", UnknownNameError, "View v does not exist. DROP VIEW takes back", "v"),
        (
            "CREATE VIEW near AS SELECT * FROM t; DROP VIEW nera",
            UnknownNameError,
            r"did you mean near\?",
            "nera",
        ),
        ("DROP VIEW t", UnsupportedError, "t is a table", "t"),
        ("DROP VIEW IF EXISTS t", UnsupportedError, "t is a table", "t"),
        ("DROP VIEW before", UnsupportedError, "before is a view that existed before", "before"),
        ("DROP VIEW v w", SqlError, "Expected the end of the statement", "w"),
        ("CREATE OR REPLACE VIEW t AS SELECT * FROM t", DuplicateNameError, "t exists already", "t"),
        ("CREATE OR REPLACE VIEW v AS SELECT * FROM v", UnknownNameError, "v does not exist", "v"),
        (
            "CREATE VIEW v AS SELECT * FROM t; CREATE VIEW w AS SELECT * FROM v; CREATE OR REPLACE VIEW v AS SELECT a FROM t",
            UnsupportedError,
            "View w reads view v. Move the new definition before it",
            "v",
        ),
        (
            "CREATE VIEW v AS SELECT * FROM t; INSERT INTO s SELECT * FROM v; DROP VIEW v",
            UnsupportedError,
            "INSERT INTO s reads view v. Drop it first",
            "v",
        ),
    ],
)
def test_what_cannot_be_replaced_or_dropped_is_refused(
    script: str, kind: type[SqlError], told: str, marked: str
) -> None:
    with pytest.raises(kind, match=told) as failed:
        views(script, KnownNames({"view": {"BEFORE": "before"}}))
    assert failed.value.text[failed.value.start : failed.value.end] == marked


def test_a_view_that_existed_before_the_script_can_be_replaced() -> None:
    known = KnownNames({"view": {"V": "v"}})
    text = "SELECT a FROM t"
    assert views(f"CREATE OR REPLACE VIEW V AS {text}; CREATE VIEW w AS SELECT * FROM v", known)["V"] == text
    with pytest.raises(DuplicateNameError):
        views(f"CREATE VIEW v AS {text}", known)


def test_a_file_of_rules_may_replace_and_not_drop() -> None:
    text = "CREATE OR REPLACE VIEW v AS SELECT * FROM t;\nDROP VIEW v;\nCREATE OR REPLACE VIEW w AS SELECT FROM t"
    rule, dropped, mistaken = rules_of_file(text, "rules.sql", "rules", None, ())
    assert isinstance(rule, Rule)
    assert rule.view.name == "v"
    assert "CREATE VIEW statements only" in str(dropped)
    assert "w: Expected a column" in str(mistaken)
    (alone,) = rules_of_file("DROP VIEW v", "rules.sql", "rules", None, ())
    assert "CREATE VIEW statements only" in str(alone)
