"""What queries ask of the processors, and what their allowances could save of it."""

from __future__ import annotations

import pytest

from penstock.control.policies.deadlines.demand import Demand
from penstock.control.policies.deadlines.prediction import UnitCosts
from penstock.plan.deadlines import LossConstraint, WindowSpan, WindowWork, carried_work, fresh_work

#: ten tuples a hop, three hops a window
SPANS = [WindowSpan(10 * number, 10 * number + 30) for number in range(5)]
COSTS = UnitCosts(new=0.02, expired=0.01, maintenance=0.1)


def afresh(span: WindowSpan, _: WindowSpan | None) -> tuple[float, WindowWork]:
    return COSTS.seconds(fresh_work(span)), fresh_work(span)


def carried(span: WindowSpan, base: WindowSpan | None) -> tuple[float, WindowWork]:
    assert base is not None
    work = carried_work(span, base)
    return COSTS.seconds(work), work


def test_worked_out_afresh_a_loss_saves_all_of_an_instance() -> None:
    demand = Demand.of(SPANS, 2.0, afresh, LossConstraint(1, 4))
    assert (demand.whole, demand.alone, demand.allowed) == pytest.approx((0.35, 1.0, 0.0875))


def test_carried_it_saves_what_the_next_one_does_not_make_up_for() -> None:
    demand = Demand.of(SPANS, 2.0, carried, LossConstraint(1, 4))
    assert (demand.whole, demand.alone, demand.allowed) == pytest.approx((0.2, 0.25, 0.0125))


@pytest.mark.parametrize("hop", [0.0, 2.0])
def test_nothing_is_known_from_two_or_of_instances_at_one_time(hop: float) -> None:
    assert Demand.of(SPANS[: 2 if hop else 5], hop, afresh, LossConstraint(1, 4)) == Demand()


def test_costs_that_were_never_measured_ask_for_nothing() -> None:
    assert Demand.of(SPANS, 2.0, lambda *_: (0.0, fresh_work(SPANS[0])), LossConstraint(1, 4)) == Demand()
