"""Aggregates of the user's as they are declared, their values, and what is told where either is wrong."""

from __future__ import annotations

import json
import math
import re
import sys
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.cli.common import open_script
from penstock.errors import AggregateFailedError, InputError
from penstock.operators.deadlines.aggregates import user_aggregate
from penstock.plan.deadlines import AggregateSignature, Arity

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "functions.md"
HERE = re.escape(Path(__file__).name)
COUNTED = pa.struct([pa.field("name", pa.string()), pa.field("n", pa.int32(), nullable=False)])


class Whole:
    """A class with all that is needed."""

    def add(self, values: pa.Array) -> None: ...
    def remove(self, values: pa.Array) -> None: ...
    def result(self) -> int:
        return 1


class NoRemove:
    def add(self, values: pa.Array) -> None: ...
    def result(self) -> int:
        return 1


class OnlyAdd:
    def add(self, values: pa.Array) -> None: ...


class Uneven(Whole):
    def remove(self, values: pa.Array, weights: pa.Array) -> None: ...  # type: ignore[override]


class Nothing(Whole):
    def add(self) -> None: ...  # type: ignore[override]


class Made(Whole):
    def __init__(self, size: int) -> None: ...


class Asked(Whole):
    def result(self, _: str) -> int:  # type: ignore[override]
        return 1


class Named(Whole):
    def add(self, *, values: pa.Array) -> None: ...  # type: ignore[override]


def _none() -> int:
    return 1


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (5, "aggregate score: an instance of int is not callable; give a function that takes"),
        (Whole(), "an instance of Whole is not callable"),
        (NoRemove, "class NoRemove has no remove; give "),
        (OnlyAdd, "class OnlyAdd has no remove and no result; give "),
        (float, "class float has no add and no remove and no result; give "),
        (Uneven, r"Uneven.add\(\) takes 1 argument, remove\(\) 2 arguments; both receive one array"),
        (Nothing, r"Nothing.add\(\) takes no argument"),
        (Made, "class Made must need no arguments, but its __init__ takes 1"),
        (Asked, r"Asked.result\(\) must need no arguments"),
        (Named, r"Named.add\(\): it needs values= by name, but Penstock passes arguments by position"),
        (_none, "the function takes no argument; give "),
        (lambda _, *, weight: weight, "it needs weight= by name"),
    ],
)
def test_what_is_no_aggregate_is_refused(given: object, told: str) -> None:
    with pytest.raises(InputError, match=told):
        user_aggregate("score", given, pa.int64(), "BIGINT")


@pytest.mark.parametrize("name", ["", "a b", "3d", "a.b", "größe", None])
def test_a_name_that_sql_cannot_call_is_refused(name: Any) -> None:
    with pytest.raises(InputError, match="the name may have letters, digits and _"):
        user_aggregate(name, Whole, pa.int64(), "BIGINT")


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (None, pa.float64(), None),
        (pa.scalar(None), pa.float64(), None),
        (3, pa.float64(), 3.0),
        (np.float32(0.5), pa.float64(), 0.5),
        (pa.scalar(3, pa.int8()), pa.int64(), 3),
        (4.0, pa.int64(), 4),
        (1, pa.decimal128(10, 2), Decimal("1.00")),
        ("a", pa.string(), "a"),
        (np.array([1, 2]), pa.list_(pa.int32()), [1, 2]),
        (pa.array([1, 2], pa.int64()), pa.list_(pa.int32()), [1, 2]),
        ({"n": 3}, COUNTED, {"name": None, "n": 3}),
        (None, COUNTED, None),
        ([("a", 1)], pa.map_(pa.string(), pa.int32()), [("a", 1)]),
    ],
)
def test_values_take_the_declared_type(value: object, kind: pa.DataType, expected: object) -> None:
    fitted = user_aggregate("score", lambda _: value, kind, "T").afresh(pa.array([1]))
    assert fitted.type == kind
    assert fitted.as_py() == expected


@pytest.mark.parametrize(
    ("value", "kind", "told"),
    [
        ("5", pa.int64(), "returned str, which does not fit its declared type T: Could not convert"),
        (
            pa.scalar("5"),
            pa.int64(),
            "returned StringScalar, which does not fit its declared type T: it is of type string",
        ),
        (5, pa.string(), "returned int, which"),
        (
            1.5,
            pa.int64(),
            "returned float, which does not fit its declared type T: 1.5 is not a whole number",
        ),
        (pa.scalar(1.5), pa.int64(), "truncated"),
        ([1, 1.5], pa.list_(pa.int64()), "1.5 is not a whole number"),
        (1 << 40, pa.int32(), "returned int"),
        (
            pa.array([1.0]),
            pa.float64(),
            "returned DoubleArray, which .*: return one value, not an array",
        ),
        ({"name": "a"}, COUNTED, "field n is NULL, but NOT NULL"),
        (pa.scalar({"n": None}, COUNTED), COUNTED, "field n is NULL, but NOT NULL"),
        (object(), pa.float64(), "returned object, which"),
    ],
)
def test_what_does_not_fit_is_told(value: object, kind: pa.DataType, told: str) -> None:
    with pytest.raises(AggregateFailedError, match=told):
        user_aggregate("score", lambda _: value, kind, "T").afresh(pa.array([1]))


class Raising(Whole):
    """Raises in one of its methods."""

    place = ""

    def __init__(self) -> None:
        self._reach("__init__")

    def add(self, _: pa.Array) -> None:
        self._reach("add")

    def result(self) -> int:
        self._reach("result")
        return 1

    def _reach(self, place: str) -> None:
        if place == self.place:
            raise ValueError("no\n score")


@pytest.mark.parametrize("place", ["__init__", "add", "result"])
def test_what_a_class_raises_is_told_with_the_method(place: str) -> None:
    given = type("Placed", (Raising,), {"place": place})
    with pytest.raises(
        AggregateFailedError,
        match=rf"^aggregate score raised in {place} at {HERE} line \d+: ValueError: no score$",
    ):
        user_aggregate("score", given, pa.int64(), "BIGINT").afresh(pa.array([1]))


def test_what_a_function_raises_is_told() -> None:
    def score(values: pa.Array) -> object:
        return json.loads(f"[{len(values)}")

    line = score.__code__.co_firstlineno + 1
    aggregate = user_aggregate("score", score, pa.int64(), "BIGINT")
    with pytest.raises(
        AggregateFailedError, match=rf"^aggregate score raised at {HERE} line {line}: JSONDecodeError: "
    ):
        aggregate.afresh(pa.array([1]))
    ending = user_aggregate("score", lambda _: sys.exit(3), pa.int64(), "BIGINT")
    with pytest.raises(
        AggregateFailedError,
        match=rf"^aggregate score ended its Python process at {HERE} line \d+: SystemExit: 3$",
    ):
        ending.afresh(pa.array([1]))


def test_what_is_raised_outside_of_the_users_file_is_told_where_it_is() -> None:
    aggregate = user_aggregate("score", math.sqrt, pa.float64(), "DOUBLE")
    with pytest.raises(AggregateFailedError, match=r"^aggregate score raised: TypeError: "):
        aggregate.afresh(pa.array(["a"]))
    aggregate = user_aggregate("score", partial(json.loads), pa.float64(), "DOUBLE")
    with pytest.raises(AggregateFailedError, match=r"^aggregate score raised at __init__.py line \d+: "):
        aggregate.afresh(pa.array(["a"]))


class Weighted(Whole):
    def add(self, values: pa.Array, weights: pa.Array = None) -> None: ...  # type: ignore[override]
    def remove(self, values: pa.Array, weights: pa.Array = None) -> None: ...  # type: ignore[override]


@pytest.mark.parametrize(
    ("given", "arity", "told"),
    [
        (Whole, Arity(1, 1), "1 argument"),
        (Weighted, Arity(1, 2), "1 to 2 arguments"),
        (lambda a, b, c: (a, b, c), Arity(3, 3), "3 arguments"),
        (lambda a, *b: (a, b), Arity(1, None), "1 arguments or more"),
    ],
)
def test_a_signature_says_how_many_arguments(given: Any, arity: Arity, told: str) -> None:
    signature = user_aggregate("Score", given, pa.int64(), "BIGINT").signature
    assert signature == AggregateSignature("Score", pa.int64(), arity, isinstance(given, type))
    assert str(arity) == told
    least, most = arity.least, arity.most
    allowed = [number for number in range(6) if arity.allows(number)]
    assert allowed == list(range(least, 6 if most is None else most + 1))


def test_what_python_has_may_be_given() -> None:
    assert user_aggregate("score", len, pa.int64(), "BIGINT").afresh(pa.array([1, 2])).as_py() == 2
    assert user_aggregate("score", pc.sum, pa.int64(), "BIGINT").afresh(pa.array([1, 2])).as_py() == 3


def test_the_example_of_the_reference_is_one() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", REFERENCE.read_text(), re.DOTALL)
    module: dict[str, Any] = {}
    exec(example, module)
    longest, routes = (
        user_aggregate(name, given, pa.int64() if returns == "BIGINT" else pa.string(), returns)
        for name, (given, returns) in module["AGGREGATES"].items()
    )
    origins = pa.array(["JFK", "LGA", None, "JFK"])
    assert longest.afresh(origins).as_py() == "JFK"
    state = routes.begun()
    state.add(origins, pa.array([1, 1, 2, 1]))
    state.remove(origins.slice(1, 2), pa.array([1, 2]))
    assert routes.value(state).as_py() == 1


TABLE = "CREATE TABLE orders (amount INT) USING parquet OPTIONS (path 'in');\n"


@pytest.mark.parametrize(
    ("module", "query", "told"),
    [
        ("", "SELECT * FROM orders", "the file must define FUNCTIONS = .*, AGGREGATES = .* or both"),
        ("FUNCTIONS = {'f': len}", "SELECT * FROM orders", "the file must define FUNCTIONS = {'name': "),
        (
            "AGGREGATES = [len]",
            "SELECT * FROM orders",
            "AGGREGATES is a list; write AGGREGATES = {'name': ",
        ),
        (
            "AGGREGATES = {'a': len}",
            "SELECT * FROM orders",
            "AGGREGATES has 'a': <built-in function len>; write ",
        ),
        ("AGGREGATES = {'a': (len, 5)}", "SELECT * FROM orders", "AGGREGATES has 'a': .*; write "),
        (
            "AGGREGATES = {'a': (3, 'INT')}",
            "SELECT * FROM orders",
            r"AGGREGATES has 'a': \(3, 'INT'\); write ",
        ),
        (
            "AGGREGATES = {'a': (len, 'INT')}",
            "SELECT * FROM orders WHERE A(amount) > 3",
            "aggregate such as A",
        ),
    ],
)
def test_a_module_and_its_use_are_judged_before_spark_starts(
    tmp_path: Path, module: str, query: str, told: str
) -> None:
    (tmp_path / "mine.py").write_text(module)
    (tmp_path / "s.sql").write_text(f"{TABLE}CREATE VIEW v AS {query}")
    with pytest.raises(InputError, match=told):
        open_script(tmp_path / "s.sql", None, None, None, tmp_path / "mine.py")
