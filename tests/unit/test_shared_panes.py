"""Views whose windows are due together keep partials together; each gets the rows it would get alone."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from log_places import log_at
from penstock.operators.deadlines.instances import Extent
from penstock.operators.routing.routers import HashRouter
from penstock.operators.runs.run import RunPlan
from penstock.plan.deadlines import DeadlineQuery, DeadlineView
from penstock.plan.windows import Aggregate, ErrorBound, WindowPlan, Windows
from penstock.spark.lanes.deadlines import orders
from penstock.spark.lanes.deadlines.kept_partials import KeptPartials
from penstock.spark.lanes.deadlines.orders import OrderReport, OrderTask, run_tasks
from penstock.spark.lanes.deadlines.working import shared_panes
from penstock.spark.log.entries import Entry
from penstock.spark.log.run_files import RunFiles
from penstock.spark.log.runs import write_run_file
from penstock.spark.log.stream_log import StreamLog
from penstock.spark.storage.bindings import WindowDefinition
from penstock.spark.storage.deadlines import RegisteredDeadline
from penstock.spark.storage.demands import TupleDemand
from penstock.spark.storage.layout import tuples_kind
from penstock.sql.windows.bind import BoundOutput, BoundWindow

MOMENT = pa.timestamp("us", "UTC")
WINDOW = pa.struct([("start", MOMENT), ("end", MOMENT)])
ENTRIES, SIZE = 12, 40
ROUTER = HashRouter((), 1)
SUM, LEAST = Aggregate("sum", "x", pa.int64()), Aggregate("min", "x", pa.int64())
SKETCH = Aggregate("approx_percentile", "x", pa.int64(), 0.5, 100)
VIEWS = ((Aggregate("count", None, pa.int64()),), (SUM,), (LEAST, SUM), (SKETCH,))
Views = dict[int, tuple[RegisteredDeadline, BoundWindow]]


def _views() -> Views:
    found: Views = {}
    for number, aggregates in enumerate(VIEWS):
        name = f"v{number}"
        plan = WindowPlan(
            name, "ts", Windows(SIZE, 10), (("k", pa.int64()),), aggregates, ErrorBound(0.1, 0.1)
        )
        outputs = [BoundOutput("_k0", "k", pa.int64()), BoundOutput("_w.start", "s", MOMENT)]
        outputs += [
            BoundOutput(f"_a{place}", f"a{place}", each.type) for place, each in enumerate(aggregates)
        ]
        view = DeadlineView(DeadlineQuery(name, 2.0), plan, (), late=False, columns=())
        demand = TupleDemand(None, (("k", "k"), ("x", "x")), (), "ts", ROUTER.document())
        registered = RegisteredDeadline(
            WindowDefinition(name, name, "", ()), "readings", view, demand, number, -1
        )
        found[number] = registered, BoundWindow(plan, (), None, WINDOW, tuple(outputs), having=None)
    return found


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFiles:
    """Tuples of which some have a sum that fits no 64 bits."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(orders, "KEPT", KeptPartials())
    log, rng, kind = StreamLog(log_at(tmp_path / "log")), np.random.default_rng(0), tuples_kind(0)
    log.path(kind, "").mkdir(parents=True)
    for number in range(ENTRIES):
        times = np.sort(rng.integers(number * 10, number * 10 + 15, 30))
        values = np.where(times == number * 10, 2**62, rng.integers(0, 99, 30))
        table = pa.table({"k": rng.integers(0, 3, 30), "x": values, "ts": pa.array(times, MOMENT)})
        write_run_file(log.path(kind, f"{number}.arrow"), table, RunPlan((), "ts", ROUTER))
        files = {kind: (f"{number}.arrow",)}
        assert log.append(Entry(number, number, 0, number, int(times[-1]), int(times[-1]), files=files))
    return RunFiles(log, 0)


def _said(report: OrderReport) -> tuple[Counter[str], int]:
    (results,) = report.results
    (file,) = results.left
    return Counter(map(repr, pq.read_table(file.path).to_pylist())), results.said.overflowed


def test_each_view_of_a_lot_gets_the_rows_it_would_get_alone(tmp_path: Path, log: RunFiles) -> None:
    views = _views()
    panes = shared_panes(views)
    overflowed = [0] * len(VIEWS)
    for place, entry in enumerate(range(4, ENTRIES)):
        start = place * 10
        runs = log.find(-1, entry)
        alone = [
            OrderTask(
                number,
                bound,
                (),
                Extent(start, start + SIZE, entry + 1),
                runs,
                tmp_path / f"{number}",
                deadline=None,
            )
            for number, (_, bound) in views.items()
        ]
        together = run_tasks([replace(task, panes=panes[task.number]) for task in alone])
        assert all(each.is_kept for each in together)
        for task, found in zip(alone, together, strict=True):
            (wanted,) = run_tasks([task])
            assert _said(found) == _said(wanted)
            overflowed[task.number] += _said(found)[1]
    assert overflowed[0] == overflowed[3] == 0 < overflowed[1]
    assert overflowed[2] == overflowed[1]


def test_windows_of_one_view_share_a_lot_and_have_files_of_their_own(tmp_path: Path, log: RunFiles) -> None:
    views, entry = _views(), 8
    panes = shared_panes(views)
    tasks = [
        OrderTask(
            number,
            bound,
            (),
            Extent(start, start + SIZE, entry + 1),
            log.find(-1, entry),
            tmp_path / f"{number}",
            deadline=None,
            panes=panes[number],
        )
        for start in (20, 30, 40)
        for number, (_, bound) in views.items()
    ]
    together = run_tasks(tasks)
    for task, found in zip(tasks, together, strict=True):
        (wanted,) = run_tasks([replace(task, panes=None)])
        assert _said(found) == _said(wanted)
        assert found.work is not None
        assert found.work.carried == (task.extent.start > 20)


def test_views_that_may_be_due_at_other_times_share_nothing() -> None:
    views = _views()
    panes = shared_panes(views)
    assert panes[0] is panes[1] is panes[2]
    assert panes[0].plan.aggregates == (*VIEWS[0], SUM, LEAST)
    assert panes[3].plan.aggregates == VIEWS[3], "a sketch may be large"
    registered, bound = views[0]
    query = replace(registered.view.query, deadline=3.0)
    others = (
        replace(registered, entry=4),
        replace(registered, stream="others"),
        replace(registered, demand=replace(registered.demand, condition="x > 1")),
        replace(registered, view=replace(registered.view, query=query)),
        replace(registered, view=replace(registered.view, waits=True)),
    )
    for other in others:
        found = shared_panes({**views, 0: (other, bound)})
        assert found[0].plan.aggregates == VIEWS[0]
        assert found[0].name != found[1].name
    assert shared_panes(views)[0].name != panes[0].name, "each start of the lane has its own"
