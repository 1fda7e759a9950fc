"""Orders of a lot that need the same tuples read them once, and get what each would read alone."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from log_places import log_at
from penstock.errors import CheckpointError
from penstock.operators.deadlines.instances import Extent, Tuples
from penstock.operators.deadlines.run_tuples import tuples_of
from penstock.operators.routing.routers import HashRouter
from penstock.operators.runs.run import RunPlan
from penstock.spark.lanes.deadlines import read_tuples
from penstock.spark.lanes.deadlines.read_tuples import ReadTuples, slices_of
from penstock.spark.log import run_files
from penstock.spark.log.entries import Entry
from penstock.spark.log.run_files import FoundRuns, RunFiles
from penstock.spark.log.runs import write_run_file
from penstock.spark.log.stream_log import StreamLog
from penstock.spark.storage.layout import tuples_kind

ENTRIES = 12
DEMANDS = (0, 1)
EXTENT = Extent(20, 100, ENTRIES)


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[FoundRuns]:
    """Those of two demands, of each the tuples of all entries."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    log, rng = StreamLog(log_at(tmp_path / "log")), np.random.default_rng(0)
    for number in range(ENTRIES):
        files = {}
        for demand in DEMANDS:
            kind, name = tuples_kind(demand), f"{number}.arrow"
            log.path(kind, "").mkdir(parents=True, exist_ok=True)
            times = pa.array(np.sort(rng.integers(number * 10, number * 10 + 20, 7)), pa.timestamp("us"))
            table = pa.table({"k": rng.integers(0, 3, 7), "x": rng.integers(0, 9, 7), "ts": times})
            write_run_file(log.path(kind, name), table, RunPlan((), "ts", HashRouter((), 1)))
            files[kind] = (name,)
        assert log.append(Entry(number, number, 0, number, number, number, files=files))
    return [RunFiles(log, demand).find(-1, ENTRIES - 1) for demand in DEMANDS]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The runs that are opened."""
    names: list[str] = []
    open_run = run_files.open_run
    monkeypatch.setattr(run_files, "open_run", lambda path: (names.append(str(path)), open_run(path))[1])
    return names


def _rows(tuples: Tuples) -> list[tuple[object, ...]]:
    own = [tuples.columns.column(name).to_pylist() for name in tuples.columns.column_names]
    return list(zip(*own, tuples.times.tolist(), tuples.entries.tolist(), strict=True))


def test_what_was_read_is_not_read_again(runs: list[FoundRuns], opened: list[str]) -> None:
    read = ReadTuples()
    first = read.of(runs[0], ["k", "x"], [EXTENT], 4)
    count = len(opened)
    assert count == ENTRIES - 5
    assert read.of(runs[0], ["k", "x"], [EXTENT], 4) is first
    assert len(opened) == count


def test_each_order_gets_what_it_would_read_alone(runs: list[FoundRuns]) -> None:
    read = ReadTuples()
    asked = [
        (own, columns, extents, after)
        for own in runs
        for columns in (["k"], ["k", "x"], ["x"])
        for extents in ([EXTENT], [Extent(0, 30, ENTRIES)], [EXTENT, Extent(0, 30, 5)])
        for after in (-1, 4)
    ]
    for own, columns, extents, after in [*asked, *asked]:
        alone = tuples_of(slices_of(own, after), columns, extents)
        assert _rows(read.of(own, columns, extents, after)) == _rows(alone)


def test_many_tuples_are_not_held(
    runs: list[FoundRuns], opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_tuples, "_MOST", 10)
    read = ReadTuples()
    before = _rows(read.of(runs[0], ["k"], [EXTENT]))
    count = len(opened)
    assert _rows(read.of(runs[0], ["k"], [EXTENT])) == before
    assert len(opened) == 2 * count


def test_a_run_that_is_gone_is_told(runs: list[FoundRuns]) -> None:
    read = ReadTuples()
    folder = runs[0].log.files / tuples_kind(0)
    (folder / "3.arrow").unlink()
    with pytest.raises(CheckpointError, match=r"3\.arrow"):
        read.of(runs[0], ["k"], [EXTENT])
