"""User predicates on joined rows: ordered, measured, and halved where a function raises."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.errors import FunctionFailedError, FunctionRaisedError
from penstock.operators.functions.caller import CALL_ROWS, FunctionProgram
from penstock.operators.joins.user_predicates import PredicateProgram, UserPredicates
from penstock.operators.selection.selector import compile_selections
from penstock.sql.conditions.bind import bind_selections

ROWS = 25_000
N = pa.array(np.arange(ROWS), mask=np.arange(ROWS) % 10 == 9)


def even(values: pa.Array) -> pa.Array:
    return pc.equal(pc.bit_wise_and(values, 1), 0)


def plus(values: pa.Array, other: pa.Array) -> pa.Array:
    return pc.add(values, other)


def picky(values: pa.Array) -> pa.Array:
    if any(value in (5, 12_000, 12_001, 24_998) for value in values.to_pylist()):
        raise FunctionRaisedError("not this one")
    return even(values)


def true_where(function: object, *arguments: str | pa.Scalar) -> PredicateProgram:
    call = FunctionProgram(function, arguments, (pa.int64(),) * len(arguments), pa.bool_())  # type: ignore[arg-type]
    return PredicateProgram(call, None)


def where(condition: str, *arguments: str | pa.Scalar) -> PredicateProgram:
    bound = bind_selections({"": condition}, pa.schema({"_value": pa.int64()}), None, "UTC")
    types = (pa.int64(),) * len(arguments)
    call = FunctionProgram(plus, arguments, types, pa.int64())
    return PredicateProgram(call, compile_selections(bound.selections))


def judged(users: UserPredicates) -> list[int]:
    return users.matching({"n": N}.__getitem__, ROWS).tolist()


def test_rows_match_that_all_predicates_let_through_and_the_next_see_no_others() -> None:
    least = where("`_value` >= 20000", "n", pa.scalar(10_000))
    users = UserPredicates((least, true_where(even, "n")))
    wanted = [n for n in range(10_000, ROWS) if n % 10 != 9 and n % 2 == 0]
    assert judged(users) == wanted
    first, second = users.measures
    assert (first.tuples, first.passed) == (ROWS, 13_500)
    assert (second.tuples, second.passed) == (13_500, len(wanted))
    assert first.seconds > 0 < second.seconds
    turned = UserPredicates((true_where(even, "n"), least))
    assert judged(turned) == wanted
    assert turned.measures[1].tuples == 12_500


def test_a_condition_may_be_true_of_an_unknown_value() -> None:
    users = UserPredicates((where("`_value` IS NULL OR `_value` < 3", "n", pa.scalar(0)),))
    assert judged(users) == [0, 1, 2, *range(9, ROWS, 10)]
    assert judged(UserPredicates((where("`_value` IS NULL OR `_value` IS NOT NULL", "n", "n"),))) == [
        *range(ROWS)
    ]


def test_rows_at_which_a_function_raises_are_no_match_and_counted() -> None:
    users = UserPredicates((true_where(picky, "n"),))
    assert judged(users) == [n for n in range(0, ROWS, 2) if n not in (12_000, 24_998)]
    assert users.measures[0].raised == 4
    again = pickle.loads(pickle.dumps(true_where(even, "n")))
    assert judged(UserPredicates((again,)))[:2] == [0, 2]


def test_a_function_is_given_no_more_rows_at_once_than_spark_gives_it() -> None:
    given: list[int] = []

    def counting(values: pa.Array) -> pa.Array:
        given.append(len(values))
        return even(values)

    judged(UserPredicates((true_where(counting, "n"),)))
    assert given == [CALL_ROWS, CALL_ROWS, ROWS - 2 * CALL_ROWS]


def test_what_a_function_may_not_return_is_no_row_that_raises() -> None:
    def listed(_: pa.Array) -> pa.Array:
        raise FunctionFailedError("function listed returned list")

    with pytest.raises(FunctionFailedError, match="function listed returned list"):
        judged(UserPredicates((true_where(listed, "n"),)))
