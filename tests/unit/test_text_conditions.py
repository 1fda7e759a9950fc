"""Conditions that test text behind functions: read without Spark, with its three-valued logic."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock import Matcher
from penstock.errors import UnsupportedError
from penstock.plan.java_regex import parse
from penstock.plan.linear_regex import LinearRegex
from penstock.plan.word_boundaries import word_boundaries
from penstock.sql.conditions.bind import bind_selections

VALUES = ["abc", "ABC", " abc ", "xabc", "", None, "Straße", "İ\u212a", "a_c"]
OTHERS = ["ABC", "abc", "abc", None, "", None, "STRASSE", "ik", "a_c"]
SCHEMA = pa.schema({"x": pa.string(), "y": pa.string(), "n": pa.int32()})


def rows(condition: str) -> list[int]:
    """The numbers of the rows that satisfy a condition."""
    batch = pa.record_batch({"x": VALUES, "y": OTHERS, "n": [0] * len(VALUES)}, SCHEMA)
    offsets = Matcher({"q": condition}, SCHEMA).match(batch).offsets.tolist()
    return [row for row in range(len(VALUES)) if offsets[row] < offsets[row + 1]]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("contains(x, 'bc')", [0, 2, 3]),
        ("NOT contains(x, 'bc')", [1, 4, 6, 7, 8]),
        ("contains(x, '')", [0, 1, 2, 3, 4, 6, 7, 8]),
        ("startswith(lower(x), 'ab')", [0, 1]),
        ("endswith(upper(x), 'SE')", [6]),
        ("endswith(x, 'c')", [0, 3, 8]),
        ("contains(x, '_')", [8]),
        ("instr(x, 'a') > 0", [0, 2, 3, 6, 8]),
        ("instr(x, 'a') >= 1", [0, 2, 3, 6, 8]),
        ("0 < instr(x, 'a')", [0, 2, 3, 6, 8]),
        ("instr(x, 'a') = 0", [1, 4, 7]),
        ("instr(x, 'a') <> 0", [0, 2, 3, 6, 8]),
        ("instr(x, 'a') = 1", [0, 8]),
        ("instr(x, 'a') <=> 0", [1, 4, 7]),
        ("NOT instr(x, 'a') <=> 0", [0, 2, 3, 5, 6, 8]),
        ("locate('b', lower(x)) > 0", [0, 1, 2, 3]),
        ("position('b' IN x) < 1", [1, 4, 6, 7, 8]),
        ("lower(x) = 'abc'", [0, 1]),
        ("lower(x) = lower('ABC')", [0, 1]),
        ("'abc' = lower(x)", [0, 1]),
        ("lower(x) = 'ABC'", []),
        ("lower(x) <> 'abc'", [2, 3, 4, 6, 7, 8]),
        ("lower(x) <=> 'abc'", [0, 1]),
        ("NOT lower(x) <=> 'abc'", [2, 3, 4, 5, 6, 7, 8]),
        ("lower(x) IN ('abc', 'xabc')", [0, 1, 3]),
        ("lower(x) NOT IN ('abc', 'xabc')", [2, 4, 6, 7, 8]),
        ("lower(x) NOT IN ('abc', NULL)", []),
        ("(lower(x) IN ('abc', NULL)) IS NULL", [2, 3, 4, 5, 6, 7, 8]),
        ("lower(x) LIKE 'a%c'", [0, 1, 8]),
        ("lower(x) LIKE 'a\\\\_c'", [8]),
        ("upper(x) LIKE '%SS%'", [6]),
        ("upper(x) LIKE 'a%'", []),
        ("upper(x) = 'STRASSE'", [6]),
        ("lower(x) = 'i\u0307k'", [7]),
        ("trim(x) = 'abc'", [0, 2]),
        ("ltrim(x) = 'abc '", [2]),
        ("rtrim(upper(x)) = ' ABC'", [2]),
        ("upper(trim(x)) = 'ABC'", [0, 1, 2]),
        ("coalesce(x, '') = ''", [4, 5]),
        ("coalesce(x, '') <> 'abc'", [1, 2, 3, 4, 5, 6, 7, 8]),
        ("lower(coalesce(x, 'ABC')) = 'abc'", [0, 1, 5]),
        ("coalesce(x, 'abc') LIKE 'ab%'", [0, 5]),
        ("nvl(x, 'q') RLIKE '^[q-z]'", [3, 5]),
        ("coalesce(x, '') IS NULL", []),
        ("lower(x) IS NULL", [5]),
        ("contains(x, 'b') IS NOT NULL", [0, 1, 2, 3, 4, 6, 7, 8]),
        ("length(x) > 3", [2, 3, 6]),
        ("length(x) = 2", [7]),
        ("length(lower(x)) = 3", [0, 1, 7, 8]),
        ("length(x) <= 0", [4]),
        ("NOT length(x) > 3", [0, 1, 4, 7, 8]),
        ("length(x) BETWEEN 1 AND 2", [7]),
        ("char_length(trim(x)) IN (3, 4)", [0, 1, 2, 3, 8]),
        ("length(coalesce(x, '')) = 0", [4, 5]),
        ("x ILIKE 'ABC'", [0, 1]),
        ("ilike(x, 'ABC')", [0, 1]),
        ("trim(x) ILIKE 'A%'", [0, 1, 2, 8]),
        ("lower(x) RLIKE '^abc$'", [0, 1]),
        ("x RLIKE '\\\\bab'", [0, 2]),
        ("x RLIKE 'Stra\\\\b'", []),
        ("x = y", [4, 8]),
        ("x <> y", [0, 1, 2, 6, 7]),
        ("lower(x) = lower(y)", [0, 1, 4, 8]),
        ("lower(x) = y", [1, 4, 8]),
        ("upper(x) = y", [0, 4, 6]),
        ("lower(trim(x)) = y", [1, 2, 4, 8]),
        ("(x = y) IS NULL", [3, 5]),
        ("(lower(x) = lower(y)) IS NOT TRUE", [2, 3, 5, 6, 7]),
        ("coalesce(x, '') = coalesce(y, '')", [4, 5, 8]),
        ("lower(x) = x", [0, 2, 3, 4, 8]),
    ],
)
def test_rows_of_a_condition(condition: str, expected: list[int]) -> None:
    assert rows(condition) == expected


@pytest.mark.parametrize(
    "condition",
    ["reverse(x) = 'cba'", "lower(x) < 'b'", "instr(x, 'a') > 1", "instr(x, 'a') = 2", "length(x) = n", "lower(n) = '0'", "trim(BOTH 'a' FROM x) = ''",
     "trim('a', x) = ''", "coalesce(x, y) = 'a'", "contains(x, y)", "length(x) > 1.5", "lower(x) <=> y", "charindex('b', x) > 0", "locate('a', x, 2) > 0", "x RLIKE '(?<=a)b'"],
)  # fmt: skip
def test_other_conditions_need_spark(condition: str) -> None:
    with pytest.raises(UnsupportedError):
        bind_selections({"q": condition}, SCHEMA, None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("a_1", [0, 3]),
        ("né, x", [0, 2, 4, 5]),
        ("a\u0301b", [0, 3]),
        (" \u0301b", [2, 3]),
        ("\U00010400\u0301", [0, 1]),
        ("a\U0001e8d0", [0]),
        ("\U00010570", []),
        ("_\u0301", [0, 1]),
    ],
)
def test_words_are_those_of_java_17(text: str, expected: list[int]) -> None:
    assert sorted(word_boundaries(text)) == expected


def test_words_in_texts_beyond_ascii() -> None:
    search = LinearRegex(parse(r"\bb+\b")).search
    assert [search(text) for text in ("é bb", "ébb", "bb\u0301", "bb\u2028", "")] == [
        True,
        False,
        False,
        True,
        False,
    ]


@pytest.mark.parametrize(
    "condition", ["lower(upper(s)) = 'a'", "length(upper(lower(s))) = 2", "upper(s) ILIKE 'a%'"]
)
def test_one_case_behind_the_other_is_left_to_spark(condition: str) -> None:
    """Spark's optimizer makes one function of both: `lower(upper('ß'))` is `ß`, not `ss`."""
    with pytest.raises(UnsupportedError):
        Matcher({"q": condition}, pa.schema({"s": pa.string()}))
