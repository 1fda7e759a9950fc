"""Window views that begin in mid-stream: never final before they are whole, and made whole from the earlier batches."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from test_engine_windows import COLUMNS, VIEWS, newest_of, rounded, wait_for, write

from penstock.spark.engine import Engine

pytestmark = pytest.mark.spark

SUMS = VIEWS["sums"]


def expected_of(spark: SparkSession, data: Path, sql: str) -> DataFrame:
    spark.read.schema(COLUMNS).parquet(str(data)).createOrReplaceTempView("tuples")
    return spark.sql(sql)


def assert_same(found: DataFrame, expected: DataFrame) -> None:
    assert rounded(found).exceptAll(rounded(expected)).limit(3).collect() == []
    assert rounded(expected).exceptAll(rounded(found)).limit(3).collect() == []


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
    changes = run.changes("sums")
    unseen = changes.where(changes.w.start <= since)
    assert unseen.count() > 0
    assert unseen.where("is_final OR coverage IS NOT NULL").count() == 0
    assert changes.where(changes.w.end <= since).count() == 0
    final = changes.where("is_final").drop("revision", "coverage", "slack", "is_final", "op")
    expected = expected_of(spark, data, SUMS)
    assert final.count() > 0
    assert rounded(final).exceptAll(rounded(expected)).count() == 0
    run.stop()
