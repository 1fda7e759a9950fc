"""A view with a deadline follows the log of its stream, over restarts, and with what is needed no more gone."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from disordered import Disordered, few_late
from log_places import log_at
from penstock.operators.deadlines.instances import Extent
from penstock.operators.deadlines.run_tuples import tuples_of
from penstock.operators.joins.tuples import RunSlice
from penstock.operators.routing.routers import HashRouter
from penstock.operators.runs.run import RunPlan
from penstock.plan.deadlines import DeadlineQuery, DeadlineView
from penstock.plan.windows import Aggregate, ErrorBound, WindowPlan, Windows
from penstock.settings import Settings
from penstock.spark.lanes.deadlines.following import DemandTuples, FollowedView, ViewStands
from penstock.spark.lanes.deadlines.ledger import Instance
from penstock.spark.log.entries import Entry
from penstock.spark.log.followed import FollowedLog
from penstock.spark.log.runs import write_run_file
from penstock.spark.log.segments import Segments
from penstock.spark.log.stream_log import SEGMENT, StreamLog
from penstock.spark.storage.bindings import WindowDefinition
from penstock.spark.storage.codec import Codec
from penstock.spark.storage.deadlines import RegisteredDeadline
from penstock.spark.storage.demands import TupleDemand
from penstock.spark.storage.layout import tuples_kind

KIND = tuples_kind(0)
ENTRIES = 5 * SEGMENT
ROUTER = HashRouter((), 1)
PLAN = WindowPlan(
    "v",
    "ts",
    Windows(60, 25, 5),
    (("k", pa.string()),),
    (Aggregate("avg", "x", pa.float64()),),
    ErrorBound(0.05, 0.2),
)


def _registered(*, waits: bool) -> RegisteredDeadline:
    view = DeadlineView(DeadlineQuery("v", 2.0), PLAN, (), late=False, columns=(), waits=waits)
    demand = TupleDemand(None, (), (), "ts", ROUTER.document())
    return RegisteredDeadline(WindowDefinition("v", "1", "", ()), "stream", view, demand, 0, -1)


def _written(folder: Path) -> StreamLog:
    log = StreamLog(log_at(folder))
    log.path(KIND, "").mkdir(parents=True)
    furthest = 0
    for each in Disordered.drawn(4, ENTRIES, 5, few_late).brought:
        table = each.tuples.columns.append_column(
            "ts", pa.array(each.tuples.times, pa.timestamp("us", "UTC"))
        )
        name = f"{each.entry}.arrow"
        order = np.argsort(each.tuples.times, kind="stable")
        write_run_file(log.path(KIND, name), table.take(pa.array(order)), RunPlan((), "ts", ROUTER))
        furthest = max(furthest, int(each.tuples.times.max()))
        files, clock = {KIND: (name,)}, each.entry * 1_000_000
        assert log.append(
            Entry(
                each.entry,
                each.entry,
                0,
                clock,
                each.newest,
                furthest,
                each.delays,
                files,
                kept_before=furthest,
            )
        )
    return log


def _with_a_silence(folder: Path) -> StreamLog:
    """Tuples at 5 and 12, silence to 62, then what was held back meanwhile."""
    log = StreamLog(log_at(folder))
    log.path(KIND, "").mkdir(parents=True)
    newest = 0
    for number, (times, reached) in enumerate(
        [([5, 12], None), ([], 42), ([], 62), ([15, 25, 35, 45, 55], None), ([71], None)]
    ):
        newest, files = max([newest, *times]), {}
        if times:
            columns = {"k": ["a"] * len(times), "x": [1.0] * len(times)}
            table = pa.table({**columns, "ts": pa.array(times, pa.timestamp("us", "UTC"))})
            write_run_file(log.path(KIND, f"{number}.arrow"), table, RunPlan((), "ts", ROUTER))
            files = {KIND: (f"{number}.arrow",)}
        entry = Entry(number, number, 0, number * 1_000_000, newest, newest, files=files, reached=reached)
        assert log.append(entry)
    return log


def _followed(
    log: StreamLog, stands: ViewStands | None, kept_after: int, *, waits: bool, plan: WindowPlan = PLAN
) -> FollowedView:
    reader = FollowedLog(log.log)
    return FollowedView(
        _registered(waits=waits),
        plan,
        reader,
        DemandTuples(reader, 0),
        lambda: 0,
        stands,
        kept_after,
        Settings(),
    )


def _tuples_for_orders(view: FollowedView, instance: Instance) -> int:
    slices = [RunSlice(each.run, each.after, each.until) for each in view.runs(instance, {}).open()]
    return len(tuples_of(slices, (), [Extent(instance.start, instance.end, instance.entry + 1)]).times)


@pytest.mark.parametrize("waits", [True, False])
def test_restarts_and_the_tidying_of_the_log_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    log = _written(tmp_path / "log")
    view = _followed(log, None, -1, waits=waits)
    wanted = [
        (each, span.tuples) for entry in log.between(-1, ENTRIES - 1) for each, span in view.take_in(entry)
    ]
    assert len(wanted) > 50
    tidier, codec = Segments(log_at(tmp_path / "log"), 0.0, 0, lambda: 1 << 50), Codec(ViewStands)
    rng = np.random.default_rng(0)
    found: dict[int, tuple[Instance, int]] = {}
    view, number, mark = _followed(log, None, -1, waits=waits), -1, -1
    assert log.join("lane") == -1
    while number < ENTRIES - 1:
        until = min(ENTRIES - 1, number + int(rng.integers(1, 50)))
        entries, in_segments = log.between(number, until), log.segment_end(log.log.segments.last)
        for entry in entries:
            for each, span in view.take_in(entry, in_segments):
                assert found.setdefault(each.end, (each, span.tuples)) == (each, span.tuples)
        for end in rng.permutation(sorted(view.open))[int(rng.integers(0, 3)) :].tolist():
            del view.open[end]
        number, stands = until, view.stands
        assert stands is not None
        stands = codec.value(json.loads(json.dumps(codec.document(stands))))
        mark = view.first_needed(until) - 1
        log.put_mark("lane", mark)
        view.kept_after = mark
        tidier.tidy()
        if rng.random() < 0.5:
            left, view = dict(view.open), _followed(log, stands, mark, waits=waits)
            again = [
                (each, span.tuples)
                for entry in log.between(mark, until)
                for each, span in view.take_in(entry)
            ]
            assert {each.end for each, _ in again} == left.keys() == view.open.keys()
            assert all(found[each.end] == (each, tuples) for each, tuples in again)
    assert list(found.values()) == wanted
    assert log.first > 0, "what is needed no more is gone"
    waited = [each.slack for each, _ in wanted[len(wanted) // 2 :]]
    assert (np.mean(waited) > 20) == waits


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("stop", [0, 1, 2, 3, 4])
def test_what_comes_after_a_silence_is_in_windows(tmp_path: Path, stop: int, waits: bool) -> None:
    """Only the window that was open is cut off; the next ones are created when tuples pass their end, over a restart too."""
    log, codec = _with_a_silence(tmp_path / "log"), Codec(ViewStands)
    plan = replace(PLAN, windows=Windows(10, 10))
    view = _followed(log, None, -1, waits=waits, plan=plan)
    found = {each.end: each for entry in log.between(-1, stop) for each, _ in view.take_in(entry)}
    stands = codec.value(json.loads(json.dumps(codec.document(view.stands))))
    mark = view.first_needed(stop) - 1
    view = _followed(log, stands, mark, waits=waits, plan=plan)
    for entry in log.between(mark, 4):
        for each, _ in view.take_in(entry):
            assert found.setdefault(each.end, each) == each
    assert sorted(found) == [10, 20, 30, 40, 50, 60]
    assert found[20].entry == 1
    assert _tuples_for_orders(view, found[20]) == 1
    assert all(
        found[end].entry in (3, 4) and _tuples_for_orders(view, found[end]) == 1 for end in (30, 40, 50, 60)
    )
    assert {each.coverage for each in found.values()} == {None}


@pytest.mark.parametrize(
    ("most", "waits"),
    [
        (7, False),
        (64, True),
        pytest.param(7, True, marks=pytest.mark.long),
        pytest.param(64, False, marks=pytest.mark.long),
    ],
)
def test_marks_while_entries_are_read_again_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, waits: bool
) -> None:
    """Windows as long as 150 entries, a mark after every few, and restarts at some of them, so that one is read again in parts."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    log, codec = _written(tmp_path / "log"), Codec(ViewStands)
    plan = replace(PLAN, windows=Windows(750, 25, 5))
    view = _followed(log, None, -1, waits=waits, plan=plan)
    wanted = {
        each.end: (each, span.tuples)
        for entry in log.between(-1, ENTRIES - 1)
        for each, span in view.take_in(entry)
    }
    rng, settled = np.random.default_rng(0), set[int]()
    view, number, restarts = _followed(log, None, -1, waits=waits, plan=plan), -1, 0
    while number < ENTRIES - 1:
        until = min(ENTRIES - 1, number + int(rng.integers(1, most + 1)))
        for entry in log.between(number, until):
            for each, span in view.take_in(entry):
                assert each.end not in settled
                assert (each, span.tuples) == wanted[each.end]
        number = until
        for end in sorted(view.open)[: -int(rng.integers(1, 4))]:
            assert _tuples_for_orders(view, view.open[end]) == wanted[end][1]
            settled.add(end)
            del view.open[end]
        assert view.stands is not None
        stands = codec.value(json.loads(json.dumps(codec.document(view.stands))))
        mark = view.kept_after = view.first_needed(until) - 1
        if restarts < 12 and rng.random() < 0.2:
            number, restarts = mark, restarts + 1
            view = _followed(log, stands, mark, waits=waits, plan=plan)
    assert restarts > 1
    assert settled | view.open.keys() == wanted.keys()
