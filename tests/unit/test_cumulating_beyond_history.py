"""A final window that gets a tuple is corrected if the history has all since its begin, wherever windows of its size would begin."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.operators.windows.panes import PANE
from penstock.operators.windows.shard import PARTIALS, Envelope, OperatorPlan, WindowProgram
from penstock.plan.times import BEFORE_ALL
from penstock.plan.windows import ErrorBound, WindowPlan, Windows
from penstock.spark.lanes.windows.programs import BoundProgram
from penstock.spark.lanes.windows.shard_task import ShardCell, ShardTask
from penstock.spark.log.entries import Entry
from penstock.spark.log.envelopes import write_envelopes
from penstock.spark.log.stream_log import StreamLog
from penstock.spark.publication.kinds import results_of
from penstock.spark.publication.staged import BatchFiles
from penstock.spark.storage.layout import Layout
from penstock.sql.windows.bind import BoundWindow
from plain_windows import OUTPUTS, PARTS, STREAM, VIEW, WINDOW
from window_cases import stream_of

STEP, SIZE = 10, 100
PLAN = WindowPlan(
    "v", "t", Windows(SIZE, STEP, is_cumulating=True), (), VIEW.aggregates, ErrorBound(0.1, 0.1)
)
PROGRAM = WindowProgram(0, (OperatorPlan(0, (PLAN,), PARTS, STEP, BEFORE_ALL, ()),), 0, 0)
SENT: Any = SimpleNamespace(
    value=BoundProgram(PROGRAM, {0: {"v": BoundWindow(PLAN, (), None, WINDOW, OUTPUTS, None)}})
)


@pytest.mark.parametrize(("kept_before", "is_corrected"), [(200, True), (201, False)])
def test_cumulating_windows(tmp_path: Path, kept_before: int, is_corrected: bool) -> None:
    layout = Layout(tmp_path / "out", tmp_path / "checkpoint")
    layout.open()
    log = StreamLog(layout.log(STREAM))
    log.path("partials", "").mkdir(parents=True)
    entries, newest = [], 0
    for number, times in enumerate(([201, 215], [500], [5000], [202])):
        envelope = Envelope(
            0, PARTIALS, stream_of(PARTS.lift(pa.table({PANE: np.array(times) // STEP * STEP}), [PANE]))
        )
        write_envelopes([(0, envelope)], log.path("partials", f"{number}.parquet"))
        newest = max(newest, *times)
        delays = (newest - min(times),) if number == 3 else (0,)
        files = {"partials": (f"{number}.parquet",)}
        entries.append(
            Entry(number, number, 0, number, newest, newest, delays, files, True, kept_before=kept_before)
        )
    task = ShardTask(
        layout=layout,
        stream=STREAM,
        cut=1,
        entries=entries,
        programs={0: SENT},
        store=BatchFiles.of(layout, results_of(STREAM), None, 1),
    )
    report = task(ShardCell(0, ()))
    found = [window.start + SIZE for window in report.beyond]
    gone = [start + SIZE for _, _, start in report.beyond_history]
    assert (found or gone)[:2] == [210, 220]
    assert bool(found) == is_corrected
    assert bool(gone) != is_corrected
