"""Orders of a lot run in one job; one that makes the job fail costs the others nothing but time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.spark.lanes.deadlines import running
from penstock.spark.lanes.deadlines.ledger import Instance
from penstock.spark.lanes.deadlines.orders import DONE, OrderReport
from penstock.spark.lanes.deadlines.running import EndedOrder, RunningOrder, RunningOrders, Worked


@pytest.fixture(autouse=True)
def _jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "CellJobs", lambda *_, **__: SimpleNamespace(cancel=lambda: None))


def _order(task: Any) -> RunningOrder:
    now = time.time()
    return RunningOrder(Instance(0, 0, 0, 0, now, now, now + 60), {}, now + 60, task)


def _all(orders: RunningOrders) -> list[EndedOrder]:
    found: list[EndedOrder] = []
    until = time.monotonic() + 10
    while orders.count and time.monotonic() < until:
        found += orders.ended()
        time.sleep(0.01)
    orders.close()
    return found


def test_a_lot_is_one_job_and_its_time_is_shared() -> None:
    calls: list[int] = []

    def work(_: Any, tasks: Sequence[Any]) -> list[Worked]:
        calls.append(len(tasks))
        time.sleep(0.4)
        return [Worked(OrderReport(DONE, each), None, ()) for each in tasks]  # type: ignore[arg-type]

    orders = RunningOrders(None, "lane", lambda: 2, work, lambda: None)  # type: ignore[arg-type]
    orders.start([_order(0.1), _order(0.2)])
    assert (orders.count, orders.idle) == (1, 1)
    first, second = _all(orders)
    assert calls == [2]
    assert second.seconds - first.seconds == pytest.approx(0.1)
    assert 0.4 <= first.seconds + second.seconds < 1
    assert first.together == 2


def test_a_divided_order_takes_its_processors_until_it_has_come_back() -> None:
    goes_on = Event()

    def work(_: Any, tasks: Sequence[Any]) -> list[Worked]:
        goes_on.wait(10)
        return [Worked(OrderReport(DONE, 0.0), None, ()) for _ in tasks]  # type: ignore[arg-type]

    orders = RunningOrders(None, "lane", lambda: 4, work, lambda: None)  # type: ignore[arg-type]
    orders.start([_order("large")], 3)
    assert (orders.count, orders.idle) == (1, 1)
    orders.start([_order("small")])
    assert (orders.count, orders.idle) == (2, 0)
    goes_on.set()
    assert len(_all(orders)) == 2
    assert orders.idle == 4


def test_processors_come_and_go_while_orders_run() -> None:
    goes_on, most = Event(), [1]

    def work(_: Any, tasks: Sequence[Any]) -> list[Worked]:
        goes_on.wait(10)
        return [Worked(OrderReport(DONE, 0.0), None, ()) for _ in tasks]  # type: ignore[arg-type]

    orders = RunningOrders(None, "lane", lambda: most[0], work, lambda: None)  # type: ignore[arg-type]
    orders.start([_order("first")])
    assert orders.idle == 0
    most[0] = 4
    assert (orders.most, orders.idle) == (4, 3)
    orders.start([_order("large")], 3)
    most[0] = 2
    assert (orders.most, orders.idle) == (2, 0)
    goes_on.set()
    assert len(_all(orders)) == 2, "each had a thread"
    assert orders.idle == 2


def test_where_a_job_of_several_fails_each_runs_by_itself() -> None:
    def work(_: Any, tasks: Sequence[Any]) -> list[Worked]:
        if "bad" in tasks:
            raise OSError("a worker died")
        return [Worked(OrderReport(DONE, 0.0), None, ()) for _ in tasks]  # type: ignore[arg-type]

    orders = RunningOrders(None, "lane", lambda: 1, work, lambda: None)  # type: ignore[arg-type]
    orders.start([_order("good"), _order("bad"), _order("well")])
    assert [each.error is None for each in _all(orders)] == [True, False, True]
