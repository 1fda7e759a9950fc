"""Windows of a view that share a lot: in which order they are settled, and what is known of their costs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.control.actions import Action, GiveUpInstance, ReportViolation, StartOrder
from penstock.control.events import DeadlineBound, InstanceCreated, OrderEnded, ProcessorsIdle
from penstock.control.policies.deadlines.disciplines import PAPER, PREDICTIVE, Discipline
from penstock.control.policies.deadlines.planning import PlannedDiscipline
from penstock.control.policies.deadlines.policy import DeadlinePolicy, DeadlineSettings
from penstock.control.policies.deadlines.prediction import CostPredictor, PredictionSettings, UnitCosts
from penstock.plan.deadlines import DeadlineQuery, LossConstraint, WindowSpan, WindowWork

#: tuples of windows that take 10 ms, and 5 s
SMALL, LARGE = 10_000, 5_000_000
SPAN, WORK = WindowSpan(0, 1), WindowWork(1, 0, carried=False)
KNOWN = DeadlineSettings(believed=UnitCosts(new=1e-6))

DISCIPLINES = pytest.mark.parametrize("discipline", [PlannedDiscipline, lambda: PAPER, lambda: PREDICTIVE])


def _settled(
    discipline: Discipline, query: DeadlineQuery, windows: list[int]
) -> tuple[DeadlinePolicy, list[Action]]:
    """What becomes of windows of a view, of so many tuples each, that wait together for one processor."""
    clock = [0.0]
    policy = DeadlinePolicy(discipline, KNOWN, lambda: clock[0])
    policy.handle(DeadlineBound("v", 0, query))
    for number, tuples in enumerate(windows, 1):
        first = sum(windows[: number - 1])
        policy.handle(InstanceCreated("v", 0, number, 0.0, WindowSpan(first, first + tuples)))
    told: list[Action] = []
    while actions := policy.handle(ProcessorsIdle(1, 0.25)):
        told += actions
        for each in actions:
            if isinstance(each, StartOrder):
                seconds = 1e-6 * each.work.new
                clock[0] += seconds
                told += policy.handle(
                    OrderEnded("v", 0, each.number, seconds, seconds, 0.0, each.work, False)
                )
    return policy, told


@DISCIPLINES
def test_windows_of_a_view_are_settled_in_order(discipline: Callable[[], Discipline]) -> None:
    query = DeadlineQuery("v", 2.0, LossConstraint(1, 2), incremental=False)
    policy, told = _settled(discipline(), query, [LARGE, SMALL, LARGE, SMALL])
    assert [(type(each), each.number) for each in told if not isinstance(each, ReportViolation)] == [  # type: ignore[attr-defined]
        (GiveUpInstance, 1),
        (StartOrder, 2),
        (GiveUpInstance, 3),
        (StartOrder, 4),
    ]
    assert policy.standing("v").violations == 0, "one of any two is in time"
    assert not any(isinstance(each, ReportViolation) for each in told)


@DISCIPLINES
def test_an_order_of_another_view_sheds_nothing_behind_one_that_runs(
    discipline: Callable[[], Discipline],
) -> None:
    policy = DeadlinePolicy(discipline(), KNOWN, lambda: 0.0)
    windows = {"v": [WindowSpan(0, SMALL), WindowSpan(SMALL, LARGE)], "w": [WindowSpan(0, SMALL)]}
    for name, spans in windows.items():
        policy.handle(DeadlineBound(name, 0, DeadlineQuery(name, 2.0, incremental=False)))
        for number, span in enumerate(spans):
            policy.handle(InstanceCreated(name, 0, number, 0.0, span))
    begun = policy.handle(ProcessorsIdle(1, 0.25))
    assert {each.stream for each in begun if isinstance(each, StartOrder)} == {"v", "w"}
    assert len(begun) == 2
    for each in begun:
        assert isinstance(each, StartOrder)
        policy.handle(OrderEnded(each.stream, 0, 0, 0.01, 0.01, 0.0, each.work, False))
    assert [type(each) for each in policy.handle(ProcessorsIdle(1, 0.25))] == [GiveUpInstance]


@DISCIPLINES
def test_a_large_window_behind_a_small_one_of_its_view_is_sampled(
    discipline: Callable[[], Discipline],
) -> None:
    query = DeadlineQuery("v", 2.0, LossConstraint(1, 2), approximate=True, incremental=False)
    policy, told = _settled(discipline(), query, [SMALL, LARGE, SMALL])
    begun = [(each.number, each.sample > 0) for each in told if isinstance(each, StartOrder)]
    assert begun == [(1, False), (2, True), (3, False)]
    outcomes = policy.standing("v").outcomes
    assert (outcomes.released, outcomes.approximated, outcomes.shed) == (2, 1, 0)


def _of_a_quick_kind() -> CostPredictor:
    """Of a view of a kind whose orders take 35 ms."""
    settings, costs = PredictionSettings(), UnitCosts()
    kin = CostPredictor(DeadlineQuery("kin", 2.0), settings, costs)
    for _ in range(100):
        kin.measured(10.0, WORK, 0.035, (0.0, 0.0, 0.035))
    return CostPredictor(DeadlineQuery("v", 2.0), settings, costs, kin)


@pytest.mark.parametrize("ends", [True, False])
def test_a_view_that_is_abandoned_again_and_again_is_not_predicted_by_its_kin(ends: bool) -> None:
    view = _of_a_quick_kind()
    if ends:
        view.measured(10.0, WORK, 0.035, (0.0, 0.0, 5.0))
    else:
        view.bounded(10.0, WORK, 0.035, 2.0)
    view.bounded(11.0, WORK, 0.035, 0.01)
    predicted = view.predict(SPAN, None)[0]
    assert predicted < 0.1, "one order alone may have been that of a cold machine"
    view.bounded(12.0, WORK, predicted, 2.0)
    assert view.predict(SPAN, None)[0] > 2.0


def test_a_view_whose_first_order_is_abandoned_early_is_still_predicted_by_its_kin() -> None:
    view = _of_a_quick_kind()
    view.bounded(10.0, WORK, 0.035, 0.01)
    assert view.predict(SPAN, None)[0] == pytest.approx(0.035)
    assert view.is_by_kin


@pytest.mark.parametrize("first", ["alone", "together"])
def test_views_of_a_kind_are_predicted_after_a_restart_as_before(first: str) -> None:
    """One view was measured alone in its lots, another in lots of ten."""
    beside = {"alone": 0.3, "together": 0.03}
    policies = [DeadlinePolicy(PAPER, DeadlineSettings(), lambda: 0.0) for _ in range(2)]
    for policy in policies:
        for name in beside:
            policy.handle(DeadlineBound(name, 0, DeadlineQuery(name, 2.0, incremental=False), "count"))
    for name, seconds in beside.items():
        policies[0].handle(InstanceCreated(name, 0, 0, 0.0, SPAN))
        policies[0].handle(ProcessorsIdle(1))
        orders = 1 if name == "alone" else 10
        policies[0].handle(
            OrderEnded(name, 0, 0, 0.005 + seconds, 0.0, 0.0, WORK, beside_seconds=seconds, together=orders)
        )
    for name in sorted(beside, key=lambda each: each != first):
        policies[1].recall(name, policies[0].memory(name))
    for name in beside:
        costs = policies[1].standing(name).costs
        assert costs.maintenance - beside[first] == pytest.approx(0.005)


def test_a_job_is_measured_anew_where_it_was_remembered_of_no_lots() -> None:
    view = CostPredictor(DeadlineQuery("v", 2.0), PredictionSettings(), UnitCosts())
    view.recall(0.0, UnitCosts(maintenance=0.305), {"rest": 1.525, "orders": 5.0, "beside": 1.5})
    assert view.predict(SPAN, None)[0] == pytest.approx(0.305)
    view.measured(0.0, WORK, 0.305, (0.0, 0.0, 0.305), beside=0.3, lots=1.0)
    assert view.job == pytest.approx(0.3)
    assert view.predict(SPAN, None)[0] == pytest.approx(0.305)
