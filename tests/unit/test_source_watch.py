"""What the looks at sources say of a run that has ended."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.monitor.book import StatusBook
from penstock.spark.sources.probes import SourceGoneError
from penstock.spark.sources.watch import SourceWatch
from penstock.spark.storage.events import EventLog


class Source:
    """A source of which as much is in no batch yet as is said here."""

    source, unit, topic = "folder /in", "files", None

    def __init__(self) -> None:
        self.left: int | None = 7
        self.looks = 0
        self.is_closed = False
        self.on_look: Callable[[], None] = lambda: None

    def backlog(self, checkpoint: Path) -> int | None:  # noqa: ARG002
        self.looks += 1
        self.on_look()
        if self.left is None:
            raise SourceGoneError("no such folder")
        return self.left

    def close(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize(("left", "told"), [(0, 0), (3, 3), (None, 7)])
def test_a_last_look_says_what_was_left(tmp_path: Path, left: int | None, told: int) -> None:
    book = StatusBook()
    events = EventLog(tmp_path / "events.jsonl", told=book.note)
    watch, source = SourceWatch(events, 0.05), Source()
    probe: Any = source
    # the next look but one never comes by itself
    source.on_look = lambda: setattr(watch, "_every", 1e9)
    watch.add("s", probe, tmp_path, lambda: None)
    while not events.recent:
        time.sleep(0.01)
    source.left = left
    watch.close()
    assert source.is_closed
    assert book.stream("s")["lag"]["backlog"] == told
    assert {event["kind"] for event in events.recent} == {"lag"}


def test_who_is_never_to_look_does_not_look_at_the_end(tmp_path: Path) -> None:
    watch, source = SourceWatch(EventLog(tmp_path / "events.jsonl"), 0), Source()
    probe: Any = source
    watch.add("s", probe, tmp_path, lambda: None)
    watch.close()
    assert source.looks == 0
