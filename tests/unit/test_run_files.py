"""Finding the runs of some entries: a look at each segment and run, and at what has been merged since once more."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from log_places import log_at
from penstock.errors import CheckpointError
from penstock.operators.routing.routers import HashRouter
from penstock.operators.runs.run import RunPlan
from penstock.spark.log.entries import Entry
from penstock.spark.log.run_files import FoundRuns, OpenRun, RunFiles
from penstock.spark.log.run_levels import FANOUT, run_name
from penstock.spark.log.runs import write_run_file
from penstock.spark.log.segments import Segments
from penstock.spark.log.stream_log import SEGMENT, LogReader, StreamLog
from penstock.spark.storage.formats import LOG_KEPT
from penstock.spark.storage.layout import tuples_kind

DEMAND = 3
KIND = tuples_kind(DEMAND)
#: entries with a file that is too large to be merged, and a segment without tuples
LARGE = (SEGMENT + 5, 9 * SEGMENT)
SILENT = 5
SEGMENTS = FANOUT + 2


class Log:
    """A log whose entries have a tuple each that says their number; some have a second one in a file of their own."""

    def __init__(self, folder: Path, grace_seconds: float = 0) -> None:
        self.log = StreamLog(log_at(folder))
        self.log.path(KIND, "").mkdir(parents=True)
        self.tidier = Segments(log_at(folder), 1e9, 1 << 40, lambda: 0, grace_seconds=grace_seconds)
        self.entries = 0

    def put(self, entries: int) -> None:
        for number in range(self.entries, self.entries + entries):
            names = []
            if number // SEGMENT != SILENT:
                names.append(self._write(f"{number}.arrow", number, b""))
            if number in LARGE:
                names.append(self._write(f"{number}-large.arrow", number, b"." * (5 << 20)))
            files = {KIND: tuple(names)} if names else {}
            assert self.log.append(Entry(number, number, 0, number, number, number, files=files))
        self.entries += entries

    def tidy(self) -> None:
        self.log.put_mark("reader", self.entries - 1)
        self.tidier.tidy()

    def _write(self, name: str, number: int, text: bytes) -> str:
        times = pa.array([number], pa.timestamp("us", "UTC"))
        tuples = pa.table({"k": [number], "ts": times, "text": [text]})
        write_run_file(self.log.path(KIND, name), tuples, RunPlan(("k",), "ts", HashRouter(("k",), 2)))
        return name


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Log:
    """One run of 16 segments, two of one, and the entries of one that is not made."""
    made = Log(tmp_path_factory.mktemp("runs") / "log")
    with pytest.MonkeyPatch.context() as patched:
        # what a power cut loses is not looked at here
        patched.setattr(os, "fsync", lambda _: None)
        made.put(SEGMENTS * SEGMENT + 10)
        made.tidy()
    return made


def tuples(runs: Iterable[OpenRun]) -> Counter[int]:
    """How often each entry is among the tuples that are meant."""
    found: Counter[int] = Counter()
    for each in runs:
        for part in map(each.run.part, each.run.parts):
            assert part is not None
            rows = part.rows_of(each.after, each.until)
            numbers = part.tuples.column("k").to_numpy()
            found.update((numbers if rows is None else numbers[np.asarray(rows)]).tolist())
    return found


def wanted(after: int, until: int) -> dict[int, int]:
    """What `tuples` finds in the whole of some entries."""
    numbers = [number for number in range(after + 1, until + 1) if number // SEGMENT != SILENT]
    return {number: 1 + (number in LARGE) for number in numbers}


@pytest.mark.parametrize(
    ("after", "until"),
    [
        (-1, SEGMENTS * SEGMENT + 9),
        (3, 3),
        (3, 4),
        (SEGMENT + 3, SEGMENT + 5),
        (LARGE[0], LARGE[1] - 1),
        (SILENT * SEGMENT - 1, (SILENT + 1) * SEGMENT - 1),
        (SILENT * SEGMENT + 7, 12 * SEGMENT + 1),
        (FANOUT * SEGMENT - 2, FANOUT * SEGMENT),
        (SEGMENTS * SEGMENT - 2, SEGMENTS * SEGMENT + 3),
    ],
)
def test_each_tuple_of_some_entries_is_found_once(log: Log, after: int, until: int) -> None:
    files = RunFiles(LogReader(log.log.log), DEMAND)
    assert tuples(RunFiles(LogReader(log.log.log), DEMAND).find(after, until).open()) == wanted(after, until)
    for _ in range(2):
        assert tuples(files.find(after, until).open()) == wanted(after, until)


def test_runs_are_found_in_the_ledger_alone(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither files nor the entries of segments are looked at: a scan of what is listed, and one of the other entries."""
    read: list[range] = []
    between = LogReader.between

    def read_between(self: LogReader, after: int, until: int) -> list[Entry]:
        read.append(range(after + 1, until + 1))
        return between(self, after, until)

    files, folder = RunFiles(LogReader(log.log.log), DEMAND), log.log.path(KIND, "")
    monkeypatch.setattr(LogReader, "between", read_between)
    folder.rename(folder.with_name("aside"))
    found = files.find(-1, log.entries - 1)
    folder.with_name("aside").rename(folder)
    made = SEGMENTS * SEGMENT
    assert read == [range(made, log.entries)]
    levels = [each.name for each in found.files if each.name.startswith("level")]
    assert levels == [run_name(1, 0), run_name(0, FANOUT), run_name(0, FANOUT + 1)]


def test_a_segment_that_is_made_as_runs_are_found_loses_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log(tmp_path / "log", grace_seconds=600)
    log.put(3 * SEGMENT)
    files, between = RunFiles(LogReader(log.log.log), DEMAND), LogReader.between

    def merged_between(is_before: bool) -> FoundRuns:
        def read(self: LogReader, after: int, until: int) -> list[Entry]:
            monkeypatch.setattr(LogReader, "between", between)
            if is_before:
                log.tidy()
            found = between(self, after, until)
            log.tidy()
            return found

        monkeypatch.setattr(LogReader, "between", read)
        return files.find(-1, log.entries - 1)

    for is_before in (True, False):
        assert tuples(merged_between(is_before).open()) == wanted(-1, log.entries - 1)
        log.put(SEGMENT)


def test_who_asks_for_entries_that_are_gone_is_told(tmp_path: Path) -> None:
    log = Log(tmp_path / "log")
    log.put(2 * SEGMENT + 1)
    log.tidy()
    LOG_KEPT.replace(log.log.log.kept, replace(log.log.kept(), first=SEGMENT).document())
    files = RunFiles(LogReader(log.log.log), DEMAND)
    with pytest.raises(CheckpointError, match=r"entry/log/3 in .* is missing"):
        files.find(2, SEGMENT + 1)


def test_what_was_found_is_opened_without_the_log(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    until = log.entries - 1
    found = RunFiles(LogReader(log.log.log), DEMAND).find(-1, until)

    def never(*_: Any) -> None:
        raise AssertionError("it is known where the tuples are")

    for name in ("entry", "segment"):
        monkeypatch.setattr(LogReader, name, never)
    assert tuples(found.open()) == wanted(-1, until)


def test_what_was_merged_since_it_was_found_is_there_until_its_time_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log(tmp_path / "log", grace_seconds=600)
    found: list[FoundRuns] = []
    files = RunFiles(LogReader(log.log.log), DEMAND)
    for _ in range(4):
        log.put(5 * SEGMENT)
        found.append(files.find(-1, log.entries - 1))
        log.tidy()
        found.append(files.find(-1, log.entries - 1))
    assert log.log.path(KIND, "level-1-0000000000.arrow").exists()
    for each in found:
        assert tuples(each.open()) == wanted(-1, each.until)
    small = log.log.path(KIND, "0.arrow")
    assert small.exists()
    # the next process removes what this one has not, once its time is over
    tidier = Segments(log.log.log, 1e9, 1 << 40, lambda: 0, grace_seconds=600)
    tidier.tidy()
    assert small.exists()
    # just before that: who looks now finds what stays
    found = [RunFiles(LogReader(log.log.log), DEMAND).find(-1, log.entries - 1)]
    later = time.time() + 601
    monkeypatch.setattr(time, "time", lambda: later)
    tidier.tidy()
    assert tuples(found[0].open()) == wanted(-1, log.entries - 1)
    left = {path.name for path in small.parent.iterdir()}
    assert not {name for name in left if name.startswith("level-0") and int(name[8:18]) < FANOUT}
    assert "0.arrow" not in left
    assert tuples(files.find(-1, log.entries - 1).open()) == wanted(-1, log.entries - 1)


def test_tuples_that_are_gone_are_told(tmp_path: Path) -> None:
    log = Log(tmp_path / "log")
    log.put(3)
    found = RunFiles(LogReader(log.log.log), DEMAND).find(-1, 2)
    log.log.path(KIND, "1.arrow").unlink()
    with pytest.raises(CheckpointError, match=r".*/1\.arrow \(tuples of a log\) is missing"):
        found.open()
