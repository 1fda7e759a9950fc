"""A process that merges and removes parts of a log is killed at every named place: the next one loses nothing."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from killing import forked
from penstock.operators.windows.shard import PARTIALS, Envelope
from penstock.spark.log import segments, stream_log
from penstock.spark.log.entries import Entry
from penstock.spark.log.envelopes import EnvelopeReader, write_envelopes
from penstock.spark.log.segments import Segments
from penstock.spark.log.stream_log import Kept, LogReader, StreamLog
from penstock.spark.storage.failpoints import LOG_NAMES
from penstock.spark.storage.formats import LOG_READER

SEGMENT = 8
ENTRIES, BYTES = 8 * SEGMENT, 7_500


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments of few entries."""
    monkeypatch.setattr(stream_log, "SEGMENT", SEGMENT)
    monkeypatch.setattr(segments, "SEGMENT", SEGMENT)


class Joined(Segments):
    """A reader joins as the front of the log is about to go."""

    joining: Sequence[str] = ()

    def _put(self, kept: Kept) -> None:
        if kept.first > self._log.first and self.joining:
            *self.joining, reader = self.joining
            self._log.join(reader, reads_again=True)
        super()._put(kept)


def write(folder: Path, joining: Sequence[str]) -> None:
    """Appends what is missing and tidies on the way; every entry has an envelope that says its number, at that time."""
    stream_log.SEGMENT = segments.SEGMENT = SEGMENT
    log, tidier = StreamLog(folder), Joined(folder, 1e12, BYTES)
    tidier.joining = joining
    last = log.newest()
    before = log.kept().before
    log.path("partials", "").mkdir(exist_ok=True)
    for number in range(0 if last is None else last.number + 1, ENTRIES):
        name = f"{number}.parquet"
        write_envelopes([(0, Envelope(0, PARTIALS, f"{number}".encode()))], log.path("partials", name))
        entry = Entry(
            number, number, 0, number, number, number, files={"partials": (name,)}, kept_before=before
        )
        assert log.append(entry)
        if number % 2 == 0:
            log.put_mark("reader", number - 1)
            tidier.tidy()
            before = log.kept().before
    tidier.tidy()


def run(folder: Path, failpoint: str = "", joining: Sequence[str] = ()) -> int:
    return forked(write, folder, joining, failpoint=failpoint)


@pytest.mark.parametrize("place", LOG_NAMES)
@pytest.mark.parametrize("segment", [1])
def test_a_kill_loses_nothing_and_leaves_nothing(tmp_path: Path, place: str, segment: int) -> None:
    assert run(tmp_path, f"{place}:{segment}") == -signal.SIGKILL
    assert run(tmp_path) == 0
    log = LogReader(tmp_path)
    kept = log.kept()
    assert kept.first > SEGMENT * segment
    assert kept.before == kept.first
    newest = log.newest()
    assert newest is not None
    assert newest.number == ENTRIES - 1
    reader = EnvelopeReader(log, 0)
    entries = log.between(kept.first - 1, ENTRIES - 1)
    for entry in entries:
        assert [envelope.payload for envelope in reader.of(entry)] == [str(entry.number).encode()]
    named = {name for entry in entries for name in entry.files["partials"]}
    assert {path.name for path in log.path("partials", "").iterdir()} == named
    segments = {int(path.stem) for path in (tmp_path / "segments").iterdir()}
    assert segments == set(range(kept.first // SEGMENT, max(segments) + 1))
    assert len(list((tmp_path / "entries").iterdir())) == ENTRIES - SEGMENT * (max(segments) + 1)


@pytest.mark.parametrize("failpoint", ["history_kept:0", ""])
def test_what_a_reader_joins_is_kept_though_it_was_about_to_go(tmp_path: Path, failpoint: str) -> None:
    assert run(tmp_path, failpoint, ["late"]) == (-signal.SIGKILL if failpoint else 0)
    log = LogReader(tmp_path)
    assert log.mark("late") == -1
    assert run(tmp_path) == 0
    assert log.first == 0
    reader = EnvelopeReader(log, 0)
    payloads = [reader.of(entry)[0].payload for entry in log.between(-1, ENTRIES - 1)]
    assert payloads == [str(number).encode() for number in range(ENTRIES)]
    log.leave("late")
    assert run(tmp_path) == 0
    assert log.first >= SEGMENT


def test_a_reader_that_was_killed_as_it_joined_begins_anew(tmp_path: Path) -> None:
    """It put its mark, and had not looked whether what it begins with is still kept."""

    class Killed(LogReader):
        def put_mark(self, reader: str, number: int, **told: Any) -> None:
            super().put_mark(reader, number, **told)
            raise KeyboardInterrupt

    assert run(tmp_path, "history_half_removed:0") == -signal.SIGKILL
    log = LogReader(tmp_path)
    assert log.first > 0
    with pytest.raises(KeyboardInterrupt):
        Killed(tmp_path).join("late", reads_again=True)
    told = LOG_READER.read(log.reader_path("late"))
    assert told is not None
    before = {log.first - 1: -1, log.first: 0}
    LOG_READER.replace(log.reader_path("late"), {name: before.get(each, each) for name, each in told.items()})
    assert log.marks()["late"] == -1
    assert log.mark("late") is None
    first = log.first
    assert run(tmp_path) == 0
    assert log.first == first, "what had begun to go is not kept for it"
    assert log.join("late") == first - 1
