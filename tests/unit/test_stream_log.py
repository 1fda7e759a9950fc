"""The log of a stream: entries by number, found without listing, and the marks of its readers."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from log_places import log_at
from penstock.errors import CheckpointError
from penstock.spark.log.entries import Entry
from penstock.spark.log.envelopes import write_envelopes
from penstock.spark.log.segments import Segments
from penstock.spark.log.stream_log import SEGMENT, LogReader, StreamLog


def put(log: StreamLog, number: int) -> Entry:
    entry = Entry(number, number // 2, 0, number, files={"partials": (f"{number}.parquet",)}, delays=(1, 2))
    assert log.append(entry)
    return entry


def test_entries_are_read_as_they_were_put(tmp_path: Path) -> None:
    log, reader = StreamLog(log_at(tmp_path)), LogReader(log_at(tmp_path))
    assert reader.newest() is None
    entries = [put(log, number) for number in range(5)]
    assert reader.newest() == entries[-1] == LogReader(log_at(tmp_path)).newest()
    assert reader.between(-1, 4) == entries
    assert reader.between(2, 4) == entries[3:]
    assert reader.between(4, 4) == []
    assert not reader.has(5)
    assert not log.append(entries[2])
    assert reader.entry(2) == entries[2]


def test_the_newest_entry_is_found_by_who_has_not_looked_for_longer_than_history_is_kept(
    tmp_path: Path,
) -> None:
    log, reader, tidier = (
        StreamLog(log_at(tmp_path)),
        LogReader(log_at(tmp_path)),
        Segments(log_at(tmp_path), 1e12, 0),
    )
    log.path("partials", "").mkdir(parents=True)
    for number in range(3 * SEGMENT):
        write_envelopes([], log.path("partials", f"{number}.parquet"))
        put(log, number)
        if number == 3:
            assert reader.newest() == log.newest() == log.entry(number)
    log.put_mark("reader", 3 * SEGMENT - 1)
    tidier.tidy()
    assert log.first > 3
    assert reader.newest() == log.newest() == log.entry(3 * SEGMENT - 1)


def test_a_reader_goes_on_where_an_entry_is_and_waits_where_none_is_yet(tmp_path: Path) -> None:
    log, reader = StreamLog(log_at(tmp_path)), LogReader(log_at(tmp_path))
    assert reader.ahead("reader join of stream s", -1, 5) == -1
    put_many(log, range(4))
    assert [reader.ahead("reader join of stream s", after, 2) for after in range(-1, 4)] == [1, 2, 3, 3, 3]


def test_a_reader_whose_next_entry_is_gone_is_told(tmp_path: Path) -> None:
    """Its own place is that of an older copy, or the log is."""
    log, tidier = StreamLog(log_at(tmp_path)), Segments(log_at(tmp_path), 0, 1 << 40)
    log.path("partials", "").mkdir(parents=True)
    for number in range(2 * SEGMENT + 3):
        write_envelopes([], log.path("partials", f"{number}.parquet"))
        put(log, number)
    log.put_mark("join", SEGMENT + 9)
    tidier.tidy()
    reader = LogReader(log_at(tmp_path))
    assert reader.ahead("reader join of stream s", SEGMENT - 1, 1) == SEGMENT
    for after in (-1, 0, SEGMENT - 2):
        told = f"reader join of stream s continues with entry {after + 1} of the log, .* starts at entry {SEGMENT}"
        with pytest.raises(
            CheckpointError, match=f"{told}: one of them was restored .*Restore the newest copy"
        ):
            reader.ahead("reader join of stream s", after, 1)
    last = 2 * SEGMENT + 2
    assert reader.ahead("reader join of stream s", last, 1) == last
    with pytest.raises(
        CheckpointError, match=f"continues with entry {last + 2} .* ends before entry {last + 1}"
    ):
        reader.ahead("reader join of stream s", last + 1, 1)


def test_the_first_entry_that_reaches_a_moment_is_the_first_that_came_so_far(tmp_path: Path) -> None:
    log = StreamLog(log_at(tmp_path))
    furthest = [None, 5, 5, 9, 9, 30, 30, 31]
    for number, each in enumerate(furthest):
        assert log.append(Entry(number, number, 0, number, furthest=each))
    for moment in range(40):
        for after in (-1, 2):
            wanted = [
                n for n, each in enumerate(furthest) if n > after and each is not None and each >= moment
            ]
            assert log.first_reaching(moment, after, 7) == min(wanted, default=8)


def test_an_entry_that_is_gone_is_named(tmp_path: Path) -> None:
    log = StreamLog(log_at(tmp_path))
    for number in range(3):
        put(log, number)
    log.log.entries[1].remove()
    with pytest.raises(CheckpointError, match=r"entry/log/1 in .* is missing"):
        LogReader(log_at(tmp_path)).between(-1, 2)


def test_an_entry_of_another_format_is_refused(tmp_path: Path) -> None:
    log = StreamLog(log_at(tmp_path))
    put(log, 0)
    stored = log.log.entries[0]
    stored.replace(json.dumps({**json.loads(stored.get() or b""), "format": 7}).encode())
    with pytest.raises(CheckpointError, match="has format 7"):
        log.entry(0)


def test_readers_say_how_far_they_have_come(tmp_path: Path) -> None:
    log, reader = StreamLog(log_at(tmp_path)), LogReader(log_at(tmp_path))
    reader.put_mark("windows", 4, final=10)
    reader.put_mark("join", 2)
    reader.put_mark("windows", 6)
    assert log.marks() == {"windows": 6, "join": 2}


def test_threads_may_share_a_reader(tmp_path: Path) -> None:
    """Each looks on where the newest entry was; none may pass over what another has found."""
    log, reader = StreamLog(log_at(tmp_path)), LogReader(log_at(tmp_path))
    put(log, 0)
    assert reader.newest() is not None
    last = put_many(log, range(1, 400))
    begins = threading.Barrier(4)

    def ask(_: int) -> Entry | None:
        begins.wait()
        return reader.newest()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            assert list(threads.map(ask, range(4))) == [last] * 4
    finally:
        sys.setswitchinterval(interval)


def put_many(log: StreamLog, numbers: Iterable[int]) -> Entry:
    return [put(log, number) for number in numbers][-1]
