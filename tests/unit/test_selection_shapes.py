"""Views of one shape are parsed once, and each as it would be alone."""

from __future__ import annotations

import pytest

from penstock.errors import DuplicateNameError, SqlError
from penstock.sql.script.queries import parse_query
from penstock.sql.script.script import parse_script
from penstock.sql.script.shapes import SelectionShapes
from penstock.sql.script.statements import CreateView

TABLE = "CREATE TABLE t (i INT, s STRING) USING csv OPTIONS (path 'x');\n"
QUERIES = [
    "SELECT i, s AS city FROM t WHERE i > 5 AND s = 'a'",
    "SELECT i, s AS city FROM t WHERE i > 1234 AND s = 'long; text -- no remark'",
    "SELECT i, s AS city FROM t WHERE i > 7 AND s = 'b'",
    "select * from t where i between 1 and 2",
    "select * from t where i between 100 and 20000",
    "SELECT i, s FROM t",
    "SELECT i, s FROM t",
    "SELECT t.i FROM t WHERE t.i > 5",
    "SELECT t.i FROM t WHERE t.i > 15",
    "SELECT i * 2 AS twice FROM t WHERE i > 5",
    "SELECT i * 200 AS twice FROM t WHERE i > 50",
    "SELECT i FROM t WHERE s = 'it''s' AND i > 3",
    "SELECT i FROM t WHERE s = 'its' AND i > 3",
    "SELECT i FROM t -- a remark; and more\n WHERE i > 3",
    "SELECT window(x, '1 minute') FROM t WHERE i > 3",
    "SELECT i FROM t WHERE i > 4   ",
    "SELECT i FROM t WHERE i > 44",
    "SELECT * FROM t WHERE i + 1 > 1e+5",
    "SELECT * FROM t WHERE i + 20 > 1e+10",
]


@pytest.mark.parametrize("ending", [";", " ;\n", "\n;"])
def test_views_of_a_script(ending: str) -> None:
    names = [name for name in range(len(QUERIES)) if "window" not in QUERIES[name]]
    script = TABLE + "\n".join(f"CREATE VIEW v{name} AS {QUERIES[name]}{ending}" for name in names)
    views = parse_script(script).views
    for view, name in zip(views, names, strict=True):
        begin = script.index(f"CREATE VIEW v{name} ")
        only = " " * (begin - len(TABLE)) + script[begin : view.end]
        (expected,) = parse_script(TABLE + only).views
        assert (view.name, view.text, view.start, view.end) == (
            expected.name,
            expected.text,
            expected.start,
            expected.end,
        )
        assert pieces(view) == pieces(expected)


def pieces(view: CreateView) -> object:
    """The clauses of a selection, each with its place and what the script has there."""
    query = view.query
    clauses = [query.source_clause, *query.conditions, *(each.clause for each in query.projection or ())]
    outputs = [(each.expression, each.name) for each in query.projection or ()]
    return (
        query.source,
        outputs,
        [(each.text, each.start, each.script[each.start :][: len(each.text)]) for each in clauses],
    )


def parsed(text: str, shapes: SelectionShapes | None) -> object:
    try:
        return parse_query(text, (), shapes)
    except SqlError as error:
        return f"{type(error)} {error}"


def test_queries() -> None:
    shapes = SelectionShapes()
    for text in (*QUERIES, *QUERIES):
        assert parsed(text, shapes) == parsed(text, None)


def test_templates_are_used() -> None:
    shapes = SelectionShapes()
    for number in range(5):
        parse_query(f"SELECT i FROM t WHERE i > {number} AND s LIKE '%{number}%'", (), shapes)
        parse_query(f"SELECT * FROM t WHERE i + {number} > 1e+{number}", (), shapes)
    assert len(shapes._templates) == 2


def test_mistakes_behind_views_of_a_known_shape_are_in_their_place() -> None:
    views = "".join(f"CREATE VIEW v{number} AS SELECT i FROM t WHERE i > {number};\n" for number in range(3))
    with pytest.raises(DuplicateNameError) as raised:
        parse_script(f"{TABLE}{views}CREATE VIEW V1 AS SELECT i FROM t WHERE i > 9;")
    assert "line 5: CREATE VIEW V1" in str(raised.value)
    with pytest.raises(SqlError, match="line 5:"):
        parse_script(f"{TABLE}{views}CREATE VIEW w AS SELECT i FROM t WHERE s = 'open; and on")
    with pytest.raises(SqlError, match="The ; before this statement is missing") as missing:
        parse_script(
            f"{TABLE}{views}CREATE VIEW w AS SELECT i FROM t WHERE i > 5 CREATE VIEW u AS SELECT i FROM t;"
        )
    assert "line 5:" in str(missing.value)
