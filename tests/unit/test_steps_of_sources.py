"""Arrival steps from a source to the shard: a batch of files, and the offsets of Kafka's, without Spark."""

from __future__ import annotations

import json
import os
import pickle
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.operators.ingest.outcomes import Outcomes
from penstock.operators.ingest.stage_counts import StageCounts
from penstock.operators.ingest.stream_program import StreamProgram
from penstock.operators.selection.selector import compile_selections
from penstock.operators.windows.aggregates import Parts
from penstock.operators.windows.pane_plan import PanePlan, PaneProgram
from penstock.operators.windows.shard import LogRecord, OperatorPlan, Shard, WindowProgram
from penstock.plan.selection import SelectionSet
from penstock.plan.windows import Aggregate, ErrorBound, WindowPlan, Windows
from penstock.settings import Settings
from penstock.spark.log.entries import Entry
from penstock.spark.log.envelopes import EnvelopeReader
from penstock.spark.log.ingest_log import IngestLog
from penstock.spark.log.stream_log import LogReader
from penstock.spark.publication.staged import BatchFiles
from penstock.spark.sources.parquet_source import _steps
from penstock.spark.sources.source import BoundBatch
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.layout import PARTIALS_FILES, Layout
from penstock.spark.storage.past import offsets_of_batch
from penstock.spark.tasks.parquet_files import RowGroup, open_parquet, row_groups, stamp_of
from penstock.spark.tasks.scan_stage import run_row_groups, split
from publishing import put_batch

MINUTE = 60_000_000
#: files of a quarter of an hour of arrivals, a tuple a minute
FILES, ROWS = 96, 15
VIEW = WindowPlan(
    "v",
    "ts",
    Windows(60 * MINUTE, 60 * MINUTE),
    (),
    (Aggregate("count", None, pa.int64()),),
    ErrorBound(0.05, 0.2),
)
PARTS = Parts.of(VIEW.aggregates)
KEYED = WindowProgram(0, (OperatorPlan(1, (VIEW,), PARTS, 60 * MINUTE),), 0, 0)


def stream_program(**tune: int) -> StreamProgram:
    panes = PaneProgram("ts", (PanePlan(1, (), (), (), (), PARTS, 60 * MINUTE, 0),), 1)
    plan = compile_selections(SelectionSet((), ()))
    return StreamProgram("s", 0, plan, Outcomes.numbered(0), ("ts",), "ts", None, Settings(**tune), panes)


def batch_of(program: StreamProgram, folder: Path, pace: float | None = None) -> BoundBatch:
    shipped: Any = SimpleNamespace(value=pickle.dumps(program))
    key = (f"steps-{program.settings.arrival_steps}", 0)
    return BoundBatch(
        number=0,
        program=program,
        derived=(),
        key=key,
        broadcast=shipped,
        sequence=None,
        store=BatchFiles.of(Layout.of(folder / "out", None), "s", None, 0),
        time_limit=2**62,
        time_floor=-(2**62),
        kept_ahead=0,
        too_late_before=-(2**62),
        checkpoint=folder,
        pace=pace,
    )


def write_files(folder: Path) -> list[RowGroup]:
    """Every fifth tuple is half an hour late; names say nothing of when a file came."""
    groups = []
    for number in range(FILES):
        came = (number * ROWS + np.arange(ROWS)) * MINUTE
        times = came - np.where(np.arange(ROWS) % 5 == 4, 30 * MINUTE, 0)
        path = folder / f"{number * 7 % FILES:02d}.parquet"
        pq.write_table(pa.table({"ts": pa.array(times, pa.timestamp("us", "UTC"))}), path)
        os.utime(path, ns=(number * 10**9, number * 10**9))
        groups += row_groups(str(path), stamp_of(str(path)), open_parquet(str(path)).metadata)
    return sorted(groups, key=lambda group: group.path)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    made = Layout.of(tmp_path / "out", None)
    made.open()
    return made


def steps_of(groups: list[RowGroup], bound: BoundBatch) -> dict[str, int]:
    """The steps of files of one row group each."""
    for group in groups:
        assert group.stamp is not None
        bound.stamps[group.path] = group.stamp
    return _steps({group.path: group.rows for group in groups}, bound)


def put(layout: Layout, bound: BoundBatch, groups: list[RowGroup]) -> Entry:
    """The entry of a batch of row groups, answered by two tasks."""
    steps = steps_of(groups, bound)
    cut = [replace(group, step=steps.get(group.path, 0)) for group in groups]
    reports = [run_row_groups(bound.job(), part, own) for part, own in enumerate(split(cut, 2))]
    counts = sum((report.counts for report in reports), StageCounts.none(bound.program))
    log = IngestLog(layout, "s", Settings(), EventLog(layout.output / "events.jsonl"))
    log.store_program(KEYED)
    names = [file.name for report in reports for file in report.files if file.kind == PARTIALS_FILES]
    times = (counts.oldest_event_time, counts.oldest_recent_event_time, counts.newest_event_time)
    put_batch(log, 0, 0, *times, counts.furthest_event_time, {PARTIALS_FILES: names}, counts.steps)
    log.close()
    entry = LogReader(layout.log("s")).entry(0)
    assert entry.newest == max(step.newest or 0 for step in entry.steps) if entry.steps else True
    return entry


def answered(layout: Layout, entry: Entry) -> tuple[dict[int, int], int]:
    """The final counts of hourly windows, and K before the end."""
    shard = Shard()
    envelopes = EnvelopeReader(LogReader(layout.log("s")), 0).of(entry)
    delays = np.array(entry.delays, np.int64)
    answers = shard.process(LogRecord(KEYED, entry.newest, delays, False, envelopes, steps=entry.steps))
    slack = shard.standing()["v"].slack
    answers += shard.process(LogRecord(KEYED, entry.newest, np.zeros(0, np.int64), True, []))
    final = [answer for answer in answers if answer.final]
    return {answer.end: answer.rows.column("_a0")[0].as_py() for answer in final}, slack


def test_lateness_inside_a_batch_of_files_is_seen(layout: Layout, tmp_path: Path) -> None:
    groups = write_files(tmp_path)
    entry = put(layout, batch_of(stream_program(), tmp_path), groups)
    assert [step.number for step in entry.steps] == list(range(32))
    assert max(max(step.delays) for step in entry.steps) >= 20 * MINUTE
    counts, slack = answered(layout, entry)
    assert slack >= 10 * MINUTE
    assert sum(counts.values()) == FILES * ROWS
    assert counts[60 * MINUTE] == 60


def test_a_batch_that_is_not_cut_tells_nothing_of_it(layout: Layout, tmp_path: Path) -> None:
    groups = write_files(tmp_path)
    entry = put(layout, batch_of(stream_program(arrival_steps=1), tmp_path), groups)
    assert entry.steps == ()
    counts, slack = answered(layout, entry)
    assert slack == 0
    assert sum(counts.values()) == FILES * ROWS


def test_batches_are_cut_by_what_those_before_were_like(tmp_path: Path) -> None:
    program = stream_program()
    assert batch_of(program, tmp_path, pace=MINUTE).cut(59) == 1
    assert batch_of(program, tmp_path, pace=MINUTE).cut(150) == 3
    assert batch_of(program, tmp_path, pace=MINUTE).cut(10**6) == 32
    assert batch_of(program, tmp_path).cut(10**6) == 32
    assert batch_of(program, tmp_path).cut(5) == 5
    at_rest = batch_of(program, tmp_path)
    at_rest.checkpoint = None
    assert at_rest.cut(10**6) == 1


def test_files_of_one_time_are_not_cut(tmp_path: Path) -> None:
    groups = write_files(tmp_path)
    for group in groups:
        os.utime(group.path, ns=(5, 5))
    again = [replace(group, stamp=stamp_of(group.path)) for group in groups]
    steps = steps_of(again, batch_of(stream_program(), tmp_path))
    assert len(set(steps.values())) == 1


def test_the_offsets_of_a_batch_are_those_between_it_and_the_one_before(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "sources" / "0").mkdir(parents=True)
    (tmp_path / "sources" / "0" / "0").write_text('v1\n{"t":{"0":5}}')
    for batch, offsets in enumerate([{"0": 9}, {"0": 20, "1": 4}]):
        lines = ["v1", "{}", json.dumps({"t": offsets})]
        (tmp_path / "offsets" / str(batch)).write_text("\n".join(lines))
    assert offsets_of_batch(tmp_path, 0) == ({"t": {"0": 5}}, {"t": {"0": 9}})
    assert offsets_of_batch(tmp_path, 1) == ({"t": {"0": 9, "1": 0}}, {"t": {"0": 20, "1": 4}})
    assert offsets_of_batch(tmp_path, 2) is None
    (tmp_path / "offsets" / "2").write_text('v1\n{}\n{"logOffset":0}')
    assert offsets_of_batch(tmp_path, 2) is None
