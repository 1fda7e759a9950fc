"""What becomes of the windows of a stream when Spark's Python processes start too slowly, or not at all."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.errors import StreamFailedError
from penstock.monitor.book import StatusBook
from penstock.monitor.troubles import open_troubles
from penstock.settings import Settings
from penstock.spark.lanes.lane import LaneContext
from penstock.spark.lanes.windows import lane as window_lane
from penstock.spark.lanes.windows.lane import WindowLane
from penstock.spark.log.appended import Appended
from penstock.spark.recovery import retries
from penstock.spark.storage.events import EventLog
from penstock.trigger import Trigger

STOPPED = "another program stopped"


class Keyed:
    """A keyed query whose starts end as told: None goes well, an error stops it, STOPPED is another's doing."""

    def __init__(self, ends: Sequence[Exception | str | None], refused: int = 0) -> None:
        self._ends = list(ends)
        self._refused = refused
        self.starts = 0
        self.active = False
        self.publisher = SimpleNamespace(close=lambda: None)

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

    def finish(self, entry: int) -> bool:  # noqa: ARG002
        self.active = False
        return self._ends.pop(0) is None

    def stop(self) -> None:
        self.active = False


@pytest.fixture
def lane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def made(keyed: Keyed, available_now: bool = True) -> tuple[WindowLane, EventLog]:
        monkeypatch.setattr(window_lane, "KeyedQuery", lambda *_, **__: keyed)
        monkeypatch.setattr(window_lane, "_LOOK_SECONDS", 0.001)
        events = EventLog(tmp_path / "events.jsonl")
        log = SimpleNamespace(last=SimpleNamespace(number=0))
        stream: Any = SimpleNamespace(
            ingest=SimpleNamespace(
                stream="s", log=log, plans=SimpleNamespace(windows={"w": None, "x": None})
            ),
            active=not available_now,
            is_complete=available_now,
        )
        nothing: Any = None
        settings = Settings(retry_attempts=4, retry_seconds=0.001)
        trigger = Trigger(is_bounded=available_now)
        context = LaneContext(
            nothing, nothing, events, settings, trigger, "penstock", list, Appended(), nothing
        )
        return WindowLane(context, stream), events

    return made


def lost() -> StreamFailedError:
    return StreamFailedError("the windows of stream s stopped: Python worker exited unexpectedly")


def slow() -> StreamFailedError:
    return StreamFailedError("the windows of stream s stopped: Python worker failed to connect back.")


def test_a_slow_start_is_tried_again(lane: Any) -> None:
    keyed = Keyed([slow(), slow(), None])
    windows, events = lane(keyed)
    windows.start()
    assert windows.await_termination(60)
    assert keyed.starts == 3
    *again, back = events.recent
    assert (back["kind"], back["attempt"]) == ("lane_back", 2)
    told = [(event["kind"], event["part"], event["cause"], event["attempt"]) for event in again]
    assert told == [("lane_retried", "windows", "slow_start", attempt) for attempt in (1, 2)]
    assert (events.recent[0]["lane"], events.recent[0]["views"]) == ("s.results", ["w", "x"])


def test_a_busy_machine_is_waited_for_however_often_a_process_is_slow(lane: Any) -> None:
    keyed = Keyed([*(slow() for _ in range(9)), None])
    windows, events = lane(keyed)
    windows.start()
    assert windows.await_termination(60)
    assert keyed.starts == 10
    assert [event["attempt"] for event in events.recent] == [*range(1, 10), 9]


def test_a_machine_that_stays_busy_for_an_hour_is_told(lane: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "_BUSY_SECONDS", 0.0)
    keyed = Keyed([slow() for _ in range(5)])
    windows, _ = lane(keyed)
    windows.start()
    with pytest.raises(StreamFailedError, match=r"did not start in time.*retried 4 times"):
        windows.await_termination(60)


@pytest.mark.parametrize(
    "failure",
    [lost, lambda: ValueError("a function of the user's raised"), lambda: OSError("Permission denied")],
)
def test_a_lane_of_a_run_that_goes_on_is_tried_again_whatever_fails(
    lane: Any, failure: Callable[[], Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "_SELDOM_SECONDS", 0.002)
    monkeypatch.setattr(retries, "_MOST_SECONDS", 0.002)
    keyed = Keyed([*(failure() for _ in range(20)), None])
    windows, events = lane(keyed, available_now=False)
    windows.start()
    while keyed.starts < 21:
        assert windows.active
        time.sleep(0.001)
    book = StatusBook()
    for event in events.recent:
        book.note(event)
    ((name, trouble),) = open_troubles(book.document()["lanes"])
    assert (name, trouble["state"], trouble["attempt"]) == ("s.results", "retrying", 20)
    windows.retries.succeeded()
    book.note(events.recent[-1])
    assert not list(open_troubles(book.document()["lanes"]))
    windows.stop()
    assert {event["kind"] for event in events.recent} == {"lane_retried", "lane_back"}
    assert windows.failed is None


def test_a_lane_whose_query_somebody_stops_is_given_up_and_the_run_goes_on(lane: Any) -> None:
    windows, events = lane(Keyed([STOPPED]), available_now=False)
    windows.start()
    assert windows.join(60)
    assert windows.failed["cause"] == "stopped_outside"
    assert [event["kind"] for event in events.recent] == ["lane_failed"]


def test_what_fails_too_often_is_told(lane: Any) -> None:
    keyed = Keyed([lost() for _ in range(5)])
    windows, events = lane(keyed)
    windows.start()
    with pytest.raises(
        StreamFailedError, match=r"a Python worker process ended unexpectedly.*retried 4 times"
    ):
        windows.await_termination(60)
    assert keyed.starts == 5
    assert events.recent[-1]["kind"] == "lane_failed"


@pytest.mark.parametrize(
    ("keyed", "told"),
    [
        (Keyed([slow()], refused=2), "PermissionError: Permission denied: '/x'; retried once"),
        (Keyed([StreamFailedError("gone")]), "gone"),
    ],
)
def test_any_other_failure_is_told_at_once(lane: Any, keyed: Keyed, told: str) -> None:
    windows, _ = lane(keyed)
    windows.start()
    with pytest.raises(StreamFailedError, match=told):
        windows.await_termination(60)


def test_a_first_start_that_is_refused_is_told_at_the_end(lane: Any) -> None:
    windows, _ = lane(Keyed([None], refused=1))
    before = threading.enumerate()
    windows.start()
    with pytest.raises(StreamFailedError, match="Permission denied: '/x'"):
        windows.await_termination(60)
    windows.stop()
    assert set(threading.enumerate()) <= set(before)


def test_a_lane_that_was_never_started_can_be_stopped(lane: Any) -> None:
    windows, _ = lane(Keyed([]))
    windows.stop()
    assert not windows.active


def test_a_query_stopped_from_outside_is_told(lane: Any) -> None:
    keyed = Keyed([STOPPED])
    windows, events = lane(keyed)
    windows.start()
    with pytest.raises(StreamFailedError, match=r"windows of stream s stopped: .*another program stopped"):
        windows.await_termination(60)
    assert keyed.starts == 1
    assert events.recent[-1]["cause"] == "stopped_outside"


def test_a_query_stopped_from_outside_before_it_has_answered_all_is_told(lane: Any) -> None:
    keyed = Keyed([None])
    keyed.finish = lambda *_: False  # type: ignore[method-assign]
    windows, _ = lane(keyed)
    windows.start()
    with pytest.raises(StreamFailedError, match="another program stopped"):
        windows.await_termination(60)
