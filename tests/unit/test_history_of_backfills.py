"""Corrections of final windows take in what a backfill brought."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.operators.aggregates import Parts
from penstock.operators.panes import PANE
from penstock.operators.shard import PARTIALS, KeyedProgram, LogRecord, OperatorPlan, Shard
from penstock.operators.window import Answer
from penstock.plan.windows import Aggregate, ErrorBound, WindowPlan, Windows
from penstock.spark.envelope_log import (
    KIND,
    OPERATOR,
    PAYLOAD,
    SHARD,
    EnvelopeLog,
    LogEntry,
    read_envelopes,
)
from penstock.spark.history import from_history
from penstock.spark.layout import Layout
from window_cases import stream_of

VIEW = WindowPlan(
    "v", "t", Windows(20, 20), (), (Aggregate("count", None, pa.int64()),), ErrorBound(0.1, 0.1)
)
PARTS = Parts.of(VIEW.aggregates)
#: newest event time before the operator's first batch
SINCE = 50


@pytest.mark.parametrize("is_given_twice", [False, True])
def test_a_late_tuple_of_a_window_that_was_made_whole_is_merged_with_all_of_it(
    tmp_path: Path, is_given_twice: bool
) -> None:
    log = EnvelopeLog(Layout(tmp_path, tmp_path), "s")
    program = KeyedProgram(0, (OperatorPlan(0, (VIEW,), PARTS, 20, SINCE, (("v", SINCE),)),), 0, 0)
    shard = Shard()
    newest, furthest = SINCE, 0
    told: list[Answer] = []

    def put(batch: int, mark: int, times: list[int], whole: tuple[int, ...] = ()) -> LogEntry:
        nonlocal newest, furthest
        panes = pa.table({PANE: np.array(times) // 20 * 20})
        name = f"{batch}-{mark}.parquet"
        row = {SHARD: [0], OPERATOR: [0], KIND: [PARTIALS], PAYLOAD: [stream_of(PARTS.lift(panes, [PANE]))]}
        pq.write_table(pa.table(row), log.envelopes / name)
        delays = () if whole else (max(0, newest - min(times)),)
        newest = newest if whole else max(newest, *times)
        furthest = max(furthest, *times)
        entry = LogEntry(batch, mark, 0, newest, delays, False, (name,), bool(whole), whole, furthest)
        assert log.put(entry)
        envelopes = list(read_envelopes([log.envelopes / name], 0))
        told.extend(
            shard.process(
                LogRecord(program, newest, np.array(delays, np.int64), False, envelopes, bool(whole), whole)
            )
        )
        return entry

    put(5, 0, [41, 42])
    put(5, 1, [40, 43, 44, 50], whole=(0,))
    if is_given_twice:
        put(5, 2, [40, 43, 44, 50], whole=(0,))
    put(6, 0, [45, 200])
    final = [answer for answer in told if answer.final and answer.end == 60]
    assert [answer.rows["_a0"].to_pylist() for answer in final] == [[7]]
    late = put(7, 0, [46])
    beyond = shard.take_beyond()
    assert beyond == [(0, "v", 40)]
    ((operator, answer),) = from_history(log, shard, 0, late, beyond)
    assert operator == 0
    assert answer.rows["_a0"].to_pylist() == [8]
