"""The ASC kernel and the arrangers against the literal reference."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import penstock.operators.asc as asc_module
from penstock.kernels.asc import Codes
from penstock.operators.asc import AscEvaluator, AscIndex
from penstock.operators.regions import CodedSelections
from penstock.optimizer.sequences import SequenceArranger
from penstock.plan.arrangement import NO_ARROW, Arrangement, ArrangementKind
from reference_asc import Reference
from selection_cases import random_codes, random_selections

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
    found = AscEvaluator(coded, arrangement).evaluate(list(codes), codes.shape[1])
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
