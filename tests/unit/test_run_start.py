"""A run that cannot begin keeps nothing: no lock, no thread, no open file."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.errors import CheckpointError
from penstock.settings import Settings
from penstock.spark import execution
from penstock.spark.storage.checkpoint_lock import lock_holder
from penstock.spark.storage.layout import Layout
from penstock.trigger import Trigger


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(execution, "warm_workers", lambda _: None)
    context = SimpleNamespace(defaultParallelism=2, master="local[2]")
    spark: Any = SimpleNamespace(sparkContext=context, version="4.3.0")
    layout = Layout.of(tmp_path / "out", None)
    layout.open()
    return lambda: execution.Execution(spark, layout, Settings(), Trigger(), {}, {})


@pytest.mark.parametrize(
    "part",
    ["StatusFile", "EventLog", "warm_workers", "SourceWatch", "JoinViews", "DeadlineViews", "LaneContext"],
)
def test_whatever_keeps_a_run_from_its_beginning_leaves_nothing_held(
    start: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ValueError("a document of 0 bytes")

    checkpoint = Layout.of(tmp_path / "out", None).checkpoint
    threads, files = set(threading.enumerate()), len(list(Path("/proc/self/fd").iterdir()))
    with monkeypatch.context() as patched:
        patched.setattr(execution, part, refuse)
        for _ in range(2):
            with pytest.raises(ValueError, match="0 bytes"):
                start()
    assert lock_holder(checkpoint) is None
    assert set(threading.enumerate()) <= threads
    assert len(list(Path("/proc/self/fd").iterdir())) <= files
    run = start()
    with pytest.raises(CheckpointError, match="in use by another run"):
        start()
    run.is_starting = False
    run.stop()
    assert lock_holder(checkpoint) is None


def test_a_damaged_document_of_joins_is_mended_and_the_same_process_goes_on(
    start: Any, tmp_path: Path
) -> None:
    joins = Layout.of(tmp_path / "out", None).joins
    joins.replace(b"")
    with pytest.raises(Exception, match=r"."):
        start()
    joins.remove()
    run = start()
    run.is_starting = False
    run.stop()
