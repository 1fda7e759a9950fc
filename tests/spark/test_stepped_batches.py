"""One batch of many hours: lateness inside it is seen where the source knows in which order tuples came."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from engine_cases import put_file
from penstock.errors import StreamFailedError
from penstock.spark.engine import Engine
from penstock.spark.ingest import answering
from penstock.spark.log.entries import Entry
from penstock.spark.log.stream_log import LogReader
from penstock.spark.run import Run
from penstock.spark.storage.layout import Layout
from penstock.trigger import Trigger
from penstock_lab.servers.kafka import KafkaBroker

pytestmark = pytest.mark.spark

START, HOUR, HOURS, ROWS = 1_700_000_000, 3_600, 24, 360
COLUMNS = "ts TIMESTAMP, key BIGINT"
SQL = "SELECT key, window(ts, '1 hour', '15 minutes') AS w, count(*) AS n FROM t GROUP BY key, w"
HINTED = SQL.replace("SELECT", "SELECT /*+ MAX_ERROR(0.01, 0.2) */")


def arrivals(hour: int) -> pa.Table:
    """What came in an hour, in the order in which it came: every fifth tuple is up to 40 minutes late."""
    rng = np.random.default_rng(hour)
    came = START + HOUR * hour + np.arange(ROWS) * HOUR / ROWS
    late = (rng.random(ROWS) < 0.2) * rng.integers(0, 2_400, ROWS)
    times = pa.array(((came - late) * 1e6).astype(np.int64)).cast(pa.timestamp("us", "UTC"))
    return pa.table({"ts": times, "key": rng.integers(0, 2, ROWS)})


def answered(engine: Engine, out: Path) -> tuple[Run, list[Entry], dict[str, Any]]:
    """A run over what is there, its log, and how the view stands in the end."""
    run = engine.view("v", HINTED).start(out, trigger=Trigger.available_now())
    try:
        run.await_termination()
    finally:
        run.stop()
    log = LogReader(Layout.of(out, None).log("t"))
    newest = log.newest()
    assert newest is not None
    entries = [log.entry(number) for number in range(newest.number + 1)]
    events = [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]
    windows = [event["standing"] for event in events if event["kind"] == "windows"]
    standing = [found["v"] for found in windows if "v" in found]
    return run, entries, standing[-1]


def assert_equals_spark(spark: SparkSession, run: Run, every: Path) -> None:
    spark.read.parquet(str(every)).createOrReplaceTempView("t")
    expected = sorted((row.key, row.w.start, row.n) for row in spark.sql(SQL).collect())
    assert sorted((row.key, row.w.start, row.n) for row in run.results("v").collect()) == expected


def early(run: Run) -> list[tuple[Any, ...]]:
    """Every answer."""
    found = run.changes("v").collect()
    return sorted((r.key, r.w.start, r.n, r.revision, r.is_final, r.slack, r.coverage or 0.0) for r in found)


@pytest.mark.long
def test_lateness_inside_a_batch_of_files_is_seen_and_a_repeated_batch_sees_the_same(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for hour in range(HOURS):
        put_file(data / f"{hour:02d}.parquet", partial(pq.write_table, arrivals(hour)))
    text = f"CREATE TABLE t ({COLUMNS}) USING parquet OPTIONS (path '{data}', event_time 'ts')"
    run, entries, standing = answered(Engine(spark).execute(text), tmp_path / "steps")
    assert [len(entry.steps) for entry in entries if entry.files] == [HOURS]
    assert standing["slack"] > 10 * 60 * 1_000_000
    assert_equals_spark(spark, run, data)

    plain, entries, standing = answered(Engine(spark, arrival_steps=1).execute(text), tmp_path / "one")
    assert not any(entry.steps for entry in entries)
    assert standing["slack"] == 0
    assert_equals_spark(spark, plain, data)

    behind, entries, standing = answered(Engine(spark, map_in_scan=False).execute(text), tmp_path / "behind")
    assert [len(entry.steps) for entry in entries if entry.files] == [HOURS]
    assert early(behind) == early(run)

    failed = []

    def fails_once(name: str, batch: int) -> None:
        if name == "staged" and not failed:
            failed.append(batch)
            raise ValueError("once")

    monkeypatch.setattr(answering, "failpoint", fails_once)
    with pytest.raises(StreamFailedError, match="once"):
        answered(Engine(spark).execute(text), tmp_path / "repeated")
    repeated, _, _ = answered(Engine(spark).execute(text), tmp_path / "repeated")
    assert failed == [0]
    assert early(repeated) == early(run)


def write_json(table: pa.Table, path: Path) -> None:
    """Lines that workers decode, and every tenth one that only Spark reads."""
    lines = []
    for place, row in enumerate(table.to_pylist()):
        line = json.dumps({"ts": row["ts"].strftime("%Y-%m-%dT%H:%M:%S.%fZ"), "key": row["key"]})
        lines.append(line if place % 10 else f"[{line}]")
    path.write_text("\n".join(lines))


@pytest.mark.parametrize("kind", [pytest.param("csv", marks=pytest.mark.long), "json"])
def test_lateness_inside_a_batch_of_texts_is_seen(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    data = tmp_path / "data"
    data.mkdir()
    write = csv.write_csv if kind == "csv" else write_json
    for hour in range(HOURS):
        put_file(data / f"{hour:02d}.{kind}", partial(write, arrivals(hour)))
    pq.write_table(pa.concat_tables([arrivals(hour) for hour in range(HOURS)]), tmp_path / "every.parquet")
    header = "header 'true', " if kind == "csv" else ""
    table = f"CREATE TABLE t ({COLUMNS}) USING {kind} OPTIONS (path '{data}', {header}event_time 'ts')"
    run, entries, standing = answered(Engine(spark).execute(table), tmp_path / "out")
    assert [len(entry.steps) for entry in entries if entry.files] == [HOURS]
    assert standing["slack"] > 10 * 60 * 1_000_000
    assert_equals_spark(spark, run, tmp_path / "every.parquet")


@pytest.mark.kafka
@pytest.mark.parametrize("decode_in_worker", [True, pytest.param(False, marks=pytest.mark.long)])
def test_lateness_inside_a_batch_of_records_is_seen(
    spark: SparkSession, kafka: KafkaBroker, tmp_path: Path, decode_in_worker: bool
) -> None:
    topic = f"steps-{decode_in_worker}".lower()
    kafka.create_topic(topic, 2)
    tuples = pa.concat_tables([arrivals(hour) for hour in range(HOURS)])
    pq.write_table(tuples, tmp_path / "every.parquet")
    records = [
        json.dumps({"ts": row["ts"].strftime("%Y-%m-%dT%H:%M:%S.%fZ"), "key": row["key"]})
        for row in tuples.to_pylist()
    ]
    for partition in range(2):
        kafka.produce(topic, records[partition::2], partition)
    table = (
        f"CREATE TABLE t ({COLUMNS}) USING kafka OPTIONS (kafka.bootstrap.servers '{kafka.address}', "
        f"subscribe '{topic}', startingOffsets 'earliest', event_time 'ts')"
    )
    engine = Engine(spark, decode_in_worker=decode_in_worker).execute(table)
    run, entries, standing = answered(engine, tmp_path / "out")
    assert [len(entry.steps) for entry in entries if entry.files] == [32]
    assert standing["slack"] > 10 * 60 * 1_000_000
    assert_equals_spark(spark, run, tmp_path / "every.parquet")
