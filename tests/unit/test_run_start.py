"""A run that cannot begin keeps nothing: no ledger, no thread, no open file."""

from __future__ import annotations

import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.errors import CheckpointError
from penstock.settings import Settings
from penstock.spark import engine, execution
from penstock.spark.log.stream_log import LogReader
from penstock.spark.storage.demands import TupleDemand
from penstock.spark.storage.formats import LANE
from penstock.spark.storage.lane_views import lane_name
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.unions import UNIONS, UnionBranch, UnionDefinition
from penstock.trigger import Trigger

pytestmark = pytest.mark.usefixtures("own_commits")


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(execution, "warm_workers", lambda _: None)
    context = SimpleNamespace(defaultParallelism=2, master="local[2]")
    spark: Any = SimpleNamespace(sparkContext=context, version="4.3.0")
    layout = Layout.of(tmp_path / "out", None)
    return partial(execution.Execution, spark, layout, Settings(), Trigger(), {}, {}, {})


@pytest.mark.parametrize(
    "part",
    ["StatusFile", "EventLog", "warm_workers", "SourceWatch", "LaneContext", "RunLanes"],
)
def test_whatever_keeps_a_run_from_its_beginning_leaves_nothing_held(
    start: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ValueError("a document of 0 bytes")

    ledger = Layout.of(tmp_path / "out", None).ledger
    threads, files = set(threading.enumerate()), len(list(Path("/proc/self/fd").iterdir()))
    with monkeypatch.context() as patched:
        patched.setattr(execution, part, refuse)
        for _ in range(2):
            with pytest.raises(ValueError, match="0 bytes"):
                start()
    assert set(threading.enumerate()) <= threads
    assert len(list(Path("/proc/self/fd").iterdir())) <= files
    assert ledger.owner() is None
    run = start()
    with pytest.raises(CheckpointError, match="in use by another run"):
        start()
    run.is_starting = False
    run.stop()
    assert ledger.owner() is None


def test_a_damaged_document_of_joins_is_mended_and_the_same_process_goes_on(
    start: Any, tmp_path: Path
) -> None:
    layout = Layout.of(tmp_path / "out", None)
    layout.open()
    joins = layout.lane_views("joins")
    joins.replace(b"")
    with pytest.raises(Exception, match=r"."):
        start()
    joins.remove()
    run = start()
    run.is_starting = False
    run.stop()


def test_a_refused_start_does_not_fence_the_run_of_another_process(
    start: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for checked in ("require_classic", "require_meaning", "require_zone"):
        monkeypatch.setattr(engine, checked, lambda *_: None)
    refused = engine.Engine(start.args[0])
    refused._declared.views["v"] = SimpleNamespace()  # type: ignore[assignment]
    program = """if True:
        import sys
        from penstock.spark.storage.layout import Layout
        layout = Layout.of(sys.argv[1], None)
        layout.open()
        layout.catalog.replace(b"before")
        print(flush=True)
        sys.stdin.read()
        layout.catalog.replace(b"after")
    """
    with subprocess.Popen(
        [sys.executable, "-c", program, tmp_path / "out"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(CheckpointError, match=f"in use by process {other.pid}"):
            refused.start(tmp_path / "out")
        other.communicate(b"")
    assert other.returncode == 0
    assert Layout.of(tmp_path / "out", None).catalog.get() == b"after"


def test_a_lane_of_an_earlier_run_leaves_the_logs_of_all_its_streams(start: Any, tmp_path: Path) -> None:
    layout = Layout.of(tmp_path / "out", None)
    layout.open()
    LANE.put(layout.lanes["left"], {})
    logs = {stream: LogReader(layout.log(stream)) for stream in "ab"}
    for log in logs.values():
        log.put_mark("left", 3)
        log.put_mark("another program", 3)
    run = start()
    run.queries = {stream: SimpleNamespace(active=False, stop=lambda: None) for stream in logs}
    run.started()
    assert [set(log.marks()) for log in logs.values()] == [{"another program"}] * 2
    run.stop()


def _union(name: str, stream: str) -> UnionDefinition:
    demand = TupleDemand(None, (), (), "ts", {})
    return UnionDefinition(name, f"{name}:1", "SELECT", (UnionBranch(stream, demand),), ())


def test_what_an_attempt_has_stored_and_not_carried_out_is_carried_out_by_the_next(
    start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = start()
    plans = SimpleNamespace(had_windows=False, had_running=False)
    run.queries = {"s": SimpleNamespace(plans=plans, active=False, stop=lambda: None)}
    monkeypatch.setattr(run.lanes, "_changed", lambda: None)
    asked: list[str] = []

    def ask(stream: str, _: object) -> None:
        asked.append(stream)
        if len(asked) == 1:
            raise OSError("the disk is full")

    monkeypatch.setattr(run.lanes, "ask", ask)
    views = {"v": _union("v", "another stream")}
    with pytest.raises(OSError, match="full"):
        run.lanes.set_views(UNIONS.name, views, {})
    for _ in range(2):
        run.lanes.set_views(UNIONS.name, views, {})
    assert asked == ["s", "s"], "once more, and then no more"
    run.is_starting = False
    run.stop()


def test_a_view_that_was_dropped_before_its_lane_ran_leaves_the_logs(start: Any, tmp_path: Path) -> None:
    layout = Layout.of(tmp_path / "out", None)
    run = start()
    run.lanes.set_views(UNIONS.name, {"v": _union("v", "s")}, {})
    log = LogReader(layout.log("s"))
    log.put_mark(lane_name(UNIONS.name, 0), 3)
    run.is_starting = False
    run.stop()
    again = start()
    again.lanes.set_views(UNIONS.name, {}, {})
    assert not log.marks()
    again.is_starting = False
    again.stop()


def test_the_end_of_a_run_leaves_the_ledger_to_the_next_one_of_its_process(
    start: Any, tmp_path: Path
) -> None:
    layout = Layout.of(tmp_path / "out", None)
    first = start()
    first.is_starting = False
    second = start()
    ledger = layout.ledger.writer
    first.stop()
    assert layout.ledger.writer is ledger
    layout.catalog.replace(b"of the second run")
    second.is_starting = False
    second.stop()
    assert not layout.ledger.path.with_name("ledger.db-wal").exists()
    first.stop()
