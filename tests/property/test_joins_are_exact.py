"""Joins of sorted runs, cut by cut and cell by cell: whatever the order, the methods and the runs, the rows are those over all tuples."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from join_cases import (
    Case,
    cases,
    expected,
    expected_left_joined,
    expected_looked_up,
    expected_unmatched,
    joined,
    left_joined,
    looked_up,
    unmatched,
)

LARGE = [HealthCheck.too_slow, HealthCheck.data_too_large]
LIMITS = st.lists(st.integers(-15, 15) | st.just(2**63 - 1), min_size=4, max_size=4).map(sorted)


@settings(deadline=None, max_examples=120, suppress_health_check=LARGE)
@given(case=cases())
def test_every_row_comes_once_whatever_the_plan(case: Case) -> None:
    assert joined(case) == expected(case)


@settings(deadline=None, max_examples=100, suppress_health_check=LARGE)
@given(case=cases(is_outer=True), limits=LIMITS)
def test_after_each_cut_the_due_tuples_without_a_partner_are_told(case: Case, limits: list[int]) -> None:
    assert list(unmatched(case, limits)) == list(expected_unmatched(case, limits))


@settings(deadline=None, max_examples=100, suppress_health_check=LARGE)
@given(case=cases(is_outer=True).filter(lambda case: not case.plan.inputs[1].is_static), limits=LIMITS)
def test_after_each_cut_the_rows_are_those_of_the_outer_join_so_far(case: Case, limits: list[int]) -> None:
    assert list(left_joined(case, limits)) == list(expected_left_joined(case, limits))


@settings(deadline=None, max_examples=120, suppress_health_check=LARGE)
@given(case=cases(looks_up=True))
def test_rows_that_find_nothing_in_an_optional_table_are_there_too(case: Case) -> None:
    assert looked_up(case) == expected_looked_up(case)
