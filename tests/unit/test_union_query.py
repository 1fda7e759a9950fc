"""Reading UNION ALL, and views on views with one."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from penstock.errors import SqlError, UnsupportedError
from penstock.sql.script.queries import parse_query
from penstock.sql.script.statements import Query, sources_of
from penstock.sql.script.views import flatten
from penstock.sql.text.query import SelectQuery
from penstock.sql.unions.query import UnionQuery, union_name
from penstock.sql.windows.query import BeneathJoin, WindowQuery
from refusals import refuse

TWO = "SELECT ts, a FROM x WHERE a > 1 UNION ALL SELECT ts, b + 1 FROM y"


def united(text: str) -> UnionQuery:
    query = parse_query(text)
    assert isinstance(query, UnionQuery)
    return query


@pytest.mark.parametrize(
    ("text", "sources"),
    [
        (TWO, ["x", "y"]),
        (f"({TWO})", ["x", "y"]),
        ("(SELECT a FROM x) union all ((SELECT a FROM y))", ["x", "y"]),
        (
            "SELECT a FROM x UNION ALL SELECT a FROM x UNION ALL (SELECT a FROM z UNION ALL SELECT a FROM y)",
            ["x", "z", "y"],
        ),
        ("SELECT u.a FROM (SELECT a FROM x UNION ALL SELECT b FROM y) AS u WHERE u.a > 2", ["x", "y"]),
        ("SELECT a FROM x WHERE a IN ('UNION', 'ALL') UNION ALL SELECT (a + 1) FROM y", ["x", "y"]),
    ],
)
def test_branches_are_found(text: str, sources: list[str]) -> None:
    assert [name for name, _ in sources_of(united(text))] == sources


def test_a_union_in_from_of_a_selection_is_one_with_a_selection() -> None:
    query = united("SELECT u.a FROM (SELECT a FROM x UNION ALL SELECT b FROM y) AS u WHERE u.a > 2")
    (selected,) = query.selected
    assert selected.conditions[0].text.strip() == "a > 2"
    assert selected.source == union_name("SELECT a FROM x UNION ALL SELECT b FROM y")
    assert selected.source_clause.text == "(SELECT a FROM x UNION ALL SELECT b FROM y)"


def test_a_union_in_from_of_an_aggregation_has_a_name_of_its_text() -> None:
    query = parse_query(f"SELECT window(ts, '1 minute') AS w, count(*) AS n FROM ({TWO}) GROUP BY w")
    assert isinstance(query, WindowQuery)
    assert query.source == union_name(TWO)
    assert query.inner is not None
    assert query.inner.clause.text == TWO
    flat = flatten(query, {})
    assert isinstance(flat, WindowQuery)
    assert flat.over == BeneathJoin("ts", "UNION ALL")


def test_views_on_views() -> None:
    views: Mapping[str, Query] = {
        "S": parse_query("SELECT a * 2 AS twice FROM x WHERE a > 3"),
        "U": parse_query("SELECT twice FROM s WHERE twice < 9 UNION ALL SELECT b FROM y"),
    }
    flat = flatten(views["U"], views)
    assert isinstance(flat, UnionQuery)
    first = flat.branches[0]
    assert isinstance(first, SelectQuery)
    assert first.source == "x"
    assert first.where == "(a > 3\n) AND ((a * 2) < 9\n)"
    above = flatten(parse_query("SELECT twice + 1 AS z FROM u"), views)
    assert isinstance(above, UnionQuery)
    assert len(above.selected) == 1
    windows = flatten(parse_query("SELECT count(*) AS n FROM u"), views)
    assert isinstance(windows, WindowQuery)
    assert windows.over == BeneathJoin("", "UNION ALL")


@pytest.mark.parametrize(
    ("text", "marked", "message"),
    [
        ("SELECT a FROM x UNION SELECT a FROM y", "UNION", "UNION without ALL"),
        ("SELECT a FROM x UNION DISTINCT SELECT a FROM y", "UNION", "UNION without ALL"),
        ("SELECT a FROM x UNION ALL", "ALL", "A branch is missing"),
        ("SELECT a FROM x UNION ALL SELECT count(*) FROM y", "SELECT count(*) FROM y", "joins or aggregates"),
        (
            "SELECT a FROM x UNION ALL SELECT a FROM y JOIN z USING (a)",
            "SELECT a FROM y JOIN z USING (a)",
            "joins or",
        ),
        ("SELECT a FROM x UNION ALL SELECT a FROM y ORDER BY a", "ORDER BY", "ORDER BY is not supported yet"),
        (
            "SELECT a FROM x UNION ALL SELECT a FROM y EXCEPT SELECT a FROM z",
            "EXCEPT",
            "EXCEPT is not supported yet",
        ),
        ("SELECT a FROM x UNION ALL SELECT a WHERE a > 1", "1", "Expected FROM"),
        ("SELECT a FROM (SELECT a FROM x UNION ALL SELECT a FROM y", "(", "This parenthesis is not closed"),
        (
            "SELECT a FROM x WHERE a IN (SELECT a FROM y UNION ALL SELECT a FROM z)",
            "UNION",
            "The query in IN reads one input",
        ),
    ],
)
def test_mistakes_are_underlined(text: str, marked: str, message: str) -> None:
    with pytest.raises(SqlError) as raised:
        refuse(text)
    error = raised.value
    assert message in error.message
    assert error.text[error.start : error.end] == marked


@pytest.mark.parametrize(
    ("text", "marked", "message"),
    [
        ("SELECT a FROM x UNION ALL SELECT n FROM w", "w", "w is a window view; a UNION ALL cannot read it"),
        ("SELECT a FROM r UNION ALL SELECT a FROM x", "r", "r is a running view; a UNION ALL cannot read it"),
        ("SELECT a FROM j UNION ALL SELECT a FROM x", "j", "j is a join view; a UNION ALL cannot read it"),
        ("SELECT u.a FROM u JOIN x ON u.a = x.a", "u", "u is a UNION ALL; a join view cannot read it"),
        (
            "SELECT window(ts + 1, '1 day') AS d, count(*) AS n FROM u GROUP BY d",
            "ts + 1",
            "UNION ALL u needs a column",
        ),
    ],
)
def test_what_a_union_does_not_read_is_refused(text: str, marked: str, message: str) -> None:
    views = {
        "W": parse_query("SELECT window(ts, '1 day') AS d, count(*) AS n FROM x GROUP BY d"),
        "R": parse_query("SELECT a, count(*) AS n FROM x GROUP BY a"),
        "J": parse_query("SELECT x.a FROM x JOIN y USING (a)"),
        "U": parse_query(TWO),
    }
    with pytest.raises(UnsupportedError) as raised:
        flatten(parse_query(text), views)
    error = raised.value
    assert message in error.message
    assert error.text[error.start : error.end] == marked
