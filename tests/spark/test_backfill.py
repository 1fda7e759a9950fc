"""Window views that begin in mid-stream: never final before they are whole, and made whole from the earlier batches."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyarrow import csv
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from test_engine_windows import (
    COLUMNS,
    VIEWS,
    assert_equal_to_spark,
    newest_of,
    rounded,
    tuples,
    wait_for,
    write,
)

from penstock.spark.engine import Engine
from penstock.spark.run import Run

pytestmark = pytest.mark.spark

SUMS = VIEWS["sums"]


def assert_whole(
    spark: SparkSession, run: Run, view: str, sql: str, data: Path, since: datetime | None
) -> None:
    """The view's answers are Spark's over all tuples, those of a window do not change once they are final."""
    assert_equal_to_spark(spark, run.results(view), sorted(data.iterdir()), sql, since)
    changes = run.changes(view).drop("slack")
    final = changes.where("is_final AND revision < 1000000")
    assert final.where("coverage <> 1 OR coverage IS NULL").count() == 0
    corrected = changes.where("revision >= 1000000").count()
    assert final.count() + corrected >= run.results(view).count() > 0
    assert corrected == 0


def events_of(out: Path, kind: str) -> list[dict[str, Any]]:
    events = [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]
    return [event for event in events if event["kind"] == kind]


def test_a_source_that_cannot_be_read_again_leaves_windows_that_are_never_final(
    spark: SparkSession, tmp_path: Path
) -> None:
    data, out = write(tmp_path / "data", range(2)), tmp_path / "out"
    engine = Engine(spark).stream(
        "tuples",
        spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 2).parquet(str(data)),
        event_time="ts",
    )
    run = engine.view("dear", "SELECT * FROM tuples WHERE price > 99").start(out)
    wait_for(run, 4_000)
    since = newest_of(data)
    engine.view("sums", SUMS)
    write(data, range(2, 8))
    wait_for(run, 16_000)
    run.stop()
    run = engine.start(out, available_now=True, ended=True)
    run.await_termination()
    (told,) = events_of(out, "backfill_impossible")
    assert "read only once" in told["reason"]
    changes = run.changes("sums")
    unseen = changes.where(changes.w.start <= since)
    assert unseen.count() > 0
    assert unseen.where("is_final OR coverage IS NOT NULL").count() == 0
    assert changes.where(changes.w.end <= since).count() == 0
    assert changes.where("is_final").count() > 0
    spark.read.schema(COLUMNS).parquet(str(data)).createOrReplaceTempView("tuples")
    seen, expected = (
        frame.where(F.col("w.start") > F.lit(since)) for frame in (run.results("sums"), spark.sql(SUMS))
    )
    assert_same(seen, expected)
    run.stop()


def test_a_redefined_view_and_one_that_joins_over_csv_files_are_made_whole(
    spark: SparkSession, tmp_path: Path
) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    write_csv(data, range(2))
    declared = (
        f"CREATE TABLE tuples ({COLUMNS}) USING csv OPTIONS (path '{data}', event_time 'ts', header 'true')"
    )
    engine = Engine(spark, least_horizon_seconds=30).execute(declared).view("busy", SUMS)
    run = engine.start(out)
    wait_for(run, 4_000)
    engine.views({name: VIEWS[name] for name in ("busy", "spread")})
    since = newest_of_csv(spark, data)
    for numbers in (range(2, 4), range(4, 8)):
        write_csv(data, numbers)
        wait_for(run, 2_000 * numbers.stop)
    run.stop()
    run = engine.start(out, available_now=True)
    run.await_termination()
    for name in ("busy", "spread"):
        spark.read.schema(COLUMNS).csv(str(data), header=True).createOrReplaceTempView("tuples")
        end = "w.end" if name == "spread" else "begun + INTERVAL 2 SECONDS"
        expected = spark.sql(VIEWS[name]).where(f"{end} > TIMESTAMP '{since}'")
        assert_same(run.results(name), expected)
    (done,) = events_of(out, "backfill_done")
    assert sorted(done["views"]) == ["busy", "spread"]
    assert done["tuples"] == 4_000
    run.stop()


def write_csv(folder: Path, numbers: range) -> None:
    folder.mkdir(exist_ok=True)
    for number in numbers:
        csv.write_csv(tuples(number, 2_000), folder / f"{number:03d}.csv")


def newest_of_csv(spark: SparkSession, folder: Path) -> datetime:
    return spark.read.schema(COLUMNS).csv(str(folder), header=True).agg(F.max("ts")).collect()[0][0]


def assert_same(found: DataFrame, expected: DataFrame) -> None:
    assert rounded(found).exceptAll(rounded(expected)).limit(3).collect() == []
    assert rounded(expected).exceptAll(rounded(found)).limit(3).collect() == []
