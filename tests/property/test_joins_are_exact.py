"""Joins of sorted runs, cut by cut and cell by cell: whatever the order, the methods and the runs, the rows are those over all tuples."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings

from join_cases import Case, cases, expected, joined


@settings(
    deadline=None, max_examples=120, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(case=cases())
def test_every_row_comes_once_whatever_the_plan(case: Case) -> None:
    assert joined(case) == expected(case)
