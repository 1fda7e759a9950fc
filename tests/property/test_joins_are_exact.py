"""Joins of sorted runs, cut by cut and cell by cell: whatever the order, the methods and the runs, the rows are those over all tuples."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forms import examples
from join_cases import Case, cases, cuts_of, expected, expected_left_joined, joined, left_joined, tasks_of
from penstock.operators.joins.beyond import pairs_beyond
from penstock.plan.joins import OptionalJoin
from penstock.plan.times import BEFORE_ALL

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
@given(data=st.data(), limits=LIMITS, kind=st.sampled_from(list(OptionalJoin)[1:]))
def test_after_each_cut_the_rows_are_those_of_other_outer_joins_so_far(
    data: st.DataObject, limits: list[int], kind: OptionalJoin
) -> None:
    case = data.draw(cases(optional="stream", kind=kind))
    assert list(left_joined(case, limits)) == list(expected_left_joined(case, limits))


@settings(deadline=None, max_examples=examples(200), suppress_health_check=LARGE)
@given(data=st.data(), limits=LIMITS, kind=st.sampled_from([OptionalJoin.AS_OF, OptionalJoin.LEFT_AS_OF]))
def test_after_each_cut_the_rows_have_the_newest_partner_so_far(
    data: st.DataObject, limits: list[int], kind: OptionalJoin
) -> None:
    case = data.draw(cases(optional="stream", kind=kind))
    right = len(case.plan.inputs) - 1
    bounds = tuple(
        replace(each, lower=BEFORE_ALL) if each.right == right else each for each in case.plan.bounds
    )
    case = replace(case, plan=replace(case.plan, bounds=bounds))
    assert list(left_joined(case, limits)) == list(expected_left_joined(case, limits))


@settings(deadline=None, max_examples=examples(120), suppress_health_check=LARGE)
@given(data=st.data(), kind=st.sampled_from([OptionalJoin.LEFT, OptionalJoin.SEMI, OptionalJoin.ANTI]))
def test_rows_of_joins_with_an_optional_table_are_those_over_all_tuples(
    data: st.DataObject, kind: OptionalJoin
) -> None:
    case = data.draw(cases(optional="table", kind=kind))
    assert list(left_joined(case, [0] * 4)) == list(expected_left_joined(case, [0] * 4))


@settings(deadline=None, max_examples=examples(120), suppress_health_check=LARGE)
@given(case=cases(optional="stream", kind=OptionalJoin.FULL), further=st.tuples(*[st.integers(0, 9)] * 2))
def test_pairs_beyond_the_bound_are_counted_once(case: Case, further: tuple[int, int]) -> None:
    (bound,) = case.plan.bounds
    wider = replace(bound, lower=bound.lower - further[0], upper=bound.upper + further[1])
    plan = replace(case.plan, wider=(wider,))
    counted = sum(
        pairs_beyond(plan, cell, inputs, stripe)
        for _, inputs in cuts_of(case)
        for cell, stripe in tasks_of(case)
    )
    assert counted == expected(replace(case, plan=plan.widened)).total() - expected(case).total()
