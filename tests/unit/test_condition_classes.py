"""Conditions judged by class of tuples: the same rows as tuple by tuple."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from penstock.operators.ingest import condition_classes
from penstock.operators.ingest.condition_classes import ConditionClasses
from penstock.operators.ingest.outcomes import Outcomes
from penstock.operators.selection.selector import SelectionPlan, Selector, compile_selections
from penstock.plan.selection import Attribute, Query, SelectionSet, Term
from penstock.plan.value_sets import Interval, ValueSet

ATTRIBUTES = (Attribute("a", pa.int64(), "`a`"), Attribute("b", pa.float64(), "`b`"))


def term(**bounds: tuple[int, int]) -> Term:
    places = {"a": 0, "b": 1}
    return Term(
        tuple((places[name], ValueSet((Interval(low, high),))) for name, (low, high) in bounds.items())
    )


#: of `a`, of `b`, of both, one that has alternatives over different attributes, one that always holds
QUERIES = (
    (term(a=(0, 10)),),
    (term(b=(5, 60)),),
    (term(a=(5, 30)),),
    (term(a=(0, 50), b=(0, 50)),),
    (term(a=(90, 99)), term(b=(90, 99))),
    (Term(()),),
    (term(b=(70, 71)),),
)


def plan() -> SelectionPlan:
    queries = tuple(Query(str(number), terms) for number, terms in enumerate(QUERIES))
    return compile_selections(SelectionSet(ATTRIBUTES, queries))


OUTCOMES = Outcomes.numbered(0, len(QUERIES))


def columns(rng: np.random.Generator, rows: int) -> list[pa.Array]:
    a, b = (rng.integers(-5, 105, rows) for _ in range(2))
    return [pa.array(a, mask=rng.random(rows) < 0.1), pa.array(b.astype(float), mask=rng.random(rows) < 0.1)]


@pytest.mark.parametrize("most", [1, 7, 1 << 17])
def test_classes_satisfy_what_their_tuples_do(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(condition_classes, "_MOST_CLASSES", most)
    compiled = plan()
    classes, alone = ConditionClasses.of(compiled, OUTCOMES, Selector(compiled)), Selector(compiled)
    assert classes is not None
    rng = np.random.default_rng(most)
    for rows in (1, 3, 500, 4_000, 500):
        tuples = columns(rng, rows)
        found = classes.match(tuples, rows)
        assert found is not None
        matches = alone.match(tuples, rows)
        wanted = OUTCOMES.tell_apart(matches.offsets, matches.queries, rows).satisfied
        for condition in range(len(QUERIES)):
            assert found.rows_of(condition).tolist() == wanted.rows_of(condition).tolist()
        for part in found.parts:
            own, conditions = part.pairs(
                part.occurring(), found.places(np.arange(len(QUERIES), dtype=np.int32))
            )
            assert part.classes is not None
            assert set(own.tolist()) <= set(part.classes.tolist())
            assert len(own) == len(conditions)


def test_batches_of_new_classes_are_matched_tuple_by_tuple_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(condition_classes, "_NEW_CLASSES", 4)
    monkeypatch.setattr(condition_classes, "_NEW_SHARE", 0.0)
    monkeypatch.setattr(condition_classes, "_REST", 2)
    compiled = plan()
    classes = ConditionClasses.of(compiled, OUTCOMES, Selector(compiled))
    assert classes is not None
    varied, few = columns(np.random.default_rng(1), 300), [pa.array([1, 1]), pa.array([2.0, 2.0])]
    assert classes.match(varied, 300) is None
    assert classes.match(few, 2) is None
    assert classes.match(few, 2) is None
    again = classes.match(few, 2)
    assert again is not None
    assert again.rows_of(0).tolist() == [0, 1]


def test_programs_that_want_more_than_conditions_have_none() -> None:
    compiled = plan()
    mixed = Outcomes.numbered(1, len(QUERIES) - 1)
    assert ConditionClasses.of(compiled, mixed, Selector(compiled)) is None
