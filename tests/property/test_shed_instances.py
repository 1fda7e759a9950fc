"""Whatever came late and whatever was shed or failed, an instance is exactly what it is worked out afresh."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import AggregateFailedError
from penstock.operators.deadlines.aggregates import user_aggregate
from penstock.operators.deadlines.instances import AggregateInstances, Extent, Tuples

#: what an instance becomes
OUTCOMES = ("processed", "afresh", "shed", "failed", "incomplete")


class Pairs:
    """How often each pair of values came: exact, and different for every bag of tuples."""

    is_failing = False

    def __init__(self) -> None:
        self.bag: Counter[tuple[int, str | None]] = Counter()

    def add(self, numbers: pa.Array, names: pa.Array) -> None:
        self.bag.update(zip(numbers.to_pylist(), names.to_pylist(), strict=True))
        if self.is_failing:
            raise ValueError("failing")

    def remove(self, numbers: pa.Array, names: pa.Array) -> None:
        self.bag.subtract(zip(numbers.to_pylist(), names.to_pylist(), strict=True))

    def result(self) -> str:
        return repr(sorted((str(pair), count) for pair, count in self.bag.items() if count))


@st.composite
def arrivals(draw: st.DrawFn) -> tuple[list[tuple[int, int, int, str | None]], int, int, list[str]]:
    """(time, entry, number, name) of each tuple, size and slide of windows, what becomes of each instance."""
    rows = draw(
        st.lists(
            st.tuples(
                st.integers(0, 20), st.integers(0, 20), st.integers(0, 3), st.sampled_from(["a", "b", None])
            ),
            min_size=10,
            max_size=60,
        )
    )
    size = draw(st.integers(4, 12))
    slide = draw(st.integers(1, 4))
    return rows, size, slide, draw(st.lists(st.sampled_from(OUTCOMES), min_size=3, max_size=15))


@given(arrivals())
def test_any_instance_equals_itself_worked_out_afresh(
    case: tuple[list[tuple[int, int, int, str | None]], int, int, list[str]],
) -> None:
    rows, size, slide, outcomes = case
    columns = list(zip(*rows, strict=True)) if rows else [(), (), (), ()]
    times, entries = np.array(columns[0], np.int64), np.array(columns[1], np.int64)
    numbers, names = pa.array(columns[2], pa.int64()), pa.array(columns[3], pa.string())
    aggregate = user_aggregate("pairs", Pairs, pa.string(), "STRING")
    instances = AggregateInstances(aggregate)
    for number, outcome in enumerate(outcomes):
        start = number * slide
        extent = Extent(start, start + size, start + size + number)
        held = np.array(
            [start <= row[0] < start + size and row[1] < start + size + number for row in rows],
            bool,
        )
        given_ = held if outcome == "incomplete" else np.ones(len(rows), bool)
        chosen = pa.array(given_, pa.bool_())
        tuples = Tuples(times[given_], entries[given_], [numbers.filter(chosen), names.filter(chosen)])
        if outcome == "shed":
            continue
        Pairs.is_failing = outcome == "failed"
        try:
            found = instances.process("w", "g", extent, tuples, carry=outcome != "afresh")
        except AggregateFailedError:
            assert outcome == "failed"
            continue
        finally:
            Pairs.is_failing = False
        mask = pa.array(held, pa.bool_())
        if not held.any():
            assert found is None
            continue
        assert found is not None
        assert found.value == aggregate.afresh(numbers.filter(mask), names.filter(mask))
        if outcome == "afresh":
            assert not found.work.carried
        if not found.work.carried:
            assert (found.work.new, found.work.expired) == (held.sum(), 0)
