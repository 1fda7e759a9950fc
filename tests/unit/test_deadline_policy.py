"""The deadline policy: the page's example by hand, table 2, shedding, feedback, alarms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from deadline_cases import played, simulated
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
from penstock.control.policies.deadlines.lots import Lot, other_processors
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

KNOWN = DeadlineSettings(believed=UnitCosts(new=1.0))


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


class Shell:
    """A controller with a clock to be set."""

    def __init__(self, discipline, settings: DeadlineSettings, **constraints: tuple[int, int]) -> None:  # type: ignore[no-untyped-def]
        self.now = 0.0
        self.policy = DeadlinePolicy(discipline, settings, lambda: self.now)
        self.controller = Controller([self.policy], lambda: self.now)
        for name, (k, m) in (constraints or {"q": (1, 4)}).items():
            self.tell(DeadlineBound(name, 1, DeadlineQuery(name, 3.0, LossConstraint(k, m))))

    def tell(self, event, at: float | None = None):  # type: ignore[no-untyped-def]
        self.now = self.now if at is None else at
        return self.controller.handle(event)

    def create(self, number: int, first: int, last: int, name: str = "q", at: float = 0.0):  # type: ignore[no-untyped-def]
        return self.tell(InstanceCreated(name, 1, number, at, WindowSpan(first, last)), at)


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


def test_planned_runs_as_many_as_can_be() -> None:
    """All released at once and worked out afresh: Moore and Hodgson's optimum, by trying all subsets."""
    rng = np.random.default_rng(3)
    for _ in range(30):
        sizes = rng.integers(1, 9, 7)
        deadlines = rng.integers(1, 25, 7).astype(float)
        queries = [
            simulated(f"q{n}", [int(size)], 1, float(deadline), incremental=False)
            for n, (size, deadline) in enumerate(zip(sizes, deadlines, strict=True))
        ]
        most = 0
        for subset in range(2**7):
            own = sorted(
                (d, s) for n, (s, d) in enumerate(zip(sizes, deadlines, strict=True)) if subset >> n & 1
            )
            ends = np.cumsum([s for _, s in own])
            if all(end <= d for end, (d, _) in zip(ends, own, strict=True)):
                most = max(most, len(own))
        result, _, _ = played(queries, PlannedDiscipline(), KNOWN)
        assert result.released == most


def test_planned_protects_what_has_no_loss_left() -> None:
    shell = Shell(PlannedDiscipline(), KNOWN, spare=(1, 4), tight=(1, 4))
    for name in ("spare", "tight"):
        shell.create(0, 0, 1, name)
        shell.tell(ProcessorsIdle(1))
        ended = OrderEnded(name, 1, 0, 1.0, 1.0, 0.0) if name == "spare" else OrderFailed(name, 1, 0, "boom")
        shell.tell(ended, shell.now + 1)
    for name in ("spare", "tight"):
        shell.create(1, 10, 12, name, at=4.0)
    told = shell.tell(ProcessorsIdle(1))
    assert [each.stream for each in told if isinstance(each, StartOrder)] == ["tight"]


def test_planned_counts_what_runs_already() -> None:
    """One of two processors is busy: of two instances that would both be in time on two, the one with no loss left is run."""
    shell = Shell(PlannedDiscipline(), KNOWN, sooner=(1, 4))
    for name, deadline, constraint in (("long", 9.0, (1, 1)), ("later", 3.5, (0, 1))):
        shell.tell(DeadlineBound(name, 1, DeadlineQuery(name, deadline, LossConstraint(*constraint))))
    shell.create(0, 0, 8, "long")
    (order,) = shell.tell(ProcessorsIdle(2))
    assert order.stream == "long"
    for name in ("sooner", "later"):
        shell.create(0, 0, 2, name)
    (order,) = shell.tell(ProcessorsIdle(1))
    assert order.stream == "later"


@pytest.mark.parametrize("often", [True, False])
def test_planned_leaves_room_for_what_is_expected(often: bool) -> None:
    """The longer of two instances fits, but not with those of another query, without a loss to spare, that are still to come."""
    shell = Shell(PlannedDiscipline(), DeadlineSettings(believed=UnitCosts(new=0.1)), large=(1, 4))
    for name, deadline, constraint in (("often", 1.0, (0, 1)), ("small", 3.2, (1, 4))):
        query = DeadlineQuery(name, deadline, LossConstraint(*constraint), incremental=False)
        shell.tell(DeadlineBound(name, 1, query))
    for number in range(2 * often):
        shell.create(number, 5 * number, 5 * number + 5, "often", at=float(number))
        shell.tell(ProcessorsIdle(1))
        shell.tell(OrderEnded("often", 1, number, 0.5, 0.5, 0.0), number + 0.5)
    shell.create(0, 0, 20, "large", at=1.5)
    shell.create(0, 0, 5, "small", at=1.5)
    (order,) = shell.tell(ProcessorsIdle(1))
    assert order.stream == ("small" if often else "large")


def test_planned_sheds_nothing_that_another_idle_processor_can_try() -> None:
    """Both instances fit, though with less than the margin; two processors are idle."""
    shell = Shell(PlannedDiscipline(), KNOWN, one=(1, 4), other=(1, 4))
    for name, begun in (("one", 0.0), ("other", 10.0)):
        for number, took in enumerate((0.8, 1.2)):
            shell.create(number, 10 * number, 10 * number + 1, name, at=begun + 2 * number)
            shell.tell(ProcessorsIdle(1))
            shell.tell(OrderEnded(name, 1, number, took, took, 0.0), shell.now + took)
    for name in ("one", "other"):
        shell.create(2, 1_000, 1_002, name, at=30.0)
    seconds = max(2 * shell.policy.standing(name).costs.new for name in ("one", "other"))
    told = shell.tell(ProcessorsIdle(2), 33.0 - 1.02 * seconds)
    assert [type(each) for each in told] == [StartOrder, StartOrder]
    assert all("less than the margin" in each.reason for each in told)


#: losses are taken where they must be, and not before
LATE = PlannedDiscipline(early_from=float("inf"))


def test_planned_takes_losses_before_they_are_needed() -> None:
    """Queries ask for 1.15 processors, and for 1.7 in a burst that nobody could know of: what waits before it decides."""
    counts = [23] * 30 + [34] * 6 + [20] * 10
    queries = [simulated(f"q{n}", counts, 1, 3.0, (1, 4), unit=0.0125, incremental=False) for n in range(4)]
    early, late = (played(queries, discipline, KNOWN)[0] for discipline in (PlannedDiscipline(), LATE))
    assert early.violations < late.violations
    assert early.released >= 0.95 * late.released


def test_planned_takes_no_losses_early_where_all_are_allowed() -> None:
    """Without LOSS none is used up: none is taken before it must be."""
    queries = [
        simulated(f"q{n}", [23] * 30, 1, 3.0, (1, 1), unit=0.0125, incremental=False) for n in range(4)
    ]
    found = [played(queries, each, KNOWN)[0].queries for each in (PlannedDiscipline(), LATE)]
    for name, each in found[0].items():
        assert each.outcomes.tolist() == found[1][name].outcomes.tolist()


def test_planned_takes_no_loss_for_what_waits_for_one_long_order() -> None:
    """Beside orders of 1 s a cheap query's windows wait for more than half of their second, however few there are."""
    cheap = simulated("cheap", [1] * 40, 1, 1.2, (1, 4), unit=0.1, incremental=False)
    long = simulated("long", [1] * 40, 1, 12.0, (1, 8), unit=1.0, incremental=False)
    found = [played([cheap, long], each, KNOWN)[0].queries["cheap"] for each in (PlannedDiscipline(), LATE)]
    assert found[0].satisfaction >= found[1].satisfaction


def test_planned_measures_again_what_it_has_shed_for_long() -> None:
    query = simulated("q", [1] * 12, 1, 1.0, unit=0.5)
    wrong = DeadlineSettings(believed=UnitCosts(new=5.0))
    result, _, _ = played([query], PlannedDiscipline(), wrong)
    assert result.queries["q"].outcomes.tolist() == [Outcome.RELEASED] * 12
    shed, _, _ = played([query], PREDICTIVE, wrong)
    assert shed.released == 0, "without it, and without feedback, predictions that shed everything stay"


@pytest.mark.parametrize("processors", [2, 3])
def test_processors_share_the_queries(processors: int) -> None:
    queries = [simulated(f"q{n}", [1] * 9, 1, 1.0, unit=0.9, incremental=False) for n in range(processors)]
    for discipline in (PAPER, PlannedDiscipline()):
        result, _, _ = played(queries, discipline, KNOWN, processors)
        assert result.satisfaction == 1
        fewer, _, _ = played(queries, discipline, KNOWN, processors - 1)
        assert fewer.satisfaction == pytest.approx(1 - 1 / processors)


def test_planned_catches_up() -> None:
    """After a burst every instance takes longer than its deadline, from the last processed one and afresh: worked out to its end
    though late, it brings the query back."""
    counts = [1] * 6 + [9] * 3 + [1] * 40
    query = simulated("q", counts, 20, 2.0, unit=0.25, expired=0.25, first=1)
    known = DeadlineSettings(believed=UnitCosts(new=0.25, expired=0.25))
    result, _, controller = played([query], PlannedDiscipline(), known)
    late = [
        each.action
        for each in controller.story()
        if isinstance(each.action, StartOrder) and not each.action.firm
    ]
    assert 0 < len(late) < 12
    assert result.queries["q"].outcomes[-8:].tolist() == [Outcome.RELEASED] * 8
    lost, _, _ = played([query], PREDICTIVE, known)
    assert lost.queries["q"].outcomes[-8:].tolist() == [Outcome.SHED] * 8


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


def _views(number: int, seconds: float, together: float, deadline: float = 3.0) -> list[list[StartOrder]]:
    """The lots that are begun on two idle processors for so many views, each with a window of so many seconds."""
    policy = DeadlinePolicy(
        PlannedDiscipline(), DeadlineSettings(believed=UnitCosts(maintenance=seconds)), lambda: 0.0
    )
    for view in range(number):
        policy.handle(DeadlineBound(f"v{view}", 0, DeadlineQuery(f"v{view}", deadline)))
        policy.handle(InstanceCreated(f"v{view}", 0, 0, 0.0, WindowSpan(0, 1)))
    lots: dict[int, list[StartOrder]] = {}
    for action in policy.handle(ProcessorsIdle(2, together)):
        assert isinstance(action, StartOrder)
        lots.setdefault(action.lot, []).append(action)
    none = Lot(0, 0.0)
    running = other_processors(policy._queries.values(), [none], none, 0.0, together)
    assert len(running) == len(lots), "a lot is one processor"
    return list(lots.values())


def test_small_orders_that_are_due_together_share_a_lot() -> None:
    assert [len(each) for each in _views(30, 0.01, 0.25)] == [15, 15]
    assert [len(each) for each in _views(30, 0.01, 0.0)] == [1, 1]
    assert [len(each) for each in _views(30, 0.2, 0.25)] == [1, 1], "a second one would take longer"
    assert [len(each) for each in _views(30, 0.01, 0.25, deadline=0.4)] == [10, 10], "a quarter of the time"
    assert [len(each) for each in _views(30, 0.0, 0.25)] == [1, 1], "what is not known is tried by itself"


@pytest.mark.parametrize(("share", "least"), [(0.1, 40), (1.0, 0)])
def test_a_query_that_cannot_be_in_time_takes_little_from_the_others(share: float, least: int) -> None:
    """It is noticed when the processor is idle, shortly before the other one, which then would be late."""
    clock = [0.0]
    discipline = PlannedDiscipline(trial_share=1e-9, probe_share=share)
    policy = DeadlinePolicy(discipline, DeadlineSettings(), lambda: clock[0])
    for name, deadline in (("never", 1.0), ("in_time", 1.2)):
        policy.handle(DeadlineBound(name, 0, DeadlineQuery(name, deadline, incremental=False)))
    running: tuple[StartOrder, float] | None = None
    for tick in range(1_200):
        clock[0] = tick / 10
        if running is not None and clock[0] >= running[1]:
            order, running = running[0], None
            policy.handle(OrderEnded(order.stream, 0, order.number, 0.8, 0.0, 0.0, order.work, False))
        for name, offset, lag in (("never", 18, 0.4), ("in_time", 0, 0.0)):
            if tick % 20 == offset:
                span = WindowSpan(tick, tick + 1)
                policy.handle(InstanceCreated(name, 0, tick, clock[0] - lag, span, clock[0]))
        for action in policy.handle(ProcessorsIdle(running is None)):
            if isinstance(action, StartOrder):
                running = action, clock[0] + 0.8
    released = policy.standing("in_time").outcomes.released
    assert released >= least
    assert policy.standing("never").outcomes.missed > 3, "it is measured now and then"
    if not least:
        assert released < 35


def test_what_a_job_takes_beside_its_orders_does_not_keep_them_apart() -> None:
    """Each took 0.5 s alone, all but 0.02 s of it the job's."""
    clock = [0.0]
    policy = chosen_policy("planned", lambda: clock[0])
    names = [f"v{number}" for number in range(8)]
    for name in names:
        policy.handle(DeadlineBound(name, 0, DeadlineQuery(name, 5.0, incremental=False)))
    for number in range(2):
        for name in names:
            policy.handle(InstanceCreated(name, 0, number, clock[0], WindowSpan(0, 1)))
        lots = []
        while orders := policy.handle(ProcessorsIdle(1, 0.25)):
            lots.append(len(orders))
            clock[0] += 0.5
            for each in orders:
                assert isinstance(each, StartOrder)
                shared = 0.48 / len(orders)
                policy.handle(
                    OrderEnded(each.stream, 0, number, 0.02 + shared, 0.0, 0.0, each.work, False, shared)
                )
        assert lots == ([1] * 8 if number == 0 else [8])


@pytest.mark.parametrize("name", ["planned", "paper", "edf", "dbp", "dwcs", "best-effort"])
def test_windows_that_fit_because_they_share_a_job_share_it(name: str) -> None:
    """Fifty orders took 0.4 s each, as each had a job of its own. Two windows of each view are due then, in 1.2 s."""
    clock = [0.0]
    policy = chosen_policy(name, lambda: clock[0])
    names = [f"v{number}" for number in range(50)]
    for each in names:
        policy.handle(DeadlineBound(each, 0, DeadlineQuery(each, 3.0, incremental=False), "count"))
    for number in range(3):
        for each in names:
            policy.handle(InstanceCreated(each, 0, number, clock[0], WindowSpan(0, 1), clock[0]))
        if number == 0:
            while orders := policy.handle(ProcessorsIdle(1)):
                (order,) = orders
                assert isinstance(order, StartOrder)
                policy.handle(OrderEnded(order.stream, 0, 0, 0.4, 0.0, 0.0, order.work, False, 0.397))
        clock[0] += 0.5
    clock[0] += 0.8
    lots: dict[int, list[tuple[str, int]]] = {}
    for action in policy.handle(ProcessorsIdle(2, 0.25)):
        assert isinstance(action, StartOrder)
        lots.setdefault(action.lot, []).append((action.stream, action.number))
    assert [len(each) for each in lots.values()] == [50, 50]
    for lot in lots.values():
        own = {stream for stream, _ in lot}
        assert [each for each in lot if each[1] == 1] == lot[:25], "due first"
        assert [stream for stream, _ in lot[:25]] == [stream for stream, _ in lot[25:]]
        assert len(own) == 25, "the windows of a view are in one lot"


def test_an_idle_processor_tries_what_is_predicted_to_miss() -> None:
    """An order stalled once. The other processor works on something else, so nobody waits for this one."""
    clock = [0.0]
    policy = chosen_policy("planned", lambda: clock[0])
    for name, deadline in (("long", 600.0), ("short", 1.0)):
        policy.handle(DeadlineBound(name, 0, DeadlineQuery(name, deadline, incremental=False)))
    policy.handle(InstanceCreated("long", 0, 0, 0.0, WindowSpan(0, 1), 0.0))
    (order,) = policy.handle(ProcessorsIdle(2, 0.25))
    assert order.stream == "long"
    policy.handle(InstanceCreated("short", 0, 0, 0.0, WindowSpan(0, 1), 0.0))
    (order,) = policy.handle(ProcessorsIdle(1, 0.25))
    clock[0] = 1.0
    policy.handle(OrderAbandoned("short", 0, 0, 1.0))
    begun = []
    for number in range(1, 11):
        clock[0] = number + 0.1
        policy.handle(InstanceCreated("short", 0, number, float(number), WindowSpan(0, 1), clock[0]))
        for action in policy.handle(ProcessorsIdle(1, 0.25)):
            if isinstance(action, StartOrder):
                begun.append(action.number)
                clock[0] += 0.3
                policy.handle(OrderEnded("short", 0, number, 0.3, 0.0, 0.0, action.work, False))
    assert begun == list(range(begun[0], 11))
    assert begun[0] <= 3


def test_what_others_of_its_kind_took_predicts_a_view_of_which_nothing_was_measured() -> None:
    """Fifty views: two orders run alone, the others in lots, of half as many as they are predicted to have room for."""
    clock = [0.0]
    policy = chosen_policy("planned", lambda: clock[0])
    for number in range(50):
        kin = "count" if number < 49 else "dear"
        query = DeadlineQuery(f"v{number}", 8.0, incremental=False)
        policy.handle(DeadlineBound(query.name, 0, query, kin))
        policy.handle(InstanceCreated(query.name, 0, 0, clock[0], WindowSpan(0, 100)))
    lots: list[list[str]] = []
    while orders := policy.handle(ProcessorsIdle(1, 0.25)):
        lots.append([each.stream for each in orders if isinstance(each, StartOrder)])
        clock[0] += 0.1
        for each in orders:
            assert isinstance(each, StartOrder)
            assert bool(each.figures["predicted_seconds"]) == (len(lots) > 1 and each.stream != "v49")
            shared = 0.08 / len(orders)
            policy.handle(OrderEnded(each.stream, 0, 0, 0.01 + shared, 0.01, 0.0, each.work, False, shared))
    assert [len(each) for each in lots] == [1, 12, 12, 12, 12, 1]
    assert lots[-1] == ["v49"], "nothing is known of its kind"


def test_what_is_measured_of_a_view_counts_more_than_its_kind() -> None:
    clock = [0.0]
    policy = chosen_policy("planned", lambda: clock[0])
    for name in ("cheap", "dear", "new"):
        policy.handle(DeadlineBound(name, 0, DeadlineQuery(name, 60.0, incremental=False), "count"))
    predicted = {}
    for number in range(3):
        for name in ("cheap", "dear", "new") if number == 2 else ("cheap", "dear"):
            policy.handle(InstanceCreated(name, 0, number, clock[0], WindowSpan(0, 1)))
        while orders := policy.handle(ProcessorsIdle(1)):
            for each in orders:
                assert isinstance(each, StartOrder)
                predicted[each.stream] = each.figures["predicted_seconds"]
                seconds = 1.0 if each.stream == "cheap" else 3.0
                policy.handle(OrderEnded(each.stream, 0, number, seconds, 0.0, 0.0, each.work, False))
    assert (predicted["cheap"], predicted["dear"]) == (1.0, 3.0)
    assert 1.0 < float(predicted["new"]) < 3.0
    memory = policy.memory("new")
    assert memory.measured, "an order of it was measured"


def test_costs_of_its_kind_are_not_remembered_as_those_of_a_view() -> None:
    policy = chosen_policy("planned", lambda: 0.0)
    for name in ("known", "new"):
        policy.handle(DeadlineBound(name, 0, DeadlineQuery(name, 60.0, incremental=False), "count"))
    policy.handle(InstanceCreated("known", 0, 0, 0.0, WindowSpan(0, 1)))
    ((order),) = policy.handle(ProcessorsIdle(1))
    assert isinstance(order, StartOrder)
    policy.handle(OrderEnded("known", 0, 0, 1.0, 0.0, 0.0, order.work, False))
    memories = {name: policy.memory(name) for name in ("known", "new")}
    again = chosen_policy("planned", lambda: 100.0)
    for name, memory in memories.items():
        again.handle(DeadlineBound(name, 0, DeadlineQuery(name, 60.0, incremental=False), "count"))
        again.recall(name, memory)
    assert again.standing("new").costs.maintenance == 1.0, "by what is remembered of its kind"
    assert not again.memory("new").measured


def test_a_view_says_what_it_asks_for_by_what_its_orders_took() -> None:
    clock = [0.0]
    policy = chosen_policy("planned", lambda: clock[0])
    policy.handle(DeadlineBound("v", 0, DeadlineQuery("v", 3.0, LossConstraint(1, 4), incremental=False)))
    assert policy.standing("v").load is None
    for number in range(4):
        clock[0] = 2.0 * number + 0.5
        policy.handle(InstanceCreated("v", 0, number, 2.0 * number, WindowSpan(0, 1), clock[0]))
    assert policy.standing("v").load is None, "no order was measured"
    for action in policy.handle(ProcessorsIdle(1)):
        if isinstance(action, StartOrder):
            policy.handle(OrderEnded("v", 0, action.number, 0.8, 0.0, 0.0, action.work, False))
    load = policy.standing("v").load
    assert load is not None
    assert (load.k, load.m) == (1, 4)
    assert (load.asked, load.least, load.seconds, load.available) == pytest.approx((0.4, 0.3, 0.8, 2.5))
