"""The batch index: its kernels, its layouts, and what chooses between it and the ASCs."""

from __future__ import annotations

import math
import pickle

import numba
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from penstock.kernels.assemble import assemble_rows
from penstock.kernels.index import CHUNK_ROWS, ENTRY, Found, sort_by_code
from penstock.kernels.lanes import LANES, lane_mask
from penstock.operators.coding.encode import ColumnEncoder
from penstock.operators.selection.batch_index import REVIEW_BATCHES, BatchIndex
from penstock.operators.selection.pruning import CodeBounds, code_bounds, could_match
from penstock.operators.selection.selector import CHUNK_PAIRS, Selector, compile_selections
from penstock.operators.selection.strategy import FIRST_TRIAL_NS, PATIENCE, PROMISING, StrategyChoice
from penstock.plan.selection import Attribute, Query, SelectionSet, Term
from penstock.plan.value_sets import Interval, ValueSet

ACCESSES = [frozenset(), frozenset({"probe"}), frozenset({"slice"}), frozenset({"slice", "probe"})]


def attributes(*kinds: pa.DataType) -> tuple[Attribute, ...]:
    return tuple(Attribute(f"a{i}", kind, f"`a{i}`") for i, kind in enumerate(kinds))


def random_set(rng: np.random.Generator, queries: int, domain: int, width: int) -> SelectionSet:
    """Conjunctions of 1 to 5 predicates on 6 integer attributes: equalities, ranges, small unions."""

    def values() -> ValueSet:
        kind = rng.integers(4)
        low = int(rng.integers(domain))
        if kind == 0:
            return ValueSet((Interval(low, low),))
        if kind == 1:
            return ValueSet((Interval(None, low), Interval(low + width, None)), null=bool(rng.integers(2)))
        if kind == 2:
            points = sorted({int(value) for value in rng.integers(domain, size=3)})
            return ValueSet(tuple(Interval(point, point) for point in points))
        return ValueSet((Interval(low, low + width),))

    def term() -> Term:
        used = np.sort(rng.permutation(6)[: rng.integers(1, 6)])
        return Term(tuple((int(attribute), values()) for attribute in used))

    return SelectionSet(
        attributes(*[pa.int64()] * 6),
        tuple(Query(f"q{i}", tuple(term() for _ in range(rng.integers(1, 3)))) for i in range(queries)),
    )


def brute_force(selections: SelectionSet, values: npt.NDArray[np.int64]) -> list[list[int]]:
    rows: list[list[int]] = [[] for _ in range(values.shape[1])]
    for number, query in enumerate(selections.queries):
        any_term = np.zeros(values.shape[1], np.bool_)
        for term in query.terms:
            every = np.ones(values.shape[1], np.bool_)
            for attribute, allowed in term.predicates:
                column = values[attribute]
                inside = np.zeros(len(column), np.bool_)
                for interval in allowed.intervals:
                    low = -math.inf if interval.low is None else interval.low
                    high = math.inf if interval.high is None else interval.high
                    inside |= (column >= low) & (column <= high)
                every &= inside
            any_term |= every
        for row in np.flatnonzero(any_term):
            rows[row].append(number)
    return rows


def answer(selector: Selector, values: npt.NDArray[np.int64]) -> list[list[int]]:
    matches = selector.match([pa.array(column) for column in values], values.shape[1])
    return [part.tolist() for part in np.split(matches.queries, matches.offsets[1:-1])]


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32])
def test_lane_mask_tells_each_lane(dtype: type[np.unsignedinteger]) -> None:
    @numba.njit
    def mask(column, start, low, width):  # type: ignore[no-untyped-def]
        return lane_mask(column, start, low, width)

    rng = np.random.default_rng(1)
    column = rng.integers(0, 250, 200).astype(dtype)
    for start, low, width in ((0, 0, 255), (1, 100, 50), (77, 249, 0), (136, 5, 20)):
        bits = mask(column, start, dtype(low), dtype(width))
        part = column[start : start + LANES].astype(int)
        expected = sum(1 << i for i, value in enumerate(part) if low <= value <= low + width)
        assert int(bits) == expected


def test_lane_mask_compares_a_vector_at_a_time() -> None:
    @numba.njit
    def mask(column, start, low, width):  # type: ignore[no-untyped-def]
        return lane_mask(column, start, low, width)

    mask(np.zeros(LANES, np.uint8), 0, np.uint8(1), np.uint8(1))
    (assembly,) = mask.inspect_asm().values()
    bytewise = {"vpsubb", "psubb", "sub.16b", "sub\tv"}
    assert any(instruction in assembly for instruction in bytewise)


def test_sort_by_code_is_stable_and_complete() -> None:
    codes = np.random.default_rng(2).integers(0, 9, 1000).astype(np.uint16)
    starts, order = np.empty(11, np.int32), np.empty(1000, np.uint16)
    sort_by_code(codes, starts, order)
    assert order.tolist() == np.argsort(codes, kind="stable").tolist()
    for code in range(9):
        assert set(codes[order[starts[code] : starts[code + 1]]]) <= {code}
    assert (starts[0], starts[9]) == (0, 1000)


@pytest.mark.parametrize("always", [[], [2, 700]])
def test_assembled_rows_ascend_without_repeats(always: list[int]) -> None:
    rng = np.random.default_rng(4)
    rows, queries = rng.integers(0, 50, 3000), rng.integers(0, 5000, 3000)
    queries = queries[~np.isin(queries, always)]
    rows = rows[: len(queries)]
    runs = np.split(np.arange(len(rows)), np.flatnonzero(np.diff(queries)) + 1)
    parts = [np.array([len(run) - 1, *rows[run]], np.uint16) for run in runs]
    begins = np.cumsum([0, *map(len, parts)])
    numbers = (queries[[run[0] for run in runs]].astype(np.uint64) << np.uint64(32)) | begins[:-1].astype(
        np.uint64
    )
    used = np.array([begins[-1], len(runs)])
    matches = Found(np.concatenate(parts), numbers, used)
    spare = np.empty_like(numbers)
    offsets, found = assemble_rows(matches, spare, 51, 13, np.asarray(always, np.int32), True)
    expected = [sorted({*queries[rows == row].tolist(), *always}) for row in range(51)]
    assert [part.tolist() for part in np.split(found, offsets[1:-1])] == expected


@pytest.mark.parametrize("accesses", ACCESSES, ids=lambda accesses: "+".join(sorted(accesses)) or "scan")
@pytest.mark.parametrize(("domain", "width"), [(12, 2), (5_000, 300), (40_000, 9_000)])
def test_every_access_answers_alike(accesses: frozenset[str], domain: int, width: int) -> None:
    rng = np.random.default_rng(domain)
    selections = random_set(rng, 300, domain, width)
    plan = compile_selections(selections)
    selector = Selector(plan, "index", index=BatchIndex(plan.coded, accesses))
    for rows in (1, 64, 2_000):
        values = rng.integers(-2, domain + 2, (6, rows))
        assert answer(selector, values) == brute_force(selections, values)


def test_layout_opens_what_pays() -> None:
    rng = np.random.default_rng(5)
    queries = tuple(
        Query(
            f"q{i}",
            (Term(((0, ValueSet((Interval(i, i),))), (1, ValueSet((Interval(i, i + 500),))))),),
        )
        for i in range(5_000)
    )
    plan = compile_selections(SelectionSet(attributes(pa.int64(), pa.int64()), queries))
    index = BatchIndex(plan.coded)
    selector = Selector(plan, "index", index=index)
    values = rng.integers(0, 5_000, (2, 65_536))
    answer(selector, values)
    layout = index.layout
    assert layout is not None
    assert layout.scans == 0
    accessed = {attribute for attribute, *_ in (*layout.slices, *layout.probes)}
    assert accessed == {0}


def test_layout_follows_the_data_and_answers_stay() -> None:
    rng = np.random.default_rng(6)
    selections = random_set(rng, 400, 1_000, 60)
    plan = compile_selections(selections)
    index = BatchIndex(plan.coded)
    selector = Selector(plan, "index", index=index)
    even = rng.integers(0, 1_000, (6, 4_000))
    assert answer(selector, even) == brute_force(selections, even)
    first = index.layout
    for _ in range(REVIEW_BATCHES):
        answer(selector, even)
    assert index.layout is first
    crowded = even.copy()
    crowded[:3] = 500
    for _ in range(REVIEW_BATCHES):
        found = answer(selector, crowded)
    assert index.layout is not first
    assert found == brute_force(selections, crowded)


def test_an_entry_fills_a_cache_line() -> None:
    assert ENTRY.itemsize == 64


def test_one_query_takes_every_row_of_a_chunk() -> None:
    queries = (Query("one", (Term(((0, ValueSet((Interval(1, 1),))),)),)), Query("none", ()))
    selector = Selector(compile_selections(SelectionSet(attributes(pa.int64()), queries)), "index")
    for _ in range(2):
        assert answer(selector, np.ones((1, CHUNK_ROWS), np.int64)) == [[0]] * CHUNK_ROWS


def test_bounds_within_the_outermost_bins() -> None:
    """Ranges that leave out a few codes at either end reach every bin, yet do not hold for all of it."""
    rng = np.random.default_rng(13)
    draws = zip(rng.integers(0, 6, (200, 4)).tolist(), rng.integers(0, 40, 200).tolist(), strict=True)
    queries = tuple(
        Query(
            f"q{i}",
            (
                Term(
                    (
                        (0, ValueSet((Interval(50 * at, 50 * at + 60),))),
                        (1, ValueSet((Interval(first, 2_000 - second),))),
                        (2, ValueSet((Interval(third, 2_000 - fourth),))),
                        (3, ValueSet((Interval(first, 2_000 - fourth),))),
                    )
                ),
            ),
        )
        for i, ((first, second, third, fourth), at) in enumerate(draws)
    )
    # as many constants more as give every attribute more codes than bins
    spread = tuple(
        Query(f"s{i}", tuple(Term(((a, ValueSet((Interval(7 * i, 7 * i),))),)) for a in range(4)))
        for i in range(285)
    )
    selections = SelectionSet(attributes(*[pa.int64()] * 4), (*queries, *spread))
    selector = Selector(compile_selections(selections), "index")
    values = rng.integers(-1, 2_002, (4, 3_000))
    assert answer(selector, values) == brute_force(selections, values)


@pytest.mark.long
def test_a_few_hot_values() -> None:
    """Equalities that many queries ask and many tuples satisfy: some runs hold thousands of rows."""
    rng = np.random.default_rng(12)
    hot = 1 + np.minimum(rng.geometric(0.5, 3_000), 6)
    bounds = rng.integers(0, 900, (3_000, 2))
    queries = [
        Query(
            f"q{i}",
            (
                Term(
                    (
                        (0, ValueSet((Interval(int(value), int(value)),))),
                        *(
                            (1 + other, ValueSet((Interval(low, low + 80 * i % 900),)))
                            for other, low in enumerate(lows.tolist())
                        ),
                    )[: 1 + i % 3]
                ),
            ),
        )
        for i, (value, lows) in enumerate(zip(hot, bounds, strict=True))
    ]
    selections = SelectionSet(attributes(*[pa.int64()] * 3), tuple(queries))
    selector = Selector(compile_selections(selections), "index")
    for rows in (1, 5_000, 20_000):
        values = rng.integers(0, 1_000, (3, rows))
        values[0] = 1 + np.minimum(rng.geometric(0.5, rows), 6)
        assert answer(selector, values) == brute_force(selections, values)


def test_codes_beyond_16_bits() -> None:
    queries = tuple(
        Query(
            str(i), (Term(((0, ValueSet((Interval(3 * i, 3 * i + 1),))), (1, ValueSet((Interval(7, 9),))))),)
        )
        for i in range(40_000)
    )
    selections = SelectionSet(attributes(pa.int64(), pa.int32()), queries)
    selector = Selector(compile_selections(selections), "index")
    rng = np.random.default_rng(7)
    values = np.stack([rng.integers(-5, 120_005, 500), rng.integers(0, 20, 500)])
    expected = [
        [first // 3] if 0 <= first < 120_000 and first % 3 < 2 and 7 <= second <= 9 else []
        for first, second in values.T.tolist()
    ]
    assert answer(selector, values) == expected


def test_batches_beyond_one_chunk_are_joined() -> None:
    rng = np.random.default_rng(8)
    selections = random_set(rng, 20, 2_000, 50)
    values = rng.integers(0, 2_000, (6, 150_001))
    expected = brute_force(selections, values)
    for strategy in ("index", "asc"):
        selector = Selector(compile_selections(selections), strategy)  # type: ignore[arg-type]
        assert answer(selector, values) == expected


def test_batches_of_many_matches_are_cut_smaller() -> None:
    queries = tuple(Query(str(i), (Term(((0, ValueSet((Interval(None, i),))),)),)) for i in range(400))
    selector = Selector(compile_selections(SelectionSet(attributes(pa.int64()), queries)), "index")
    values = np.random.default_rng(11).integers(0, 40, (1, 20_000))
    for _ in range(2):
        matches = selector.match([pa.array(values[0])], values.shape[1])
        assert np.diff(matches.offsets).tolist() == (400 - values[0]).tolist()
        starts = matches.offsets[:-1]
        assert matches.queries[starts].tolist() == values[0].tolist()
    assert selector._index is not None
    assert len(selector._index._found.rows) < 2 * (CHUNK_PAIRS + CHUNK_ROWS + LANES)


def test_queries_without_predicates_terms_or_attributes() -> None:
    always, never = Query("always", (Term(()),)), Query("never", ())
    empty = Query("empty", (Term(((0, ValueSet(())),)),))
    some = SelectionSet(attributes(pa.int64()), (never, always, empty))
    for strategy in ("index", "asc", "auto"):
        matches = Selector(compile_selections(some), strategy).match([pa.array([1, None])], 2)  # type: ignore[arg-type]
        assert matches.queries.tolist() == [1, 1]
        bare = SelectionSet((), (always, never))
        matches = Selector(compile_selections(bare), strategy).match([], 3)  # type: ignore[arg-type]
        assert (matches.offsets.tolist(), matches.queries.tolist()) == ([0, 1, 2, 3], [0, 0, 0])


def test_plan_survives_pickling() -> None:
    rng = np.random.default_rng(9)
    selections = random_set(rng, 30, 100, 10)
    plan = pickle.loads(pickle.dumps(compile_selections(selections)))
    values = rng.integers(0, 100, (6, 300))
    assert answer(Selector(plan, "index"), values) == brute_force(selections, values)


def test_choice_keeps_to_the_cheaper_side_and_looks_again() -> None:
    choice = StrategyChoice()
    assert choice.choose(1_000) == "index"
    assert not choice.trial_due
    choice.answered("index", 1_000, FIRST_TRIAL_NS)
    assert choice.trial_due
    choice.asc_tried(1_000, 100, ns=100, cost_ns=10_000)
    assert not choice.trial_due
    assert choice.choose(1_000) == "asc", "they promise something"
    choice.answered("asc", 1_000, 1_000)
    assert choice.choose(1_000) == "asc"
    assert choice.choose(60_000) == "index", "another size class is still unknown"
    for _ in range(PATIENCE):
        choice.answered("asc", 1_000, FIRST_TRIAL_NS)
    assert choice.choose(1_000) == "index", "the ASCs have become dear"


def test_a_trial_that_promises_nothing_answers_no_batch() -> None:
    choice = StrategyChoice()
    choice.answered("index", 1_000, FIRST_TRIAL_NS)
    index = FIRST_TRIAL_NS / 1_000
    choice.asc_tried(1_000, 100, ns=int(100 * PROMISING * index) + 1, cost_ns=10_000)
    assert choice.choose(1_000) == "index"


def test_auto_answers_like_either_side() -> None:
    rng = np.random.default_rng(10)
    selections = random_set(rng, 5, 50, 5)
    plan = compile_selections(selections)
    sides = set()
    selector = Selector(plan, "auto")
    selector._choice.answered("index", 8, FIRST_TRIAL_NS)
    for _ in range(12):
        values = rng.integers(0, 50, (6, 8))
        assert answer(selector, values) == brute_force(selections, values)
        assert selector.figures is not None
        sides.add(selector.figures.strategy)
    assert sides == {"index", "asc"}


def test_statistics_rule_out_blocks() -> None:
    queries = (
        Query("low", (Term(((0, ValueSet((Interval(10, 20),))), (1, ValueSet((Interval(1.0, 2.0),))))),)),
        Query("null", (Term(((0, ValueSet((), null=True)),)),)),
        Query(
            "nan",
            (Term(((1, ValueSet((Interval(math.nan, math.nan),))), (0, ValueSet((Interval(50, 50),))))),),
        ),
    )
    plan = compile_selections(SelectionSet(attributes(pa.int32(), pa.float64()), queries))
    first, second = plan.codings

    def could(a0: tuple[int, int, bool], a1: tuple[float, float]) -> bool:
        return could_match(
            plan, [code_bounds(ColumnEncoder(first), *a0), code_bounds(ColumnEncoder(second), *a1, False)]
        )

    assert could((15, 16, False), (0.0, 1.0))
    assert not could((21, 49, False), (0.0, 9.0))
    assert could((21, 49, True), (0.0, 9.0)), "a NULL satisfies the second query"
    assert not could((15, 16, False), (2.5, 9.0))
    assert could((50, 50, False), (2.5, 9.0)), "statistics leave NaN out"
    assert could_match(plan, [None, None])
    assert not could_match(plan, [CodeBounds(0, 0, False), None])
