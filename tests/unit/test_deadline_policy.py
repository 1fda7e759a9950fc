"""The deadline policy: the page's example by hand, table 2, shedding, feedback, alarms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from deadline_cases import KNOWN, Shell, played, simulated
from penstock.control.actions import (
    AdjustPrediction,
    GiveUpInstance,
    RaiseOverload,
    ReportViolation,
    StartOrder,
)
from penstock.control.controller import Controller
from penstock.control.events import (
    DeadlineBound,
    DeadlineDropped,
    InstanceCreated,
    OrderAbandoned,
    OrderEnded,
    OrderFailed,
    ProcessorsIdle,
)
from penstock.control.policies.deadlines.allowance import CurrentConstraint, LossHistory
from penstock.control.policies.deadlines.choices import chosen_policy
from penstock.control.policies.deadlines.disciplines import (
    BEST_EFFORT,
    PAPER,
    PREDICTIVE,
    Candidate,
    Instance,
    paper_rank,
    paper_rank_tighter,
    window_constrained,
)
from penstock.control.policies.deadlines.feedback import PAPER_FEEDBACK, FeedbackSettings
from penstock.control.policies.deadlines.memory import QueryMemory
from penstock.control.policies.deadlines.planning import PlannedDiscipline
from penstock.control.policies.deadlines.policy import DeadlinePolicy, DeadlineSettings
from penstock.control.policies.deadlines.prediction import (
    CostPredictor,
    PredictionSettings,
    UnitCosts,
    expiration_factor,
)
from penstock.optimizer.averages import AveragingSettings
from penstock.plan.deadlines import DeadlineQuery, LossConstraint, WindowSpan, WindowWork, carried_work
from penstock_lab.simulate.deadlines import Outcome


def starts(controller: Controller) -> dict[int, float]:
    """When each instance was begun."""
    decisions = [each for each in controller.story() if isinstance(each.action, StartOrder)]
    return {each.action.number: each.time for each in decisions if isinstance(each.action, StartOrder)}


#: Z = 4, H = 1, D = 3; W5, W6 and W7 hold 2, 3 and 3 tuples of one second each
EXAMPLE = simulated("q", [0, 0, 1, 1, 0, 1, 1], size=4, deadline=3.0, incremental=False, first=5)


@pytest.mark.parametrize("discipline", [PREDICTIVE, PAPER, PlannedDiscipline()])
def test_example_by_hand_with_prediction(discipline) -> None:  # type: ignore[no-untyped-def]
    result, _, controller = played([EXAMPLE], discipline, KNOWN)
    assert starts(controller) == {0: 5.0, 2: 7.0}, "W6 is shed when W5 is done, and W7 begins in second 8"
    assert result.queries["q"].outcomes.tolist() == [Outcome.RELEASED, Outcome.SHED, Outcome.RELEASED]


def test_example_by_hand_with_best_effort() -> None:
    result, _, controller = played([EXAMPLE], BEST_EFFORT, KNOWN)
    assert starts(controller) == {0: 5.0, 1: 7.0, 2: 9.0}, "W6 is worked on to the end of second 9"
    assert result.queries["q"].outcomes.tolist() == [Outcome.RELEASED, Outcome.MISSED, Outcome.MISSED]
    assert result.wasted == 3.0


@dataclass
class Waits:
    """A backlog with a given allowance."""

    constraint: CurrentConstraint
    distance: int = 1
    busy_until: float | None = None
    instances: Sequence[Instance] = field(default_factory=list)


def candidate(factor: float, k: int, m: int, arrival: int, deadline: float = 9.0) -> Candidate:
    instance = Instance(0, 0.0, deadline, WindowSpan(0, 1), arrival, 0.0)
    return Candidate(instance, Waits(CurrentConstraint(k, m)), factor)  # type: ignore[arg-type]


def shuffled(candidates: Sequence[Candidate]) -> list[Candidate]:
    return [candidates[place] for place in np.random.default_rng(1).permutation(len(candidates))]


def test_table_2_as_printed() -> None:
    in_order = [
        candidate(0.94, 3, 4, 9),  # larger factor first, by one decimal
        candidate(0.52, 0, 5, 8),  # equal (0.5): smaller C' first; both 0: larger m' first
        candidate(0.54, 0, 4, 7),
        candidate(0.46, 1, 8, 6),
        candidate(0.50, 2, 8, 5),  # equal C', not 0: larger k' first
        candidate(0.50, 1, 4, 3),  # equal in everything: first come
        candidate(0.50, 1, 4, 4),
        candidate(0.44, 0, 9, 1),
    ]
    assert sorted(shuffled(in_order), key=paper_rank) == in_order
    tighter = [*in_order[:4], *in_order[5:7], in_order[4], in_order[7]]
    assert sorted(in_order, key=paper_rank_tighter) == tighter


def test_dwcs_ranks_by_deadline_first() -> None:
    in_order = [
        candidate(0.1, 3, 4, 9, deadline=1.0),
        candidate(0.9, 0, 5, 8),
        candidate(0.9, 0, 4, 7),
        candidate(0.9, 1, 4, 6),
        candidate(0.9, 2, 8, 5),
    ]
    assert sorted(shuffled(in_order), key=window_constrained) == in_order


def test_expiration_factor() -> None:
    assert expiration_factor(2.0, deadline=8.0, now=7.0) == 2.0
    assert expiration_factor(1.0, deadline=8.0, now=7.0) == 1.0
    assert expiration_factor(0.1, deadline=8.0, now=8.0) == float("inf")


def test_work_counts_from_the_last_processed_instance() -> None:
    base = WindowSpan(0, 10)
    assert carried_work(WindowSpan(3, 12), base) == WindowWork(2, 3, carried=True)
    assert carried_work(WindowSpan(20, 27), base) == WindowWork(7, 10, carried=True)
    assert carried_work(base, WindowSpan(3, 12)) == WindowWork(3, 2, carried=True)
    assert carried_work(base, WindowSpan(20, 27)) == WindowWork(10, 7, carried=True)


def test_a_shed_instance_counts_for_the_next() -> None:
    shell = Shell(PREDICTIVE, replace(KNOWN, believed=UnitCosts(new=1.0, expired=0.5)))
    shell.create(0, 0, 2, at=0.0)
    (order,) = shell.tell(ProcessorsIdle(1))
    assert (order.work, order.figures["predicted_seconds"]) == (WindowWork(2, 0, carried=False), 2.0)
    shell.tell(OrderEnded("q", 1, 0, 2.0, 2.0, 0.0), 2.0)
    shell.create(1, 1, 6, at=2.0)
    shell.create(2, 2, 4, at=2.0)
    shed, order = shell.tell(ProcessorsIdle(1))
    assert isinstance(shed, GiveUpInstance)
    assert (shed.number, shed.shed, shed.figures["predicted_seconds"]) == (1, True, 4.5)
    assert shed.figures["expiration_factor"] == 1.5
    assert order.number == 2
    assert order.work == WindowWork(2, 0, carried=False), "from nothing 2 s, carried 3 s"


def test_unit_costs_are_measured_apart() -> None:
    shell = Shell(PREDICTIVE, DeadlineSettings())
    shell.create(0, 0, 10, at=0.0)
    shell.tell(ProcessorsIdle(1))
    shell.tell(OrderEnded("q", 1, 0, 1.5, 1.0, 0.0), 1.5)
    shell.create(1, 5, 15, at=1.5)
    shell.tell(ProcessorsIdle(1))
    shell.tell(OrderEnded("q", 1, 1, 1.0, 0.5, 0.1), 2.5)
    costs = shell.policy.standing("q").costs
    assert costs.new == pytest.approx(0.1)
    assert costs.expired == pytest.approx(0.02)
    assert 0.4 < costs.maintenance < 0.5, "between both orders, nearer to the second"


@pytest.mark.parametrize("factor", [1.0, 1.5])
def test_an_abandoned_order_is_a_lower_bound(factor: float) -> None:
    averaging = AveragingSettings(seconds=0.5)
    shell = Shell(PREDICTIVE, replace(KNOWN, prediction=PredictionSettings(averaging, factor)))
    shell.create(0, 0, 1, at=0.0)
    (order,) = shell.tell(ProcessorsIdle(1))
    assert order.figures["predicted_seconds"] == 1.0
    shell.tell(OrderAbandoned("q", 1, 0, 3.0), 3.0)
    assert shell.policy.standing("q").costs.new == pytest.approx(3.0 * factor)
    shell.create(1, 1, 2, at=3.0)
    answer = shell.tell(ProcessorsIdle(1))[0]
    assert isinstance(answer, StartOrder if factor == 1.0 else GiveUpInstance)


def test_failures_are_accounted_and_violations_reported() -> None:
    shell = Shell(PAPER, KNOWN)
    for number, failed in enumerate([True, False, True]):
        shell.create(number, number, number + 1, at=2.0 * number)
        shell.tell(ProcessorsIdle(1))
        event = OrderFailed("q", 1, number, "boom") if failed else OrderEnded("q", 1, number, 1.0, 1.0, 0.0)
        told = shell.tell(event, 2.0 * number + 1)
        assert any(isinstance(each, ReportViolation) for each in told) == (number == 2)
    outcomes = shell.policy.standing("q").outcomes
    assert (outcomes.created, outcomes.released, outcomes.failed) == (3, 1, 2)
    assert shell.policy.standing("q").constraint == CurrentConstraint(0, 3, violating=True)


def test_a_result_visible_too_late_is_a_miss_but_carries() -> None:
    shell = Shell(PAPER, KNOWN)
    shell.create(0, 0, 2, at=0.0)
    shell.tell(ProcessorsIdle(1))
    shell.tell(OrderEnded("q", 1, 0, 3.5, 2.0, 0.0), 3.5)
    assert shell.policy.standing("q").outcomes.missed == 1
    shell.create(1, 0, 3, at=3.5)
    (order,) = shell.tell(ProcessorsIdle(1))
    assert order.work == WindowWork(1, 0, carried=True)


def test_orders_of_older_versions_count_no_more() -> None:
    shell = Shell(PAPER, KNOWN)
    shell.create(0, 0, 2, at=0.0)
    shell.tell(ProcessorsIdle(1))
    shell.tell(DeadlineBound("q", 2, DeadlineQuery("q", 1.0)))
    assert shell.tell(OrderEnded("q", 1, 0, 1.0, 1.0, 0.0), 1.0) == []
    assert shell.policy.standing("q").outcomes.created == 0
    shell.tell(DeadlineDropped("q", 2))
    with pytest.raises(KeyError):
        shell.policy.standing("q")


def test_rho_follows_what_was_falsely_predicted() -> None:
    feedback = FeedbackSettings(period=10.0, least_instances=1, step=0.1)
    shell = Shell(PREDICTIVE, DeadlineSettings(feedback=feedback, believed=UnitCosts(new=1.0)), q=(1, 1))
    told = []
    for number in range(6):
        at = 5.0 * number + 1
        told += shell.create(number, number, number + 1, at=at)
        told += shell.tell(ProcessorsIdle(1))
        late = number >= 2
        told += shell.tell(
            OrderAbandoned("q", 1, number, 1.0) if late else OrderEnded("q", 1, number, 1.0, 1.0, 0.0), at + 3
        )
    raised = [each for each in told if isinstance(each, AdjustPrediction)]
    assert [(each.figures["rho"], each.figures["pfr"]) for each in raised] == [(1.1, 1.0)]
    assert "under-estimated" in raised[0].reason
    assert [type(each) for each in told].count(RaiseOverload) == 1, "told once"


def test_what_the_users_code_fails_is_no_overload() -> None:
    shell = Shell(
        PREDICTIVE, DeadlineSettings(feedback=FeedbackSettings(period=10.0), believed=UnitCosts(new=1.0))
    )
    told = []
    for number in range(6):
        at = 5.0 * number + 1
        told += shell.create(number, number, number + 1, at=at)
        told += shell.tell(ProcessorsIdle(1))
        told += shell.tell(OrderFailed("q", 1, number, "boom"), at + 1)
        assert shell.policy.standing("q").failing
    assert not [each for each in told if isinstance(each, RaiseOverload | AdjustPrediction)]
    assert not shell.policy.standing("q").overloaded
    shell.create(6, 6, 7, at=41.0)
    assert shell.policy.standing("q").failing, "nothing is known since"
    shell.tell(ProcessorsIdle(1))
    shell.tell(OrderEnded("q", 1, 6, 1.0, 1.0, 0.0), 42.0)
    assert not shell.policy.standing("q").failing


def test_one_miss_in_ten_inside_the_allowance_is_no_overload() -> None:
    """One window every 3 s, the period's length: a period with 0 of 1 windows in time says nothing."""
    shell = Shell(PREDICTIVE, DeadlineSettings(believed=UnitCosts(new=1.0)))
    told, overloaded = [], []
    for number in range(60):
        at = 3.0 * number
        told += shell.create(number, number, number + 1, at=at)
        told += shell.tell(ProcessorsIdle(1))
        late = number % 10 == 9 or number >= 40
        ended = OrderAbandoned("q", 1, number, 1.0) if late else OrderEnded("q", 1, number, 1.0, 1.0, 0.0)
        told += shell.tell(ended, at + 1)
        overloaded.append(shell.policy.standing("q").overloaded)
    assert not any(overloaded[:41])
    (raised,) = [each for each in told if isinstance(each, RaiseOverload)]
    assert raised.figures["instances"] == 5, "not before so many have an outcome"


def test_rho_follows_what_was_shed() -> None:
    feedback = FeedbackSettings(period=10.0, least_instances=1, step=0.25)
    shell = Shell(PREDICTIVE, DeadlineSettings(feedback=feedback, believed=UnitCosts(new=1.0)), q=(1, 1))
    told = []
    for number in range(6):
        at = 5.0 * number + 1
        size = 1 if number < 2 else 4
        told += shell.create(number, 10 * number, 10 * number + size, at=at)
        told += shell.tell(ProcessorsIdle(1))
        if number < 2:
            told += shell.tell(OrderEnded("q", 1, number, 1.0, 1.0, 0.0), at + 1)
    (lowered,) = [each for each in told if isinstance(each, AdjustPrediction)]
    assert (lowered.figures["rho"], lowered.figures["lsr"]) == (0.8, 1.0)


def test_what_is_known_of_a_query_outlasts_its_policy() -> None:
    clock = [0.0]
    query = DeadlineQuery("q", 1.0, LossConstraint(1, 3))
    policies = [DeadlinePolicy(PREDICTIVE, KNOWN, lambda: clock[0]) for _ in range(2)]
    for policy in policies:
        policy.handle(DeadlineBound("q", 0, query))
    # of three windows of two tuples each none can be answered in the second it has
    for number in range(3):
        policies[0].handle(InstanceCreated("q", 0, number, clock[0], WindowSpan(number, number + 2)))
        assert isinstance(policies[0].handle(ProcessorsIdle(1))[0], GiveUpInstance)
    policies[1].recall("q", policies[0].memory("q"))
    assert policies[1].memory("q") == policies[0].memory("q")
    standings = [each.standing("q") for each in policies]
    assert standings[0].violations == 2
    assert replace(standings[1], outcomes=standings[0].outcomes) == standings[0]


def test_one_cold_order_does_not_decide_after_a_restart() -> None:
    clock = [0.0]
    query = DeadlineQuery("q", 1.0, incremental=False)
    policies = [DeadlinePolicy(PREDICTIVE, DeadlineSettings(), lambda: clock[0]) for _ in range(2)]
    for policy in policies:
        policy.handle(DeadlineBound("q", 0, query))
    order(policies[0], 0, 0.2, clock)
    policies[1].recall("q", policies[0].memory("q"))
    order(policies[1], 1, 1.0, clock)
    assert 0.2 < policies[1].standing("q").costs.maintenance < 1.0


def order(policy: DeadlinePolicy, number: int, seconds: float, clock: list[float]) -> None:
    """Creates an instance and works it out."""
    policy.handle(InstanceCreated("q", 0, number, clock[0], WindowSpan(number, number + 1)))
    (start,) = policy.handle(ProcessorsIdle(1))
    assert isinstance(start, StartOrder)
    clock[0] += seconds
    policy.handle(OrderEnded("q", 0, number, seconds, 0.0, 0.0, start.work, False))


def test_rho_is_that_of_policies_that_correct_it() -> None:
    memory = QueryMemory(CurrentConstraint(1, 1), (), 0, 0.25, UnitCosts(1.0))
    query = DeadlineQuery("q", 1.0)
    for settings, rho in ((DeadlineSettings(), 1.0), (DeadlineSettings(PAPER_FEEDBACK), 0.25)):
        policy = DeadlinePolicy(PREDICTIVE, settings, lambda: 0.0)
        policy.handle(DeadlineBound("q", 0, query))
        policy.recall("q", memory)
        assert policy.memory("q").rho == rho


@pytest.mark.parametrize("constraint", [LossConstraint(1, 4), LossConstraint(0, 3), LossConstraint(3, 3)])
def test_the_distance_is_the_least_number_of_losses_that_violate(constraint: LossConstraint) -> None:
    rng = np.random.default_rng(3)
    history = LossHistory(constraint)
    for _ in range(200):
        history.add(bool(rng.random() < 0.4))
        recent, m = history.recent, constraint.m
        counts = [sum([*recent, *([True] * losses)][-m:]) for losses in range(m + 1)]
        violating = [losses for losses, count in enumerate(counts) if count > constraint.k]
        is_lost = sum(recent) > constraint.k
        assert history.distance() == (
            0 if is_lost else min((each for each in violating if each), default=m + 1)
        )


def test_a_query_that_once_cost_too_much_is_tried_again_though_others_leave_no_processor_idle() -> None:
    """Its first order took longer than its deadline; 0.1 s each would do."""
    assert released_of_a_cheap_query(trial_share=0.05) > 10
    assert released_of_a_cheap_query(trial_share=1e-9) < 2


def released_of_a_cheap_query(trial_share: float) -> int:
    """Windows of it in time of 90, beside a query that has work for all the time."""
    clock = [0.0]
    policy = DeadlinePolicy(PlannedDiscipline(trial_share=trial_share), DeadlineSettings(), lambda: clock[0])
    for name, deadline in (("q", 1.0), ("busy", 5.0)):
        policy.handle(DeadlineBound(name, 0, DeadlineQuery(name, deadline, incremental=False)))
    costs = {"q": 0.1, "busy": 1.0}
    running: tuple[StartOrder, float] | None = None
    for tick in range(900):
        clock[0] = tick / 10
        if running is not None and clock[0] >= running[1]:
            order, running = running[0], None
            seconds = 2.0 if (order.stream, order.number) == ("q", 0) else costs[order.stream]
            policy.handle(OrderEnded(order.stream, 0, order.number, seconds, 0.0, 0.0, order.work, False))
        if tick % 10 == 0:
            for name in costs:
                number = tick // 10
                policy.handle(InstanceCreated(name, 0, number, clock[0], WindowSpan(number, number + 1)))
        for action in policy.handle(ProcessorsIdle(running is None)):
            if isinstance(action, StartOrder):
                running = action, clock[0] + costs[action.stream]
    return policy.standing("q").outcomes.released


@pytest.mark.parametrize("seconds", [0.1, 0.7])
def test_a_decision_of_very_many_that_wait_costs_what_one_of_some_hundred_does(
    monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    predicted = []
    predict = CostPredictor.predict
    monkeypatch.setattr(CostPredictor, "predict", lambda *given: predicted.append(1) or predict(*given))
    counts = []
    for waiting in (200, 2_000):
        shell = Shell(PlannedDiscipline(), DeadlineSettings(believed=UnitCosts(new=seconds)))
        for number in range(waiting):
            shell.create(number, number, number + 1)
        predicted.clear()
        *_, order = shell.tell(ProcessorsIdle(1))
        assert isinstance(order, StartOrder)
        counts.append(len(predicted))
    assert counts[1] <= 1.1 * counts[0]


@pytest.mark.parametrize("back", [50.0, 100_000.0])
def test_a_clock_that_is_set_back_stops_nothing(back: float) -> None:
    """What was measured before counts as if it had been now, and periods end again."""
    shell = Shell(PlannedDiscipline(), DeadlineSettings(feedback=FeedbackSettings(period=10.0)))
    for number in range(3):
        shell.create(number, number, number + 1, at=200_000.0)
        shell.tell(ProcessorsIdle(1))
        shell.tell(OrderEnded("q", 1, number, 0.2, 0.2, 0.0))
    for number in range(3, 13):
        begun = 200_000.0 - back + 2.5 * number
        shell.create(number, number, number + 1, at=begun)
        shell.tell(ProcessorsIdle(1))
        shell.tell(OrderEnded("q", 1, number, 2.0, 2.0, 0.0), begun + 2.0)
    assert shell.policy.standing("q").costs.new == pytest.approx(2.0, rel=0.1)


def test_a_period_ends_after_a_clock_was_set_back() -> None:
    shell = Shell(BEST_EFFORT, DeadlineSettings(feedback=FeedbackSettings(period=10.0)))
    told = []
    for number in range(30):
        told += shell.create(number, 0, 1, at=100_000.0 * (number < 3) + float(number))
        told += shell.tell(ProcessorsIdle(0), shell.now + 3.5)
    assert any(isinstance(each, RaiseOverload) for each in told)


@pytest.mark.parametrize("name", ["paper", "planned"])
def test_one_stalled_order_does_not_shed_every_later_window(name: str) -> None:
    """One order takes as long as its deadline; all others would take a tenth of it. Nothing else corrects the prediction."""
    clock = [0.0]
    policy = chosen_policy(name, lambda: clock[0])
    policy.handle(DeadlineBound("q", 0, DeadlineQuery("q", 3.0, LossConstraint(1, 4), incremental=False)))
    for number in range(60):
        clock[0] = 4.0 * number
        policy.handle(InstanceCreated("q", 0, number, clock[0], WindowSpan(number, number + 1)))
        for action in policy.handle(ProcessorsIdle(1)):
            if isinstance(action, StartOrder):
                stalled = number == 10
                clock[0] += 3.0 if stalled else 0.3
                ended = OrderEnded("q", 0, number, 0.3, 0.3, 0.0, action.work, False)
                policy.handle(OrderAbandoned("q", 0, number, 3.05) if stalled else ended)
    standing = policy.standing("q")
    assert standing.outcomes.released > 50
    assert standing.outcomes.missed == 1
    assert standing.rho <= 1


@pytest.mark.parametrize("name", ["paper", "planned"])
def test_what_passes_until_a_window_is_noticed_is_measured_and_predicted(name: str) -> None:
    clock = [0.0]
    policy = chosen_policy(name, lambda: clock[0])
    policy.handle(DeadlineBound("q", 0, DeadlineQuery("q", 1.0, incremental=False)))
    costs = []
    for number in range(20):
        clock[0] = number + 0.4
        span = WindowSpan(number, number + 1)
        policy.handle(InstanceCreated("q", 0, number, float(number), span, clock[0]))
        for action in policy.handle(ProcessorsIdle(1)):
            if isinstance(action, StartOrder):
                costs.append(action.figures["left_seconds"])
                clock[0] += 0.5
                policy.handle(OrderEnded("q", 0, number, 0.5, 0.5, 0.0, action.work, False))
    standing = policy.standing("q")
    assert standing.notice_seconds == pytest.approx(0.4)
    assert set(costs) == {0.6}
    assert standing.outcomes.released == 20
