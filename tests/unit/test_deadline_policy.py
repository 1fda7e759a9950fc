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
from penstock.control.policies.deadlines.allowance import CurrentConstraint
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
from penstock.control.policies.deadlines.feedback import FeedbackSettings
from penstock.control.policies.deadlines.planning import PlannedDiscipline
from penstock.control.policies.deadlines.policy import DeadlinePolicy, DeadlineSettings
from penstock.control.policies.deadlines.prediction import PredictionSettings, UnitCosts, expiration_factor
from penstock.optimizer.averages import AveragingSettings
from penstock.plan.deadlines import DeadlineQuery, LossConstraint, WindowSpan, WindowWork, carried_work
from penstock.simulate.deadlines import Outcome

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
    instance = Instance(0, 0.0, deadline, WindowSpan(0, 1), arrival)
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
    feedback = FeedbackSettings(period=10.0, step=0.1)
    shell = Shell(PREDICTIVE, DeadlineSettings(feedback=feedback, believed=UnitCosts(new=1.0)))
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


def test_rho_follows_what_was_shed() -> None:
    feedback = FeedbackSettings(period=10.0, step=0.25)
    shell = Shell(PREDICTIVE, DeadlineSettings(feedback=feedback, believed=UnitCosts(new=1.0)))
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
