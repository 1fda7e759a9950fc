"""Views of a kind: small orders share a job, and what the others took predicts one of which nothing was measured."""

from __future__ import annotations

import pytest

from penstock.control.actions import (
    StartOrder,
)
from penstock.control.events import (
    DeadlineBound,
    InstanceCreated,
    OrderAbandoned,
    OrderEnded,
    ProcessorsIdle,
)
from penstock.control.policies.deadlines.choices import chosen_policy
from penstock.control.policies.deadlines.lots import Lot, other_processors
from penstock.control.policies.deadlines.planning import PlannedDiscipline
from penstock.control.policies.deadlines.policy import DeadlinePolicy, DeadlineSettings
from penstock.control.policies.deadlines.prediction import (
    UnitCosts,
)
from penstock.plan.deadlines import DeadlineQuery, LossConstraint, WindowSpan


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
