"""Outlines of conditions: every part has a text that Spark can judge alone."""

from __future__ import annotations

import pytest

from penstock.errors import SqlError, UnsupportedError
from penstock.sql.conditions.outline import Outline, outline


def _shape(found: Outline) -> object:
    return (found.kind, found.text, *map(_shape, found.parts)) if found.parts else found.text


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("a > 1", "a > 1"),
        (" a > 1 AND b = 'x' ", ("and", "a > 1 AND b = 'x'", "a > 1", "b = 'x'")),
        (
            "(a = 1 OR b = 2) AND NOT (c = 3)",
            (
                "and",
                "(a = 1 OR b = 2) AND NOT (c = 3)",
                ("or", "a = 1 OR b = 2", "a = 1", "b = 2"),
                ("not", "NOT (c = 3)", "c = 3"),
            ),
        ),
        ("a <> 1", "a <> 1"),
        ("a NOT IN (1, NULL)", "a NOT IN (1, NULL)"),
        ("a IS NOT NULL", "a IS NOT NULL"),
        ("(a = 1) IS NOT TRUE", ("is", "(a = 1) IS NOT TRUE", "a = 1")),
        (
            "a LIKE ANY ('x%', '%y')",
            ("or", "a LIKE ANY ('x%', '%y')", "a LIKE 'x%'", "a LIKE '%y'"),
        ),
        (
            "CASE WHEN a > 1 AND b THEN c = 2 ELSE (CASE WHEN d THEN e END) END",
            (
                "test",
                "CASE WHEN a > 1 AND b THEN c = 2 ELSE (CASE WHEN d THEN e END) END",
                ("and", "a > 1 AND b", "a > 1", "b"),
            ),
        ),
        ("CASE a WHEN 1 THEN b END = 2", "CASE a WHEN 1 THEN b END = 2"),
        ("CASE WHEN a THEN 1 END = 2", ("test", "CASE WHEN a THEN 1 END = 2", "a")),
    ],
)
def test_each_part_has_its_own_text(text: str, shape: object) -> None:
    assert _shape(outline(text)) == shape


def test_a_test_names_the_computed_values_that_it_compares() -> None:
    found = outline("length(city) + 1 BETWEEN low AND 9")
    assert found.operands == ("length(city) + 1",)
    assert {"CITY", "LOW"} <= set(found.names)
    assert outline("amount > 9").operands == ()
    assert outline("amount > 9").names == ("AMOUNT",)
    assert outline("startswith(city, 'B')").operands == ()


def test_conjuncts_are_the_parts_of_a_conjunction_or_the_whole() -> None:
    assert [each.text for each in outline("a AND b AND (c OR d)").conjuncts] == ["a", "b", "c OR d"]
    assert [each.text for each in outline("a OR b").conjuncts] == ["a OR b"]


def test_what_is_no_condition_is_refused() -> None:
    with pytest.raises(SqlError):
        outline("a >")
    with pytest.raises(UnsupportedError):
        outline("a IN (SELECT 1)")
