"""Corrections of final windows take in what a backfill brought."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.operators.windows.aggregates import Parts
from penstock.operators.windows.answers import Answer
from penstock.operators.windows.history import Beyond
from penstock.operators.windows.panes import PANE
from penstock.operators.windows.shard import PARTIALS, Envelope, LogRecord, OperatorPlan, Shard, WindowProgram
from penstock.plan.windows import Aggregate, ErrorBound, WindowPlan, Windows
from penstock.spark.lanes.history.correction_task import CorrectionCell, CorrectionTask, History
from penstock.spark.lanes.windows.programs import BoundProgram
from penstock.spark.log.entries import Entry
from penstock.spark.log.envelopes import EnvelopeReader, write_envelopes
from penstock.spark.log.stream_log import StreamLog
from penstock.spark.results.window_schemas import FIRST_REVISION
from penstock.spark.storage.layout import Layout
from penstock.sql.windows.bind import BoundWindow
from plain_windows import OUTPUTS, WINDOW
from window_cases import stream_of

VIEW = WindowPlan(
    "v", "t", Windows(20, 20), (), (Aggregate("count", None, pa.int64()),), ErrorBound(0.1, 0.1)
)
BOUND = BoundWindow(VIEW, (), None, WINDOW, OUTPUTS, None)
PARTS = Parts.of(VIEW.aggregates)
#: newest event time before the operator's first batch
SINCE = 50


@pytest.mark.parametrize("is_given_twice", [False, True])
def test_a_late_tuple_of_a_window_that_was_made_whole_is_merged_with_all_of_it(
    tmp_path: Path, is_given_twice: bool
) -> None:
    layout = Layout(tmp_path / "out", tmp_path / "checkpoint")
    layout.open()
    log = StreamLog(layout.log("s"))
    log.path("partials", "").mkdir(parents=True)
    program = WindowProgram(0, (OperatorPlan(0, (VIEW,), PARTS, 20, SINCE, (("v", SINCE),)),), 0, 0)
    shard = Shard()
    number, newest, furthest = -1, SINCE, 0
    answers: list[Answer] = []

    def put(batch: int, times: list[int], whole: tuple[int, ...] = ()) -> Entry:
        nonlocal number, newest, furthest
        panes = pa.table({PANE: np.array(times) // 20 * 20})
        number += 1
        name = f"{number}.parquet"
        envelope = Envelope(0, PARTIALS, stream_of(PARTS.lift(panes, [PANE])))
        write_envelopes([(0, envelope)], log.path("partials", name))
        delays = () if whole else (max(0, newest - min(times)),)
        newest = newest if whole else max(newest, *times)
        furthest = max(furthest, *times)
        files = {"partials": (name,)}
        entry = Entry(number, batch, 0, number, newest, furthest, delays, files, bool(whole), whole)
        assert log.append(entry)
        envelopes = EnvelopeReader(log, 0).of(entry)
        answers.extend(
            shard.process(
                LogRecord(program, newest, np.array(delays, np.int64), False, envelopes, bool(whole), whole)
            )
        )
        return entry

    put(5, [41, 42])
    put(5, [40, 43, 44, 50], whole=(0,))
    if is_given_twice:
        put(5, [40, 43, 44, 50], whole=(0,))
    put(6, [45, 200])
    final = [answer for answer in answers if answer.final and answer.end == 60]
    assert [answer.rows["_a0"].to_pylist() for answer in final] == [[7]]
    late = put(7, [46])
    beyond = shard.take_beyond()
    assert beyond == [(0, "v", 40)]
    task = CorrectionTask(
        layout=layout,
        stream="s",
        entries=list(History(log).entries(40, 60, late.number)),
        program=SimpleNamespace(value=BoundProgram(program, {0: {"v": BOUND}})),  # type: ignore[arg-type]
        revision=FIRST_REVISION + late.batch,
        scratch=tmp_path / "scratch",
    )
    (staged,) = task(CorrectionCell(0, [Beyond(0, "v", 40, late.number)], {"v": newest}))
    assert staged.operator == 0
    told = pq.read_table(staged.left[0].path)
    assert told.column("n").to_pylist() == [8]
