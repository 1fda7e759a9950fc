"""Conditions with calls of functions, compiled by what differs from other conditions: as if they were compiled anew."""

from __future__ import annotations

import random
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.operators.selection.selector import Selector
from penstock.plan.calls import Argument
from penstock.spark.ingest.conditions import CompiledConditions, compile_conditions

SCHEMA = pa.schema({"a": pa.int64(), "b": pa.int64(), "s": pa.string()})
ROWS = 400
DRAWS = np.random.default_rng(1)
COLUMNS = {
    "a": pa.array(DRAWS.integers(0, 100, ROWS)),
    "b": pa.array(DRAWS.integers(0, 100, ROWS)),
    "s": pa.array([f"s{n % 7}" for n in range(ROWS)]),
}
FUNCTIONS = ("score", "is_odd", "shout")


def host() -> Any:
    """Spark's analysis of the few expressions here."""

    def types(texts: Sequence[str]) -> list[pa.DataType]:
        kinds = {"is_odd": pa.bool_(), "shout": pa.string()}
        return [
            pa.bool_()
            if " > " in text or " = " in text
            else kinds.get(text.partition("(")[0].lower(), pa.int64())
            for text in texts
        ]

    return SimpleNamespace(
        java=17,
        types=types,
        built_in=lambda names: [name.upper() not in {"SCORE", "IS_ODD", "SHOUT"} for name in names],
        plain=lambda texts: [True] * len(texts),
        may_raise=lambda texts: ["/" in text for text in texts],
        equivalent=lambda pairs: [True] * len(pairs),
        constants=lambda texts: [1] * len(texts),
    )


def drawn(rng: random.Random) -> str:
    cheap = rng.choice(["a < 30", "b BETWEEN 10 AND 60", "s LIKE '%3%'", "a > 90 OR b = 5", "s = 's1'"])
    call = rng.choice(
        [
            "score(a, 3) > 7",
            "score(a, b) IN (1, 2)",
            "NOT is_odd(a)",
            "shout(s) LIKE '%A%'",
            "is_odd(score(a, 3))",
            "score(10 / a, 1) = 4",
        ]
    )
    return rng.choice(
        [f"{cheap} AND {call}", f"{cheap} OR {call}", cheap, call, f"({cheap}) AND ({call} OR b > 80)"]
    )


def compiled(views: dict[str, str], base: CompiledConditions | None = None) -> CompiledConditions:
    return compile_conditions(views, SCHEMA, host(), "UTC", base, functions=FUNCTIONS)


def found(conditions: CompiledConditions) -> set[tuple[int, str, Any]]:
    """(row, view, calls that decide) of all matches."""
    plan = conditions.plan
    texts = {each.name: each.text for each in conditions.bound.calls}
    first = len(conditions) + len(conditions.erring)
    meanings: list[Any] = [(name, "sure") for name in plan.names[: len(conditions)]]
    meanings += [(plan.names[len(conditions) + place], "error") for place in range(len(conditions.erring))]
    for place, branch in enumerate(conditions.bound.branches):
        owner = plan.names[conditions.branching[place]]
        assert owner == plan.names[first + place] == branch.query.name
        meanings.append((owner, frozenset((texts[name], values) for name, values in branch.tests)))
    columns = [COLUMNS.get(name, pa.array([False] * ROWS)) for name in plan.columns]
    matches = Selector(plan).match(columns, ROWS)
    return {
        (row, *meanings[query])
        for row in range(ROWS)
        for query in matches.queries[matches.offsets[row] : matches.offsets[row + 1]].tolist()
    }


@pytest.mark.parametrize("seed", range(12))
def test_a_change_gives_what_compiling_anew_gives(seed: int) -> None:
    rng = random.Random(seed)
    views = {f"v{number}": drawn(rng) for number in range(40)}
    conditions = compiled(views)
    for step in range(6):
        views = dict(views)
        del views[rng.choice(list(views))]
        views[f"w{step}"] = drawn(rng)
        views[rng.choice(list(views))] = drawn(rng)
        conditions, anew = compiled(views, conditions), compiled(views)
        assert found(conditions) == found(anew)
        assert {each.text for each in conditions.bound.calls} == {each.text for each in anew.bound.calls}
        assert {each.expression for each in conditions.bound.arguments} == {
            each.expression for each in anew.bound.arguments
        }


def test_equal_calls_are_one_and_arguments_come_first() -> None:
    conditions = compiled(
        {
            "one": "a < 3 AND score(a, 3) > 5",
            "two": "b < 3 AND SCORE( A, 3 ) < 1",
            "three": "is_odd(score(a, 3)) AND score(10 / a, 1) = 4",
        }
    )
    calls = {each.name: each for each in conditions.bound.calls}
    assert [each.function for each in calls.values()] == ["SCORE", "IS_ODD", "SCORE"]
    shared, odd, divided = calls.values()
    assert shared.arguments == (Argument("a", None), Argument(None, "3"))
    assert odd.arguments == (Argument(shared.name, None),)
    (argument,) = conditions.bound.arguments
    assert argument.expression == "10 / a"
    assert divided.raising == (argument.error_column,)
    assert not conditions.bound.derived, "Spark computes nothing but the argument"


@pytest.mark.parametrize(
    "condition", ["score(a, 3) > b", "score(a, 3) = score(b, 3)", "shout(s) = s", "score(a, 3) > 1 + b"]
)
def test_what_needs_more_than_one_call_is_left_to_spark(condition: str) -> None:
    conditions = compiled({"one": f"a < 3 AND {condition}", "two": "score(a, 3) > 1"})
    assert [each.query.name for each in conditions.bound.branches] == ["two"]
    assert [each.expression for each in conditions.bound.derived] == [condition]
