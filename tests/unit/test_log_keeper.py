"""What the keeper of a stream's log puts there, and what becomes of it where that cannot be written."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.control.stream_clock import Heard
from penstock.errors import StreamFailedError
from penstock.settings import Settings
from penstock.spark.ingest import log_keeper
from penstock.spark.ingest.log_keeper import LogKeeper
from penstock.spark.storage.events import EventLog
from penstock.trigger import Trigger


class Log:
    """A log that cannot be written so many times; `put` has what was said."""

    def __init__(self, refused: int = 0) -> None:
        self._refused = refused
        self.put: list[str] = []
        self.on_put: Callable[[], object] = lambda: None
        self.last = SimpleNamespace(reached_or_newest=0)

    def _put(self, what: str) -> bool:
        if self._refused:
            self._refused -= 1
            raise OSError(errno.ENOSPC, "No space left on device")
        self.put.append(what)
        return True

    def put_end(self) -> bool:
        return "end" not in self.put and self._put("end")

    def put_views(self, batch: int, plan: int) -> None:
        self._put(f"views of plan {plan} behind {batch}")

    def put_all(self) -> bool:
        return self._put("all")

    def put_more(self) -> bool:
        return self.put[-1:] == ["all"] and self._put("more")

    def put_idle(self, reached: int) -> bool:
        self.last = SimpleNamespace(reached_or_newest=reached)
        return self._put("idle")


class Ingest:
    """An ingest query as its keeper sees it."""

    def __init__(self, log: Log, **what: bool) -> None:
        self.stream = "s"
        self.log = log
        self.active = what.get("active", False)
        self.ended_well = what.get("ended_well", True)
        self.has_ended = what.get("has_ended", True)
        self.interval_seconds = 0
        self.totals = SimpleNamespace(batches=1)
        self.published = -1
        self.plans = SimpleNamespace(begin=lambda batch: 7 if batch == 4 else None)

    def ends_within(self, seconds: float) -> bool:
        if self.active:
            time.sleep(seconds)
        return not self.active

    def listen(self) -> Heard:
        return Heard.NOTHING


Made = tuple[LogKeeper, EventLog]


@pytest.fixture
def keeper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Made]:
    def made(ingest: Any, trigger: Trigger | None = None, **settings: Any) -> Made:
        monkeypatch.setattr(log_keeper, "_LOOK_SECONDS", 0.001)
        events = EventLog(tmp_path / "events.jsonl")
        layout: Any = SimpleNamespace()
        monkeypatch.setattr(log_keeper, "read_published", lambda *_: SimpleNamespace(last=ingest.published))
        tuning = Settings(retry_attempts=4, retry_seconds=0.001, **settings)
        trigger = trigger or Trigger.available_now()
        return LogKeeper(ingest, layout, events, tuning, trigger), events

    return made


@pytest.mark.parametrize(("has_ended", "said"), [(True, "end"), (False, "all")])
def test_what_there_is_for_now_is_told_from_the_end(
    keeper: Callable[..., Made], has_ended: bool, said: str
) -> None:
    log = Log()
    kept, _ = keeper(Ingest(log, has_ended=has_ended))
    assert not kept.is_complete
    kept.start()
    assert kept.await_termination(60)
    assert kept.is_complete
    assert log.put == [said]


def test_the_end_waits_for_whoever_puts_entries_and_for_views_that_no_batch_came_for(
    keeper: Callable[..., Made],
) -> None:
    log = Log()
    ingest = Ingest(log, active=True)
    ingest.published = 3
    kept, _ = keeper(ingest)
    holds = [kept.hold(), kept.hold()]
    kept.start()
    assert not kept.has_begun_all.is_set()
    ingest.active = False
    _wait(kept.has_begun_all.is_set)
    begun = ["views of plan 7 behind 3"]
    for held in holds:
        assert not kept.join(0.05)
        assert log.put == begun
        held.set()
    assert kept.await_termination(60)
    assert log.put == [*begun, "end"]


class Ending(Ingest):
    """An ingest query whose end is waited for."""

    def __init__(self, log: Log) -> None:
        super().__init__(log, active=True, has_ended=False)
        self.waited_for = threading.Event()
        self.ended = threading.Event()

    def ends_within(self, seconds: float) -> bool:
        self.waited_for.set()
        return self.ended.wait(seconds)


def test_the_end_is_waited_for_and_lanes_are_woken_once_the_log_is_complete(
    keeper: Callable[..., Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log()
    ingest = Ending(log)
    kept, _ = keeper(ingest)
    woken: list[bool] = []
    log.on_put = lambda: woken.append(kept.is_complete)
    monkeypatch.setattr(log_keeper, "_LOOK_SECONDS", 3_600.0)
    kept.start()
    assert ingest.waited_for.wait(60)
    ingest.active = False
    ingest.ended.set()
    assert kept.await_termination(60)
    assert log.put == ["all"]
    assert woken == [True]


def test_who_puts_entries_holds_nobody_who_is_stopped(keeper: Callable[..., Made]) -> None:
    log = Log()
    kept, _ = keeper(Ingest(log))
    kept.hold()
    kept.start()
    _wait(kept.has_begun_all.is_set)
    kept.stop()
    assert not kept.active
    assert not kept.is_complete
    assert log.put == []


def test_a_stream_goes_on_before_anybody_looks_and_comes_to_its_end_once_a_run(
    keeper: Callable[..., Made],
) -> None:
    log = Log()
    for _ in range(2):
        kept, _ = keeper(Ingest(log, has_ended=False))
        kept.start()
        assert kept.await_termination(60)
    assert log.put == ["all", "more", "all"]


def test_a_run_that_is_stopped_is_no_end(keeper: Callable[..., Made]) -> None:
    log = Log()
    ingest = Ingest(log, active=True, has_ended=False)
    kept, _ = keeper(ingest)
    kept.start()
    kept.prepare_stop()
    ingest.active, ingest.has_ended = False, True
    assert kept.await_termination(60)
    kept.stop()
    assert not kept.is_complete
    assert log.put == []


def test_a_stream_that_failed_or_is_followed_has_no_end(keeper: Callable[..., Made]) -> None:
    for ingest, trigger in (
        (Ingest(Log(), ended_well=False), Trigger.available_now()),
        (Ingest(Log()), Trigger()),
    ):
        kept, _ = keeper(ingest, trigger)
        kept.start()
        assert kept.await_termination(60)
        assert not kept.is_complete
        assert ingest.log.put == []


def test_a_stored_table_that_was_played_ends_the_log_of_a_run_that_goes_on(
    keeper: Callable[..., Made],
) -> None:
    log = Log()
    kept, _ = keeper(Ingest(log, active=True), Trigger())
    kept.start()
    _wait(lambda: log.put == ["end"])
    assert kept.active
    kept.stop()
    assert log.put == ["end"]


def test_silence_is_told(keeper: Callable[..., Made]) -> None:
    log = Log()
    kept, _ = keeper(Ingest(log, active=True, has_ended=False), Trigger(), idle_seconds=0.02)
    kept.start()
    _wait(lambda: len(log.put) > 2)
    kept.stop()
    assert set(log.put) == {"idle"}
    assert log.last.reached_or_newest >= 2 * 20_000


def test_a_log_that_cannot_be_written_for_a_while_is_tried_again(keeper: Callable[..., Made]) -> None:
    log = Log(refused=3)
    kept, events = keeper(Ingest(log))
    kept.start()
    assert kept.await_termination(60)
    assert kept.is_complete
    assert log.put == ["end"]
    told = [(each["kind"], each["part"], each.get("cause")) for each in events.recent]
    assert told == [("lane_retried", "log", "disk_full")] * 3 + [("lane_back", "log", None)]


def test_a_log_that_cannot_be_written_at_all_is_told(keeper: Callable[..., Made]) -> None:
    kept, events = keeper(Ingest(Log(refused=100)))
    kept.start()
    with pytest.raises(StreamFailedError, match=r"the log of stream s stopped: .*retried 4 times"):
        kept.await_termination(60)
    assert not kept.is_complete
    assert events.recent[-1]["kind"] == "lane_failed"


def test_a_disk_that_is_full_whenever_the_stream_is_silent_is_told(keeper: Callable[..., Made]) -> None:
    """Looks that have nothing to say in between are no success."""
    ingest = Ingest(Log(refused=100), active=True, has_ended=False)
    kept, events = keeper(ingest, Trigger(), idle_seconds=0.01)
    kept.start()
    _wait(lambda: len(events.recent) > 4)
    kept.stop()
    assert [event["attempt"] for event in events.recent[:5]] == [1, 2, 3, 4, 5]
    assert kept.failed is None


def _wait(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.001)
