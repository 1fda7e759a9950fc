"""The ingest query's end of the log: nothing is passed over where a put fails, what is too late is known, what is old goes."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.operators.windows.aggregates import Parts
from penstock.operators.windows.shard import OperatorPlan, WindowProgram
from penstock.plan.times import AFTER_ALL, BEFORE_ALL
from penstock.plan.windows import Aggregate, ErrorBound, WindowPlan, Windows
from penstock.settings import Settings
from penstock.spark.log.ingest_log import IngestLog
from penstock.spark.log.stream_log import FINAL, PLAN, SEGMENT, Kept, LogReader
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.formats import LOG_KEPT
from penstock.spark.storage.layout import Layout
from penstock.stores.sqlite_ledger import SqliteLedger
from publishing import put_batch

OTHERS: dict[str, Callable[[IngestLog], object]] = {
    "idle": lambda log: log.put_idle(20),
    "all": lambda log: log.put_all(),
    "end": lambda log: log.put_end(),
    "whole": lambda log: log.put_whole((0,), {"partials": ["w"]}, 5),
    "batch": lambda log: put(log, 1),
}


COUNT = Aggregate("count", None, pa.int64())


def put(log: IngestLog, batch: int, plan: int = 0, files: Mapping[str, Sequence[str]] | None = None) -> None:
    named = {"partials": [f"{batch}.parquet"]} if files is None else files
    put_batch(log, batch, plan, batch, batch, batch, batch, named)


def program(version: int, **views: int | None) -> WindowProgram:
    """Window views of 10 microseconds, an operator each: `v3=7` is that of operator 3, its windows until 7 were over before it."""
    plans = []
    for name, floor in views.items():
        view = WindowPlan(name, "ts", Windows(10, 10), (), (COUNT,), ErrorBound(0.1, 0.1))
        floors = () if floor is None else ((name, floor),)
        plans.append(OperatorPlan(int(name[1:]), (view,), Parts.of(view.aggregates), 10, floor, floors))
    return WindowProgram(version, tuple(plans), 0, 0)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    made = Layout.of(tmp_path / "out", None)
    made.open()
    return made


@pytest.mark.parametrize("other", OTHERS)
def test_a_batch_is_in_the_log_whatever_put_failed_before_it(
    other: str, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = IngestLog(layout, "s", Settings(), EventLog(layout.events))
    log.store_program(WindowProgram(0, (), 0, 0), is_read=True)
    put(log, 0)

    commit = SqliteLedger.commit

    def commit_and_fail(ledger: SqliteLedger, *changes: Any, **named: Any) -> None:
        commit(ledger, *changes, **named)
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(SqliteLedger, "commit", commit_and_fail)
        with pytest.raises(OSError, match="Input/output error"):
            OTHERS[other](log)
    put(log, 1)
    put(log, 2)
    log.close()
    reader = LogReader(layout.log("s"))
    newest = reader.newest()
    assert newest is not None
    named = [name for entry in reader.between(-1, newest.number) for name in entry.files.get("partials", ())]
    assert [name for name in named if name != "w"] == ["0.parquet", "1.parquet", "2.parquet"]


def test_what_was_all_there_is_is_so_no_more_in_another_run(layout: Layout) -> None:
    """Who reads the log finds there that more may come, and at the end of each run that nothing does."""
    for run in range(2):
        log = IngestLog(layout, "s", Settings(), EventLog(layout.events))
        assert log.put_more() is (run > 0)
        assert not log.put_more()
        if not run:
            assert not log.put_all(), "no batch ever came"
            log.store_program(WindowProgram(0, (), 0, 0), is_read=True)
            put(log, 0)
            assert not log.put_more()
        assert log.put_all()
        assert not log.put_all()
        log.close()
    found = LogReader(layout.log("s")).between(-1, 3)
    assert [entry.answer_all for entry in found] == [False, True, False, True]
    assert [(entry.batch, entry.newest) for entry in found] == [(0, 0)] * 4
    log = IngestLog(layout, "s", Settings(), EventLog(layout.events))
    log.put_end()
    log.close()
    assert not IngestLog(layout, "s", Settings(), EventLog(layout.events)).put_more()


def test_what_is_too_late_is_known_over_a_change_of_plan(layout: Layout) -> None:
    """Before the windows say how far they are final by the new plan: a view that begins needs nothing of what was over then."""
    before = IngestLog(layout, "s", Settings(), EventLog(layout.events))
    for version, views in enumerate(
        ({"v0": None, "v1": 0}, {"v0": None, "v1": 0}, {"v1": 0}, {"v1": 0, "v2": 95}, {"v1": 0, "v3": None})
    ):
        before.store_program(program(version, **views))
    put(before, 0)
    before.close()
    LOG_KEPT.replace(layout.log("s").kept, Kept(before=100).document())
    log = IngestLog(layout, "s", Settings(), EventLog(layout.events))
    reader = LogReader(layout.log("s"))

    def limits(final: int, plan: int) -> list[int]:
        reader.put_mark("windows", 0, **{FINAL: final, PLAN: plan})
        return [log.too_late_before(version) for version in range(5)]

    assert limits(90, 0)[:4] == [90, 90, 90, 85]
    assert limits(80, 0)[:4] == [80, 80, 80, 80]
    assert limits(120, 0)[:4] == [100, 100, 100, 85]
    assert limits(120, 0)[4] <= BEFORE_ALL, "a view of which every window is answered may need any tuple"
    assert limits(AFTER_ALL, -1)[3] == -10, "of no view it is known how far it is final"
    assert limits(120, 3)[3] == 100, "the views of the new plan are final up to there"
    reader.leave("windows")
    reader.put_mark("join", 0)
    assert log.too_late_before(0) == BEFORE_ALL, "nobody says that anything is final"


def test_history_goes_on_while_a_stream_is_silent(layout: Layout) -> None:
    """What is about to go is announced by entries that bring nothing, too."""
    reader = LogReader(layout.log("s"))
    log = IngestLog(layout, "s", Settings(history_seconds=0), EventLog(layout.events))
    log.store_program(program(0, v0=None))
    for number in range(6 * SEGMENT):
        if number < 3 * SEGMENT:
            put(log, number, files={})
        else:
            assert log.put_idle(10 * number)
        reader.put_mark("windows", number - 1, **{FINAL: AFTER_ALL, PLAN: 0})
        if number % SEGMENT == 0:
            # what is merged and removed beside has been by now
            log.close()
            log = IngestLog(layout, "s", Settings(history_seconds=0), EventLog(layout.events))
    log.close()
    assert reader.first >= 3 * SEGMENT, "nothing is left of what it brought"


def test_window_views_of_plans_that_the_log_has_left_behind_go(layout: Layout) -> None:
    """Of each operator the last version stays: a view that comes back begins where it was last answered."""
    reader = LogReader(layout.log("s"))
    every = [
        {"v0": None},
        {"v0": None, "v1": 0},
        {"v1": 0},
        {"v1": 0},
        {"v1": 0},
        {"v1": 0},
        {"v1": 0, "v2": 9},
    ]
    for plan, views in enumerate(every):
        log = IngestLog(layout, "s", Settings(history_seconds=0), EventLog(layout.events))
        log.store_program(program(plan, **views))
        for batch in range(plan * SEGMENT, (plan + 1) * SEGMENT):
            put(log, batch, plan, {})
            reader.put_mark("windows", batch - 1, **{FINAL: AFTER_ALL, PLAN: plan})
            if log._tidying is not None:
                # while one look at what can leave goes on, the next is left out
                log._tidying.join()
        log.close()
    assert reader.first > 4 * SEGMENT
    last_gone = reader.first // SEGMENT - 1
    # that of the last entry that went is that of the state of a reader that has not gone on
    assert layout.programs("s").numbers() == [1, *range(last_gone, len(every))]
