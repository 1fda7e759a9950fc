"""A process that merges and removes parts of a log is killed at every named place: the next one loses nothing."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from killing import forked
from log_places import log_at
from penstock.operators.windows.shard import PARTIALS, Envelope
from penstock.spark.log import segments, stream_log
from penstock.spark.log.entries import Entry
from penstock.spark.log.envelopes import EnvelopeReader, write_envelopes
from penstock.spark.log.segments import Segments
from penstock.spark.log.stream_log import LogReader, StreamLog
from penstock.spark.storage.failpoints import LOG_NAMES

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

    def _files_of(self, segment: int) -> list[str]:
        if self.joining:
            *self.joining, reader = self.joining
            self._log.join(reader, reads_again=True)
        return super()._files_of(segment)


def write(folder: Path, joining: Sequence[str]) -> None:
    """Appends what is missing and tidies on the way; every entry has an envelope that says its number, at that time."""
    stream_log.SEGMENT = segments.SEGMENT = SEGMENT
    log, tidier = StreamLog(log_at(folder)), Joined(log_at(folder), 1e12, BYTES)
    tidier.joining = joining
    last = log.newest()
    before = log.kept().before
    log.path("partials", "").mkdir(exist_ok=True, parents=True)
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


@pytest.mark.parametrize("place", [*LOG_NAMES, "replaced_half_removed"])
@pytest.mark.parametrize("segment", [1])
def test_a_kill_loses_nothing_and_leaves_nothing(tmp_path: Path, place: str, segment: int) -> None:
    assert run(tmp_path, f"{place}:{segment}") == -signal.SIGKILL
    assert run(tmp_path) == 0
    log = LogReader(log_at(tmp_path))
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
    segments = log.log.segments.numbers()
    assert segments == list(range(kept.first // SEGMENT, max(segments) + 1))
    assert log.log.entries.numbers() == list(range(kept.first, ENTRIES))
    assert not log.log.replaced.exists()


def test_what_a_reader_joins_is_kept_though_it_was_about_to_go(tmp_path: Path) -> None:
    assert run(tmp_path, "", ["late"]) == 0
    log = LogReader(log_at(tmp_path))
    assert log.mark("late") == -1
    assert run(tmp_path) == 0
    assert log.first == 0
    reader = EnvelopeReader(log, 0)
    payloads = [reader.of(entry)[0].payload for entry in log.between(-1, ENTRIES - 1)]
    assert payloads == [str(number).encode() for number in range(ENTRIES)]
    log.log.ledger.open()
    log.leave("late")
    assert run(tmp_path) == 0
    assert log.first >= SEGMENT
