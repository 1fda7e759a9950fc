"""Branches judged by calls: who is called for which rows, what is shared, and what a row that raises costs."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.errors import FunctionRaisedError
from penstock.operators.functions.caller import CALL_ROWS, FunctionCaller, FunctionProgram
from penstock.operators.functions.judging import (
    CALLED,
    PAIRS,
    PASSED,
    RAISED,
    CallJudge,
    CallProgram,
    CallsProgram,
    Judged,
)
from penstock.operators.selection.selector import SelectionPlan, compile_selections
from penstock.plan.selection import Attribute, Query, SelectionSet, Term
from penstock.plan.value_sets import Interval, ValueSet

ROWS = 3_000
DRAWS = np.random.default_rng(7)
N = pa.array(DRAWS.integers(0, 1_000, ROWS))
COLUMNS = {"n": N, "bad": pa.array(DRAWS.random(ROWS) < 0.01)}
#: what views and a condition ask of n without functions: bounds of it; and which view each belongs to
BRANCHES = ((0, 499), (250, 749), (0, 9), (600, 999), (100, 900))
OWNERS = (0, 1, 0, 2, 3)


def at_least(*bounds: int) -> SelectionPlan:
    queries = (
        Query(str(number), (Term(((0, ValueSet((Interval(bound, None),))),)),))
        for number, bound in enumerate(bounds)
    )
    return compile_selections(SelectionSet((Attribute("value", pa.int64(), "value"),), tuple(queries)))


class Functions:
    """Counts what each is given."""

    def __init__(self) -> None:
        self.given: dict[str, list[int]] = {"twice": [], "picky": [], "plus": []}

    def twice(self, n: pa.Array) -> pa.Array:
        self.given["twice"] += n.to_pylist()
        return pc.multiply(n, 2)

    def picky(self, n: pa.Array) -> pa.Array:
        if any(value % 100 == 7 for value in n.to_pylist()):
            raise FunctionRaisedError("function picky raised: ValueError: not this one")
        self.given["picky"] += n.to_pylist()
        return n

    def plus(self, one: pa.Array, other: pa.Array) -> pa.Array:
        self.given["plus"] += one.to_pylist()
        return pc.add(one, other)


def program(tested: list[list[int]]) -> CallsProgram:
    """Calls twice(n), picky(n), plus(twice(n), 1); tests of each by branch, -1: none."""
    integer = pa.int64()
    calls = (
        CallProgram("f0", "twice(n)", ("n",), (integer,), integer, (), at_least(100, 1_500)),
        CallProgram("f1", "picky(n)", ("n",), (integer,), integer, ("bad",), at_least(0, 700)),
        CallProgram(
            "f2", "plus(twice(n), 1)", ("f0", pa.scalar(1)), (integer, integer), integer, (), at_least(1_000)
        ),
    )
    return CallsProgram(calls, b"", 4, np.asarray(OWNERS), np.asarray(tested, np.int32))


TESTED = [[0, -1, -1, 1, -1], [-1, 0, 0, 1, -1], [-1, -1, -1, -1, 0]]


def matches(sure: dict[int, set[int]]) -> tuple[np.ndarray, np.ndarray]:
    """What shared selection finds: views that need no call by row, and branches."""
    offsets, queries = [0], []
    for row, n in enumerate(N.to_pylist()):
        own = sorted(sure.get(row, set()))
        queries += own + [4 + place for place, (low, high) in enumerate(BRANCHES) if low <= n <= high]
        offsets.append(len(queries))
    return np.asarray(offsets, np.int64), np.asarray(queries, np.int32)


def expected(sure: dict[int, set[int]]) -> tuple[list[set[int]], list[set[int]]]:
    """By row the views that match, and those that are lost to what raises."""
    found, lost = [], []
    for row, n in enumerate(N.to_pylist()):
        own, missed = set(sure.get(row, ())), set()
        raises = n % 100 == 7 or COLUMNS["bad"][row].as_py()
        values = (2 * n, None if raises else n, 2 * n + 1)
        bounds = ((100, 1_500), (0, 700), (1_000,))
        for place, (low, high) in enumerate(BRANCHES):
            if not low <= n <= high:
                continue
            tests = [(call, TESTED[call][place]) for call in range(3) if TESTED[call][place] >= 0]
            passing = [
                values[call] is not None and values[call] >= bounds[call][test] for call, test in tests
            ]
            if all(passing):
                own.add(OWNERS[place])
            elif all(ok or values[call] is None for ok, (call, _) in zip(passing, tests, strict=True)):
                missed.add(OWNERS[place])
        found.append(own)
        lost.append(missed - own)
    return found, lost


def judge(judge: CallJudge, sure: dict[int, set[int]]) -> Judged:
    return judge.judge(*matches(sure), ROWS, COLUMNS.__getitem__)


@pytest.mark.parametrize("order", [(), (2, 1, 0), (1, 0, 2)])
def test_rows_match_that_satisfy_everything_and_no_function_is_called_twice_for_a_row(
    order: tuple[int, ...],
) -> None:
    functions = Functions()
    users = CallJudge(program(TESTED), (functions.twice, functions.picky, functions.plus))
    users.reorder(order)
    sure = {row: {1} for row in range(0, ROWS, 10)}
    found = judge(users, sure)
    wanted, lost = expected(sure)
    own = [
        set(found.queries[first:last].tolist())
        for first, last in zip(found.offsets[:-1], found.offsets[1:], strict=True)
    ]
    assert own == wanted
    # the order decides whether an earlier call turns a row away before it raises
    assert set(found.lost.tolist()) <= {0, 1, 2}
    assert len(found.lost) >= sum(map(len, lost))
    values = N.to_pylist()
    for name, number in (("twice", 0), ("picky", 1), ("plus", 2)):
        assert len(functions.given[name]) == users.measures[number, CALLED] - (
            0 if name != "picky" else len([e for e in found.raised if "picky raised" in e.reason])
        )
    reached = [n for n in values if 0 <= n <= 499 or 600 <= n <= 999 or 100 <= n <= 900]
    assert len(functions.given["twice"]) <= len(reached)
    assert max(functions.given["plus"]) <= 1_800
    assert users.measures[2, PAIRS] == sum(100 <= n <= 900 for n in values)
    assert users.measures[2, PASSED] == sum(500 <= n <= 900 for n in values)


def test_a_row_that_raises_is_told_once_for_a_call_and_lost_by_its_views() -> None:
    functions = Functions()
    users = CallJudge(program(TESTED), (functions.twice, functions.picky, functions.plus))
    users.reorder((1, 0, 2))
    found = judge(users, {})
    values = N.to_pylist()
    reached = [row for row, n in enumerate(values) if 250 <= n <= 749 or n <= 9 or n >= 600]
    raising = {row for row in reached if values[row] % 100 == 7 or COLUMNS["bad"][row].as_py()}
    assert {each.row for each in found.raised} == raising
    assert len(found.raised) == len(raising) == users.measures[1, RAISED]
    reasons = {each.reason for each in found.raised}
    assert reasons == {
        "function picky raised: ValueError: not this one",
        "an argument of picky(n) raised",
    }
    assert {each.call for each in found.raised} == {"picky(n)"}


def test_a_call_within_one_whose_other_argument_raises_for_all_rows() -> None:
    functions, integer = Functions(), pa.int64()
    calls = (
        CallProgram("f0", "twice(n)", ("n",), (integer,), integer, (), at_least()),
        CallProgram(
            "f1", "plus(twice(n), 1 / z)", ("f0", "z"), (integer, integer), integer, ("bad",), at_least(0)
        ),
    )
    given = CallsProgram(calls, b"", 1, np.asarray([0]), np.asarray([[-1], [0]], np.int32))
    columns = {"n": pa.array([1, 2]), "z": pa.array([None, None], integer), "bad": pa.array([True, True])}
    users = CallJudge(given, (functions.twice, functions.plus))
    found = users.judge(np.asarray([0, 1, 2]), np.asarray([1, 1], np.int32), 2, columns.__getitem__)
    assert len(found.queries) == 0
    assert [(each.row, each.reason) for each in found.raised] == [
        (row, "an argument of plus(twice(n), 1 / z) raised") for row in range(2)
    ]
    assert not functions.given["twice"]


def test_without_branches_nothing_is_called() -> None:
    functions = Functions()
    users = CallJudge(program(TESTED), (functions.twice, functions.picky, functions.plus))
    offsets, queries = np.asarray([0, 1, 1], np.int64), np.asarray([3], np.int32)
    found = users.judge(offsets, queries, 2, COLUMNS.__getitem__)
    assert found.offsets is offsets
    assert found.queries is queries
    assert not any(functions.given.values())


def test_one_bad_row_in_a_thousand_repeats_few_calls() -> None:
    given: list[int] = []

    def rare(values: pa.Array) -> pa.Array:
        given.append(len(values))
        if any(value % 1_000 == 999 for value in values.to_pylist()):
            raise FunctionRaisedError("not this one")
        return values

    rows = 200_000
    caller = FunctionCaller(FunctionProgram(rare, ("n",), (pa.int64(),), pa.int64()))
    found = caller.call((pa.array(np.arange(rows)),), None, rows)
    assert len(found.raised) == 200
    assert np.array_equal(found.places, np.flatnonzero(np.arange(rows) % 1_000 != 999))
    assert pa.concat_arrays(found.values).to_pylist() == found.places.tolist()
    assert sum(given) < 1.8 * rows, "rows are given again where a call raised"
    assert max(given) == CALL_ROWS
