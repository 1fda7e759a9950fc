"""The switch policies: when they switch, when they do not, and what they say."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.control.actions import ReorderOperators, SwitchJoin
from penstock.control.controller import Controller
from penstock.control.events import (
    JoinBound,
    JoinMeasured,
    OperatorMeasure,
    OperatorsBound,
    OperatorsMeasured,
)
from penstock.control.policies.output_rate import JoinOrderPolicy, OperatorOrderPolicy, SwitchSettings
from penstock.control.policies.rearrangement import RearrangementPolicy
from penstock.optimizer.averages import Averaging, AveragingSettings
from penstock.optimizer.join_measures import JoinMeasures
from penstock.plan.joins import JoinOrder, Method, ProbeOrder, ProbeStep
from penstock_lab.simulate.joins import shaped_join as join

PLAN = join(3, [(0, 1), (0, 2), (1, 2)])
#: nested loops everywhere
NESTED = JoinOrder(
    (
        ProbeOrder(0, (ProbeStep(1, Method.NESTED, 0), ProbeStep(2, Method.NESTED, 1))),
        ProbeOrder(1, (ProbeStep(0, Method.NESTED, 0), ProbeStep(2, Method.NESTED, 2))),
        ProbeOrder(2, (ProbeStep(0, Method.NESTED, 1), ProbeStep(1, Method.NESTED, 2))),
    )
)
LAST_PERIOD = AveragingSettings(Averaging.WINDOWED, 1.0)


class Clock:
    """Time that is set."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def measures(first: float, second: float, seconds: float = 1.0) -> JoinMeasures:
    """A period in which a's tuples are equal to those of b and of c with these selectivities."""
    return JoinMeasures(
        seconds,
        4,
        (1000, 1000, 1000),
        (0, 0, 0),
        {(0, 0, 1): (1e6, 1e6 * first), (1, 0, 2): (1e6, 1e6 * second), (2, 1, 2): (1e6, 1e4)},
    )


def bound(clock: Clock, running: JoinOrder = NESTED, **settings: float) -> JoinOrderPolicy:
    policy = JoinOrderPolicy(SwitchSettings(averaging=LAST_PERIOD, **settings), clock)
    assert policy.handle(JoinBound("j", 1, PLAN, running)) == []
    return policy


def test_the_first_measurements_give_the_first_plan() -> None:
    policy = bound(Clock())
    assert policy.standing("j") is None
    (switch,) = policy.handle(JoinMeasured("j", 1, measures(0.5, 0.001)))
    assert isinstance(switch, SwitchJoin)
    assert [step.input for step in switch.order.orders[0].steps] == [2, 1]
    assert policy.handle(JoinMeasured("j", 1, measures(0.5, 0.001))) == []


def test_a_decision_carries_what_caused_it() -> None:
    policy = bound(Clock())
    controller = Controller([RearrangementPolicy(), policy], clock=lambda: 7.0)
    controller.handle(JoinBound("j", 1, PLAN, NESTED))
    (switch,) = controller.handle(JoinMeasured("j", 1, measures(0.5, 0.001)))
    assert switch.figures["rate of a"] == 1000
    assert switch.figures["selectivity of key 0 between a and b"] == 0.5
    assert switch.figures["seconds"] < switch.figures["seconds_before"]
    assert switch.figures["threshold"] == 0.05
    assert "in the runner-up new tuples of" in switch.reason
    (decision,) = controller.story("j")
    told = json.loads(json.dumps(decision.fields()))
    assert told["cause"] == "JoinMeasured"
    assert told["orders"][0]["first"] == 0
    assert told["orders"][0]["steps"][0] == [2, "merge", 1]


def test_no_switch_before_the_dwell_time_is_over() -> None:
    clock = Clock()
    policy = bound(clock, dwell_seconds=10.0)
    policy.handle(JoinMeasured("j", 1, measures(0.5, 0.001)))
    for clock.now in (1.0, 5.0, 9.9):
        assert policy.handle(JoinMeasured("j", 1, measures(0.001, 0.5))) == []
        standing = policy.standing("j")
        assert standing is not None
        assert standing.best.seconds < standing.seconds
    clock.now = 10.0
    (switch,) = policy.handle(JoinMeasured("j", 1, measures(0.001, 0.5)))
    assert [step.input for step in switch.order.orders[0].steps] == [1, 2]


def test_no_switch_that_saves_next_to_nothing_in_a_second() -> None:
    measured = JoinMeasured("j", 1, measures(0.5, 0.001))
    (switch,) = bound(Clock(), least_seconds=0.0).handle(measured)
    assert isinstance(switch, SwitchJoin)
    before, after = (float(switch.figures[name]) for name in ("seconds_before", "seconds"))
    for share, switches in ((0.99, True), (1.01, False)):
        policy = bound(Clock(), least_seconds=share * (before - after))
        assert bool(policy.handle(measured)) == switches


def test_no_switch_for_less_than_the_threshold() -> None:
    clock = Clock()
    policy = bound(clock, threshold=0.9, dwell_seconds=0.0)
    policy.handle(JoinMeasured("j", 1, measures(0.5, 0.4)))
    assert policy.handle(JoinMeasured("j", 1, measures(0.4, 0.5))) == []
    standing = policy.standing("j")
    assert standing is not None
    assert standing.best.seconds < standing.seconds < standing.best.seconds * 10


def test_the_standing_is_that_of_the_running_order() -> None:
    policy = bound(Clock())
    (switch,) = policy.handle(JoinMeasured("j", 1, measures(0.5, 0.001)))
    standing = policy.standing("j")
    assert standing is not None
    assert standing.seconds == pytest.approx(switch.figures["seconds"], rel=1e-9)
    assert tuple(planned.order for planned in standing.running) == switch.order.orders
    assert standing.measured_rate is None
    assert standing.output_rate <= standing.pairs


def test_measurements_of_another_version_do_not_count() -> None:
    policy = bound(Clock())
    assert policy.handle(JoinMeasured("j", 2, measures(0.5, 0.001))) == []
    assert policy.handle(JoinMeasured("k", 1, measures(0.5, 0.001))) == []
    assert policy.standing("j") is None


@given(st.lists(st.tuples(st.floats(1e-4, 1), st.floats(1e-4, 1)), min_size=2, max_size=12))
def test_switches_are_as_far_apart_as_they_have_to_be_and_each_is_worth_it(
    drift: list[tuple[float, float]],
) -> None:
    clock = Clock()
    policy = bound(clock, dwell_seconds=3.0)
    switches = []
    for period, shares in enumerate(drift):
        clock.now = float(period)
        for action in policy.handle(JoinMeasured("j", 1, measures(*shares))):
            switches.append(clock.now)
            assert action.figures["seconds"] < 0.95 * action.figures["seconds_before"]
        standing = policy.standing("j")
        assert standing is not None
        if not switches or clock.now - switches[-1] >= 3:
            assert standing.best.seconds >= 0.95 * standing.seconds * (1 - 1e-9)
    assert all(later - earlier >= 3 for earlier, later in pairwise(switches))


def operators(seconds: float, *measured: OperatorMeasure) -> OperatorsMeasured:
    return OperatorsMeasured("s", 1, seconds, measured)


def test_operators_are_ordered_by_what_they_drop_for_their_time() -> None:
    clock = Clock()
    policy = OperatorOrderPolicy(SwitchSettings(averaging=LAST_PERIOD, dwell_seconds=5.0), clock)
    policy.handle(OperatorsBound("s", 1, ("dear", "cheap", "pick"), frozenset({"pick"})))
    # 10 ms drop a half, 2 ms a fifth
    period = operators(
        1.0,
        OperatorMeasure("dear", 100, 50, 1.0),
        OperatorMeasure("cheap", 50, 40, 0.1),
        OperatorMeasure("pick", 40, 40, 0.0),
    )
    (action,) = policy.handle(period)
    assert isinstance(action, ReorderOperators)
    assert action.order == ("cheap", "dear", "pick")
    assert action.figures["seconds_before"] == pytest.approx(0.011)
    assert action.figures["seconds"] == pytest.approx(0.010)
    assert json.loads(json.dumps(action.fields()))["order"] == ["cheap", "dear", "pick"]
    standing = policy.standing("s")
    assert standing is not None
    assert [each.operator.name for each in standing.running] == list(standing.best)
    assert standing.running[0].rate == 50
    assert standing.seconds == standing.best_seconds == pytest.approx(0.010)
    useless = replace(period.operators[1], passed=50)
    changed = operators(1.0, period.operators[0], useless, period.operators[2])
    assert policy.handle(changed) == []
    standing = policy.standing("s")
    assert standing is not None
    assert standing.best == ("dear", "cheap", "pick")
    assert standing.seconds > standing.best_seconds, "the dwell time is not over"
    clock.now = 5.0
    assert [action.order for action in policy.handle(changed)] == [("dear", "cheap", "pick")]


@pytest.mark.parametrize(("rate", "switches"), [(1, False), (10, True)])
def test_operators_of_few_tuples_keep_their_order(rate: int, switches: bool) -> None:
    """A tuple takes 0.3 ms less in the other order: worth it from four tuples a second on."""
    policy = OperatorOrderPolicy(SwitchSettings(averaging=LAST_PERIOD), Clock())
    policy.handle(OperatorsBound("s", 1, ("dear", "cheap")))
    tuples = 1000 * rate
    period = operators(
        1000.0,
        OperatorMeasure("dear", tuples, tuples, 4e-4 * tuples),
        OperatorMeasure("cheap", tuples, tuples // 10, 1e-4 * tuples),
    )
    assert bool(policy.handle(period)) == switches


def test_a_group_without_operators_has_no_order() -> None:
    policy = OperatorOrderPolicy(SwitchSettings(averaging=LAST_PERIOD), Clock())
    policy.handle(OperatorsBound("s", 1, ()))
    assert policy.handle(operators(1.0)) == []


def test_operators_are_not_ordered_before_all_are_measured() -> None:
    policy = OperatorOrderPolicy(SwitchSettings(averaging=LAST_PERIOD), Clock())
    policy.handle(OperatorsBound("s", 1, ("first", "second")))
    assert (
        policy.handle(
            operators(1.0, OperatorMeasure("first", 10, 0, 1.0), OperatorMeasure("second", 0, 0, 0.0))
        )
        == []
    )
    assert policy.standing("s") is None


@pytest.mark.parametrize(
    "settings", [{"threshold": 1.0}, {"threshold": -0.1}, {"dwell_seconds": -1.0}, {"least_seconds": -0.1}]
)
def test_settings_that_cannot_be(settings: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must"):
        SwitchSettings(**settings)
