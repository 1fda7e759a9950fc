"""The OutrateModel at points computed by hand, printed and corrected."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.optimizer.output_rate import output_rate
from penstock.optimizer.printed_rates import Form, WindowJoin, unary_rate
from penstock.plan.joins import Method

#: rA = 10, rB = 20, T = 3, s = 0.01, C_N = 1 ms, C_H = 2 ms, |A| = 5, |B| = 4
JOIN = WindowJoin((10.0, 20.0), 3.0, 0.01, 0.001, 0.002, (5, 4))


def test_a_projection_puts_out_what_comes_or_what_it_manages() -> None:
    assert unary_rate(100, 0.005, 1.0) == 100
    assert unary_rate(100, 0.01, 1.0) == 100
    assert unary_rate(100, 0.02, 1.0) == 50


def test_a_selection_puts_out_its_share_of_that() -> None:
    assert unary_rate(100, 0.005, 0.3) == pytest.approx(30)
    assert unary_rate(100, 0.02, 0.3) == pytest.approx(15)


def test_pairs_of_a_second_as_printed_and_corrected() -> None:
    assert JOIN.pairs(Form.PRINTED) == pytest.approx(5 * 0.01 * 200)
    assert JOIN.pairs() == pytest.approx(6 * 0.01 * 200)
    assert JOIN.pairs(Form.PRINTED, at=2) == pytest.approx(3 * 0.01 * 200)
    assert JOIN.pairs(at=2) == pytest.approx(4 * 0.01 * 200)
    assert JOIN.pairs(at=5) == JOIN.pairs()


@pytest.mark.parametrize(
    ("direction", "method", "at", "seconds"),
    [
        # C_N (rA rB t + rB), C_H (rA rB t / |B| + rB)
        (0, Method.NESTED, 2.0, 0.001 * (400 + 20)),
        (0, Method.HASH, 2.0, 0.002 * (400 / 4 + 20)),
        (1, Method.NESTED, 2.0, 0.001 * (400 + 10)),
        (1, Method.HASH, 2.0, 0.002 * (400 / 5 + 10)),
        # C_N (rA rB T + 2 rB), C_H (rA rB T / |B| + rB (rB T / |B| + 1))
        (0, Method.NESTED, None, 0.001 * (600 + 40)),
        (0, Method.HASH, None, 0.002 * (600 / 4 + 20 * (60 / 4 + 1))),
        (1, Method.NESTED, None, 0.001 * (600 + 20)),
        (1, Method.HASH, None, 0.002 * (600 / 5 + 10 * (30 / 5 + 1))),
    ],
)
def test_time_of_a_direction(direction: int, method: Method, at: float | None, seconds: float) -> None:
    assert JOIN.direction_seconds(direction, method, at) == pytest.approx(seconds)


def test_the_paper_has_no_merge_join() -> None:
    with pytest.raises(ValueError, match="no formula for the method merge"):
        JOIN.direction_seconds(0, Method.MERGE)


def test_each_direction_takes_its_own_method() -> None:
    assert JOIN.methods() == (Method.NESTED, Method.HASH)
    assert JOIN.seconds() == pytest.approx(0.640 + 0.380)


def test_expiry_that_scans_nothing_costs_nothing() -> None:
    easy = WindowJoin((10.0, 20.0), 3.0, 0.01, 0.001, 0.002, (5, 4), scans_to_expire=False)
    for direction in (0, 1):
        for method in (Method.NESTED, Method.HASH):
            assert easy.direction_seconds(direction, method) == pytest.approx(
                JOIN.direction_seconds(direction, method, at=2.999_999_999)
            )


def test_a_join_that_keeps_up_puts_out_what_arrives() -> None:
    assert output_rate(12, 0.5) == 12
    assert output_rate(12, 2) == 6
    assert JOIN.output_rate() == pytest.approx(12 / 1.02)
    assert JOIN.output_rate(Form.PRINTED) == pytest.approx(10 / 1.02)
    assert JOIN.output_rate(methods=(Method.NESTED, Method.NESTED)) == pytest.approx(12 / 1.26)


@pytest.mark.parametrize("window", [1.0, 2.0, 5.0])
def test_the_corrected_number_of_pairs_is_what_arrivals_give(window: float) -> None:
    """As many pairs within the window as continuous arrivals have, where the printed form is short of some."""
    rng = np.random.default_rng(5)
    left, right = (np.sort(rng.uniform(0, 2000, 200_000)) for _ in range(2))
    counted = np.searchsorted(right, left + window) - np.searchsorted(right, left - window)
    join = WindowJoin((100.0, 100.0), window, 1.0, 1.0, 1.0, (1, 1))
    assert counted.sum() / 2000 == pytest.approx(join.pairs(), rel=0.01)
    assert join.pairs(Form.PRINTED) / join.pairs() == pytest.approx(1 - 1 / (2 * window))
