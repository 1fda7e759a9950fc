"""Which event times are believed where the driver's clock is wrong."""

from __future__ import annotations

import json
from pathlib import Path

from penstock.settings import Settings
from penstock.spark.events import EventLog
from penstock.spark.layout import Layout
from penstock.spark.time_limit import TimeLimit

HOUR = 3_600_000_000
NOW = 1_000 * HOUR


def test_the_stream_takes_the_place_of_a_clock_that_is_behind(tmp_path: Path) -> None:
    layout, events = Layout(tmp_path / "out", tmp_path / "checkpoint"), EventLog(tmp_path / "events.jsonl")

    def limit() -> TimeLimit:
        return TimeLimit(layout, "s", Settings(), events, lambda: NOW / 1e6)

    assert limit().of(0) == NOW + HOUR
    figures = {"batch": 0, "timed_tuples": 150, "middle_event_time_us": NOW + 2 * HOUR}
    told = limit()
    told.add(figures)
    assert [told.of(number) for number in (1, 2)] == [NOW + 3 * HOUR] * 2
    (event,) = [each for each in events.recent if each["kind"] == "clock_behind"]
    assert (event["batch"], event["seconds"], event["share"]) == (1, 7_200.0, 1.0)
    path = layout.manifests("s") / "0.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"first": 0, "last": 0, "batches": [figures], "files": []}))
    assert limit().of(1) == NOW + 3 * HOUR, "a new process knows what the published batches said"


def test_a_few_dead_clocks_and_a_stream_of_the_past_change_nothing(tmp_path: Path) -> None:
    layout, events = Layout(tmp_path / "out", tmp_path / "checkpoint"), EventLog(tmp_path / "events.jsonl")
    told = TimeLimit(layout, "s", Settings(), events, lambda: NOW / 1e6)
    told.add({"timed_tuples": 40, "middle_event_time_us": 9 * NOW})
    assert told.of(1) == NOW + HOUR
    told.add({"timed_tuples": 200, "middle_event_time_us": NOW // 2})
    assert told.of(2) == NOW + HOUR
    assert list(events.recent) == []
