"""Files that are older than others, or change after they were read: answered or told."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from engine_cases import orders, script, write_orders
from penstock.spark.engine import Engine
from penstock.spark.run import Run
from penstock.trigger import Trigger
from whole_runs import run_to_end

pytestmark = pytest.mark.spark

EVERY = {"every_one": "SELECT id FROM orders"}
DAY = 86_400


def _run(spark: SparkSession, text: str, output: Path) -> Run:
    return run_to_end(Engine(spark, settle_seconds=0).execute(text), output, seconds=None)


def _ids(run: Run) -> list[int]:
    return sorted(row.id for row in run.results("every_one").collect())


def _changes(run: Run) -> dict[str, tuple[int | None, int]]:
    return {
        Path(file["path"]).name: (file["size_then"], file["size_now"])
        for event in run.events("files_changed")
        for file in event["files"]
    }


@pytest.mark.long
def test_a_file_much_older_than_the_newest_is_answered(spark: SparkSession, tmp_path: Path) -> None:
    write_orders(tmp_path / "in", files=1, rows=10)
    text = script(tmp_path / "in", EVERY)
    _run(spark, text, tmp_path / "out")
    for number, days in ((1, 8), (2, 4_000)):
        old = tmp_path / "in" / f"old{number}.parquet"
        pq.write_table(orders(10, number, number * 10), old)
        os.utime(old, (time.time() - days * DAY,) * 2)
    assert _ids(_run(spark, text, tmp_path / "out")) == list(range(30))


def test_changes_of_parquet_files_are_told_once(spark: SparkSession, tmp_path: Path) -> None:
    """Over a file log that Spark has merged: one file a batch, twelve batches."""
    folder = tmp_path / "in"
    write_orders(folder, files=12, rows=10)
    (folder / "empty.parquet").touch()
    text = script(folder, EVERY, options=", max_files_per_trigger '1'")
    run = _run(spark, text, tmp_path / "out")
    assert _ids(run) == list(range(120))
    assert not _changes(run)
    then = (folder / "003.parquet").stat().st_size
    pq.write_table(orders(50, 1, 1_000), folder / "003.parquet")
    pq.write_table(orders(50, 1, 1_000), folder / "empty.parquet")
    sizes = {name: (folder / name).stat().st_size for name in ("003.parquet", "empty.parquet")}
    run = _run(spark, text, tmp_path / "out")
    assert _changes(run) == {
        "003.parquet": (then, sizes["003.parquet"]),
        "empty.parquet": (0, sizes["empty.parquet"]),
    }
    assert run.status().streams["orders"].to_dict()["files_changed"] == 2
    assert _ids(run) == list(range(120))
    assert not _changes(_run(spark, text, tmp_path / "out"))


def test_a_csv_file_that_grows_is_told_while_the_stream_runs(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a b.csv").write_text("1,5,1.5,north,2026-01-01 00:00:00\n")
    (folder / "empty.csv").touch()
    engine = Engine(spark, files_seconds=0.1).execute(script(folder, EVERY, source="csv"))
    run = engine.start(tmp_path / "out", trigger=Trigger.every("200 milliseconds"))
    deadline = time.monotonic() + 300
    while run.status().streams["orders"].batches < 1 and time.monotonic() < deadline:
        time.sleep(0.05)
    for name in ("a b.csv", "empty.csv"):
        with (folder / name).open("a") as file:
            file.write("2,5,1.5,north,2026-01-01 00:00:00\n")
    while len(_changes(run)) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    run.stop()
    assert _changes(run) == {"a b.csv": (34, 68), "empty.csv": (0, 34)}
