"""Examples 1 to 7 of Lee & Lee, as far as the text fixes their figures.

Figures 1 to 5 are drawings and lost; the selections and tuples below satisfy every statement the text
makes about them (region numbers in the paper start at 1, codes at 0).
"""

from __future__ import annotations

import numpy as np
import pytest

from penstock.kernels.asc import Codes
from penstock.kernels.asc_measures import drop_counts, passed_bits
from penstock.operators.coding.regions import code_selections
from penstock.operators.selection.asc import AscIndex
from penstock.optimizer.sequences import HybridArranger, MacroArranger
from penstock.plan.arrangement import NO_ARROW, Arrangement, ArrangementKind
from penstock.plan.selection import Query, SelectionSet, Term
from penstock.plan.value_sets import Interval, ValueSet
from reference_asc import Reference
from selection_cases import at_least, at_most, encode, integer_attributes

A1, A2, A3, A4 = range(4)


def above(low: int) -> ValueSet:
    return ValueSet((Interval(low, None, False, True),))


SELECTIONS = SelectionSet(
    integer_attributes(4),
    (
        Query("q1", (Term(((A1, at_most(20)), (A3, at_most(50)))),)),
        Query("q2", (Term(((A2, at_most(20)), (A4, at_most(40)))),)),
        Query("q3", (Term(((A1, at_most(50)), (A3, at_least(80)))),)),
        Query("q4", (Term(((A2, above(60)), (A4, at_least(20)))),)),
    ),
)
CODED = code_selections(SELECTIONS)
REFERENCE = Reference.of(CODED)
T1, T2, T3 = (35, 40, 40, 10), (70, 80, 40, 30), (10, 40, 60, 30)
T4, T5 = (70, 40, 60, 10), (70, 80, 60, 10)
T6, T7 = (70, 80, 60, 10), (70, 20, 60, 10)
MACRO = [A1, A2, A3, A4]


@pytest.fixture(scope="module")
def index() -> AscIndex:
    return AscIndex(CODED)


def coded(*tuples: tuple[int, ...]) -> Codes:
    return encode(CODED, np.array(tuples).T)


def row(values: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(code) for code in coded(values)[:, 0])


def region(number: int) -> int:
    """Code of the paper's region number, counted from 1."""
    return number - 1


def selectivity(index: AscIndex, tuples: Codes, uncovered: int, candidate: int, k: int) -> float:
    bits = np.array([uncovered], np.uint64)
    passed = passed_bits(index.tables, tuples, bits, np.array([candidate]))
    return float(passed[0]) / (k * tuples.shape[1])


def bitmap(index: AscIndex, queries: str) -> int:
    """The GRB word whose bits stand for the queries marked 1, q1 first."""
    return sum(1 << slot for slot, query in enumerate(index.tables.slot_query) if queries[query] == "1")


def test_example_1_query_result_and_candidate_arrow_bitmaps(index: AscIndex) -> None:
    assert REFERENCE.ascs[A2].qrb[region(2)] == [1, 1, 1, 0]
    assert row((0, 20, 0, 0))[A2] == region(2)
    assert REFERENCE.cab(A2, region(3)) == [1, 0, 1, 0]
    assert index.cab(A2)[region(3)].tolist() == [True, False, True, False]


def test_example_2_grb_after_each_asc(index: AscIndex) -> None:
    assert row(T2)[A1] == region(5)
    assert REFERENCE.ascs[A1].qrb[region(5)] == [0, 1, 0, 1]
    assert REFERENCE.grb(row(T2), [A1]) == [0, 1, 0, 1]
    assert REFERENCE.grb(row(T2), MACRO) == [0, 0, 0, 1]
    found = index.evaluate(coded(T1, T2, T3), Arrangement(ArrangementKind.MACRO, tuple(MACRO)))
    assert found.counts.tolist() == [3, 4, 3]
    assert found.offsets.tolist() == [0, 0, 1, 1]
    assert found.queries.tolist() == [3]


def test_example_3_minimal_cover_sets() -> None:
    assert REFERENCE.covers([A1, A2])
    assert REFERENCE.covers([A3, A4])
    assert not any(REFERENCE.covers([a]) for a in MACRO)
    assert not REFERENCE.covers([A1, A3])


def test_example_4_tuple_dropping_ratio(index: AscIndex) -> None:
    dropped = drop_counts(index.tables, coded(T1, T2, T3), np.array([A1, A2]), np.array([A3]))
    assert dropped[0] / 3 == 2 / 3


def test_example_5_macro_sequence(index: AscIndex) -> None:
    alone = [selectivity(index, coded(T1), bitmap(index, "1111"), a, k=4) for a in MACRO]
    assert alone == [3 / 4, 1 / 2, 3 / 4, 3 / 4]
    given_a2 = [selectivity(index, coded(T2), bitmap(index, "1010"), a, k=2) for a in (A1, A3, A4)]
    assert given_a2 == [0, 1 / 2, 1]
    third = drop_counts(index.tables, coded(T3), np.array([A2, A1]), np.array([A3, A4]))
    assert third.tolist() == [1, 0]
    arranger = MacroArranger(index)
    for period in (T1, T2, T3):
        arranger.step(coded(period))
    assert arranger.done
    assert arranger.arrangement().order == (A2, A1, A3, A4)
    assert arranger.individual.tolist() == alone
    assert REFERENCE.macro_sequence([[row(t)] for t in (T1, T2, T3)]) == ([A2, A1, A3, A4], alone)


def test_example_6_hybrid_sequence(index: AscIndex) -> None:
    assert REFERENCE.cab(A1, region(5)) == [0, 1, 0, 1]
    after_a1 = REFERENCE.grb(row(T4), [A1])
    assert after_a1 == [0, 1, 0, 1]
    assert [sum(REFERENCE.grb(row(T4), [A1, a])) / 4 for a in (A2, A4)] == [0, 1 / 4]
    assert [any(REFERENCE.grb(row(T5), [A1, A2, a])) for a in (A3, A4)] == [True, False]
    hybrid = HybridArranger(index, Arrangement(ArrangementKind.MACRO, tuple(MACRO)), np.ones(4))
    hybrid.step(coded(T4))
    hybrid.step(coded(T5))
    found = hybrid.arrangement()
    arrows = {(a, int(code)) for a in MACRO for code in np.flatnonzero(found.micro[a] != NO_ARROW)}
    assert arrows == {(A1, region(5)), (A2, region(5))}
    assert found.micro[A1][region(5)] == A2
    assert found.micro[A2][region(5)] == A4
    periods = [[row(T4)], [row(T5)]]
    assert REFERENCE.hybrid_sequence(MACRO, [1.0] * 4, periods) == {
        (A1, region(5)): A2,
        (A2, region(5)): A4,
    }


def test_example_7_run_time_evaluation_of_a_hybrid_sequence(index: AscIndex) -> None:
    arrows = {(A1, region(5)): A2, (A2, region(5)): A4, (A4, region(5)): A3}
    micro = index.no_arrows()
    for (attribute, code), target in arrows.items():
        micro[attribute][code] = target
    found = index.evaluate(coded(T6, T7), Arrangement(ArrangementKind.HYBRID, tuple(MACRO), micro))
    t6, t7 = (REFERENCE.evaluate(row(t), MACRO, arrows) for t in (T6, T7))
    assert t6.evaluated == [A1, A2, A4]
    assert not any(t6.grb)
    assert t7.evaluated == [A1, A2, A3, A4]
    assert found.counts.tolist() == [t6.cost, t7.cost]
    assert found.micro_arrows == t6.micro_arrows + t7.micro_arrows == 3
