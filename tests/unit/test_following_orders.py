"""Orders that go on from the one before them in their lot have the same rows where each runs by itself."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from log_places import log_at
from penstock.operators.deadlines.aggregates import user_aggregate
from penstock.operators.deadlines.instances import CalledAggregate, Extent
from penstock.operators.routing.routers import HashRouter
from penstock.operators.runs.run import RunPlan
from penstock.plan.windows import Aggregate, ErrorBound, WindowPlan, Windows
from penstock.spark.lanes.deadlines import running
from penstock.spark.lanes.deadlines.ledger import Instance
from penstock.spark.lanes.deadlines.orders import OrderReport, OrderTask, run_tasks
from penstock.spark.lanes.deadlines.running import RunningOrder, RunningOrders, Worked
from penstock.spark.log.entries import Entry
from penstock.spark.log.run_files import RunFiles
from penstock.spark.log.runs import write_run_file
from penstock.spark.log.stream_log import StreamLog
from penstock.spark.storage.layout import tuples_kind
from penstock.sql.windows.bind import BoundOutput, BoundWindow

MOMENT = pa.timestamp("us", "UTC")
WINDOW = pa.struct([("start", MOMENT), ("end", MOMENT)])
WINDOWS, SLIDE, SIZE = 3, 10, 40


class Counted:
    """Counts values."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, values: pa.Array) -> None:
        self.count += len(values)

    def remove(self, values: pa.Array) -> None:
        self.count -= len(values)

    def result(self) -> int:
        return self.count


CALLS = (CalledAggregate(user_aggregate("counted", Counted, pa.int64(), "BIGINT"), ("x",)),)


def _runs(folder: Path) -> RunFiles:
    log, rng, kind = StreamLog(log_at(folder)), np.random.default_rng(0), tuples_kind(0)
    log.path(kind, "").mkdir(parents=True)
    times = np.sort(rng.integers(0, 80, 200))
    table = pa.table({"k": rng.integers(0, 3, 200), "x": times, "ts": pa.array(times, MOMENT)})
    write_run_file(log.path(kind, "0.arrow"), table, RunPlan((), "ts", HashRouter((), 1)))
    log.append(Entry(0, 0, 0, 0, int(times[-1]), int(times[-1]), files={kind: ("0.arrow",)}))
    return RunFiles(log, 0)


def _lot(folder: Path, calls: tuple[CalledAggregate, ...]) -> list[OrderTask]:
    aggregates = () if calls else (Aggregate("count", None, pa.int64()),)
    bound = ErrorBound(0.1, 0.1)
    plan = WindowPlan("v", "ts", Windows(SIZE, SLIDE), (("k", pa.int64()),), aggregates, bound)
    outputs = BoundOutput("_k0", "k", pa.int64()), BoundOutput("_a0", "n", pa.int64())
    view = BoundWindow(plan, (), None, WINDOW, outputs, having=None)
    runs = _runs(folder / "log").find(-1, 0)
    return [
        OrderTask(
            0,
            view,
            calls,
            Extent(place * SLIDE, place * SLIDE + SIZE, 1),
            runs,
            folder / "staged",
            deadline=None,
            follows=bool(calls) and place > 0,
        )
        for place in range(WINDOWS)
    ]


def _rows(report: OrderReport) -> dict[int, int]:
    (results,) = report.results
    (file,) = results.left
    return {row["k"]: row["n"] for row in pq.read_table(file.path).to_pylist()}


@pytest.mark.parametrize("failing", [None, 0, 1])
def test_orders_of_a_view_that_run_by_themselves_are_worked_out_afresh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int | None
) -> None:
    monkeypatch.setattr(running, "CellJobs", lambda *_, **__: SimpleNamespace(cancel=lambda: None))
    wanted = [_rows(each) for each in run_tasks(_lot(tmp_path / "exact", ()))]
    lot = _lot(tmp_path, CALLS)
    together = run_tasks(lot)
    assert [_rows(each) for each in together] == wanted
    assert [each.work is not None and each.work.carried for each in together] == [False, True, True]

    def work(_: Any, tasks: Sequence[OrderTask]) -> list[Worked]:
        if len(tasks) > 1 or (failing is not None and tasks[0] is lot[failing]):
            raise OSError("a worker died")
        return [
            Worked(report, task.staging, ()) for task, report in zip(tasks, run_tasks(tasks), strict=True)
        ]

    now = time.time()
    orders = RunningOrders(None, "lane", lambda: 1, work, lambda: None)  # type: ignore[arg-type]
    orders.start([RunningOrder(Instance(0, 0, 0, 0, now, now, now + 60), {}, now + 60, task) for task in lot])
    ended = []
    while orders.count:
        ended += orders.ended()
        time.sleep(0.01)
    orders.close()
    assert [each.worked is None for each in ended] == [place == failing for place in range(WINDOWS)]
    for each, rows in zip(ended, wanted, strict=True):
        if each.worked is not None:
            assert _rows(each.worked.report) == rows
            assert each.worked.report.work is not None
            assert not each.worked.report.work.carried
