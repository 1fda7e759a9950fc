"""The virtual-time runner: its counts against pairs counted one by one, its clock, and policies that follow drift in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from penstock.control.actions import ReorderOperators
from penstock.control.controller import Controller
from penstock.control.policies.output_rate import JoinOrderPolicy, OperatorOrderPolicy, SwitchSettings
from penstock.optimizer.averages import Averaging, AveragingSettings
from penstock.optimizer.join_model import JoinModel
from penstock.optimizer.join_statistics import JoinStatistics, UnitCosts
from penstock.optimizer.operator_order import UnaryOperator
from penstock.optimizer.probe_orders import cardinality_order, plan_joins
from penstock.plan.joins import Method
from penstock_lab.simulate.joins import Phase, drawn, shaped_join
from penstock_lab.simulate.plan_baselines import CardinalityPolicy
from penstock_lab.simulate.plans import Counted, Start, count, every_order, order_seconds, play

TRIANGLE = [(0, 1), (0, 2), (1, 2)]
COSTS = UnitCosts().times(2000)
NO_OPERATORS: tuple[tuple[str, ...], ...] = ((), (), ())
AVERAGING = AveragingSettings(Averaging.EXPONENTIAL, 0.5)


def phase(seconds: float, domains: tuple[int, ...], rate: float = 120.0) -> Phase:
    return Phase(seconds, (rate,) * 3, domains, COSTS, ((), (), ()))


def counted(phases: list[Phase], span: float = 1.0, seed: int = 4) -> Counted:
    plan = shaped_join(3, TRIANGLE, span=span)
    return count(plan, phases, drawn(plan, phases, seed), 0.25)


def planned(cuts: Counted, number: int) -> Start:
    """The best plan for a phase, by its true selectivities."""
    known = cuts.phases[number]
    equal = {(key, *pair): 1 / known.domains[key] for key, pair in enumerate(((0, 1), (0, 2), (1, 2)))}
    statistics = JoinStatistics(known.rates, (0.0,) * 3, equal, cut_seconds=0.25, costs=known.costs)
    return Start(plan_joins(JoinModel(cuts.plan, statistics, cuts.sorted_by)).order, NO_OPERATORS)


def static(clock: Callable[[], float]) -> Controller:
    return Controller([], clock)


def by_output_rate(clock: Callable[[], float]) -> Controller:
    settings = SwitchSettings(dwell_seconds=1.0, averaging=AVERAGING)
    return Controller([JoinOrderPolicy(settings, clock, COSTS), OperatorOrderPolicy(settings, clock)], clock)


def test_cuts_count_the_pairs_there_are() -> None:
    plan = shaped_join(3, TRIANGLE, spans={(0, 1): (-0.5, 1.0), (0, 2): (-1.0, 0.25), (1, 2): (-1.0, 1.0)})
    half = UnaryOperator("half", 0.0, 0.5)
    phases = [Phase(2.0, (20.0, 25.0, 30.0), (3, 4, 5), COSTS, ((half,), (), ()))]
    traces = drawn(plan, phases, 9)
    cuts = count(plan, phases, traces, 0.25)
    rows = 0
    newest = 0.0
    for places in product(*(np.flatnonzero(trace.passes).tolist() for trace in traces)):
        times = [trace.times[place] for trace, place in zip(traces, places, strict=True)]
        bounded = all(
            bound.lower <= 1e6 * (times[bound.right] - times[bound.left]) <= bound.upper
            for bound in plan.bounds
        )
        equal = all(
            traces[i].keys[key][places[i]] == traces[j].keys[key][places[j]]
            for key, (i, j) in enumerate(TRIANGLE)
        )
        rows += bounded and equal
        newest += max(times) if bounded and equal else 0.0
    assert rows > 20
    assert sum(cut.output for cut in cuts.cuts) == rows
    assert sum(cut.newest for cut in cuts.cuts) == pytest.approx(newest)
    first_pairs = {(0, 1): 0, (0, 2): 0, (1, 2): 0}
    for i, j in first_pairs:
        for cut in cuts.cuts:
            for first, other in ((i, j), (j, i)):
                step = cut.steps[first, 1 << first, other]
                assert step.output <= min(step.merged.values())
                assert all(merged <= step.bounded for merged in step.merged.values())
                assert all(step.hashed[key] >= merged for key, merged in step.merged.items())
                first_pairs[i, j] += step.bounded
    for bound in plan.bounds:
        left, right = (traces[n].times[traces[n].passes] for n in (bound.left, bound.right))
        apart = 1e6 * (right[:, None] - left)
        assert first_pairs[bound.left, bound.right] == np.sum((apart >= bound.lower) & (apart <= bound.upper))


def test_a_plan_that_keeps_up_is_visible_a_cut_later_one_that_does_not_falls_behind() -> None:
    cuts = counted([phase(4.0, (20, 20, 20))])
    quick = play(cuts, planned(cuts, 0), static, 1.0)
    assert np.all(quick.visible - np.arange(1, 17) * 0.25 < 0.25)
    slow = replace(cuts, phases=tuple(replace(each, costs=each.costs.times(100)) for each in cuts.phases))
    behind = play(slow, planned(cuts, 0), static, 1.0)
    assert behind.visible[-1] == pytest.approx(0.25 + behind.join_seconds.sum(), rel=0.05)
    told = behind.delay[~np.isnan(behind.delay)]
    assert told[-1] > 2 * told[0]
    assert quick.output.sum() == behind.output.sum() == sum(cut.output for cut in cuts.cuts)


def test_without_noise_a_plan_takes_what_its_orders_take() -> None:
    cuts = counted([phase(3.0, (10, 30, 20))])
    start = planned(cuts, 0)
    played = play(cuts, start, static, 1.0, noise=0.0)
    wanted = sum(order_seconds(cuts, order) for order in start.order.orders)
    assert played.join_seconds == pytest.approx(wanted)


def test_the_model_chooses_among_all_orders_the_one_that_takes_least() -> None:
    cuts = counted([phase(12.0, (40, 8, 15))])
    full = slice(8, None)
    for order in planned(cuts, 0).order.orders:
        least = min(order_seconds(cuts, each)[full].sum() for each in every_order(cuts, order.first))
        assert order_seconds(cuts, order)[full].sum() <= least * 1.05


def test_all_orders_with_all_methods() -> None:
    cuts = counted([phase(0.5, (5, 5, 5))])
    orders = every_order(cuts, 0)
    assert len(set(orders)) == len(orders)
    # runs are sorted by the first key of each input: of b by key 0, of c by key 1; c after b has two keys to be hashed by
    assert len(orders) == 3 * 4 + 3 * 4
    assert {step.method for order in orders for step in order.steps} == set(Method)


def test_the_policy_follows_a_change_within_two_periods() -> None:
    phases = [phase(8.6, (60, 4, 15), 200.0), phase(8.4, (4, 60, 15), 200.0)]
    cuts = counted(phases)
    played = play(cuts, planned(cuts, 0), by_output_rate, 1.0)
    known = {}
    for first in range(3):
        known |= {order: order_seconds(cuts, order) for order in every_order(cuts, first)}
    followed = np.array([sum(known[o][n] for o in each.orders) for n, each in enumerate(played.orders)])
    settled = slice(round(10.6 / 0.25), None)
    best = sum(
        min(
            (known[order] for order in every_order(cuts, first)),
            key=lambda each: each[settled].sum(),
        )
        for first in range(3)
    )
    assert followed[settled].sum() <= 1.10 * best[settled].sum()
    stayed = play(cuts, planned(cuts, 0), static, 1.0, noise=0.0)
    assert followed[settled].sum() < 0.9 * stayed.join_seconds[settled].sum()


def test_the_operators_follow_a_change_of_their_costs() -> None:
    plan = shaped_join(2, [(0, 1)], span=1.0)
    shapes = [("x", 0.001, 0.5), ("y", 0.002, 0.5)], [("x", 0.004, 0.5), ("y", 0.002, 0.5)]
    phases = [
        Phase(4.0, (200.0, 200.0), (20,), COSTS, (tuple(UnaryOperator(*each) for each in shape), ()))
        for shape in shapes
    ]
    cuts = count(plan, phases, drawn(plan, phases, 2), 0.25)
    unknown = JoinStatistics((1.0, 1.0), (0.0, 0.0), {})
    order = plan_joins(JoinModel(plan, unknown, cuts.sorted_by)).order
    played = play(cuts, Start(order, (("y", "x"), ())), by_output_rate, 1.0, noise=0.0)
    actions = [decision.action for decision in played.decisions]
    reordered = [action.order for action in actions if isinstance(action, ReorderOperators)]
    assert reordered == [("x", "y"), ("y", "x")]


def test_the_baseline_follows_cardinalities_alone() -> None:
    cuts = counted([phase(4.0, (60, 4, 15))])

    def by_cardinality(clock: Callable[[], float]) -> Controller:
        return Controller([CardinalityPolicy(AVERAGING)], clock)

    played = play(cuts, planned(cuts, 0), by_cardinality, 1.0)
    equal = {(0, 0, 1): 1 / 60, (1, 0, 2): 1 / 4, (2, 1, 2): 1 / 15}
    known = JoinStatistics((120.0,) * 3, (0.0,) * 3, equal, cut_seconds=0.25)
    assert played.orders[-1] == cardinality_order(JoinModel(cuts.plan, known, cuts.sorted_by))
