"""What becomes of the windows of a stream when Spark's Python processes start too slowly, or not at all."""

from __future__ import annotations

import errno
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

STOPPED = "stopped from outside"


class Keyed:
    """A keyed query whose starts end as told: None goes well, an error stops it, STOPPED is another's doing."""

    def __init__(self, ends: Sequence[Exception | str | None], refused: int = 0) -> None:
        self._ends = list(ends)
        self._refused = refused
        self.starts = 0
        self.active = False

    def start(self, rests: bool) -> None:  # noqa: ARG002
        assert not self.active, "a query with that name is already active"
        self.starts += 1
        if self.starts == self._refused:
            raise PermissionError("Permission denied: '/x'")
        self.active = self._ends[0] is None

    def await_termination(self) -> None:
        end = self._ends.pop(0)
        if isinstance(end, Exception):
            raise end

    def finish(self, batch: int, mark: int) -> bool:  # noqa: ARG002
        self.active = False
        return self._ends.pop(0) is None

    def stop(self) -> None:
        self.active = False


class Log:
    """A log that cannot be written the first time where that is told."""

    def __init__(self, refused: OSError | None = None) -> None:
        self._refused = refused
        self.last = SimpleNamespace(batch=0, mark=0)

    def put_end(self) -> bool:
        refused, self._refused = self._refused, None
        if refused is not None:
            raise refused
        return True


@pytest.fixture
def side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def made(keyed: Keyed, log: Log | None = None) -> tuple[WindowSide, EventLog]:
        monkeypatch.setattr(window_side, "KeyedQuery", lambda *_: keyed)
        monkeypatch.setattr(
            window_side,
            "Backfill",
            lambda *_: SimpleNamespace(start=lambda: 0, stop=lambda: 0, finish=lambda: 0),
        )
        monkeypatch.setattr(window_side, "_LOOK_SECONDS", 0.001)
        events = EventLog(tmp_path / "events.jsonl")
        ingest: Any = SimpleNamespace(
            stream="s",
            active=False,
            ended_well=True,
            has_ended=True,
            interval_seconds=0,
            log=log or Log(),
        )
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


def test_a_first_start_that_is_refused_is_told_at_the_end(side: Any) -> None:
    windows, _ = side(Keyed([None], refused=1))
    before = threading.active_count()
    windows.start()
    with pytest.raises(StreamFailedError, match="Permission denied: '/x'"):
        windows.await_termination(10)
    windows.stop()
    assert threading.active_count() == before


def test_a_side_that_was_never_started_can_be_stopped(side: Any) -> None:
    windows, _ = side(Keyed([]))
    windows.stop()
    assert not windows.active


def test_a_query_stopped_from_outside_is_told(side: Any) -> None:
    keyed = Keyed([STOPPED])
    windows, events = side(keyed)
    windows.start()
    with pytest.raises(StreamFailedError, match=r"windows of stream s stopped: .*stopped from outside"):
        windows.await_termination(10)
    assert keyed.starts == 1
    assert events.recent[-1]["cause"] == "stopped_outside"


def test_a_query_stopped_from_outside_before_it_has_answered_all_is_told(side: Any) -> None:
    keyed = Keyed([None])
    keyed.finish = lambda *_: False  # type: ignore[method-assign]
    windows, _ = side(keyed)
    windows.start()
    with pytest.raises(StreamFailedError, match="stopped from outside"):
        windows.await_termination(10)


def test_a_log_that_cannot_be_written_for_a_while_is_tried_again_beside_no_second_query(side: Any) -> None:
    keyed = Keyed([None, None])
    windows, events = side(keyed, Log(OSError(errno.ENOSPC, "No space left on device")))
    windows.start()
    assert windows.await_termination(10)
    assert keyed.starts == 2
    assert [event["cause"] for event in events.recent] == ["disk_full"]
