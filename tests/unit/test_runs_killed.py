"""A process that merges runs of tuples is killed between any two steps: the next one loses and doubles nothing."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from killing import forked
from log_places import log_at
from penstock.operators.routing.routers import HashRouter
from penstock.operators.runs.run import RunPlan
from penstock.spark.log import run_levels, segments, stream_log
from penstock.spark.log.entries import Entry
from penstock.spark.log.run_files import RunFiles
from penstock.spark.log.runs import write_run_file
from penstock.spark.log.segments import Segments
from penstock.spark.log.stream_log import SINCE, LogReader, StreamLog
from penstock.spark.storage.failpoints import LOG_NAMES, RUN_NAMES

ENTRIES, SEGMENT, FANOUT, BYTES = 40, 4, 2, 19_000


def _make_small() -> None:
    stream_log.SEGMENT = segments.SEGMENT = SEGMENT
    run_levels.FANOUT, segments._RUN_PART = FANOUT, 1


def write(folder: Path, size: int, has_lane: bool) -> None:
    """Appends what is missing and tidies on the way; every entry has three tuples that say its number."""
    _make_small()
    log, tidier = StreamLog(log_at(folder)), Segments(log_at(folder), 1e12, size)
    plan = RunPlan(("k",), "ts", HashRouter(("k",), 2))
    last = log.newest()
    before, since = log.kept().before, log.kept().since
    log.path("tuples/1", "").mkdir(exist_ok=True, parents=True)
    for number in range(0 if last is None else last.number + 1, ENTRIES):
        name = f"{number}.arrow"
        tuples = pa.table(
            {"k": [1, 2, 3], "ts": pa.array([number] * 3, pa.timestamp("us")), "n": [number] * 3}
        )
        write_run_file(log.path("tuples/1", name), tuples, plan)
        entry = Entry(
            number, number, 0, number, number, number, files={"tuples/1": (name,)}, kept_before=before
        )
        assert log.append(entry)
        if number % 4 == 0:
            log.put_mark("reader", number - 1)
            if has_lane:
                # a lane's cut: it began with what was not about to go, and is done
                log.put_mark("join", number - 1, since=since)
                since = log.kept().since
            tidier.tidy()
            before = log.kept().before
    tidier.tidy()


def run(folder: Path, size: int, failpoint: str = "", *, has_lane: bool = False) -> int:
    return forked(write, folder, size, has_lane, failpoint=failpoint)


def read(log: LogReader, after: int, until: int) -> Counter[int]:
    """How often each entry is among the tuples of some entries."""
    found: Counter[int] = Counter()
    for each in RunFiles(log, 1).find(after, until).open():
        for part in map(each.run.part, each.run.parts):
            assert part is not None
            rows = part.rows_of(each.after, each.until)
            numbers = part.tuples.column("n").to_numpy()
            found.update((numbers if rows is None else numbers[rows]).tolist())
    return found


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_log, "SEGMENT", SEGMENT)
    monkeypatch.setattr(segments, "SEGMENT", SEGMENT)
    monkeypatch.setattr(run_levels, "FANOUT", FANOUT)


@pytest.mark.parametrize("place", [*(f"{name}:1" for name in (*RUN_NAMES, *LOG_NAMES[:3])), *LOG_NAMES[3:]])
def test_what_is_read_again_is_there_whatever_the_writer_was_at(tmp_path: Path, place: str) -> None:
    """Before the next start has mended anything, too: a lane's cut may be repeated sooner."""
    assert run(tmp_path, BYTES, place, has_lane=True) == -signal.SIGKILL
    log = LogReader(log_at(tmp_path))
    for is_mended in (False, True):
        if is_mended:
            assert run(tmp_path, BYTES, has_lane=True) == 0
        told = log.readers()["join"]
        since, mark = told[SINCE], told["number"]
        assert log.first <= since <= log.kept().since
        assert read(log, since - 1, mark) == dict.fromkeys(range(since, mark + 1), 3)
        newest = log.kept().lacks.get(1, 0)
        assert newest == log.kept().since, "of the tuples before it, as their event times are their entries'"
    assert since > 0


@pytest.mark.parametrize(
    ("place", "size"),
    [*((place, 10**9) for place in RUN_NAMES), *((place, BYTES) for place in (*RUN_NAMES, *LOG_NAMES))],
)
def test_a_kill_loses_and_doubles_no_tuple(tmp_path: Path, place: str, size: int) -> None:
    is_removed = size == BYTES
    assert run(tmp_path, size, f"{place}:1") == -signal.SIGKILL
    assert run(tmp_path, size) == 0
    log = LogReader(log_at(tmp_path))
    assert (log.first > 0) == is_removed
    assert read(log, log.first - 1, ENTRIES - 1) == dict.fromkeys(range(log.first, ENTRIES), 3)
    names = sorted(path.name for path in log.path("tuples/1", "").iterdir())
    assert not [name for name in names if name.startswith(".")]
    if not is_removed:
        # 40 entries: segments 0 to 7 in one run, 8 in one, the last four entries by themselves
        assert names == [
            "36.arrow",
            "37.arrow",
            "38.arrow",
            "39.arrow",
            "level-0-0000000008.arrow",
            "level-3-0000000000.arrow",
        ]
