"""Algorithm 2: the ranking is the best of all permutations."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.optimizer.operator_order import (
    UnaryOperator,
    best_order,
    processing_seconds,
)
from penstock.optimizer.printed_rates import group_rate, passing_share

CHEAP = UnaryOperator("cheap", 0.001, 0.9)
DEAR = UnaryOperator("dear", 0.100, 0.1)
MIDDLE = UnaryOperator("middle", 0.010, 0.5)
PICK = UnaryOperator("pick", 0.0001, is_projection=True)

operators = st.lists(
    st.builds(
        UnaryOperator,
        st.just("o"),
        st.floats(0, 10, allow_subnormal=False),
        st.floats(0, 1, allow_subnormal=False),
    ),
    max_size=6,
)


def test_time_of_an_order() -> None:
    assert processing_seconds((CHEAP, MIDDLE, DEAR)) == pytest.approx(0.001 + 0.9 * 0.010 + 0.45 * 0.100)
    assert passing_share((CHEAP, MIDDLE, DEAR)) == pytest.approx(0.045)


def test_what_drops_the_most_for_its_time_comes_first() -> None:
    # t / (1 - f): 0.01, 0.02, 0.111
    assert best_order((DEAR, MIDDLE, CHEAP)) == (CHEAP, MIDDLE, DEAR)


def test_projections_come_last_and_what_drops_nothing_before_them() -> None:
    nothing = UnaryOperator("nothing", 0.5, 1.0)
    assert best_order((PICK, nothing, DEAR)) == (DEAR, nothing, PICK)


def test_the_rate_of_a_group_is_limited_by_arrival_or_by_time() -> None:
    assert group_rate((CHEAP, MIDDLE), 50) == pytest.approx(0.45 * 50)
    assert group_rate((CHEAP, MIDDLE), 500) == pytest.approx(0.45 / 0.010)


@pytest.mark.parametrize(("seconds", "selectivity"), [(-1, 0.5), (1, 1.5), (1, -0.1)])
def test_measures_that_cannot_be(seconds: float, selectivity: float) -> None:
    with pytest.raises(ValueError, match="'x'"):
        UnaryOperator("x", seconds, selectivity)


@given(operators)
def test_the_ranking_is_the_best_permutation(given_order: list[UnaryOperator]) -> None:
    best = min(processing_seconds(order) for order in permutations(given_order))
    assert processing_seconds(best_order(given_order)) == pytest.approx(best, rel=1e-9, abs=1e-12)


@given(operators.filter(bool), st.floats(0.1, 1000))
def test_it_has_the_largest_output_rate(given_order: list[UnaryOperator], rate: float) -> None:
    rates = [group_rate(order, rate) for order in permutations(given_order)]
    assert group_rate(best_order(given_order), rate) == pytest.approx(max(rates), rel=1e-9, abs=1e-12)
