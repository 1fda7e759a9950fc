"""Unit costs of orders: what is spent on no tuple is no tuple's cost, however long ago tuples were measured."""

from __future__ import annotations

import pytest

from penstock.control.policies.deadlines.prediction import CostPredictor, PredictionSettings, UnitCosts
from penstock.plan.deadlines import DeadlineQuery, LossConstraint, WindowSpan, WindowWork


def test_orders_without_tuples_raise_no_cost_of_tuples() -> None:
    query = DeadlineQuery("v", 3_600.0, LossConstraint(1, 1), incremental=False)
    predictor = CostPredictor(query, PredictionSettings(), UnitCosts())
    predictor.measured(0.0, WindowWork(1_000, 10, carried=False), 1.0, (0.01, 0.001, 0.5))
    for second in range(3, 90, 3):
        # worked out from partial results that a worker keeps
        predictor.measured(float(second), WindowWork(0, 0, carried=False), 1.0, (0.02, 0.003, 0.5))
    assert predictor.costs.new == pytest.approx(1e-5)
    assert predictor.costs.expired == pytest.approx(1e-4)
    assert predictor.costs.maintenance == pytest.approx(0.523)
    assert predictor.predict(WindowSpan(0, 1_000), None)[0] == pytest.approx(0.533)
