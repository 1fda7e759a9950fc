"""Readers that hold a log back beyond its history are named, whether they are of this run or of none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from log_places import log_at
from penstock.monitor.book import StatusBook
from penstock.monitor.report import status_lines
from penstock.operators.windows.shard import WindowProgram
from penstock.settings import Settings
from penstock.spark.log.entries import Entry
from penstock.spark.log.holding import Held, Holding
from penstock.spark.log.ingest_log import IngestLog
from penstock.spark.log.programs import store_program
from penstock.spark.log.segments import Segments
from penstock.spark.log.stream_log import SEGMENT, SINCE, LogReader, StreamLog
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.layout import Layout

pytestmark = pytest.mark.usefixtures("own_commits")

SECOND = 1_000_000


def append(log: StreamLog, entries: int, size: int = 100) -> None:
    """An entry a second, each with a file."""
    last = log.newest()
    log.path("tallies", "").mkdir(parents=True, exist_ok=True)
    first = 0 if last is None else last.number + 1
    for number in range(first, first + entries):
        log.path("tallies", str(number)).write_bytes(bytes(size))
        assert log.append(Entry(number, number, 0, number * SECOND, files={"tallies": (str(number),)}))


def test_who_holds_a_log_back_is_known_and_how_far(tmp_path: Path) -> None:
    log = StreamLog(log_at(tmp_path))
    append(log, 5 * SEGMENT + 1)
    now = 5 * SEGMENT
    log.put_mark("gone", SEGMENT + 9)
    log.put_mark("slow", 4 * SEGMENT - 1)
    log.put_mark("quick", now)
    Segments(log_at(tmp_path), 1e12, 1 << 40).tidy()

    def look(seconds: float, size: int) -> list[Held]:
        return Holding(LogReader(log_at(tmp_path)), seconds, size, lambda: now * SECOND).look(
            {"slow", "quick"}
        )

    assert look(3.5 * SEGMENT, 1 << 40) == []
    (gone,) = look(2.5 * SEGMENT, 1 << 40)
    assert (gone.reader, gone.entry, gone.seconds, gone.reason, gone.is_known) == (
        *("gone", SEGMENT + 10, now - SEGMENT - 10, "age"),
        False,
    )
    size = sum(len(log.log.entries[number].get() or b"") for number in range(SEGMENT, 5 * SEGMENT + 1))
    size += 100 * (4 * SEGMENT + 1)
    assert 0.99 * size < gone.bytes < size, "all but the newest entry, which is in no whole segment"
    by_size = look(1e12, gone.bytes - 1)
    assert [(each.reader, each.reason) for each in by_size] == [("gone", "size")]
    assert [each.reader for each in look(0, 1 << 40)] == ["gone", "slow"], "the last segment is not whole"
    log.leave("gone")
    assert [each.reader for each in look(0, 1 << 40)] == ["slow"]


def test_who_holds_tuples_to_read_them_again_is_known(tmp_path: Path) -> None:
    """One that does without them says so with its next cut: it is not told of before."""
    log = StreamLog(log_at(tmp_path))
    append(log, 5 * SEGMENT + 1)
    now = 5 * SEGMENT
    for reader in ("left", "inner"):
        log.put_mark(reader, now, **{SINCE: 7})
    log.put_mark("windows", now)
    segments = Segments(log_at(tmp_path), 2.5 * SEGMENT, 1 << 40, lambda: now * SECOND)
    holding = Holding(LogReader(log_at(tmp_path)), 2.5 * SEGMENT, 1 << 40, lambda: now * SECOND)
    assert holding.look(()) == []
    segments.tidy()
    announced = log.kept().since
    assert announced == 2 * SEGMENT
    assert holding.look(()) == [], "none has had a cut since"
    log.put_mark("inner", now, **{SINCE: announced})
    (left,) = holding.look({"left"})
    assert (left.reader, left.entry, left.seconds, left.reason) == ("left", 7, now - 7, "age")
    assert left.event()["told"] == "reader left still needs entry 7, so the log is kept from there on"
    log.put_mark("left", now, **{SINCE: announced})
    assert holding.look({"left"}) == []
    segments.tidy()
    assert log.first == announced


def test_the_bytes_of_a_long_log_are_counted_little_by_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.spark.log.holding._COUNTED", 2)
    log = StreamLog(log_at(tmp_path))
    append(log, 5 * SEGMENT + 1)
    log.put_mark("gone", -1)
    holding = Holding(LogReader(log_at(tmp_path)), 0, 1 << 40, lambda: 5 * SEGMENT * SECOND)
    sizes = [holding.look(())[0].bytes for _ in range(4)]
    assert sizes[0] < sizes[1] < sizes[2] == sizes[3]


def test_it_is_told_when_it_is_news_and_when_it_is_over(tmp_path: Path) -> None:
    layout = Layout.of(tmp_path / "out", None)
    layout.open()
    book, now = StatusBook(), [2 * SEGMENT]
    book.update(output="out", pid=1)
    log, events = StreamLog(layout.log("s")), EventLog(layout.events, told=book.note)
    append(log, 2 * SEGMENT)
    log.put_mark("gone", -1)
    log.put_mark("join", SEGMENT)
    holding = Holding(log, 1, 1 << 40, lambda: now[0] * SECOND)
    for seconds, known in ((0, ()), (1, ()), (10 * SEGMENT, ()), (0, ("gone",)), (0, ("gone",))):
        now[0] += seconds
        holding.tell(events, "s", known)
    told = list(events.recent)
    assert [each["kind"] for each in told] == ["history_held"] * 3
    assert [each["is_known"] for each in told] == [False, False, True]
    assert "no view of this run uses this reader" in told[0]["told"]
    assert "no view" not in told[2]["told"]
    document = {**book.document(), "output": "out"}
    assert "reader gone keeps old parts of the log: " in "\n".join(status_lines(document, verbose=True))
    log.leave("gone")
    holding.tell(events, "s", ())
    assert [(each["kind"], each["reader"]) for each in list(events.recent)[3:]] == [
        ("history_released", "gone")
    ]
    assert book.stream("s")["held_by"] == {}


def test_the_ingest_names_readers_that_are_of_no_lane(tmp_path: Path) -> None:
    layout = Layout.of(tmp_path / "out", None)
    layout.open()
    append(StreamLog(layout.log("s")), 2 * SEGMENT)
    for reader in ("gone", "join"):
        LogReader(layout.log("s")).put_mark(reader, -1)
    store_program(layout, "s", WindowProgram(0, (), 1, 1))
    log = IngestLog(layout, "s", Settings(history_seconds=1), EventLog(layout.events))
    log.readers = lambda: {"join"}
    log.put_end()
    log.close()
    told = map(json.loads, layout.events.read_text().splitlines())
    assert {each["reader"]: each["is_known"] for each in told} == {"gone": False, "join": True}
