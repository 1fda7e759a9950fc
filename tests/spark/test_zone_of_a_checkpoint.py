"""The session's time zone is the checkpoint's: another name of it changes nothing, another zone is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import Engine
from penstock.errors import CheckpointError, InputError
from penstock.spark.sources.parquet_source import ParquetSource
from whole_runs import run_to_end

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.run import Run

ZONE = "spark.sql.session.timeZone"


@pytest.fixture(autouse=True)
def _zone(spark: SparkSession) -> Iterator[None]:
    before = spark.conf.get(ZONE) or "UTC"
    yield
    spark.conf.set(ZONE, before)


def put(folder: Path, number: int) -> None:
    (folder / "in").mkdir(exist_ok=True)
    at = pa.array([number * 1_000_000 + each for each in range(10)], pa.timestamp("us", "UTC"))
    pq.write_table(
        pa.table({"at": at, "k": pa.array(range(10), pa.int64())}), folder / "in" / f"{number}.parquet"
    )


def answer(spark: SparkSession, folder: Path, zone: str) -> Run:
    spark.conf.set(ZONE, zone)
    engine = Engine(spark).execute(
        f"CREATE TABLE s (at TIMESTAMP, k BIGINT) USING parquet OPTIONS (path '{folder}/in', event_time 'at');\n"
        "CREATE VIEW j AS SELECT a.k, a.at FROM s a JOIN s b ON a.k = b.k "
        "AND b.at BETWEEN a.at - INTERVAL 1 HOUR AND a.at + INTERVAL 1 HOUR;"
    )
    return run_to_end(engine, str(folder / "out"), seconds=None)


@pytest.mark.long
def test_another_name_of_the_zone_keeps_every_join(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path, 0)
    answer(spark, tmp_path, "Etc/UTC")
    for number, zone in enumerate(("UTC", "Z", "GMT+0", "+00:00"), 1):
        put(tmp_path, number)
        run = answer(spark, tmp_path, zone)
        assert run.results("j").count() == 10 * (number + 1) ** 2
        assert [event for event in run.events() if event["kind"] == "joins_changed"][1:] == []


def test_another_zone_is_refused_with_what_to_do(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path, 0)
    answer(spark, tmp_path, "Europe/Kiev")
    with pytest.raises(
        CheckpointError, match=r"time zone Europe/Kiev, this session uses UTC: (.|\n)*timeZone=Europe/Kiev"
    ):
        answer(spark, tmp_path, "UTC")
    put(tmp_path, 1)
    assert answer(spark, tmp_path, "Europe/Kyiv").results("j").count() == 40


def test_a_first_start_that_fails_leaves_the_zone_open(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise InputError("no such topic")

    put(tmp_path, 0)
    with monkeypatch.context() as patched:
        patched.setattr(ParquetSource, "prepare", fail)
        with pytest.raises(InputError, match="no such topic"):
            answer(spark, tmp_path, "Asia/Tokyo")
    assert answer(spark, tmp_path, "UTC").results("j").count() == 10
