"""What is told of windows of views with a deadline that fail."""

from __future__ import annotations

from typing import Any

from penstock.monitor.book import StatusBook
from penstock.monitor.news import News, event_line
from penstock.spark.lanes.deadlines.failures import FailedWindows

REASON = "aggregate bad raised at mine.py line 12: RuntimeError: " + "my bug " * 20


class _Events:
    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []

    def record(self, kind: str, **fields: Any) -> None:
        self.told.append({"kind": kind, **fields})


def test_the_first_window_that_fails_is_told_at_once_and_three_in_a_row() -> None:
    events = _Events()
    failures = FailedWindows("deadlines.0.results", events)  # type: ignore[arg-type]
    for view in "v", "w", "v":
        failures.failed(view, "boom")
    failures.worked("v")
    for _ in range(4):
        failures.failed("v", REASON)
    assert [(each["kind"], each["view"], each["reason"]) for each in events.told] == [
        ("window_failed", "v", "boom"),
        ("window_failed", "w", "boom"),
        ("windows_failing", "v", REASON),
    ]
    line = event_line({"time": "", **events.told[-1]})
    assert line == f" view v: three windows in a row failed: {REASON}"


def test_an_allowance_that_is_exceeded_is_news_of_each_view() -> None:
    told = [
        {"kind": "losses_exceeded", "time": str(number), "view": view, "reason": "more than 1 of 4"}
        for number, view in enumerate(["v", "w", "v"])
    ]
    book = StatusBook()
    for event in told:
        book.note(event)
    assert book.document()["news"] == told[1:]
    news = News(lambda: told)
    assert [line.split()[2] for line in news.lines()] == ["v:", "w:"]
    assert news.lines() == []
