"""What a demand of tuples leaves behind goes with the last of its tuples, once nobody makes it any more."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pyarrow as pa
import pytest

from log_places import log_at
from penstock.operators.routing.routers import HashRouter
from penstock.operators.runs.run import RunPlan
from penstock.spark.log import run_levels, segments, stream_log
from penstock.spark.log.entries import Entry
from penstock.spark.log.runs import write_run_file
from penstock.spark.log.segments import Segments
from penstock.spark.log.stream_log import LogReader, StreamLog
from penstock.spark.storage.layout import TUPLES_FILES, tuples_kind

SEGMENT, PLAN_VERSION = 4, 3
PLAN = RunPlan(("k",), "ts", HashRouter(("k",), 2))


class Log:
    """A log that keeps a segment, with a reader that has left all of it behind."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._log = StreamLog(log_at(folder))
        self._tidier = Segments(log_at(folder), SEGMENT / 1e6, 1 << 40, lambda: self._entries)
        self._entries = 0
        self._before: int | None = None

    def put(self, demands: Collection[int], asked: Collection[int] | None) -> None:
        """Puts the entries of a segment, with a tuple a demand each, and tidies.

        Args:
            demands: those.
            asked: those that the batches behind may bring tuples of.
        """
        for number in range(self._entries, self._entries + SEGMENT):
            files = {tuples_kind(demand): (f"{number}.arrow",) for demand in demands}
            for kind, (name,) in files.items():
                path = self._log.path(kind, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                tuples = pa.table({"k": [1], "ts": pa.array([number], pa.timestamp("us"))})
                write_run_file(path, tuples, PLAN)
            assert self._log.append(
                Entry(
                    number,
                    number,
                    PLAN_VERSION,
                    number,
                    number,
                    number,
                    files=files,
                    kept_before=self._before,
                )
            )
            self._entries = number + 1
            self._log.put_mark("reader", number)
            self._tidier.tidy({PLAN_VERSION: asked}.__getitem__)
            self._before = self._log.kept().before

    @property
    def left(self) -> tuple[list[str], set[int]]:
        """The folders of demands, and the demands that `lacks` has."""
        folders = sorted(
            path.name for path in LogReader(log_at(self.folder)).path(TUPLES_FILES, "").iterdir()
        )
        return folders, set(LogReader(log_at(self.folder)).kept().lacks)


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Log:
    for module in (stream_log, segments):
        monkeypatch.setattr(module, "SEGMENT", SEGMENT)
    monkeypatch.setattr(run_levels, "FANOUT", 2)
    return Log(tmp_path)


def test_what_is_left_of_a_withdrawn_demand_goes_with_its_tuples(log: Log) -> None:
    for _ in range(2):
        log.put([1, 2], {1, 2})
    log.put([2], {2})
    assert log.left == (["1", "2"], {1, 2}), "some of its tuples are kept"
    log.put([2], {2})
    assert log.left == (["2"], {2})


def test_a_demand_that_finds_no_tuples_for_long_is_none_that_was_withdrawn(log: Log) -> None:
    for _ in range(2):
        log.put([1, 2], {1, 2})
    for _ in range(5):
        log.put([], {1})
    assert log.left == (["1"], {1})


def test_nothing_goes_while_batches_may_be_bound_to_another_plan(log: Log) -> None:
    for _ in range(2):
        log.put([1, 2], {1, 2})
    for _ in range(5):
        log.put([2], None)
    assert log.left == (["1", "2"], {1, 2})
    log.put([2], {2})
    assert log.left == (["2"], {2})
