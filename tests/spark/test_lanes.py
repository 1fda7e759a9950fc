"""Lanes of a running engine: a join-like one beside the windows of its streams, whichever is behind, over restarts."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

import lane_cases
from joined_inputs import multiset
from lane_cases import PartialsLane, published, so_far
from lane_runs import NAME, STREAMS, WINDOW, Tables, lane_engine, lane_plan
from penstock.monitor.folder import folder_status
from penstock.spark.log.stream_log import LogReader
from penstock.spark.run import Run
from penstock.spark.storage.layout import Layout
from penstock.trigger import Trigger

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def _shipped() -> Any:
    """Workers do not have the tests on their path."""
    cloudpickle.register_pickle_by_value(lane_cases)
    yield
    cloudpickle.unregister_pickle_by_value(lane_cases)


def _check(spark: SparkSession, run: Run, tables: Tables) -> None:
    layout = Layout.of(run.output, None)
    assert published(layout, NAME) == tables.pairs()
    assert not layout.cuts(NAME).numbers()
    for name in STREAMS:
        spark.createDataFrame(pa.concat_tables(tables.rows[name])).createOrReplaceTempView(name)
        found, told = run.results(f"by_{name}"), spark.sql(WINDOW.format(name))
        assert multiset(found) == multiset(told)
        log = LogReader(layout.log(name))
        newest = log.newest()
        assert newest is not None
        assert newest.answer_all
        assert log.marks()[NAME] == newest.number


@pytest.mark.long
def test_a_lane_beside_the_windows_is_exact_behind_them_and_before_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    tables = Tables(tmp_path)
    tables.feed(3)
    made: list[PartialsLane] = []
    for paused in (True, False):
        run = lane_engine(spark, tmp_path).start(tmp_path / "out", trigger=Trigger.available_now())
        run._execution.lanes.add(lane_plan(made, paused))
        if paused:
            # the windows are all answered before the lane answers anything
            deadline = time.monotonic() + 600
            while any(lane.active for name, lane in run._execution.lanes.running.items() if name != NAME):
                assert time.monotonic() < deadline
                assert run.active
                time.sleep(0.2)
            assert not made[-1].answered
            made[-1].goes_on.set()
        assert run.await_termination(600)
        _check(spark, run, tables)
        told = run.status().streams["orders"].to_dict()
        assert told["lanes"][NAME]["cut"] == run.events("cut")[-1]["cut"]
        assert told["windows"]["rows"] > 0
        run.stop()
        assert set(folder_status(tmp_path / "out")["lanes"]) == {NAME}, "windows are told with their streams"
        tables.feed(2)
    assert made[1].answered[0].number == made[0].answered[-1].number + 1


def test_a_lane_is_woken_by_the_ingest_and_stops_with_the_run(spark: SparkSession, tmp_path: Path) -> None:
    tables = Tables(tmp_path)
    tables.feed(1)
    made: list[PartialsLane] = []
    given: list[int] = []
    engine = lane_engine(spark, tmp_path)
    run = engine.start(tmp_path / "out")
    lane = run._execution.lanes.add(lane_plan(made))
    for files in (1, 2):
        deadline = time.monotonic() + 300
        while so_far(Layout.of(run.output, None), NAME) != tables.pairs():
            assert time.monotonic() < deadline
            assert lane.active
            time.sleep(0.5)
        given.append(len(made[0].answered))
        if files == 1:
            tables.feed(1)
    assert given[1] > given[0]
    assert run.active
    run.stop()
    assert not lane.active
    assert run.events("run_failed") == []


def test_a_lane_that_nothing_needs_any_more_leaves(spark: SparkSession, tmp_path: Path) -> None:
    """As it is removed, or at the start of a run without it."""
    tables = Tables(tmp_path)
    tables.feed(1)
    logs = [LogReader(Layout.of(tmp_path / "out", None).log(name)) for name in STREAMS]
    for is_removed in (False, True):
        run = lane_engine(spark, tmp_path).start(tmp_path / "out")
        assert [NAME in log.marks() for log in logs] == [False, False]
        lane = run._execution.lanes.add(lane_plan([]))
        deadline = time.monotonic() + 300
        while not lane.status()["lanes"][NAME].get("cut", -1) >= 0 and time.monotonic() < deadline:
            assert lane.active
            time.sleep(0.2)
        if is_removed:
            run._execution.lanes.remove(NAME)
            assert not lane.active
            assert NAME not in run._execution.lanes.running
        run.stop()
        assert [NAME in log.marks() for log in logs] == [not is_removed] * 2
        tables.feed(1)
