"""Checkpoints that were set back, have lost files or lie on another file system: told or exact, never silent."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from engine_cases import COLUMNS, VIEWS, expected, orders, rows, script
from lane_cases import lane_context
from penstock.errors import CheckpointError, StreamFailedError
from penstock.spark.analysis.expressions import SparkExpressionHost
from penstock.spark.engine import Engine
from penstock.spark.lanes.windows.lane import WindowLane
from penstock.spark.results.window_rows import window_results
from penstock.spark.run import Run
from penstock.spark.storage.layout import Layout
from penstock.sql.script.queries import parse_query
from penstock.sql.script.views import flatten
from penstock.sql.windows.bind import BoundWindow, bind_window
from penstock.sql.windows.query import WindowQuery
from penstock.trigger import Trigger
from window_log import DEFINITION, LogWriter, forget

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("own_commits")]

ROWS = 300
WINDOWS = "SELECT window(seen, '1 minute') AS w, count(*) AS n, sum(id) AS s FROM orders GROUP BY w"


class Folder:
    """A folder of files, run again and again on one checkpoint."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._data = folder / "in"
        self._data.mkdir()
        self._output = folder / "out"
        self._files = 0
        self.layout = Layout(self._output, self._output / "_penstock/checkpoint")

    def add(self, files: int = 1) -> None:
        for number in range(self._files, self._files + files):
            pq.write_table(orders(ROWS, number, number * ROWS), self._data / f"{number:03d}.parquet")
        self._files += files

    def run(self) -> Run:
        run = (
            Engine(self._spark)
            .execute(script(self._data, VIEWS))
            .start(self._output, trigger=Trigger.available_now())
        )
        try:
            run.await_termination()
        finally:
            run.stop()
        return run

    def assert_exact(self, run: Run) -> None:
        tuples = self._spark.read.schema(COLUMNS).parquet(str(self._data))
        assert {name: rows(run.results(name)) for name in VIEWS} == expected(self._spark, tuples, VIEWS)

    def lose(self, batch: int, *logs: str) -> None:
        """A power cut: Spark has lost what it wrote of a batch."""
        for log in logs:
            for name in (str(batch), f".{batch}.crc"):
                (self.layout.spark("orders") / log / name).unlink(missing_ok=True)


def test_a_published_batch_that_would_read_other_records_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = Folder(spark, tmp_path)
    checkpoint, copy, newest = folder.layout.spark("orders"), tmp_path / "copy", tmp_path / "newest"
    folder.add(2)
    folder.run()
    shutil.copytree(checkpoint, copy)
    folder.add()
    folder.run()
    shutil.move(checkpoint, newest)
    shutil.copytree(copy, checkpoint)
    folder.add()
    for _ in range(2):
        with pytest.raises(StreamFailedError, match=r"batch 1 was published.*restored from an older copy"):
            folder.run()
        shutil.rmtree(checkpoint)
        shutil.copytree(copy, checkpoint)
    assert folder.layout.manifests("orders").numbers() == [0, 1]
    shutil.rmtree(checkpoint)
    shutil.copytree(newest, checkpoint)
    folder.assert_exact(folder.run())

    folder.lose(2, "offsets", "commits")
    folder.assert_exact(folder.run())  # the same files again: nothing is lost, nothing is answered twice

    folder.lose(2, "offsets", "commits")
    folder.add()
    with pytest.raises(StreamFailedError, match=r"batch 2 (is|was) published"):
        folder.run()


def test_a_batch_that_was_bound_and_not_published_is_planned_anew(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = Folder(spark, tmp_path)
    folder.add()
    folder.run()
    folder.lose(0, "offsets", "commits")
    folder.layout.manifests("orders")[0].remove()
    folder.layout.status.unlink()
    folder.add()
    run = folder.run()
    folder.assert_exact(run)
    assert [event["batch"] for event in run.events("batch_replanned")] == [0]


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    """A folder on another file system than `tmp_path`."""
    here = tmp_path.stat().st_dev
    places = (Path("/dev/shm"), Path(tempfile.gettempdir()))
    place = next((each for each in places if each.is_dir() and each.stat().st_dev != here), None)
    if place is None:
        pytest.skip("there is no second file system")
    with tempfile.TemporaryDirectory(dir=place) as folder:
        yield Path(folder)


@pytest.mark.long
def test_checkpoint_and_output_on_two_file_systems(
    spark: SparkSession, tmp_path: Path, elsewhere: Path
) -> None:
    for number in range(2):
        (tmp_path / "in").mkdir(exist_ok=True)
        pq.write_table(orders(ROWS, number, number * ROWS), tmp_path / "in" / f"{number}.parquet")
    text = script(tmp_path / "in", {**VIEWS, "by_minute": WINDOWS}, options=", max_files_per_trigger '1'")
    run = (
        Engine(spark)
        .execute(text)
        .start(tmp_path / "out", elsewhere / "checkpoint", trigger=Trigger.available_now(ended=True))
    )
    run.await_termination()
    run.stop()
    tuples = spark.read.schema(COLUMNS).parquet(str(tmp_path / "in"))
    wanted = expected(spark, tuples, {**VIEWS, "by_minute": WINDOWS})
    assert {name: rows(run.results(name)) for name in wanted} == wanted
    assert wanted["by_minute"]
    left = [*(tmp_path / "out").rglob(".*.parquet.*"), *(elsewhere / "checkpoint").rglob(".*.parquet.*")]
    assert not left, "each file is written where it is published"


@pytest.fixture
def log(spark: SparkSession, tmp_path: Path) -> LogWriter:
    layout = Layout(tmp_path / "out", tmp_path / "checkpoint")
    layout.open()
    table = orders(ROWS, 1)
    query = flatten(parse_query(WINDOWS), {})
    assert isinstance(query, WindowQuery)
    host = SparkExpressionHost(spark, spark.createDataFrame(table.slice(0, 0)).schema)
    bound: BoundWindow = bind_window(query, "by_minute", table.schema, host)
    writer = LogWriter(spark, layout, "orders", 1, table)
    writer.views(0, {0: bound})
    return writer


def _follow(spark: SparkSession, log: LogWriter) -> None:
    context = lane_context(log.layout, spark, trigger=Trigger.available_now(), shards=1)
    ingest = SimpleNamespace(stream=log.stream, plans=SimpleNamespace(windows={}))
    keeper: Any = SimpleNamespace(stream=log.stream, ingest=ingest, active=True, is_complete=False)
    lane = WindowLane(context, keeper)
    lane.start()
    lane.finish()
    try:
        assert lane.await_termination(600)
    finally:
        lane.stop()


def test_windows_whose_state_was_set_back_are_refused(
    spark: SparkSession, tmp_path: Path, log: LogWriter
) -> None:
    states = log.layout.window_states("orders")
    assert isinstance(states, Path)
    log.put(100)
    _follow(spark, log)
    shutil.copytree(states, tmp_path / "copy")
    log.put(100)
    _follow(spark, log)
    shutil.move(states, tmp_path / "newest")
    shutil.copytree(tmp_path / "copy", states)
    log.put(100)
    forget(spark)
    with pytest.raises(StreamFailedError, match=r"0000000001-00000-.*\.state .*is missing"):
        _follow(spark, log)
    shutil.rmtree(states)
    shutil.copytree(tmp_path / "newest", states)
    log.end()
    _follow(spark, log)
    found = window_results(spark, log.layout, "orders", "by_minute", DEFINITION)
    assert sum(row.n for row in found.collect()) == 300


def test_windows_whose_log_was_set_back_are_refused(
    spark: SparkSession, tmp_path: Path, log: LogWriter
) -> None:
    """The files that the older copy of the ledger lists are gone; what workers keep is of a later state."""
    ledger = log.layout.ledger
    log.put(100)
    _follow(spark, log)
    ledger.close()
    shutil.copy(ledger.path, tmp_path / "copy")
    log.put(100)
    _follow(spark, log)
    ledger.close()
    shutil.copy(tmp_path / "copy", ledger.path)
    log.number = log.batch = 0
    log.put(100)
    with pytest.raises(StreamFailedError, match=r"0000000000-00000-.*\.state .*is missing"):
        _follow(spark, log)


def test_a_missing_program_is_no_program_without_views(spark: SparkSession, log: LogWriter) -> None:
    log.put(100)
    log.layout.programs("orders")[0].remove()
    with pytest.raises(StreamFailedError, match="window views of plan version 0 are missing"):
        _follow(spark, log)


def test_a_log_that_has_lost_an_entry_is_told(spark: SparkSession, log: LogWriter) -> None:
    log.put(100)
    _follow(spark, log)
    for _ in range(2):
        entry = log.put(100)
    log.layout.log("orders").entries[entry.number - 1].remove()
    with pytest.raises((CheckpointError, StreamFailedError), match=r"an entry of a log\) is missing"):
        _follow(spark, log)
