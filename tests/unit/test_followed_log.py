"""A reader that follows a log remembers its entries, and is told the same as one that reads them each time."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from log_places import log_at
from penstock.operators.deadlines.instances import Extent
from penstock.operators.deadlines.run_tuples import tuples_of
from penstock.operators.joins.tuples import RunSlice
from penstock.operators.routing.routers import HashRouter
from penstock.operators.runs.run import RunPlan
from penstock.spark.log import followed
from penstock.spark.log.entries import Entry
from penstock.spark.log.followed import FollowedLog
from penstock.spark.log.run_files import RunFiles
from penstock.spark.log.runs import write_run_file
from penstock.spark.log.segments import Segments
from penstock.spark.log.stream_log import SEGMENT, LogReader, StreamLog
from penstock.spark.storage.layout import tuples_kind
from penstock.spark.storage.ledger_documents import StoredDocuments

DEMAND = 0
KIND = tuples_kind(DEMAND)


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StreamLog:
    """An empty log."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    made = StreamLog(log_at(tmp_path / "log"))
    made.path(KIND, "").mkdir(parents=True)
    return made


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the entries that are read from the ledger."""
    numbers: list[int] = []
    between = StoredDocuments.between

    def told(self: StoredDocuments, first: int, last: int, kind: str) -> Mapping[int, dict[str, Any]]:
        found = between(self, first, last, kind)
        numbers.extend(found if self.prefix[0] == "entry" else ())
        return found

    monkeypatch.setattr(StoredDocuments, "between", told)
    return numbers


def _put(log: StreamLog, numbers: range) -> None:
    for number in numbers:
        times = pa.array([number], pa.timestamp("us", "UTC"))
        write_run_file(
            log.path(KIND, f"{number}.arrow"), pa.table({"ts": times}), RunPlan((), "ts", HashRouter((), 1))
        )
        files = {KIND: (f"{number}.arrow",)}
        assert log.append(Entry(number, number, 0, number, number, number, files=files))


def test_an_entry_is_read_once(log: StreamLog, read: list[int]) -> None:
    _put(log, range(30))
    reader = FollowedLog(log.log)
    assert reader.between(-1, 29) == log.between(-1, 29)
    read.clear()
    assert [each.number for each in reader.between(9, 29)] == list(range(10, 30))
    assert reader.entry(7).number == 7
    assert reader.first_reaching(12, -1, 29) == 12
    assert read == []
    _put(log, range(30, 32))
    assert reader.between(20, 31) == LogReader(log.log).between(20, 31)
    assert read[:2] == [30, 31]


def test_what_is_not_remembered_is_read_and_no_more_than_some_is_kept(
    log: StreamLog, read: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followed, "_MOST", 8)
    _put(log, range(30))
    reader = FollowedLog(log.log)
    assert reader.first_reaching(25, -1, 29) == 25
    assert [each.number for each in reader.between(-1, 29)] == list(range(30))
    read.clear()
    reader.between(21, 29)
    assert read == []
    reader.between(20, 29)
    assert read == [21]


def test_a_segment_that_is_made_meanwhile_is_noticed(log: StreamLog) -> None:
    _put(log, range(2 * SEGMENT + 5))
    reader, last = FollowedLog(log.log), 2 * SEGMENT + 4
    runs = RunFiles(reader, DEMAND)
    before = runs.find(SEGMENT - 9, last)
    assert len(before.files) == SEGMENT + 13
    log.put_mark("lane", last)
    Segments(log_at(log.log.ledger.folder), 1e9, 1 << 40, lambda: 0).tidy()
    assert reader.between(-1, last) == log.between(-1, last)
    assert not reader.entry(SEGMENT).files, "its file is merged"
    found = runs.find(SEGMENT - 9, last)
    assert len(found.files) < 10
    slices = [RunSlice(each.run, each.after, each.until) for each in found.open()]
    times = tuples_of(slices, (), [Extent(0, last + 1, last + 1)]).times
    assert sorted(times.tolist()) == list(range(SEGMENT - 8, last + 1))
