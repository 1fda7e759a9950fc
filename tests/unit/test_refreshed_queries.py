"""Queries with the hint REFRESH: what they read, and what is refused."""

from __future__ import annotations

import pytest

from penstock.errors import InputError, SqlError, StatementError, UnsupportedError
from penstock.sql.refreshed.parsing import may_be_refreshed, refreshable
from penstock.sql.refreshed.query import RefreshedQuery
from penstock.sql.script.queries import parse_query
from penstock.sql.script.script import parse_script

HINT = "/*+ REFRESH('90 seconds') */"


def read(text: str) -> RefreshedQuery:
    """A query that has the hint."""
    query = parse_query(text)
    assert isinstance(query, RefreshedQuery)
    return query


@pytest.mark.parametrize("fault", ["WHERE city = 'Bern;", "WHERE (k > 3;", "/* never ended", "`"])
def test_what_is_not_closed_later_hides_no_remedy(fault: str) -> None:
    text = f"CREATE VIEW a AS SELECT k FROM b; CREATE VIEW c AS SELECT * FROM d NATURAL JOIN e; CREATE VIEW f AS SELECT k FROM g {fault}"
    place = text.index("NATURAL")
    query = refreshable(text, place)
    assert query is not None
    assert query.text == "SELECT /*+ REFRESH('1 minute') */ * FROM d NATURAL JOIN e"
    assert may_be_refreshed(UnsupportedError("no", text, place, place + 7))


@pytest.mark.parametrize(
    ("text", "sources"),
    [
        (f"SELECT {HINT} k FROM a JOIN b USING (k)", ["a", "b"]),
        (f"WITH a AS (SELECT {HINT} * FROM a) SELECT * FROM a", ["a"]),
        (
            f"SELECT {HINT} k FROM a WHERE k IN (SELECT k FROM b WHERE EXISTS (SELECT 1 FROM c WHERE c.k = b.k))",
            ["a", "b", "c"],
        ),
        (f"(SELECT {HINT} k FROM a) UNION ALL SELECT k FROM b EXCEPT SELECT k FROM `c d`", ["a", "b", "c d"]),
        (f"SELECT {HINT} t FROM a LATERAL VIEW explode(tags) x AS t", ["a"]),
        (f"SELECT {HINT} w.end, count(*) FROM a GROUP BY window(ts, '1 hour')", ["a"]),
    ],
)
def test_tables_are_found(text: str, sources: list[str]) -> None:
    query = read(text)
    assert sorted(name for name, _ in query.sources) == sources
    assert query.seconds == 90
    for name, clause in query.sources:
        assert text[clause.start : clause.start + len(clause.text)].strip("`") == name


def test_names_are_those_of_columns_unless_all_are_read() -> None:
    names = read(f"SELECT {HINT} K, count(*), `l m` FROM a WHERE x.y > 1 GROUP BY 1, 3").names
    assert names is not None
    assert {"K", "L M", "X", "Y"} <= names
    assert read(f"SELECT {HINT} a.* FROM a").names is None
    assert read(f"SELECT {HINT} k FROM a NATURAL JOIN b").names is None
    assert read(f"SELECT {HINT} x FROM a PIVOT (sum(v) FOR k IN ('x'))").names is None, (
        "it groups by the rest"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"SELECT {HINT} * FROM db.a", "one part"),
        (f"SELECT {HINT} * FROM a, IDENTIFIER('db.b') b", "IDENTIFIER does not say"),
        (f"SELECT {HINT} * FROM a TABLESAMPLE (10 PERCENT)", "other rows at each refresh"),
        (f"SELECT {HINT} * FROM a VERSION AS OF 3", "no versions"),
        (f"SELECT {HINT} 1", "needs a stream"),
        (f"SELECT {HINT} k FROM a UNION SELECT {HINT} k FROM b", "twice"),
        ("SELECT /*+ REFRESH('1 minute'), BACKFILL */ * FROM a", "answered as a whole"),
        ("SELECT /*+ REFRESH(60) */ * FROM a", "expected a length of time"),
        ("SELECT /*+ REFRESH('0 seconds') */ * FROM a", "above 0"),
        (f"SELECT {HINT} FROM WHERE", "not a query"),
    ],
)
def test_what_is_no_refreshed_view_is_refused(text: str, message: str) -> None:
    with pytest.raises(SqlError, match=message):
        parse_query(text)


def test_a_lane_view_cannot_read_a_refreshed_one() -> None:
    from penstock.sql.script.views import flatten

    views = {"V": read(f"SELECT {HINT} k FROM a")}
    for text in ("SELECT * FROM v WHERE k > 1", "SELECT v.k FROM v JOIN b ON v.k = b.k"):
        with pytest.raises(
            UnsupportedError,
            match="view that Spark answers; beside a stream only a refreshed view can read it",
        ):
            flatten(parse_query(text), views)


def test_a_script_may_have_them() -> None:
    script = parse_script(
        "CREATE TABLE a USING parquet OPTIONS (path 'x');\n"
        f"CREATE VIEW v AS WITH t AS (SELECT {HINT} k FROM a) SELECT DISTINCT k FROM t;\nINSERT INTO b SELECT {HINT} k FROM a".replace(
            "INSERT INTO b", "CREATE VIEW w AS"
        )
    )
    assert [type(view.query) for view in script.views] == [RefreshedQuery, RefreshedQuery]


def test_the_hint_is_put_behind_the_first_select() -> None:
    text = "CREATE VIEW u AS SELECT * FROM a;\nCREATE VIEW v AS WITH t AS (SELECT k FROM a) SELECT DISTINCT k FROM t;"
    query = refreshable(text, text.index("DISTINCT"))
    assert query is not None
    assert query.text == "WITH t AS (SELECT /*+ REFRESH('1 minute') */ k FROM a) SELECT DISTINCT k FROM t"
    assert refreshable("DROP TABLE a", 3) is None


def test_only_refused_queries_may_be_refreshed() -> None:
    text = "CREATE VIEW v AS SELECT k FROM a WHERE k = (SELECT max(k) FROM a);"
    assert may_be_refreshed(UnsupportedError("No.", text, 40, 45))
    for other in (
        SqlError("No.", text, 40, 45),
        StatementError("No.", text, 40, 45),
        UnsupportedError("No.", "DROP TABLE a", 0, 4),
        UnsupportedError("No.", "CREATE VIEW v AS SELECT FROM", 24, 28),
        InputError("No."),
    ):
        assert not may_be_refreshed(other)
