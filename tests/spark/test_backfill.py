"""Window views that begin in mid-stream: never final before they are whole, and made whole from the earlier batches."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from datetime import datetime
from functools import partial
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
    engine_on,
    newest_of,
    rounded,
    tuples,
    wait_for,
    write,
)

from engine_cases import put_file
from joined_inputs import multiset
from penstock.errors import StreamFailedError
from penstock.spark.engine import Engine
from penstock.spark.lanes.history import backfill
from penstock.spark.lanes.history.backfill import backfill_of
from penstock.spark.log.stream_log import LogReader
from penstock.spark.run import Run
from penstock.spark.sessions.numbered_tasks import run_numbered
from penstock.spark.sessions.priority import LOW_PRIORITY, give_way
from penstock.spark.sessions.slots import task_slots
from penstock.spark.sources import kafka_tables
from penstock.spark.sources.parquet_source import ParquetSource
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.past import CannotReadAgainError, Past
from penstock.trigger import Trigger
from penstock_lab.servers.kafka import KafkaBroker
from whole_runs import run_to_end

pytestmark = pytest.mark.spark

SUMS = VIEWS["sums"]


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
    run = engine.start(out, trigger=Trigger.available_now(ended=True))
    run.await_termination()
    (told,) = events_of(out, "backfill_impossible")
    assert "reads such a source once" in told["reason"]
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


@pytest.mark.long
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
    engine.add_views({name: VIEWS[name] for name in ("busy", "spread")})
    since = newest_of_csv(spark, data)
    for numbers in (range(2, 4), range(4, 8)):
        write_csv(data, numbers)
        wait_for(run, 2_000 * numbers.stop)
    run.stop()
    run = engine.start(out, trigger=Trigger.available_now())
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
        put_file(folder / f"{number:03d}.csv", partial(csv.write_csv, tuples(number, 2_000)))


def newest_of_csv(spark: SparkSession, folder: Path) -> datetime:
    return spark.read.schema(COLUMNS).csv(str(folder), header=True).agg(F.max("ts")).collect()[0][0]


def assert_same(found: DataFrame, expected: DataFrame) -> None:
    assert multiset(rounded(found)) == multiset(rounded(expected))


def test_a_view_that_returns_keeps_its_answers_and_gets_what_came_without_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With it a view of all the past; the process is killed once before the partials of the past are in the log."""
    data, out = tmp_path / "data", tmp_path / "out"
    dear = {"dear": "SELECT * FROM tuples WHERE price > 99"}
    past = {"past": VIEWS["spread"].replace("SELECT", "SELECT /*+ BACKFILL */", 1)}
    sums = {"sums": SUMS}

    def run_with(views: dict[str, str], numbers: range, ends: Any = None) -> Run:
        write(data, numbers)
        run = engine_on(spark, data).add_views(views).start(out, trigger=Trigger.available_now())
        with ends or nullcontext():
            run.await_termination()
        run.stop()
        return run

    answered = run_with(dear | sums, range(4)).results("sums").collect()
    run_with(dear, range(4, 6))

    def killed(place: str, _: int) -> None:
        if place == "backfill_staged":
            raise SystemExit

    monkeypatch.setattr(backfill, "failpoint", killed)
    # what ends the lane's thread alone is told
    ends = pytest.raises(StreamFailedError, match="SystemExit")
    run = run_with(dear | sums | past, range(6, 8), ends)
    monkeypatch.undo()
    assert events_of(out, "backfill_started")
    assert not events_of(out, "backfill_done")
    ends = {row.w.end for row in run.results("sums").collect()}
    assert {row.w.end for row in answered} <= ends
    assert run.changes("past").where("is_final AND w.start <= TIMESTAMP '2023-11-14 22:13:31Z'").count() == 0

    run = run_with(dear | sums | past, range(8, 9))
    (done,) = events_of(out, "backfill_done")
    assert sorted(done["views"]) == ["past", "sums"]
    for name in ("sums", "past"):
        assert_equal_to_spark(spark, run.results(name), [data], VIEWS["spread"] if name == "past" else SUMS)
    # no batch comes with this one
    quiet = {"quiet": VIEWS["busy"].replace("SELECT", "SELECT /*+ BACKFILL */", 1)}
    run = run_with(dear | sums | past | quiet, range(0))
    assert_equal_to_spark(spark, run.results("quiet"), [data], VIEWS["busy"])
    layout = Layout(out, out / "_penstock/checkpoint")
    assert len(layout.backfilled("tuples").numbers()) == 3
    assert not any((layout.local / "staging").glob(f"*/{backfill_of('tuples')}/*"))
    log = LogReader(layout.log("tuples"))
    last = log.newest()
    assert last is not None
    for kind in {kind for entry in log.between(-1, last.number) for kind in entry.files}:
        listed = {name for entry in log.between(-1, last.number) for name in entry.files.get(kind, ())}
        assert {path.name for path in layout.log_files("tuples", kind).iterdir()} == listed


def test_early_answers_go_on_while_a_view_is_made_whole(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The backfill asks for eight tasks, which do not end before early answers of later tuples have come."""
    data, out, begun, gate = (
        write(tmp_path / "data", range(4)),
        tmp_path / "out",
        tmp_path / "begun",
        tmp_path / "go",
    )
    begun.mkdir()
    again = ParquetSource.again

    def held(number: int) -> None:
        give_way()
        (begun / str(number)).write_text(str(os.getpriority(os.PRIO_PROCESS, 0)))
        while not gate.exists():
            time.sleep(0.02)

    def gated(source: ParquetSource, session: SparkSession, past: Past) -> Iterable[DataFrame]:
        run_numbered(session.sparkContext, held, 8)
        return again(source, session, past)

    monkeypatch.setattr(ParquetSource, "again", gated)
    past = VIEWS["spread"].replace("SELECT", "SELECT /*+ BACKFILL */", 1)
    engine = engine_on(spark, data).view("sums", SUMS)
    run = engine.start(out)
    try:
        wait_for(run, 8_000)
        engine.view("past", past)
        write(data, range(4, 6))
        _wait(lambda: any(begun.iterdir()))
        since = newest_of(data)
        write(data, range(6, 8))
        for name in ("sums", "past"):
            _wait(lambda name=name: run.changes(name).where(F.col("w.start") > F.lit(since)).count() > 0)
        assert not events_of(out, "backfill_done")
        assert len(list(begun.iterdir())) <= max(1, task_slots(spark) // 2)
        assert {path.read_text() for path in begun.iterdir()} == {str(LOW_PRIORITY)}
    finally:
        gate.touch()
    _wait(lambda: bool(events_of(out, "backfill_done")))
    run.stop()
    run = engine.start(out, trigger=Trigger.available_now(ended=True))
    run.await_termination()
    assert_equal_to_spark(spark, run.results("past"), [data], VIEWS["spread"])
    assert_equal_to_spark(spark, run.results("sums"), [data], SUMS)
    run.stop()


def _wait(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 300
    while not is_so():
        assert time.monotonic() < deadline, "in time"
        time.sleep(0.2)


def test_files_that_are_gone_or_changed_are_told(tmp_path: Path) -> None:
    """As Spark's file log names them, compacted or not."""
    log, data = tmp_path / "sources/0", tmp_path / "da ta"
    log.mkdir(parents=True)
    data.mkdir()
    for number in range(4):
        (data / f"{number}.csv").write_text("x")

    def entry(number: int) -> str:
        modified = (data / f"{number}.csv").stat().st_mtime_ns // 1_000_000
        uri = f"file://{str(data).replace(' ', '%20')}/{number}.csv"
        return json.dumps({"path": uri, "timestamp": modified, "batchId": number})

    (log / "1.compact").write_text("\n".join(["v1", entry(0), entry(1)]))
    for number in (2, 3):
        (log / str(number)).write_text("\n".join(["v1", entry(number)]))
    read = Past(tmp_path, 3, '{"logOffset":2}', lambda batch: batch > 0)
    assert [[path[-5:] for path in paths] for paths in read.files()] == [["1.csv", "2.csv"]]
    assert next(read.files())[0] == f"file://{data}/1.csv"
    (data / "2.csv").unlink()
    with pytest.raises(CannotReadAgainError, match=r"2\.csv does not exist any more"):
        list(read.files())
    (data / "2.csv").write_text("y")
    os.utime(data / "2.csv", (1, 1))
    with pytest.raises(CannotReadAgainError, match="changed after Penstock read it"):
        list(read.files())


@pytest.mark.long
@pytest.mark.kafka
def test_a_view_over_a_topic_is_made_whole_from_its_offsets(
    spark: SparkSession, tmp_path: Path, kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_tables, "_PORTION_RECORDS", 300)
    out, topic = tmp_path / "out", "backfilled"
    kafka.create_topic(topic, 2)
    sent: list[str] = []
    table = (
        "CREATE TABLE tuples (ts TIMESTAMP, key BIGINT, value DOUBLE) USING kafka OPTIONS "
        f"(kafka.bootstrap.servers '{kafka.address}', subscribe '{topic}', startingOffsets 'earliest', event_time 'ts')"
    )
    sql = "SELECT key, window(ts, '10 seconds', '5 seconds') AS w, count(*) AS n, sum(value) AS s FROM tuples GROUP BY key, w"
    views = {"large": "SELECT * FROM tuples WHERE value > 990"}

    def run_over(numbers: range) -> Run:
        moments = {
            number: f"2026-01-01T00:00:{(number - number % 7) % 3600 / 60:06.3f}Z" for number in numbers
        }
        lines = [json.dumps({"ts": ts, "key": n % 3, "value": float(n)}) for n, ts in moments.items()]
        kafka.produce(topic, lines[::2], 0)
        kafka.produce(topic, lines[1::2], 1)
        sent.extend(lines)
        return run_to_end(Engine(spark).execute(table).add_views(views), out, seconds=None)

    run_over(range(1_000))
    views["counts"] = sql
    views["past"] = sql.replace("SELECT", "SELECT /*+ BACKFILL */", 1)
    run = run_over(range(1_000, 2_000))
    rows = spark.createDataFrame([(line,) for line in sent], "line STRING")
    parsed = rows.select(F.from_json("line", "ts TIMESTAMP, key BIGINT, value DOUBLE").alias("t")).select(
        "t.*"
    )
    parsed.createOrReplaceTempView("tuples")
    assert_same(run.results("past"), spark.sql(sql))
    assert_same(run.results("counts"), spark.sql(sql).where("w.end > TIMESTAMP '2026-01-01T00:00:16.567Z'"))
    (done,) = events_of(out, "backfill_done")
    assert done["tuples"] == 1_000
