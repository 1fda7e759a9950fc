"""Reading rankings: both forms, what bounds the place, what names stand for."""

from __future__ import annotations

import pytest

from penstock.errors import SqlError, UnknownNameError, UnsupportedError
from penstock.spark.ingest.explaining import state_note, state_words
from penstock.spark.ingest.window_views import window_query
from penstock.spark.storage.bindings import RunningDefinition
from penstock.sql.script.queries import parse_query
from penstock.sql.script.views import flatten
from penstock.sql.windows.query import WindowQuery
from penstock.sql.windows.query_texts import QueryTexts
from penstock.sql.windows.ranking import expanded

PLACE = "ROW_NUMBER() OVER (PARTITION BY k ORDER BY x DESC, y)"
RANKED = f"(SELECT *, {PLACE} AS place FROM s)"


def ranking(text: str) -> WindowQuery:
    query = parse_query(text)
    assert isinstance(query, WindowQuery)
    assert query.ranking is not None
    return query


@pytest.mark.parametrize(
    ("condition", "limit", "having"),
    [
        ("place <= 3", 3, []),
        ("place < 3", 2, []),
        ("3 > place", 2, []),
        ("(place <= 5) AND place < 3", 2, []),
        ("place = 1", 1, []),
        ("place = 4", 4, ["_k1 = 4"]),
        ("place BETWEEN 2 AND 3", 3, ["_k1 BETWEEN 2 AND 3"]),
        ("place IN (1, 4)", 4, ["_k1 IN (1, 4)"]),
        ("place <= 3 AND x > 5", 3, ["_k1 <= 3 AND _a0 > 5"]),
        ("place <= 1 AND k > 5", 1, ["_a0 <= 1 AND _k0 > 5"]),
    ],
)
def test_the_bound_of_the_place(condition: str, limit: int, having: list[str]) -> None:
    for text in (
        f"SELECT * FROM {RANKED} WHERE {condition}",
        f"SELECT *, {PLACE} AS place FROM s QUALIFY {condition}",
    ):
        query = ranking(text)
        assert query.ranking is not None
        assert query.ranking.limit == limit
        assert [
            each.expression.replace("(_k1)", "_k1").replace("(_a0) <", "_a0 <") for each in query.having
        ] == having


@pytest.mark.parametrize(
    "condition",
    ["x > 3", "place > 3", "3 <= place", "place <= 3 OR x > 1", "place <> 2"],
)
def test_without_a_bound_it_is_refused(condition: str) -> None:
    with pytest.raises(UnsupportedError, match="needs a bound of its place"):
        parse_query(f"SELECT * FROM {RANKED} WHERE {condition}")


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        *(
            (condition, "Compare the place with a whole number from 1 to 2147483647")
            for condition in (
                "place <= 2 + 1",
                "place <= 3.0",
                "3.0 >= place",
                "NOT place > 3",
                "place <= 99999999999",
                "place <= x AND y > 2",
                "place IN (1, 2.5)",
                "place BETWEEN 1 AND x",
            )
        ),
        ("place <= -1", "Places begin with 1"),
        ("place = 0", "Places begin with 1"),
    ],
)
def test_what_the_place_is_compared_with(condition: str, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        parse_query(f"SELECT * FROM {RANKED} WHERE {condition}")


@pytest.mark.parametrize("frame", ["ROWS 1 PRECEDING", "RANGE UNBOUNDED PRECEDING", "ROWS CURRENT ROW"])
def test_a_frame_is_told_from_a_name(frame: str) -> None:
    query = ranking(
        "SELECT k FROM s QUALIFY RANK() OVER (PARTITION BY rows ORDER BY range DESC, rows, x + rows) < 3"
    )
    assert query.ranking is not None
    assert [each.expression for each in query.ranking.order] == ["range", "rows", "x + rows"]
    with pytest.raises(UnsupportedError, match="A ranking has no frame"):
        parse_query(f"SELECT k FROM s QUALIFY RANK() OVER (ORDER BY range {frame}) < 3")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT first_value(x) OVER (ORDER BY y) FROM s", "Of functions with OVER, ROW_NUMBER"),
        (
            "SELECT k FROM s QUALIFY first_value(x) OVER (ORDER BY y) = 1",
            "Of functions with OVER, ROW_NUMBER",
        ),
        (f"SELECT DISTINCT k FROM {RANKED} WHERE place < 3", "DISTINCT in a ranking is not supported"),
    ],
)
def test_other_refusals(text: str, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        parse_query(text)


def test_a_query_that_begins_with_qualify_is_refused() -> None:
    with pytest.raises(SqlError, match="Expected SELECT here"):
        parse_query(f"QUALIFY {PLACE} = 1")


def test_a_selection_names_the_column_that_was_meant() -> None:
    below = parse_query("SELECT k, count(*) AS total FROM s GROUP BY k")
    with pytest.raises(UnknownNameError, match="Column totl does not exist; did you mean total"):
        flatten(parse_query("SELECT totl FROM v"), {"V": below})


def test_names_in_qualify_may_have_the_name_of_the_source() -> None:
    """With it they are no aliases."""
    text = (
        "SELECT o.id AS name, o.k FROM orders o QUALIFY RANK() OVER (PARTITION BY o.name ORDER BY o.id DESC) <= 3 "
        "AND o.name > 'a' AND o.id > 5 AND name < 9"
    )
    query = ranking(text)
    assert query.ranking is not None
    assert [key.expression.strip() for key in query.keys] == ["name"]
    assert [call.arguments for call in query.aggregates] == [("id",), ("k",), ()]
    assert [each.expression for each in query.having] == [
        "_a2 <= 3 AND   _k0 > 'a' AND   _a0 > 5 AND (_a0) < 9"
    ]
    assert [each.text for each in query.ranking.aliases] == ["name"]
    assert query.ranking.aliases[0].start == text.rindex("name")


def test_spark_sees_the_condition_over_the_query_in_from() -> None:
    text = (
        f"SELECT r.k FROM (SELECT k, x AS a, y AS a, {PLACE} AS place FROM s) r WHERE place <= 3 AND r.a > 2"
    )
    written = QueryTexts(ranking(text), "stream").written().text
    assert written.endswith("FROM stream)\nWHERE place <= 3 AND   a > 2")


def test_order_is_read_as_spark_reads_it() -> None:
    text = "SELECT x FROM s QUALIFY RANK() OVER (ORDER BY a, b DESC, c + 1 ASC NULLS LAST, f(d, e) DESC NULLS FIRST) <= 2"
    query = ranking(text)
    assert query.ranking is not None
    assert [(each.expression, each.is_descending, each.nulls_first) for each in query.ranking.order] == [
        ("a", False, True),
        ("b", True, False),
        ("c + 1", False, False),
        ("f(d, e)", True, True),
    ]
    assert (query.keys, query.ranking.function) == ((), "rank")
    assert [each.expression for each in query.having] == ["_a1 <= 2"], "rows of rank may be withdrawn"


def test_names_stand_for_keys_columns_and_the_place() -> None:
    query = ranking(
        f"SELECT r.K, x + 1 AS more, place + 1 AS next, z FROM (SELECT k, x * 2 AS x, y AS z, {PLACE} AS place FROM s) r WHERE place < 3"
    )
    assert [(each.expression, each.name) for each in query.outputs] == [
        ("_k0", "K"),
        ("_a0", "more"),
        ("_k1 + 1", "next"),
        ("_a1", "z"),
    ]
    assert [call.arguments for call in query.aggregates] == [("(x * 2) + 1",), ("y",)]


def test_over_a_selection_names_are_those_of_the_stream() -> None:
    views = {"S": parse_query("SELECT a AS k, b + 1 AS x, c AS y FROM t WHERE a > 2")}
    flat = flatten(ranking(f"SELECT k, x FROM {RANKED} WHERE place <= 2"), views)
    assert isinstance(flat, WindowQuery)
    assert flat.ranking is not None
    assert (flat.source, flat.where) == ("t", "a > 2")
    assert [key.expression for key in flat.keys] == ["a"]
    assert [each.expression for each in flat.ranking.order] == ["(b + 1)", "c"]


def test_columns_that_are_one_in_the_stream_keep_their_numbers() -> None:
    """Over a view, names of one column are told apart: what was rewritten refers to the numbers."""
    views = {"V": parse_query("SELECT *, amount AS amount2 FROM s")}
    call = "row_number() OVER (PARTITION BY k ORDER BY x)"
    text = f"SELECT * FROM (SELECT *, {call} AS place FROM v) WHERE place <= 3 AND amount2 > place AND amount < 9 + place"
    flat = flatten(ranking(text), views)
    assert isinstance(flat, WindowQuery)
    bound = expanded(flat, ("id", "k", "x", "amount"))
    assert [each.arguments for each in bound.aggregates] == [
        ("amount",),
        ("amount",),
        ("`id`",),
        ("`x`",),
    ]
    assert bound.having == flat.having
    assert [(each.expression, each.name) for each in bound.outputs] == [
        ("_a2", "id"),
        ("_k0", "k"),
        ("_a3", "x"),
        ("_a0", "amount"),
        ("_a0", "amount2"),
        ("_k1", "place"),
    ]
    listed = flatten(ranking(f"SELECT k, amount, amount2, b FROM v QUALIFY {call} < 3"), views)
    assert isinstance(listed, WindowQuery)
    bound = expanded(listed, ("k", "x", "amount", "b"))
    assert len(bound.aggregates) == 3
    assert [each.expression for each in bound.outputs] == ["_k0", "_a0", "_a1", "_a2"]


def test_a_star_stands_for_the_columns_of_its_definition() -> None:
    text = f"SELECT * FROM {RANKED} WHERE place <= 2"
    columns = (("k", "BIGINT"), ("x", "INT"), ("y", "INT"))
    query = window_query(RunningDefinition("v", "v:1", text, (), columns))
    assert query.columns == ("k", "x", "y")
    written = QueryTexts(query, "stream").written().text
    assert "FROM (SELECT `k`, `x`, `y` FROM stream)" in written, "the stream may have others now"
    assert ranking(text).has_open_star
    over = flatten(ranking(text), {"S": parse_query("SELECT k, x, y FROM t")})
    assert isinstance(over, WindowQuery)
    assert not over.has_open_star, "the view names its columns"


def test_a_selection_over_one_with_a_star_is_refused() -> None:
    views = {"V": ranking(f"SELECT * FROM {RANKED} WHERE place <= 2")}
    with pytest.raises(SqlError, match="Name its columns there"):
        flatten(parse_query("SELECT k FROM v WHERE place = 1"), views)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        ("RANK() OVER (ORDER BY x)", "all tuples of the first 3 places, however many are equal"),
        (
            "DENSE_RANK() OVER (PARTITION BY k ORDER BY x)",
            "all tuples of the first 3 places of every partition, however",
        ),
        (PLACE, "keeps the rows of the first 3 places of every partition;"),
        ("ROW_NUMBER() OVER (ORDER BY x)", None),
    ],
)
def test_what_the_state_keeps(call: str, told: str | None) -> None:
    words = state_words(ranking(f"SELECT k, x FROM s QUALIFY {call} <= 3"))
    assert words is None if told is None else told in (words or "")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f"SELECT k, x FROM s QUALIFY {PLACE} = 1", "If the number of partitions grows without end"),
        (f"SELECT k, x FROM s QUALIFY {PLACE} <= 3", None),
        (f"SELECT /*+ STATE_TTL('1 day') */ k, x FROM s QUALIFY {PLACE} = 1", None),
        ("SELECT k, x FROM s QUALIFY RANK() OVER (PARTITION BY k ORDER BY x) = 1", None),
        ("SELECT k, count(*) FROM s GROUP BY k", "If the number of groups grows without end"),
        ("SELECT /*+ STATE_TTL('1 day') */ k, count(*) FROM s GROUP BY k", None),
        ("SELECT count(*) FROM s", None),
        ("SELECT k, count(*) FROM s GROUP BY k, session_window(t, '1 minute')", None),
    ],
)
def test_check_warns_of_states_that_the_user_can_limit(text: str, told: str | None) -> None:
    words = state_note(flatten(parse_query(text), {}))
    assert words is None if told is None else told in (words or "")
