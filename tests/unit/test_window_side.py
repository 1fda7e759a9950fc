"""What becomes of the windows of a stream when Spark's Python processes start too slowly, or not at all."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.errors import StreamFailedError
from penstock.settings import Settings
from penstock.spark import window_side
from penstock.spark.events import EventLog
from penstock.spark.ingest import Trigger
from penstock.spark.window_side import WindowSide


class Keyed:
    """A keyed query whose starts end as told: None goes well, an error stops it."""

    def __init__(self, ends: Sequence[Exception | None], refused: int = 0) -> None:
        self._ends = list(ends)
        self._refused = refused
        self.starts = 0
        self.active = False

    def start(self, rests: bool) -> None:  # noqa: ARG002
        self.starts += 1
        if self.starts == self._refused:
            raise PermissionError("Permission denied: '/x'")
        self.active = False

    def await_termination(self) -> None:
        end = self._ends.pop(0)
        if end is not None:
            raise end

    def stop(self) -> None:
        self.active = False


@pytest.fixture
def side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def made(keyed: Keyed) -> tuple[WindowSide, EventLog]:
        monkeypatch.setattr(window_side, "KeyedQuery", lambda *_: keyed)
        monkeypatch.setattr(
            window_side, "Backfill", lambda *_: SimpleNamespace(start=lambda: 0, stop=lambda: 0)
        )
        monkeypatch.setattr(window_side, "_LOOK_SECONDS", 0.001)
        events = EventLog(tmp_path / "events.jsonl")
        ingest: Any = SimpleNamespace(stream="s", active=True, interval_seconds=0)
        nothing: Any = None
        settings = Settings(retry_attempts=4, retry_seconds=0.001)
        trigger = Trigger(available_now=True)
        return WindowSide(nothing, ingest, nothing, events, settings, nothing, nothing, trigger), events

    return made


def slow() -> StreamFailedError:
    return StreamFailedError("the windows of stream s stopped: Python worker failed to connect back.")


def test_a_slow_start_is_tried_again(side: Any) -> None:
    keyed = Keyed([slow(), slow(), None])
    windows, events = side(keyed)
    windows.start()
    assert windows.await_termination(10)
    assert keyed.starts == 3
    told = [(event["kind"], event["part"], event["cause"], event["attempt"]) for event in events.recent]
    assert told == [("stream_retried", "windows", "slow_start", attempt) for attempt in (1, 2)]


def test_what_is_slow_too_often_is_told(side: Any) -> None:
    keyed = Keyed([slow() for _ in range(5)])
    windows, events = side(keyed)
    windows.start()
    with pytest.raises(
        StreamFailedError, match=r"a Python process did not start in time.*tried again 4 times"
    ):
        windows.await_termination(10)
    assert keyed.starts == 5
    assert events.recent[-1]["kind"] == "run_failed"


@pytest.mark.parametrize(
    ("keyed", "told"),
    [
        (Keyed([slow()], refused=2), "PermissionError: Permission denied: '/x'; tried again once"),
        (Keyed([StreamFailedError("gone")]), "gone"),
    ],
)
def test_any_other_failure_is_told_at_once(side: Any, keyed: Keyed, told: str) -> None:
    windows, _ = side(keyed)
    windows.start()
    with pytest.raises(StreamFailedError, match=told):
        windows.await_termination(10)


def test_a_side_whose_start_was_refused_can_be_stopped(side: Any) -> None:
    windows, _ = side(Keyed([], refused=1))
    with pytest.raises(PermissionError):
        windows.start()
    before = threading.active_count()
    windows.stop()
    assert threading.active_count() == before
