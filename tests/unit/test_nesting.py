"""Conditions and SELECT lists that are nested deep or are long, as rule generators write them."""

from __future__ import annotations

import subprocess
import sys
import time

import pyarrow as pa
import pytest

from forms import thinned
from penstock.errors import SqlError
from penstock.sql.conditions.bind import bind_selections
from penstock.sql.script.queries import parse_query
from penstock.sql.text.lexing import MOST_NESTED

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.int64())])


def nested(depth: int, before: str = "(", inner: str = "a = 443") -> str:
    return before * depth + inner + ")" * (depth * before.count("("))


@pytest.mark.parametrize("depth", [141, 300, MOST_NESTED])
def test_parentheses_and_negations_are_nested_deep(depth: int) -> None:
    bound = bind_selections({"q": nested(depth)}, SCHEMA, None)
    assert bound.selections.queries == bind_selections({"q": "a = 443"}, SCHEMA, None).selections.queries
    negated = bind_selections({"q": nested(depth, "NOT (")}, SCHEMA, None).selections.queries
    assert (
        negated
        == bind_selections({"q": "a <> 443" if depth % 2 else "a = 443"}, SCHEMA, None).selections.queries
    )
    mixed = bind_selections({"q": nested(depth, "(b > 100 OR a > 1 AND ")}, SCHEMA, None).selections
    assert len(mixed.queries[0].terms) >= 1


def test_a_select_list_is_nested_deep() -> None:
    query = parse_query(f"SELECT {nested(300, '(', 'a')} AS x FROM t WHERE {nested(300)}")
    assert query.projection is not None  # type: ignore[union-attr]


@pytest.mark.parametrize("before", ["(", "NOT (", "coalesce(a, ", "[", "CASE WHEN "])
def test_what_is_nested_too_deep_is_one_message_with_its_place(before: str) -> None:
    script = f"SELECT *\nFROM t WHERE {nested(MOST_NESTED + 1, before)}"
    with pytest.raises(SqlError, match=f"nested more than {MOST_NESTED} levels deep") as raised:
        parse_query(script)
    assert raised.value.start == len("SELECT *\nFROM t WHERE ") + len(before) * MOST_NESTED + before.find(
        before.strip()[0]
    ) + (len("NOT ") if before == "NOT (" else len("coalesce") if before.startswith("coalesce") else 0)


@pytest.mark.parametrize(
    "suffix", thinned(["[0]", "::array<int>[0]", "[a + 1]", "::int", " AT TIME ZONE 'UTC'"], 2)
)
def test_subscripts_and_casts_in_a_chain_count_as_nested(suffix: str) -> None:
    steps = suffix.count("::") + suffix.count("[") + suffix.count("ZONE")
    for template in (
        "SELECT {} AS x FROM t",
        "SELECT a FROM t WHERE {} > 3",
        "SELECT count(*) AS n, sum({}) AS s FROM t GROUP BY window(at, '1 minute')",
    ):
        parse_query(template.format("a" + suffix * (MOST_NESTED // steps - 2)))
        with pytest.raises(SqlError, match=f"nested more than {MOST_NESTED} levels deep"):
            parse_query(template.format("a" + suffix * 1_000))


def test_subscripts_and_casts_beside_each_other_are_not_nested() -> None:
    for operand in ("a[0]", "a::int", "m['k'][1]", "f(a)[0]::int"):
        for between in (" + ", ", ", " OR "):
            parse_query(f"SELECT f({between.join([operand] * (MOST_NESTED + 100))}) AS x FROM t")


def test_long_chains() -> None:
    began = time.monotonic()
    ored = bind_selections({"q": " OR ".join(f"a = {2 * each}" for each in range(5_000))}, SCHEMA, None)
    assert len(ored.selections.queries[0].terms[0].predicates[0][1].intervals) == 5_000
    anded = bind_selections({"q": " AND ".join(f"a <> {2 * each}" for each in range(5_000))}, SCHEMA, None)
    assert len(anded.selections.queries[0].terms[0].predicates[0][1].intervals) == 5_001
    mixed = " OR ".join(f"(a = {each} AND b = {each})" for each in range(2_000))
    assert len(bind_selections({"q": mixed}, SCHEMA, None).selections.queries[0].terms) == 2_000
    assert time.monotonic() - began < 30


def test_what_is_not_nested_leaves_the_limit_of_the_process_alone() -> None:
    code = "import sys; before = sys.getrecursionlimit(); from penstock.sql.script.queries import parse_query; parse_query('SELECT (a + 1) * 2 AS x FROM t WHERE NOT (a > 1)'); assert sys.getrecursionlimit() == before"
    subprocess.run([sys.executable, "-c", code], check=True)
