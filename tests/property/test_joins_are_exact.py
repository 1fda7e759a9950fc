"""Joins of sorted runs, cut by cut and cell by cell: whatever the order, the methods and the runs, the rows are those over all tuples."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forms import examples
from join_cases import Case, cases, expected, expected_left_joined, joined, left_joined

LARGE = [HealthCheck.too_slow, HealthCheck.data_too_large]
LIMITS = st.lists(st.integers(-15, 15) | st.just(2**63 - 1), min_size=4, max_size=4).map(sorted)


@settings(deadline=None, max_examples=examples(120), suppress_health_check=LARGE)
@given(case=cases())
def test_every_row_comes_once_whatever_the_plan(case: Case) -> None:
    assert joined(case) == expected(case)


@settings(deadline=None, max_examples=examples(200), suppress_health_check=LARGE)
@given(case=cases(optional="stream"), limits=LIMITS)
def test_after_each_cut_the_rows_are_those_of_the_left_join_so_far(case: Case, limits: list[int]) -> None:
    assert list(left_joined(case, limits)) == list(expected_left_joined(case, limits))


@settings(deadline=None, max_examples=examples(120), suppress_health_check=LARGE)
@given(case=cases(optional="table"))
def test_rows_that_find_nothing_in_an_optional_table_are_there_too(case: Case) -> None:
    assert list(left_joined(case, [0] * 4)) == list(expected_left_joined(case, [0] * 4))
