"""Conditions compiled by difference answer as those compiled from nothing."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from penstock.operators.selection.selector import SelectionPlan, Selector
from penstock.spark.ingest.conditions import CompiledConditions, DeclaredConditions, compile_conditions
from penstock.spark.storage.shared_maps import SharedMap
from penstock.sql.conditions import shapes
from penstock.sql.conditions.bind import SelectionBinder

SCHEMA = pa.schema(
    {
        "a": pa.int32(),
        "b": pa.int64(),
        "x": pa.float64(),
        "s": pa.string(),
        "t": pa.string(),
        "rare": pa.int32(),
    }
)


def condition(random_: random.Random) -> str:
    """A condition of some kind; one in eight never holds, or always."""
    low = random_.randrange(40)
    return random_.choice(
        [
            f"a BETWEEN {low} AND {low + random_.randrange(9)} AND b > {random_.randrange(40)}",
            f"b IN ({low}, {random_.randrange(40)}) OR x < {low / 4} OR a IS NULL",
            f"s = 'w{low % 9}' AND x >= {low}",
            f"s LIKE '%{low % 10}%' AND a <> {low}",
            f"t LIKE 'w{low % 9}%' OR t IS NULL",
            f"NOT (t ILIKE '%W{low % 9}' OR b = {low})",
            f"x <> {low / 2} AND s > 'w{low % 9}'",
            random_.choice(["a > 5 AND a < 3", "TRUE", "a > 7 OR TRUE", "s IS NULL AND b IS NOT NULL"]),
        ]
    )


def batch(rows: int) -> dict[str, pa.Array]:
    """Tuples with NULL, NaN and values between the constants."""
    drawn = np.random.default_rng(7)

    def some(values: np.ndarray, kind: pa.DataType) -> pa.Array:
        return pa.array([None if drawn.random() < 0.1 else each for each in values.tolist()], kind)

    return {
        "a": some(drawn.integers(0, 50, rows), pa.int32()),
        "b": some(drawn.integers(0, 50, rows), pa.int64()),
        "x": some(np.where(drawn.random(rows) < 0.1, np.nan, drawn.integers(0, 80, rows) / 4), pa.float64()),
        "s": some(np.char.add("w", drawn.integers(0, 12, rows).astype(str)), pa.string()),
        "t": some(np.char.add("w", drawn.integers(0, 12, rows).astype(str)), pa.string()),
        "rare": some(drawn.integers(0, 9, rows), pa.int32()),
    }


TUPLES = batch(300)


def answers(plan: SelectionPlan) -> dict[str, list[int]]:
    """The rows that satisfy each query."""
    columns = [TUPLES[name] for name in plan.columns]
    matches = Selector(plan, "index").match(columns, 300)
    found: dict[str, list[int]] = {name: [] for name in plan.names}
    for row in range(300):
        for query in matches.queries[matches.offsets[row] : matches.offsets[row + 1]].tolist():
            found[plan.names[query]].append(row)
    return found


def compiled(conditions: dict[str, str], base: CompiledConditions | None = None) -> CompiledConditions:
    return compile_conditions(conditions, SCHEMA, None, "UTC", base)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(6))
def test_views_added_redefined_and_dropped_one_by_one(seed: int) -> None:
    random_ = random.Random(seed)
    conditions = {f"v{number}": condition(random_) for number in range(40)}
    plan = compiled(conditions)
    by_difference = 0
    for step in range(30):
        conditions = dict(conditions)
        match random_.randrange(3):
            case 0:
                conditions[f"n{step}"] = condition(random_)
            case 1:
                conditions[random_.choice(list(conditions))] = condition(random_)
            case _:
                del conditions[random_.choice(list(conditions))]
        plan = compiled(conditions, plan)
        by_difference += plan.changed > 0
        assert plan.plan.names == list(conditions)
        assert [query.name for query in plan.bound.selections.queries] == list(conditions)
        if step % 5 == 4:
            assert answers(plan.plan) == answers(compiled(conditions).plan)
    assert by_difference > 15


def test_constants_of_dropped_conditions_do_not_pile_up() -> None:
    conditions = {f"v{number}": f"a > {number}" for number in range(20)}
    plan = compiled(conditions)
    for number in range(20, 200):
        conditions = {**dict(list(conditions.items())[1:]), f"v{number}": f"a > {number}"}
        plan = compiled(conditions, plan)
        assert len(plan.plan.codings[0].constants) <= 26


def test_a_column_that_no_condition_compares_any_more_is_not_read() -> None:
    conditions = {f"v{number}": f"a > {number}" for number in range(20)}
    plan = compiled({**conditions, "last": "rare = 3 AND a > 1"})
    assert plan.plan.columns == ["a", "rare"]
    less = compiled(conditions, plan)
    assert less.plan.columns == ["a"]
    more = compiled({**conditions, "again": "rare = 4"}, less)
    assert more.changed == 1
    assert more.plan.columns == ["a", "rare"]


def test_another_time_zone_binds_anew() -> None:
    conditions = {f"v{number}": f"a > {number}" for number in range(20)}
    plan = compiled(conditions)
    assert compile_conditions(conditions, SCHEMA, None, "Asia/Tokyo", plan).binder is not plan.binder  # type: ignore[arg-type]


def test_rules_are_compiled_anew_only_where_one_changed() -> None:
    conditions = {f"v{number}": f"a > {number}" for number in range(20)} | {"text": "s LIKE '%1%' OR a = 3"}
    plan = compiled(conditions)
    assert plan.plan.rules is not None
    more = compiled({"first": "b < 7", **conditions}, plan)
    assert more.plan.rules is not None
    assert more.plan.rules.nodes is plan.plan.rules.nodes
    assert more.plan.names[more.plan.rules.queries[0]] == "text"
    assert answers(more.plan) == answers(compiled({"first": "b < 7", **conditions}).plan)
    other = compiled(conditions | {"text": "s LIKE '%2%' OR a = 3"}, plan)
    assert answers(other.plan) == answers(compiled(conditions | {"text": "s LIKE '%2%' OR a = 3"}).plan)


def declared(conditions: dict[str, str], timezone: str = "UTC") -> DeclaredConditions:
    binder = SelectionBinder(SCHEMA, None, timezone, declaring=True)
    return DeclaredConditions(SharedMap(conditions), binder.bind(conditions), binder, timezone)


@pytest.mark.parametrize("seed", range(4))
def test_the_first_version_takes_what_was_bound_when_it_was_declared(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    random_ = random.Random(seed)
    conditions = {f"v{number}": condition(random_) for number in range(40)}
    before = declared(conditions)
    now = {name: text for name, text in conditions.items() if name not in ("v3", "v8")}
    now |= {"v5": "a = 17 AND s LIKE '%3'", "new": "rare > 3", "rare": "t ILIKE 'W%'"}
    expected = compiled(now)
    parsed: list[str] = []
    parse = shapes.parse_condition
    monkeypatch.setattr(shapes, "parse_condition", lambda text: parsed.append(text) or parse(text))
    others = {"condition 0": "b > 7", "condition 1": "b > 8"}
    plan = compile_conditions(now, SCHEMA, None, "UTC", others=others, declared=before)  # type: ignore[arg-type]
    assert len(parsed) <= 4
    assert plan.plan.names == [*now, *others]
    found = answers(plan.plan)
    assert {name: found[name] for name in now} == answers(expected.plan)
    more = compile_conditions({**now, "more": "a < 9"}, SCHEMA, None, "UTC", plan, others)  # type: ignore[arg-type]
    assert more.changed == 1
    assert answers(more.plan) == answers(compiled({**now, "more": "a < 9", **others}).plan)


def test_conditions_declared_in_another_time_zone_are_bound_anew() -> None:
    before = declared({"v": "a > 1"}, "Asia/Tokyo")
    plan = compile_conditions({"v": "a > 1"}, SCHEMA, None, "UTC", declared=before)  # type: ignore[arg-type]
    assert plan.binder is not before.binder


class Host:
    """Says of each expression that it is a number and may raise."""

    stream, java = "t", 17

    def types(self, texts: list[str]) -> list[pa.DataType]:
        return [pa.int32() for _ in texts]

    def plain(self, texts: list[str]) -> list[bool]:
        return [True for _ in texts]

    def constants(self, texts: list[str]) -> list[object]:
        assert not texts, "there are none"
        return []

    may_raise = built_in = equivalent = plain


@pytest.mark.parametrize("seed", range(3))
def test_what_is_lost_to_errors_is_found_by_difference_too(seed: int) -> None:
    random_ = random.Random(seed)

    def some() -> str:
        low = random_.randrange(20)
        return random_.choice([f"a > {low}", f"a % b > {low}", f"b % a < {low} AND a > 2"])

    def compiled_now(
        views: dict[str, str], windows: dict[str, str], base: CompiledConditions | None = None
    ) -> CompiledConditions:
        return compile_conditions(views, SCHEMA, Host(), "UTC", base, windows)  # type: ignore[arg-type]

    views = {f"v{number}": some() for number in range(30)}
    windows = {"condition 0": "b % 3 = 1", "condition 1": "a > 1"}
    plan = compiled_now(views, windows)
    by_difference = 0
    for step in range(25):
        views = dict(views)
        match step % 4:
            case 0:
                views[f"n{step}"] = some()
            case 1:
                views[random_.choice(list(views))] = some()
            case 2:
                del views[random_.choice(list(views))]
            case _:
                windows = {**windows, f"condition {1 + random_.randrange(2)}": some()}
        plan, anew = compiled_now(views, windows, plan), compiled_now(views, windows)
        by_difference += plan.changed > 0
        assert plan.plan.names == anew.plan.names
        assert plan.erring.tolist() == anew.erring.tolist()
        names = [query.name for query in plan.bound.error_queries]
        assert names == [query.name for query in anew.bound.error_queries]
        assert plan.plan.names == [*views, *windows, *names]
    assert by_difference > 10
