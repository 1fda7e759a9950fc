"""The policies of joins by name: what each follows, and what survives a restart."""

from __future__ import annotations

import itertools
import json

import pytest

from penstock.control.actions import SwitchJoin
from penstock.control.events import (
    JoinBound,
    JoinMeasured,
    OperatorMeasure,
    OperatorsBound,
    OperatorsMeasured,
)
from penstock.control.policies.join_choices import Paper, join_policy, operator_policy
from penstock.control.policies.output_rate import SwitchSettings
from penstock.errors import InputError
from penstock.optimizer.join_measures import JoinMeasures
from penstock.optimizer.join_model import JoinModel
from penstock.optimizer.join_statistics import JoinStatistics
from penstock.optimizer.operator_order import UnaryOperator
from penstock.optimizer.paper_orders import lacking_formula, paper_order
from penstock.optimizer.printed_rates import group_rate
from penstock.optimizer.probe_orders import cardinality_order
from penstock.plan.joins import JoinOrder, Method, ProbeOrder, ProbeStep
from penstock.settings import JoinPolicyName, Settings, tuned
from penstock_lab.simulate.joins import shaped_join as join

PLAN = join(3, [(0, 1), (0, 2), (1, 2)])
NESTED = JoinOrder(
    tuple(
        ProbeOrder(
            first, tuple(ProbeStep(other, Method.NESTED, None) for other in range(3) if other != first)
        )
        for first in range(3)
    )
)
SETTINGS = SwitchSettings(dwell_seconds=10)
EQUAL = {(0, 0, 1): 0.5, (1, 0, 2): 0.001, (2, 1, 2): 0.01}


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def measures(equal: dict[tuple[int, int, int], float]) -> JoinMeasured:
    counted = {key: (1e6, 1e6 * share) for key, share in equal.items()}
    return JoinMeasured("j", 1, JoinMeasures(1.0, 4, (1000, 1000, 1000), (0, 0, 0), counted))


def model() -> JoinModel:
    return JoinModel(PLAN, JoinStatistics((1000.0,) * 3, (0.0,) * 3, EQUAL))


@pytest.mark.parametrize("name", ["output-rate", "paper", "cardinality"])
def test_a_policy_follows_its_own_order_and_waits_between_two(name: JoinPolicyName) -> None:
    clock = Clock()
    policy = join_policy(name, SETTINGS, clock)
    policy.handle(JoinBound("j", 1, PLAN, NESTED))
    (switch,) = policy.handle(measures(EQUAL))
    assert isinstance(switch, SwitchJoin)
    if name == "paper":
        assert switch.order == paper_order(model())
        assert switch.reason == "it has the largest output rate by the paper's formulas"
    if name == "cardinality":
        assert switch.order == cardinality_order(model(), cheapest_methods=True)
    turned = {key: EQUAL[other] for key, other in zip(EQUAL, reversed(EQUAL), strict=True)}
    clock.now = 5.0
    assert policy.handle(measures(turned)) == []
    standing = policy.standing("j")
    assert standing is not None
    assert tuple(each.order for each in standing.running) == switch.order.orders


def test_fixed_never_changes_and_is_told_all_the_same() -> None:
    policy = join_policy("fixed", SETTINGS, Clock())
    policy.handle(JoinBound("j", 1, PLAN, NESTED))
    assert policy.handle(measures(EQUAL)) == []
    standing = policy.standing("j")
    assert standing is not None
    assert standing.best.seconds < standing.seconds


def test_the_papers_tree_is_followed_to_its_root() -> None:
    order = paper_order(model())
    assert {each.first for each in order.orders} == {0, 1, 2}
    for each in order.orders:
        assert {step.input for step in each.steps} == {0, 1, 2} - {each.first}
        assert all(step.method in (Method.NESTED, Method.HASH) for step in each.steps)
    model().seconds(order)  # the executor has all of its steps
    # the pair with the least selectivity is the tree's lower join: each of both meets the other one first
    (of_a, _, of_c) = order.orders
    assert of_a.steps[0].input == 2
    assert of_c.steps[0].input == 0


def test_the_paper_has_no_formula_for_static_tables_and_outer_joins() -> None:
    assert lacking_formula(PLAN) is None
    static = join(3, [(0, 1), (1, 2)], static=(2,))
    assert lacking_formula(static) == "a static table"


def test_algorithm_2_is_tried_as_printed() -> None:
    operators = [
        UnaryOperator("slow", 1e-3, 0.9),
        UnaryOperator("quick", 1e-5, 0.5),
        UnaryOperator("rare", 1e-4, 0.01),
    ]
    best = Paper().operators(operators, 5_000.0)
    rates = [group_rate(each, 5_000.0) for each in itertools.permutations(operators)]
    assert group_rate(best, 5_000.0) == max(rates)
    assert group_rate(operators, 5_000.0) < max(rates)
    assert list(Paper().operators(operators, 1.0)) == operators, "all keep up: the running order remains"


@pytest.mark.parametrize(
    ("name", "order"),
    [
        ("output-rate", ("b", "a")),
        ("paper", ("b", "a")),
        ("cardinality", ("a", "b")),
        ("fixed", ("a", "b")),
    ],
)
def test_predicates_follow_the_policy_too(name: JoinPolicyName, order: tuple[str, ...]) -> None:
    policy = operator_policy(name, SETTINGS, Clock())
    policy.handle(OperatorsBound("j", 1, ("a", "b")))
    did = (OperatorMeasure("a", 10_000, 4_000, 10.0), OperatorMeasure("b", 4_000, 2_000, 0.01))
    policy.handle(OperatorsMeasured("j", 1, 1.0, did))
    standing = policy.standing("j")
    assert standing is not None
    assert tuple(each.operator.name for each in standing.running) == order


def test_what_was_measured_outlasts_the_policy() -> None:
    before = join_policy("output-rate", SETTINGS, Clock())
    before.handle(JoinBound("j", 1, PLAN, NESTED))
    (switch,) = before.handle(measures(EQUAL))
    assert isinstance(switch, SwitchJoin)
    kept = json.loads(json.dumps(before.statistics("j")))
    after = join_policy("output-rate", SETTINGS, Clock())
    after.handle(JoinBound("j", 1, PLAN, switch.order))
    after.restore("j", kept)
    # a first cut that saw nothing of the keys changes nothing
    assert after.handle(measures({})) == []
    standing = after.standing("j")
    assert standing is not None
    assert standing.statistics.equal[0, 0, 1] == pytest.approx(0.5)


def test_a_policy_that_does_not_exist_is_refused_by_name() -> None:
    with pytest.raises(
        InputError, match=r"join_policy: Input should be 'output-rate', 'paper', 'cardinality' or"
    ):
        tuned(Settings(), {"join_policy": "best"})
    with pytest.raises(
        InputError, match="plan_threshold: Input should be greater than or equal to 0 and less than 1"
    ):
        tuned(Settings(), {"plan_threshold": 1.0})
    settings = tuned(
        Settings(), {"plan_threshold": 0.1, "plan_dwell_seconds": 3, "plan_half_life_seconds": 7}
    )
    found = SwitchSettings.of(settings)
    assert (found.threshold, found.dwell_seconds, found.averaging.seconds) == (0.1, 3, 7)
