"""Whatever came late and whatever was shed or failed, an instance is exactly what it is over its tuples alone."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given, settings
from hypothesis import strategies as st

from forms import examples
from penstock.errors import AggregateFailedError
from penstock.operators.deadlines.aggregates import user_aggregate
from penstock.operators.deadlines.instances import CalledAggregate, Carried, Extent, Tuples
from penstock.operators.deadlines.order import OrderPlan, work_out
from penstock.plan.windows import Aggregate, ErrorBound, WindowPlan, Windows

#: what an instance becomes
OUTCOMES = ("processed", "afresh", "shed", "failed", "incomplete")
BUILT_IN = (
    Aggregate("count", None, pa.int64()),
    Aggregate("count", "whole", pa.int64()),
    Aggregate("sum", "whole", pa.int64()),
    Aggregate("avg", "whole", pa.float64()),
    Aggregate("min", "whole", pa.int64()),
    Aggregate("max", "name", pa.string()),
    Aggregate("count_distinct", "name", pa.int64()),
    Aggregate("percentile", "whole", pa.float64(), 0.5),
)
ORACLE = """SELECT {keys} count(*), count(whole), sum(whole)::BIGINT, avg(whole), min(whole), max(name), count(DISTINCT name),
    quantile_cont(whole::DOUBLE, 0.5) FROM held GROUP BY ALL HAVING count(*) > 0"""


class Pairs:
    """How often each pair of values came: exact, and different for every bag of tuples."""

    is_failing = False

    def __init__(self) -> None:
        self.bag: Counter[tuple[int | None, str | None]] = Counter()

    def add(self, numbers: pa.Array, names: pa.Array) -> None:
        self.bag.update(zip(numbers.to_pylist(), names.to_pylist(), strict=True))
        if Pairs.is_failing:
            raise ValueError("failing")

    def remove(self, numbers: pa.Array, names: pa.Array) -> None:
        self.bag.subtract(zip(numbers.to_pylist(), names.to_pylist(), strict=True))

    def result(self) -> str:
        return repr(sorted((str(pair), count) for pair, count in self.bag.items() if count))


class Sum:
    """The sum of whole numbers, and how many there are."""

    def __init__(self) -> None:
        self.sum = self.count = 0

    def add(self, numbers: pa.Array) -> None:
        self.sum += pc.sum(numbers).as_py() or 0
        self.count += len(numbers) - numbers.null_count

    def remove(self, numbers: pa.Array) -> None:
        self.sum -= pc.sum(numbers).as_py() or 0
        self.count -= len(numbers) - numbers.null_count

    def result(self) -> int | None:
        return self.sum if self.count else None


class Mean(Sum):
    """Their mean."""

    def result(self) -> float | None:  # type: ignore[override]
        return self.sum / self.count if self.count else None


def largest(names: pa.Array) -> str | None:
    """A function: the last name in order."""
    return max((each for each in names.to_pylist() if each is not None), default=None)


def _call(given_: Callable[..., Any], kind: pa.DataType, *arguments: str) -> CalledAggregate:
    return CalledAggregate(user_aggregate("mine", given_, kind, "T"), arguments)


CALLS = (
    _call(Pairs, pa.string(), "whole", "name"),
    _call(Sum, pa.int64(), "whole"),
    _call(largest, pa.string(), "name"),
    _call(Mean, pa.float64(), "whole"),
)


@dataclass(frozen=True)
class Case:
    """Tuples that came over time, and what becomes of each instance."""

    tuples: Tuples
    size: int
    slide: int
    outcomes: tuple[str, ...]
    plan: OrderPlan


@st.composite
def cases(draw: st.DrawFn) -> Case:
    row = st.tuples(
        st.integers(0, 20),
        st.integers(0, 20),
        st.sampled_from([0.0, -0.0, 1.5, float("nan"), None]),
        st.sampled_from([0, 1, 2, 3, None]),
        st.sampled_from(["a", "b", None]),
    )
    rows = draw(st.lists(row, min_size=10, max_size=60))
    times, entries, keys, wholes, names = zip(*rows, strict=True)
    columns = pa.table(
        {
            "key": pa.array(keys, pa.float64(), from_pandas=False),
            "whole": pa.array(wholes, pa.int64()),
            "name": pa.array(names, pa.string()),
        }
    )
    is_grouped, are_calls = draw(st.booleans()), draw(st.booleans())
    window = WindowPlan(
        "v",
        "t",
        Windows(1, 1),
        (("key", pa.float64()),) if is_grouped else (),
        () if are_calls else BUILT_IN,
        ErrorBound(0.1, 0.1),
    )
    return Case(
        Tuples(columns, np.array(times, np.int64), np.array(entries, np.int64)),
        draw(st.integers(4, 12)),
        draw(st.integers(1, 4)),
        tuple(draw(st.lists(st.sampled_from(OUTCOMES), min_size=3, max_size=15))),
        OrderPlan(window, CALLS if are_calls else ()),
    )


@settings(max_examples=examples(100))
@given(cases())
def test_any_instance_is_what_it_is_over_its_tuples_alone(case: Case) -> None:
    stored: bytes | None = None
    for number, outcome in enumerate(case.outcomes):
        start = number * case.slide
        extent = Extent(start, start + case.size, start + case.size + number)
        held = extent.holds(case.tuples)
        if outcome == "shed":
            continue
        Pairs.is_failing = outcome == "failed"
        carried: Carried | None = None if stored is None or outcome == "afresh" else pickle.loads(stored)
        try:
            found = work_out(
                case.plan,
                extent,
                _those(case.tuples, held) if outcome == "incomplete" else case.tuples,
                carried,
            )
        except AggregateFailedError:
            assert outcome == "failed"
            continue
        finally:
            Pairs.is_failing = False
        assert _rows(found.rows, case) == _oracle(_those(case.tuples, held).columns, case)
        base = None if carried is None else carried.extent.holds(case.tuples)
        if base is not None and found.work.carried:
            assert (found.work.new, found.work.expired) == ((held & ~base).sum(), (base & ~held).sum())
        else:
            assert (found.work.new, found.work.expired) == (held.sum(), 0)
        if base is not None and held.any() and outcome == "processed":
            assert found.work.carried, "all tuples of the states are there"
        assert (found.carried is None) == (
            not any(call.aggregate.is_incremental for call in case.plan.calls) or not held.any()
        )
        stored = None if found.carried is None else pickle.dumps(found.carried)


def _those(tuples: Tuples, mask: Any) -> Tuples:
    return replace(
        tuples,
        columns=tuples.columns.filter(pa.array(mask, pa.bool_())),
        times=tuples.times[mask],
        entries=tuples.entries[mask],
    )


def _rows(rows: pa.Table, case: Case) -> list[str]:
    keys = [name for name, _ in case.plan.window.keys]
    types = [each.aggregate.type for each in case.plan.calls] or [
        each.type for each in case.plan.window.aggregates
    ]
    values = [f"_a{number}" for number in range(len(types))]
    assert [rows.schema.field(name).type for name in values] == types
    return sorted(repr(tuple(row.values())) for row in rows.select([*keys, *values]).to_pylist())


def _oracle(held: pa.Table, case: Case) -> list[str]:
    """By DuckDB, and where the aggregates are the user's by each of them over the tuples of a group."""
    if not case.plan.calls:
        with duckdb.connect() as connection:
            connection.register("held", held)
            keys = "key + 0.0 AS key," if case.plan.window.keys else ""
            return sorted(map(repr, connection.sql(ORACLE.format(keys=keys)).fetchall()))
    groups: dict[str, list[int]] = {}
    for place, key in enumerate(held.column("key").to_pylist()):
        name = repr(key if key is None else key + 0.0) if case.plan.window.keys else ""
        groups.setdefault(name, []).append(place)
    found = []
    for name, places in groups.items():
        own = held.take(pa.array(places)).combine_chunks()
        values = [
            call.aggregate.afresh(
                *(own.column(argument).combine_chunks() for argument in call.arguments)
            ).as_py()
            for call in case.plan.calls
        ]
        found.append(f"({', '.join([*([name] if name else []), *map(repr, values)])})")
    return sorted(found)
