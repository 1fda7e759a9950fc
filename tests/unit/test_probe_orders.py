"""Probe orders: the search against trying everything, the model against arrivals, and what is told of the runner-up."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from itertools import combinations, pairwise, permutations, product

import numpy as np
import pytest
from hypothesis import given, settings

from forms import examples
from penstock.optimizer.join_model import JoinModel
from penstock.optimizer.join_statistics import JoinStatistics, UnitCosts
from penstock.optimizer.probe_orders import EXACT_INPUTS, cardinality_order, plan_joins
from penstock.plan.joins import JoinOrder, JoinPlan, Method, ProbeOrder, ProbeStep
from penstock_lab.simulate.joins import shaped_join as join
from planning_cases import arrivals, planned

CHAIN = join(3, [(0, 1), (1, 2)])


def statistics(plan: JoinPlan, rate: float = 100.0, equal: float = 0.01) -> JoinStatistics:
    streams = [not each.is_static for each in plan.inputs]
    return JoinStatistics(
        tuple(rate if stream else 0.0 for stream in streams),
        tuple(0.0 if stream else 1000.0 for stream in streams),
        {
            (key, *pair): equal
            for key, each in enumerate(plan.keys)
            for pair in combinations([n for n, column in enumerate(each.columns) if column], 2)
        },
    )


def every_order(model: JoinModel, first: int) -> list[float]:
    """Seconds of all probe orders without cross products, with all methods."""
    found = []
    for order in permutations([n for n in range(model.inputs) if n != first]):
        met, steps = 1 << first, []
        for number in order:
            rest = [n for n in range(model.inputs) if not met >> n & 1]
            if not model.is_linked(met, number) and any(model.is_linked(met, n) for n in rest):
                break
            steps.append([step.seconds for step in model.steps(first, met, number)])
            met |= 1 << number
        else:
            found += [sum(chosen) for chosen in product(*steps)]
    return found


@settings(deadline=None, max_examples=examples(60))
@given(planned(4))
def test_an_optional_input_is_searched_last(case: tuple[JoinPlan, JoinStatistics]) -> None:
    plan, known = case
    last = len(plan.inputs) - 1
    model = JoinModel(replace(plan, optional=(last,)), known)
    for orders in (plan_joins(model).order, cardinality_order(model)):
        for order in orders.orders:
            assert order.first == last or order.steps[-1].input == last


@settings(deadline=None, max_examples=examples(60))
@given(planned(4))
def test_the_search_finds_what_trying_everything_finds(case: tuple[JoinPlan, JoinStatistics]) -> None:
    model = JoinModel(*case)
    found = plan_joins(model)
    for order in found.orders:
        assert order.seconds == pytest.approx(min(every_order(model, order.first)), rel=1e-9)
    assert model.seconds(found.order) == pytest.approx(found.seconds)
    assert [order.first for order in found.orders] == list(model.firsts())
    if found.runner_up is not None:
        assert found.runner_up.order != found.order
        assert found.runner_up.seconds >= found.seconds * (1 - 1e-9)
        assert model.seconds(found.runner_up.order) == pytest.approx(found.runner_up.seconds)
        assert found.runner_up.output_rate <= found.output_rate * (1 + 1e-9)


@settings(deadline=None, max_examples=examples(30))
@given(planned(4))
def test_the_baseline_has_the_least_intermediate_cardinalities(
    case: tuple[JoinPlan, JoinStatistics],
) -> None:
    model = JoinModel(*case)
    for probe in cardinality_order(model).orders:
        chosen = sum(step.output for step in model.follow(probe))
        for others in permutations([step.input for step in probe.steps]):
            met, total = 1 << probe.first, 0.0
            for number in others:
                rest = [n for n in range(model.inputs) if not met >> n & 1]
                if not model.is_linked(met, number) and any(model.is_linked(met, n) for n in rest):
                    break
                met |= 1 << number
                total += model.rows(probe.first, met)
            else:
                assert chosen <= total * (1 + 1e-9)


def test_a_step_of_each_method_at_points_computed_by_hand() -> None:
    plan = join(2, [(0, 1)], span=5.0)
    costs = UnitCosts(probe=1e-6, pair=2e-6, output=3e-6, nested=4e-6, build=5e-6, lookup=6e-6)
    model = JoinModel(
        plan, JoinStatistics((10.0, 102.3), (0, 0), {(0, 0, 1): 0.1}, cut_seconds=0.5, costs=costs)
    )
    by_method = {step.step.method: step for step in model.steps(0, 0b01, 1) if step.step.key is not None}
    # each of 10 tuples a second meets what came within 5 s before it, and half a cut of half a second: 537.075
    # tuples, of which a tenth is equal
    within, out = 5370.75, 537.075
    # what the tuples of a cut may reach is put in a table, twice a second: 5.5 s
    table = 562.65
    assert model.rows(0, 0b11) == pytest.approx(out)
    assert by_method[Method.NESTED].seconds == pytest.approx(within * 4e-6 + out * 3e-6 + 2 * table * 5e-6)
    assert by_method[Method.HASH].seconds == pytest.approx(
        2 * table * 5e-6 + 10 * 6e-6 + table * 2e-6 + out * 3e-6
    )
    # 5 rows a cut pass 112.53 tuples each; 2 to the power of 6.8270 are 113.53
    assert by_method[Method.MERGE].seconds == pytest.approx(
        10 * (1 + 6.8270) * 1e-6 + out * 2e-6 + out * 3e-6, rel=1e-4
    )
    # in the other direction it is half a cut less
    assert model.pairs() == pytest.approx(2 * 10 * 102.3 * 5 * 0.1)
    by_time = JoinModel(plan, model.statistics, sorted_by=((0, None), (0, None)))
    assert by_time.step(0, 0b01, ProbeStep(1, Method.NESTED, 0)).seconds == pytest.approx(
        within * 4e-6 + out * 3e-6
    )


@pytest.mark.parametrize("inputs", [2, 3, 4])
def test_predicted_pairs_are_those_that_arrivals_give(inputs: int) -> None:
    plan = join(inputs, [], span=2.0, spans={(0, 1): (-1.0, 3.0), (1, 2): (0.0, 2.0)})
    rng = np.random.default_rng(3)
    times = [arrivals(4.0, 1500.0, rng) for _ in range(inputs)]
    model = JoinModel(plan, JoinStatistics((4.0,) * inputs, (0,) * inputs, {}, cut_seconds=1e-3))
    rows = times[0][:, None]
    for number in range(1, inputs):
        low = np.full(len(rows), -np.inf)
        high = np.full(len(rows), np.inf)
        for bound in plan.bounds:
            if bound.right == number:
                low = np.maximum(low, rows[:, bound.left] + bound.lower / 1e6)
                high = np.minimum(high, rows[:, bound.left] + bound.upper / 1e6)
        begins, ends = np.searchsorted(times[number], low), np.searchsorted(times[number], high, "right")
        counts = np.maximum(0, ends - begins)
        offsets = np.arange(counts.sum()) - np.repeat(counts.cumsum() - counts, counts)
        found = times[number][np.repeat(begins, counts) + offsets]
        rows = np.column_stack([np.repeat(rows, counts, axis=0), found])
    assert len(rows) / 1500 == pytest.approx(model.pairs(), rel=0.05)
    newest = np.bincount(rows.argmax(axis=1), minlength=inputs) / 1500
    every = (1 << inputs) - 1
    assert newest == pytest.approx([model.rows(n, every) for n in range(inputs)], rel=0.08, abs=1)


def test_tuples_that_arrive_late_find_what_was_there_before_them() -> None:
    plan = join(2, [], spans={(0, 1): (0.0, 10.0)})
    ahead = JoinModel(plan, JoinStatistics((1.0, 1.0), (0, 0), {}, cut_seconds=1e-9))
    # all partners of a come after it: it is b that finds them
    assert (ahead.rows(0, 0b11), ahead.rows(1, 0b11)) == pytest.approx((0, 10), abs=1e-6)
    late = JoinModel(plan, JoinStatistics((1.0, 1.0), (0, 0), {}, delays=(4.0, 0.0), cut_seconds=1e-9))
    assert (late.rows(0, 0b11), late.rows(1, 0b11)) == pytest.approx((4, 6))


def test_what_lets_the_fewest_pairs_through_comes_first() -> None:
    known = statistics(join(3, [(0, 1), (0, 2)]))
    plan = join(3, [(0, 1), (0, 2)])
    few = JoinStatistics(known.rates, known.sizes, {(0, 0, 1): 0.5, (1, 0, 2): 0.001})
    (first, _, _) = plan_joins(JoinModel(plan, few)).orders
    assert [step.step.input for step in first.steps] == [2, 1]
    many = JoinStatistics(known.rates, known.sizes, {(0, 0, 1): 0.001, (1, 0, 2): 0.5})
    (first, _, _) = plan_joins(JoinModel(plan, many)).orders
    assert [step.step.input for step in first.steps] == [1, 2]


def test_runs_that_are_not_sorted_by_a_key_are_not_merged_by_it() -> None:
    model = JoinModel(CHAIN, statistics(CHAIN), sorted_by=((0,), (1,), (1,)))
    methods = {step.step for step in model.steps(0, 0b001, 1)}
    assert methods == {
        ProbeStep(1, Method.NESTED, 0),
        ProbeStep(1, Method.NESTED, None),
        ProbeStep(1, Method.HASH, 0),
    }
    with pytest.raises(ValueError, match="input 1 cannot be searched by merge with key 0"):
        model.step(0, 0b001, ProbeStep(1, Method.MERGE, 0))


def test_static_tables_bring_no_new_tuples_and_no_cross_products() -> None:
    plan = join(3, [(0, 1)], static=(1, 2), compared=[(1, 2)])
    found = plan_joins(JoinModel(plan, statistics(plan)))
    (only,) = found.orders
    assert only.first == 0
    assert [step.step.input for step in only.steps] == [1, 2]


def test_the_runner_up_says_why_it_lost() -> None:
    known = statistics(CHAIN)
    plan = join(3, [(0, 1), (0, 2)])
    few = JoinStatistics(known.rates, known.sizes, {(0, 0, 1): 0.05, (1, 0, 2): 0.04})
    runner_up = plan_joins(JoinModel(plan, few)).runner_up
    assert runner_up is not None
    assert "new tuples of" in runner_up.reason
    assert re.search("longer|times as long", runner_up.reason)


def test_two_inputs_have_another_method_for_a_runner_up() -> None:
    plan = join(2, [(0, 1)])
    found = plan_joins(JoinModel(plan, statistics(plan)))
    assert found.runner_up is not None
    assert [o.first for o in found.runner_up.order.orders] == [0, 1]
    assert found.runner_up.order != found.order


def test_output_rate_is_what_arrives_or_what_the_time_allows() -> None:
    known = statistics(CHAIN)
    model = JoinModel(CHAIN, known)
    found = plan_joins(model)
    assert found.output_rate == found.pairs == pytest.approx(model.pairs())
    slow = JoinStatistics(known.rates, known.sizes, known.equal, costs=UnitCosts().times(1e6))
    slowed = plan_joins(JoinModel(CHAIN, slow))
    assert slowed.seconds > 1
    assert slowed.output_rate == pytest.approx(slowed.pairs / slowed.seconds)


def test_past_the_limit_the_search_is_greedy_and_says_so() -> None:
    inputs = EXACT_INPUTS + 1
    plan = join(inputs, [list(pair) for pair in pairwise(range(inputs))])
    found = plan_joins(JoinModel(plan, statistics(plan, rate=0.5)))
    assert found.search.startswith("greedy: more than 10 inputs")
    assert all(len(order.steps) == inputs - 1 for order in found.orders)
    assert plan_joins(JoinModel(CHAIN, statistics(CHAIN))).search == "dynamic programming over all orders"


def test_planning_six_inputs_is_quick_enough_to_be_done_again() -> None:
    plan = join(6, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)], compared=[(0, 5)])
    known = statistics(plan)
    plan_joins(JoinModel(plan, known))
    taken = []
    for _ in range(5):
        begun = time.process_time()
        plan_joins(JoinModel(plan, known))
        taken.append(time.process_time() - begun)
    assert min(taken) < 0.050


def test_statistics_of_another_join() -> None:
    with pytest.raises(ValueError, match="the join has 3 inputs, statistics are of 2 rates and 2 sizes"):
        JoinModel(CHAIN, JoinStatistics((1.0, 1.0), (0, 0), {}))


def test_an_order_can_be_followed() -> None:
    model = JoinModel(CHAIN, statistics(CHAIN))
    order = ProbeOrder(0, (ProbeStep(1, Method.MERGE, 0), ProbeStep(2, Method.HASH, 1)))
    assert [figures.step for figures in model.follow(order)] == list(order.steps)
    assert model.seconds(JoinOrder((order,))) == pytest.approx(sum(f.seconds for f in model.follow(order)))
