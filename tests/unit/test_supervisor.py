"""A streaming query that is begun again: never two of them at a time."""

from __future__ import annotations

import errno
from functools import partial
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.errors import PenstockError
from penstock.settings import Settings
from penstock.spark.ingest.query import IngestQuery
from penstock.spark.recovery import supervisor as supervising
from penstock.spark.recovery.retries import Retries
from penstock.spark.recovery.supervisor import Supervisor, stop_all
from penstock.spark.storage.events import EventLog


class Query:
    """A query that runs until it is stopped."""

    def __init__(self) -> None:
        self.isActive = True

    def stop(self) -> None:
        self.isActive = False

    def awaitTermination(self, timeout: float | None = None) -> None:  # noqa: N802
        assert timeout is not None or not self.isActive


def test_a_look_that_fails_stops_the_query_before_the_next_is_begun(tmp_path: Path) -> None:
    context = SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: False))
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(_jsc=context))
    begun: list[Query] = []

    def begin() -> Any:
        assert not any(query.isActive for query in begun), "a query with that name is already active"
        begun.append(Query())
        return begun[-1]

    def look(query: Any) -> None:
        if len(begun) == 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        query.stop()

    events = EventLog(tmp_path / "events.jsonl")
    retries = Retries("s", "ingest", Settings(retry_attempts=1, retry_seconds=0.001), events)
    supervisor = Supervisor("s", spark, begin, look, retries, lambda: None, lambda: True)
    supervisor.start()
    assert supervisor.await_termination(60)
    assert [query.isActive for query in begun] == [False, False]
    assert [event["cause"] for event in events.recent] == ["disk_full"]


class Ending(Query):
    """A query whose end is waited for: by itself, or by an error."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__()
        self.ended = Event()
        self._error = error

    def awaitTermination(self, timeout: float | None = None) -> None:  # noqa: N802
        self.ended.wait(timeout)
        self.isActive = False
        if self._error is not None:
            raise self._error


def test_the_end_of_a_query_is_waited_for_and_not_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervising, "_LOOK_SECONDS", 3_600.0)
    context = SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: False))
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(_jsc=context))
    query = Ending()
    retries = Retries("s", "ingest", Settings(), EventLog(tmp_path / "events.jsonl"))
    supervisor = Supervisor(
        "s", spark, lambda: query, lambda _: query.ended.set(), retries, lambda: None, lambda: True
    )
    ingest = IngestQuery.__new__(IngestQuery)
    ingest._supervisor = supervisor
    supervisor.start()
    assert ingest.ends_within(60)
    assert supervisor.await_termination(0)


def test_a_session_that_has_ended_is_told_and_not_what_its_query_says(tmp_path: Path) -> None:
    stopped: list[bool] = []
    context = SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: bool(stopped)))
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(_jsc=context))
    query = Ending(ValueError("a broken pipe"))
    events = EventLog(tmp_path / "events.jsonl")
    retries = Retries("s", "ingest", Settings(retry_attempts=0), events)

    def look(_: Any) -> None:
        stopped.append(True)
        query.ended.set()

    supervisor = Supervisor("s", spark, lambda: query, look, retries, lambda: None, lambda: True)
    supervisor.start()
    with pytest.raises(PenstockError, match="the Spark session has ended"):
        supervisor.await_termination(60)


def test_what_cannot_be_stopped_keeps_nothing_else_from_it() -> None:
    queries = [Query() for _ in range(4)]

    def refuse(query: Query) -> None:
        raise TimeoutError(f"query {queries.index(query)} has not stopped")

    stops = [partial(refuse, query) if number % 2 else query.stop for number, query in enumerate(queries)]
    with pytest.raises(TimeoutError, match="query 1"):
        stop_all(stops)
    assert [query.isActive for query in queries] == [False, True, False, True]
