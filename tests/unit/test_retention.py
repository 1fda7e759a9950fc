"""What is too old leaves a log whatever cannot be merged: a damaged file, or a full disk, which that empties."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from log_places import log_at
from penstock.errors import DamagedError
from penstock.operators.routing.routers import HashRouter
from penstock.operators.runs.run import RunPlan
from penstock.operators.windows.shard import PARTIALS, Envelope, WindowProgram
from penstock.settings import Settings
from penstock.spark.log import run_levels
from penstock.spark.log.entries import Entry
from penstock.spark.log.envelopes import EnvelopeReader, write_envelopes
from penstock.spark.log.ingest_log import IngestLog
from penstock.spark.log.leaving import Removed
from penstock.spark.log.programs import store_program
from penstock.spark.log.run_files import RunFiles
from penstock.spark.log.run_levels import Unmerged, run_name
from penstock.spark.log.runs import write_run_file
from penstock.spark.log.segments import Segments
from penstock.spark.log.stream_log import SEGMENT, StreamLog
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.layout import PARTIALS_FILES, Layout

pytestmark = pytest.mark.usefixtures("own_commits")

SECOND, TUPLES = 1_000_000, "tuples/0"
PLAN = RunPlan(("k",), "ts", HashRouter(("k",), 2))


def append(log: StreamLog, until: int) -> None:
    """An entry a second, with two tuples and an envelope, each of which its reader leaves behind."""
    last = log.newest()
    log.path(TUPLES, "").mkdir(parents=True, exist_ok=True)
    log.path(PARTIALS_FILES, "").mkdir(exist_ok=True)
    for number in range(0 if last is None else last.number + 1, until):
        tuples = pa.table({"k": [1, 2], "ts": pa.array([number] * 2, pa.timestamp("us")), "n": [number] * 2})
        write_run_file(log.path(TUPLES, f"{number}.arrow"), tuples, PLAN)
        write_envelopes([(0, Envelope(0, PARTIALS, b"x"))], log.path(PARTIALS_FILES, f"{number}.parquet"))
        files = {TUPLES: (f"{number}.arrow",), PARTIALS_FILES: (f"{number}.parquet",)}
        known = log.kept().before
        entry = Entry(number, number, 0, number * SECOND, number, number, files=files, kept_before=known)
        assert log.append(entry)
    log.put_mark("reader", until - 1)


def _tear(log: StreamLog) -> tuple[str, int]:
    log.path(TUPLES, f"{SEGMENT + 9}.arrow").write_bytes(b"torn")
    return TUPLES, SEGMENT + 9


def _tear_envelopes(log: StreamLog) -> tuple[str, int]:
    log.path(PARTIALS_FILES, f"{SEGMENT + 9}.parquet").write_bytes(b"torn")
    return PARTIALS_FILES, SEGMENT + 9


def _lose(log: StreamLog) -> tuple[str, int]:
    log.path(TUPLES, f"{SEGMENT + 9}.arrow").unlink()
    return TUPLES, SEGMENT + 9


def _block(log: StreamLog) -> tuple[str, int]:
    log.path(PARTIALS_FILES, f"segment-{1:010d}.parquet").mkdir()
    return PARTIALS_FILES, -1


@pytest.mark.parametrize("damage", [_tear, _tear_envelopes, _lose, _block])
def test_what_cannot_be_merged_stays_as_it_is_and_what_is_old_goes(
    damage: Callable[[StreamLog], tuple[str, int]], tmp_path: Path
) -> None:
    log, now, told = StreamLog(log_at(tmp_path)), [0], list[Removed | Unmerged]()
    tidier = Segments(log_at(tmp_path), SEGMENT, 1 << 40, lambda: now[0] * SECOND, told.append)
    append(log, SEGMENT + 1)
    tidier.tidy()
    append(log, 3 * SEGMENT + 1)
    damaged_kind, damaged = damage(log)
    for _ in range(2):
        tidier.tidy()
    assert [(each.segment, each.files) for each in told if isinstance(each, Unmerged)] == [(1, damaged_kind)]
    assert told == told[:1], "and that once"
    entries = log.between(SEGMENT - 1, 2 * SEGMENT - 1)
    for kind in (PARTIALS_FILES, TUPLES):
        names = {name for entry in entries for name in entry.files.get(kind, ())}
        merged = kind == PARTIALS_FILES
        assert len(names) == (SEGMENT if kind == damaged_kind else merged)
    for number in range(SEGMENT, 2 * SEGMENT):
        if number != damaged:
            assert len(RunFiles(log, 0).find(number - 1, number).open()) == 1
            assert len(EnvelopeReader(log, 0).of(log.entry(number))) == 1

    now[0] = 10 * SEGMENT
    tidier.tidy()
    assert log.kept().before == log.kept().lacks[0] == 3 * SEGMENT
    append(log, 3 * SEGMENT + 3)
    tidier.tidy()
    assert log.first == 3 * SEGMENT
    assert all(int(path.stem) >= 3 * SEGMENT for path in log.path(TUPLES, "").iterdir())
    assert isinstance(told[-1], Removed)


def test_what_is_old_goes_while_no_segment_can_be_made(tmp_path: Path) -> None:
    log = StreamLog(log_at(tmp_path))
    append(log, 2 * SEGMENT + 1)
    Segments(log_at(tmp_path), 1e12, 1 << 40).tidy()
    append(log, 3 * SEGMENT + 1)
    log.log.entries[2 * SEGMENT + 9].replace(b"torn")
    tidier = Segments(log_at(tmp_path), 0, 1 << 40)
    for until in (3 * SEGMENT + 1, 3 * SEGMENT + 3):
        append(log, until)
        with pytest.raises(DamagedError, match="is not a complete JSON document"):
            tidier.tidy()
    assert log.first == 2 * SEGMENT


def test_runs_that_cannot_be_merged_into_a_larger_one_stay_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_levels, "FANOUT", 2)
    log, told = StreamLog(log_at(tmp_path)), list[Removed | Unmerged]()
    tidier = Segments(log_at(tmp_path), 1e12, 1 << 40, told=told.append)
    append(log, SEGMENT + 1)
    tidier.tidy()
    log.path(TUPLES, run_name(0, 0)).write_bytes(b"torn")
    append(log, 4 * SEGMENT + 1)
    tidier.tidy()
    assert [(each.segment, each.files) for each in told if isinstance(each, Unmerged)] == [
        (1, TUPLES),
        (3, TUPLES),
    ]
    assert {path.name for path in log.path(TUPLES, "").glob("level-*")} == {
        run_name(0, 0),
        run_name(0, 1),
        run_name(1, 1),
    }
    assert len(RunFiles(log, 0).find(SEGMENT - 1, 4 * SEGMENT - 1).open()) == 2


def test_the_ingest_tells_who_holds_the_log_back_while_no_segment_can_be_made(tmp_path: Path) -> None:
    layout = Layout.of(tmp_path / "out", None)
    layout.open()
    log = StreamLog(layout.log("s"))
    append(log, 2 * SEGMENT + 1)
    log.log.entries[9].replace(b"torn")
    log.put_mark("gone", SEGMENT)
    store_program(layout, "s", WindowProgram(0, (), 1, 1))
    ingest = IngestLog(layout, "s", Settings(history_seconds=1), EventLog(layout.events))
    ingest.put_end()
    ingest.close()
    told = {each["kind"]: each for each in map(json.loads, layout.events.read_text().splitlines())}
    assert told.keys() == {"compaction_failed", "history_held"}
    assert told["history_held"]["reader"] == "gone"
