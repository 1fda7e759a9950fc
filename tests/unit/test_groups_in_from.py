"""Queries that have an aggregation in FROM: it becomes a view of its own beneath."""

from __future__ import annotations

import pytest

from penstock.sql.script.queries import parse_query
from penstock.sql.script.views import flatten
from penstock.sql.windows.query import WindowQuery, groups_name

COUNTS = "SELECT category, item, count(*) AS n FROM orders GROUP BY category, item"
PLACE = "row_number() OVER (PARTITION BY category ORDER BY n DESC)"
WINDOWS = "SELECT category, count(*) AS n FROM orders GROUP BY category, window(at, '1 day')"


@pytest.mark.parametrize(
    ("text", "inner"),
    [
        (f"SELECT * FROM (SELECT *, {PLACE} AS place FROM ({COUNTS})) WHERE place <= 3", COUNTS),
        (f"SELECT * FROM (SELECT c.*, {PLACE} AS p FROM ({COUNTS}) AS c) r WHERE p <= 3", COUNTS),
        (f"SELECT category, item FROM ({COUNTS}) QUALIFY {PLACE} <= 3", COUNTS),
        (f"SELECT category, avg(n) AS mean FROM ({COUNTS}) GROUP BY category", COUNTS),
        (f"SELECT max(n) AS most FROM ({WINDOWS})", WINDOWS),
        (f"SELECT * FROM (SELECT *, {PLACE} AS place FROM ({WINDOWS})) WHERE place <= 3", WINDOWS),
    ],
)
def test_the_aggregation_is_beneath(text: str, inner: str) -> None:
    query = parse_query(text)
    assert isinstance(query, WindowQuery)
    assert query.inner == parse_query(text).inner
    assert isinstance(query.inner, WindowQuery)
    assert query.inner_text == inner
    assert query.source == groups_name(inner)
    flat = flatten(query, {})
    assert isinstance(flat, WindowQuery)
    assert flat.is_over_running is query.inner.is_running
    assert query.inner.keys[0].expression == "category"


def test_a_selection_beneath_is_none() -> None:
    ranked = f"SELECT * FROM (SELECT *, {PLACE} AS place FROM counts) WHERE place <= 3"
    query = parse_query(ranked)
    assert isinstance(query, WindowQuery)
    assert query.inner is None
    flat = flatten(query, {"COUNTS": parse_query(COUNTS)})
    assert isinstance(flat, WindowQuery)
    assert flat.is_over_running
