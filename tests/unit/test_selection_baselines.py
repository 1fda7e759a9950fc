"""The best and worst fixed order, and ticket routing."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from penstock.operators.selection.asc import AscIndex
from penstock.plan.arrangement import Arrangement, ArrangementKind
from penstock_lab.simulate.baselines import extreme_orders, route_by_tickets
from selection_cases import random_codes, random_selections


@pytest.mark.parametrize("seed", range(12))
def test_extreme_orders_equal_trying_all_orders(seed: int) -> None:
    rng = np.random.default_rng(seed)
    coded = random_selections(rng, int(rng.integers(1, 6)), int(rng.integers(1, 80)))
    index = AscIndex(coded)
    codes = random_codes(rng, coded, 150)

    def cost(order: tuple[int, ...]) -> int:
        return index.evaluate(codes, Arrangement(ArrangementKind.FIXED, order)).evaluations

    costs = [cost(order) for order in permutations(index.attributes)]
    best, worst = extreme_orders(index, codes)
    assert (best.evaluations, worst.evaluations) == (min(costs), max(costs))
    assert cost(best.arrangement.order) == min(costs)
    assert cost(worst.arrangement.order) == max(costs)


def test_ticket_routing_visits_every_module_of_a_match_and_learns_who_drops() -> None:
    rng = np.random.default_rng(5)
    coded = random_selections(rng, 5, 3, terms=1)
    index = AscIndex(coded)
    codes = random_codes(rng, coded, 20_000)
    counts = route_by_tickets(index, codes, window=500, seed=1)
    best, worst = extreme_orders(index, codes)
    matched = np.diff(index.evaluate(codes, index.given_order()).offsets) > 0
    assert (counts[matched] == len(index.attributes)).all()
    assert best.evaluations <= counts.sum() < worst.evaluations
    assert counts[-10_000:].sum() < counts[:500].sum() * 20
    assert np.array_equal(counts, route_by_tickets(index, codes, window=500, seed=1))
