"""Batches of very many matches: in linear time, in bounded scratch space, with places that do not wrap."""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa
import pytest

from penstock import Matcher
from penstock.operators.selection import batch_index
from penstock.operators.selection.batch_index import KEPT_BYTES, BatchIndex
from penstock.operators.selection.selector import (
    Selector,
    TooManyMatchesError,
    compile_selections,
)
from penstock.plan.selection import Attribute, Query, SelectionSet, Term
from penstock.plan.value_sets import Interval, ValueSet

SCHEMA = pa.schema({"a": pa.int32()})


def ranges(queries: int, always: int = 0) -> SelectionSet:
    """`a >= i` for i from 0 on, after queries that are always true."""
    constant = tuple(Query(f"t{i}", (Term(()),)) for i in range(always))
    compared = tuple(Query(f"q{i}", (Term(((0, ValueSet((Interval(i, None),))),)),)) for i in range(queries))
    return SelectionSet((Attribute("a", pa.int32(), "`a`"),), constant + compared)


def answered(selector: Selector, values: list[int]) -> list[list[int]]:
    matches = selector.match([pa.array(values, pa.int32())], len(values))
    return [part.tolist() for part in np.split(matches.queries, matches.offsets[1:-1])]


def test_always_true_queries_cost_their_places_alone() -> None:
    rows, queries = 8_000, 700
    batch = pa.record_batch({"a": np.full(rows, queries)}, SCHEMA)
    compared = {f"q{i}": f"a >= {i}" for i in range(queries)}
    constant = {f"t{i}": "TRUE" for i in range(queries)}

    def seconds(conditions: dict[str, str]) -> float:
        matcher = Matcher(conditions, SCHEMA)
        took = []
        for _ in range(4):
            began = time.process_time()
            matches = matcher.match(batch)
            took.append(time.process_time() - began)
        assert np.array_equal(matches.queries.reshape(rows, -1), np.tile(np.arange(2 * queries), (rows, 1)))
        return min(took)

    assert seconds({**constant, **compared}) < 5 * seconds({**compared, **constant}) + 0.02


@pytest.mark.parametrize("strategy", ["index", "asc"])
def test_a_chunk_with_too_many_matches_is_taken_in_pieces(
    monkeypatch: pytest.MonkeyPatch, strategy: str
) -> None:
    selections = ranges(40, always=3)
    values = np.random.default_rng(1).integers(-5, 45, 500).tolist()
    expected = [[0, 1, 2, *range(3, 3 + min(40, max(0, value + 1)))] for value in values]
    monkeypatch.setattr(batch_index, "MOST_FOUND", 200)
    selector = Selector(compile_selections(selections), strategy)  # type: ignore[arg-type]
    assert answered(selector, values) == expected
    assert answered(selector, values) == expected


def test_places_of_a_chunk_stay_within_32_bits() -> None:
    plan = compile_selections(ranges(2, always=70_000))
    codes = np.zeros((1, (1 << 16) + 64), np.uint16)
    assert BatchIndex(plan.coded).match(codes, 1 << 16) is None


def test_a_caller_may_bound_the_matches_of_a_batch() -> None:
    selector = Selector(compile_selections(ranges(40)), "index")
    column = pa.array([50] * 100, pa.int32())
    with pytest.raises(TooManyMatchesError):
        selector.match([column], 100, 3_999)
    assert len(selector.match([column], 100, 4_000).queries) == 4_000
    assert len(selector.match([column.slice(1, 1)], 1, 10).queries) == 40


def test_scratch_space_shrinks_after_many_matches() -> None:
    plan = compile_selections(ranges(1_500))
    index = BatchIndex(plan.coded)
    selector = Selector(plan, "index", index=index)
    many, few = [2_000] * 8_192, [3] * 8_192
    # 12 million matches, of which nobody needs lists
    assert len(selector.match([pa.array(many, pa.int32())], len(many)).queries) == 8_192 * 1_500
    assert 8_192 * 1_500 * 2 < index.scratch_bytes <= KEPT_BYTES[1]
    answered(selector, few)
    assert index.scratch_bytes <= KEPT_BYTES[0]
    assert answered(selector, many[:2]) == [list(range(1_500))] * 2
