"""Conditions of one shape are parsed once, and each as it would be alone."""

from __future__ import annotations

import random

import pytest

from penstock.errors import SqlError
from penstock.sql.conditions.nodes import Condition
from penstock.sql.conditions.parsing import parse_condition
from penstock.sql.conditions.shapes import ConditionParser

STRINGS = [
    "''",
    "'a'",
    "'5'",
    "'it''s'",
    "'50%'",
    "'a' 'b'",
    "r'a'",
    r"'a\'b'",
    "'-- no'",
    "'ü, \"x\"'",
    "'('",
    "'a\nb'",
]
SHAPES = [
    "s = {} AND i > {}",
    "s IN ({}, {},{}) OR i=-{}",
    "NOT s LIKE {} AND s LIKE {} ESCAPE {}",
    "s LIKE ANY ({}, {})",
    "d = DATE {} AND s <> ({})",
    "i BETWEEN {} AND {} AND (s = {} OR s IS NULL)",
    "length(s) > {} AND s = {}",
    "s = {}AND i = {}",
    "{} = s",
    "i > 1e+{} AND i < 1E-{} OR i = +{}",
]


def parsed(parse: object, text: str) -> Condition | str:
    try:
        return parse(text)  # type: ignore[operator, no-any-return]
    except SqlError as error:
        return f"{type(error)} {error}"


@pytest.mark.parametrize("shape", SHAPES)
def test_each_is_as_alone(shape: str) -> None:
    random_ = random.Random(shape)
    parser = ConditionParser()
    for _ in range(60):
        drawn = [
            random_.choice([*STRINGS, "'a'", "'bc'", "5", "1.5", "123"]) for _ in range(shape.count("{}"))
        ]
        text = shape.format(*drawn)
        assert parsed(parser.parse, text) == parsed(parse_condition, text), text


def test_conditions_that_differ_in_constants_share_a_tree() -> None:
    parser = ConditionParser()
    for number in range(5):
        parser.parse(f"s = 'x{number}' AND i > {number} AND t LIKE '%{number}%'")
    assert len(parser._templates) == 1


def test_a_long_text_that_is_not_plain_is_seen_at_once() -> None:
    text = f"{'a AND ' * 5_000}b = {'c ' * 5_000}\\"
    assert parsed(ConditionParser().parse, text) == parsed(parse_condition, text)
