"""Which event times are believed where the driver's clock is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.settings import Settings
from penstock.spark.ingest.time_limit import TimeLimit
from penstock.spark.storage.bindings import Believed
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.formats import MANIFEST
from penstock.spark.storage.layout import Layout

pytestmark = pytest.mark.usefixtures("own_commits")

HOUR = 3_600_000_000
NOW = 1_000 * HOUR
DAY = 24 * HOUR


def test_the_stream_takes_the_place_of_a_clock_that_is_behind(tmp_path: Path) -> None:
    layout, events = Layout(tmp_path / "out", tmp_path / "checkpoint"), EventLog(tmp_path / "events.jsonl")

    def limit() -> TimeLimit:
        return TimeLimit(layout, "s", Settings(), events, lambda: NOW / 1e6)

    assert limit().of(0) == Believed(NOW + HOUR, DAY)
    figures = {"batch": 0, "timed_tuples": 150, "middle_event_time_us": NOW + 2 * HOUR}
    told = limit()
    told.add(figures)
    assert [told.of(number) for number in (1, 2)] == [Believed(NOW + 3 * HOUR, 366 * DAY)] * 2
    (event,) = [each for each in events.recent if each["kind"] == "clock_behind"]
    assert (event["batch"], event["seconds"], event["share"]) == (1, 7_200.0, 1.0)
    path = layout.manifests("s")[0]
    MANIFEST.replace(path, {"first": 0, "last": 0, "batches": [figures], "files": []})
    assert limit().of(1).limit == NOW + 3 * HOUR, "a new process knows what the published batches said"


def test_a_few_dead_clocks_and_a_stream_of_the_past_change_nothing(tmp_path: Path) -> None:
    layout, events = Layout(tmp_path / "out", tmp_path / "checkpoint"), EventLog(tmp_path / "events.jsonl")
    told = TimeLimit(layout, "s", Settings(), events, lambda: NOW / 1e6)
    told.add({"timed_tuples": 40, "middle_event_time_us": 9 * NOW})
    assert told.of(1) == Believed(NOW + HOUR, DAY)
    told.add({"timed_tuples": 200, "middle_event_time_us": NOW // 2})
    assert told.of(2) == Believed(NOW + HOUR, DAY)
    assert list(events.recent) == []


def test_a_batch_is_judged_by_what_it_says_itself(tmp_path: Path) -> None:
    layout, events = Layout(tmp_path / "out", tmp_path / "checkpoint"), EventLog(tmp_path / "events.jsonl")
    told = TimeLimit(layout, "s", Settings(), events, lambda: NOW / 1e6)
    limit = told.of(0).limit
    assert told.corrected(0, limit, 99, NOW + 30 * DAY) is None, "too few to tell the time"
    assert told.corrected(0, limit, 100, NOW + HOUR) is None, "most of them are believed"
    assert told.corrected(0, limit, 100, NOW + 30 * DAY) == Believed(NOW + 30 * DAY + HOUR, 366 * DAY)
    (event,) = [each for each in events.recent if each["kind"] == "clock_behind"]
    assert (event["batch"], event["share"]) == (0, 1.0)
    assert told.of(0).limit == limit, "it is not published"
