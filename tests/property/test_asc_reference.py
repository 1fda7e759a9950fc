"""The ASC kernel and the arrangers against the literal reference."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import penstock.operators.selection.asc_tables as asc_module
from penstock.kernels.asc import Codes
from penstock.operators.coding.regions import CodedSelections, code_selections
from penstock.operators.selection.asc import AscEvaluator, AscIndex
from penstock.optimizer.sequences import SequenceArranger, arrange
from penstock.plan.arrangement import NO_ARROW, Arrangement, ArrangementKind
from penstock.plan.selection import Query, SelectionSet, Term
from reference_asc import Reference
from selection_cases import at_least, at_most, encode, integer_attributes, random_codes, random_selections

SEEDS = range(40)


def case(seed: int) -> tuple[np.random.Generator, CodedSelections, Codes]:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 7))
    coded = random_selections(rng, n, int(rng.integers(1, 90 if seed % 4 == 0 else 12)))
    return rng, coded, random_codes(rng, coded, 60)


def rows_of(codes: Codes) -> list[tuple[int, ...]]:
    return [tuple(int(v) for v in row) for row in codes.T]


def micro_of(arrangement: Arrangement) -> dict[tuple[int, int], int]:
    return {
        (a, code): int(target)
        for a, targets in enumerate(arrangement.micro)
        for code, target in enumerate(targets)
        if target != NO_ARROW
    }


def assert_same_run(coded: CodedSelections, codes: Codes, arrangement: Arrangement) -> None:
    reference = Reference.of(coded)
    found = AscIndex(coded).evaluate(codes, arrangement)
    runs = [reference.evaluate(row, list(arrangement.order), micro_of(arrangement)) for row in rows_of(codes)]
    assert found.counts.tolist() == [run.cost for run in runs]
    assert found.evaluations == sum(run.cost for run in runs)
    assert found.micro_arrows == sum(run.micro_arrows for run in runs)
    assert found.dropped == sum(not any(run.grb) for run in runs)
    for i, run in enumerate(runs):
        expected = sorted({int(coded.term_query[j]) for j, bit in enumerate(run.grb) if bit})
        assert found.queries[found.offsets[i] : found.offsets[i + 1]].tolist() == expected


@pytest.mark.parametrize("seed", SEEDS)
def test_runs_of_random_arrangements_equal_the_reference(seed: int) -> None:
    rng, coded, codes = case(seed)
    index = AscIndex(coded)
    order = tuple(int(a) for a in rng.permutation(index.attributes))
    micro = tuple(
        rng.choice([NO_ARROW, *index.attributes], coding.codes).astype(np.int16) for coding in coded.codings
    )
    assert_same_run(coded, codes, Arrangement(ArrangementKind.FIXED, order))
    assert_same_run(coded, codes, Arrangement(ArrangementKind.HYBRID, order, micro))


@pytest.mark.parametrize("small_words", [1, 4])
@pytest.mark.parametrize("seed", SEEDS)
def test_blocks_change_no_answer(seed: int, small_words: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asc_module, "_SMALL_WORDS", small_words)
    monkeypatch.setattr(asc_module, "_WORDS_A_PREDICATE", 0)
    _, coded, codes = case(seed)
    index = AscIndex(coded)
    assert max(np.diff(index.tables.block_start)[list(index.attributes)]) <= small_words
    assert_same_run(coded, codes, index.given_order())


@pytest.mark.parametrize("seed", SEEDS)
def test_arrangers_choose_as_the_reference(seed: int) -> None:
    rng, coded, _ = case(seed)
    reference = Reference.of(coded)
    index = AscIndex(coded)
    arranger = SequenceArranger(index)
    periods = [random_codes(rng, coded, 40) for _ in range(arranger.periods)]
    half = arranger.periods // 2
    order, individual = reference.macro_sequence([rows_of(period) for period in periods[:half]])
    micro = reference.hybrid_sequence(order, individual, [rows_of(period) for period in periods[half:]])
    for number, period in enumerate(periods):
        assert not arranger.done
        if number < half:
            assert arranger.arrangement().kind is ArrangementKind.MACRO
        arranger.step(period)
    assert arranger.done
    found = arranger.arrangement()
    assert list(found.order) == order
    assert micro_of(found) == micro
    assert_same_run(coded, random_codes(rng, coded, 60), found)


@pytest.mark.parametrize("seed", SEEDS)
def test_candidate_arrows_equal_the_reference(seed: int) -> None:
    _, coded, _ = case(seed)
    reference = Reference.of(coded)
    index = AscIndex(coded)
    for attribute, coding in enumerate(coded.codings):
        expected = [reference.cab(attribute, code) for code in range(coding.codes)]
        assert index.cab(attribute).astype(int).tolist() == expected


def test_arrangements_travel() -> None:
    _, coded, _ = case(3)
    index = AscIndex(coded)
    sent = Arrangement(ArrangementKind.HYBRID, index.attributes, index.no_arrows())
    assert pickle.loads(pickle.dumps(sent)).same_as(sent)


@pytest.mark.long
def test_memory_grows_with_the_queries_not_with_their_square() -> None:
    rng = np.random.default_rng(8)
    few, many = (
        AscIndex(random_selections(rng, 10, queries, domain=10_000, terms=1)).memory_bytes
        for queries in (8_000, 32_000)
    )
    assert many < 4.5 * few
    assert many / 32_000 < 1000


def test_dearer_evaluations_come_later() -> None:
    rng = np.random.default_rng(4)
    coded = random_selections(rng, 4, 6, terms=1)
    index = AscIndex(coded)
    periods = [random_codes(rng, coded, 300) for _ in range(6)]
    first, *_ = arrange(index, periods, ArrangementKind.MACRO).order
    costs = [100.0 if a == first else 1.0 for a in range(4)]
    dear = arrange(index, periods, ArrangementKind.MACRO, costs)
    assert dear.order.index(first) > 0
    assert sorted(dear.order) == sorted(index.attributes)
    even = arrange(index, periods, ArrangementKind.HYBRID, [7.0] * 4)
    assert even.same_as(arrange(index, periods, ArrangementKind.HYBRID))


def test_a_query_without_predicates_is_always_satisfied_and_ends_phase_1_at_the_others_cover() -> None:
    coded = code_selections(
        SelectionSet(
            integer_attributes(2),
            (
                Query("all", (Term(()),)),
                Query("none", ()),
                Query("some", (Term(((0, at_most(5)), (1, at_most(5)))), Term(((1, at_least(9)),)))),
            ),
        )
    )
    tuples = encode(coded, np.array([[1, 9, 9], [1, 9, 6]]))
    index = AscIndex(coded)
    found = index.evaluate(tuples, arrange(index, [tuples, tuples]))
    assert np.split(found.queries, found.offsets[1:-1])[0].tolist() == [0, 2]
    assert np.split(found.queries, found.offsets[1:-1])[1].tolist() == [0, 2]
    assert np.split(found.queries, found.offsets[1:-1])[2].tolist() == [0]
    assert found.counts.tolist() == [2, 2, 2]
    assert found.dropped == 0


def test_no_p_attribute_and_no_query() -> None:
    three = np.empty((0, 3), np.uint32)
    always = AscIndex(code_selections(SelectionSet((), (Query("all", (Term(()),)),))))
    found = always.evaluate(three, always.given_order())
    assert (found.queries.tolist(), found.evaluations, found.dropped) == ([0, 0, 0], 0, 0)
    nothing = AscIndex(code_selections(SelectionSet((), ())))
    assert nothing.evaluate(three, nothing.given_order()).dropped == 3


def test_an_arrangement_of_other_ascs_is_refused() -> None:
    _, coded, _ = case(3)
    with pytest.raises(ValueError, match="orders ASCs"):
        AscEvaluator(AscIndex(coded), Arrangement(ArrangementKind.FIXED, (97,)))
