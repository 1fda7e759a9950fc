"""What was called final is what a window holds in the end, whatever waits, stops and is silent in between."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from kafka import KafkaProducer
from pyspark.sql import DataFrame, SparkSession

from engine_cases import after_each_batch
from penstock.cli.results import results
from penstock.errors import InputError, StreamFailedError
from penstock.monitor.folder import folder_status
from penstock.monitor.overview import view_rows
from penstock.spark.engine import Engine
from penstock.spark.results.read_plain import plain_rows
from penstock.spark.run import Run
from penstock.spark.storage.layout import Layout
from penstock.trigger import Trigger
from penstock_lab.servers.kafka import KafkaBroker
from whole_runs import run_to_end

pytestmark = pytest.mark.spark

START, ROWS, FILES = 1_700_000_000, 50, 3
COLUMNS = "ts TIMESTAMP, key BIGINT"
#: the year 2090
DEAD = 3_800_000_000
DAY = 86_400
#: longer than a file, so that every file's last windows want the next one
SQL = "SELECT key, window(ts, '2 seconds', '1 second') AS w, count(*) AS n, sum(key) AS s FROM t GROUP BY key, w"


def write(folder: Path, number: int, start: int = START, dead: int = 0) -> None:
    """A file of 1.5 seconds of event time, moved into the folder; the first tuples may be of a sensor without a clock."""
    moments = [(start + 1.5 * number + 1.5 * row / ROWS) * 1e6 for row in range(ROWS)]
    moments[:dead] = [DEAD * 1e6] * dead
    table = pa.table(
        {
            "ts": pa.array(map(int, moments)).cast(pa.timestamp("us", "UTC")),
            "key": [n % 2 for n in range(ROWS)],
        }
    )
    folder.mkdir(exist_ok=True)
    pq.write_table(table, folder / f".{number}.tmp")
    (folder / f".{number}.tmp").rename(folder / f"{number}.parquet")


def engine_on(spark: SparkSession, data: Path, **tune: float) -> Engine:
    text = f"CREATE TABLE t ({COLUMNS}) USING parquet OPTIONS (path '{data}', event_time 'ts')"
    return Engine(spark, **tune).execute(text).view("v", SQL)


def wait(until: Callable[[], bool], seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < deadline, "in time"
        time.sleep(0.05)


def assert_final_means_final(
    spark: SparkSession, run: Run, data: Path, least: int, condition: str = "TRUE"
) -> None:
    """Final rows are those over all tuples, at least so many of them; so are the newest revisions."""
    tuples = spark.read.schema(COLUMNS).parquet(str(data)).where(condition)
    assert_final_over(spark, run, tuples, least)


def assert_final_over(spark: SparkSession, run: Run, tuples: DataFrame, least: int) -> None:
    tuples.createOrReplaceTempView("t")
    expected = {(row.key, row.w, row.n, row.s) for row in spark.sql(SQL).collect()}
    final = run.changes("v").where("is_final OR coverage = 1").collect()
    assert {(row.key, row.w, row.n, row.s) for row in final} <= expected
    assert len({(row.key, row.w) for row in final}) == len(final) >= least
    assert {(row.key, row.w, row.n, row.s) for row in run.results("v").collect()} == expected


@pytest.mark.parametrize("trigger", ["0 seconds", pytest.param("1 second", marks=pytest.mark.long)])
def test_of_a_stream_with_pauses(spark: SparkSession, tmp_path: Path, trigger: str) -> None:
    data = tmp_path / "in"
    write(data, 0)
    run = engine_on(spark, data, idle_seconds=0.5).start(tmp_path / "out", trigger=Trigger.every(trigger))
    for number in range(1, FILES + 1):
        wait(lambda number=number: run.status().streams["t"].tuples == number * ROWS)  # type: ignore[misc]
        if trigger == "0 seconds":
            wait(lambda: any(said["reached"] > said["newest"] for said in standing(run)))
        if number < FILES:
            write(data, number)
    run.stop()
    run = engine_on(spark, data).start(tmp_path / "out", trigger=Trigger.available_now())
    run.await_termination()
    assert_final_means_final(spark, run, data, least=4)
    run.stop()


def standing(run: Run) -> list[dict[str, int]]:
    """How far the view has come, by the newest event."""
    return [event["standing"]["v"] for event in run.events("windows")[-1:] if "v" in event["standing"]]


def finals(run: Run) -> int:
    """How many windows have been told as final."""
    return sum(event["views"].get("v", {}).get("final", 0) for event in run.events("windows"))


@pytest.mark.long
def test_of_a_stream_that_is_stopped_and_resumed(spark: SparkSession, tmp_path: Path) -> None:
    data = tmp_path / "in"
    for number in range(FILES):
        write(data, number)
        ended = number == FILES - 1
        run = run_to_end(engine_on(spark, data), tmp_path / "out", ended=ended, seconds=None)
        if number == 0:
            assert run.changes("v").where("NOT is_final AND coverage IS NULL").count() > 0, (
                "answered all the same"
            )
    assert_final_means_final(spark, run, data, least=8)
    assert run.results("v").count() == run.changes("v").where("is_final").count()


def test_a_final_row_that_is_corrected_all_the_same_is_counted_and_told(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data, out = tmp_path / "in", tmp_path / "out"
    for number in range(FILES):
        write(data, number)
    engine = engine_on(spark, data).view("all", "SELECT * FROM t")
    run = run_to_end(engine, out, ended=True, seconds=None)
    assert {row.corrected_after_final for row in run.results("v", final_only=True).collect()} == {False}
    # later than any horizon: the stream was said to have ended
    write(data, FILES, START - int(1.5 * FILES))
    run = (
        engine_on(spark, data)
        .view("all", "SELECT * FROM t")
        .start(out, trigger=Trigger.available_now(ended=True))
    )
    run.await_termination()
    run.stop()
    rows = run.results("v", final_only=True)
    assert rows.columns == [*run.results("v").columns, "corrected_after_final"]
    again = run.changes("v").where("revision >= 1000000").count()
    assert rows.where("corrected_after_final").count() == again > 0
    assert rows.count() == run.results("v").count() > again
    told = [event["views"].get("v", {}).get("final_corrected_rows", 0) for event in run.events("windows")]
    assert sum(told) == again
    (view,) = (row for row in view_rows(folder_status(out)) if row.name == "v")
    assert view.rows == run.results("v").count() < run.changes("v").count()
    found = plain_rows(Layout(out, out), "v", 0, final_only=True)
    assert found is not None
    assert sum(found.rows["corrected_after_final"].to_pylist()) == again
    results(out, "v", final_only=True, limit=3)
    assert "final rows change only if a tuple arrives later" in capfd.readouterr().out
    with pytest.raises(InputError, match="all is not a window view"):
        run.results("all", final_only=True)


@pytest.mark.long
def test_of_a_driver_whose_clock_is_two_hours_slow(spark: SparkSession, tmp_path: Path) -> None:
    data, now = tmp_path / "in", int(time.time()) // 2 * 2
    for number in range(FILES + 2):
        write(data, number, now + 7_200, dead=int(number != 2))
        os.utime(data / f"{number}.parquet", (now - 60 + number, now - 60 + number))
    text = f"CREATE TABLE t ({COLUMNS}) USING parquet OPTIONS (path '{data}', event_time 'ts', max_files_per_trigger '1')"
    run = Engine(spark).execute(text).view("v", SQL).start(tmp_path / "out", trigger=Trigger.available_now())
    run.await_termination()
    (told,) = run.events("clock_behind")
    assert 7_000 < told["seconds"] < 7_300
    assert told["share"] == 1.0
    batches = run.events("batch")
    assert sum(batch["future_event_times"] for batch in batches) == len(batches) - 1
    first = [batch["ahead_event_times"] for batch in batches]
    assert first == [ROWS - 1] + [0] * (FILES + 1), "a hundred tuples tell the time"
    assert_final_means_final(spark, run, data, least=4, condition="ts < '2080-01-01'")
    run.stop()


@pytest.mark.long
def test_of_a_driver_whose_clock_is_days_slow(spark: SparkSession, tmp_path: Path) -> None:
    data, now = tmp_path / "in", int(time.time()) // 2 * 2
    data.mkdir()
    # a backlog of two days and, last, a device without a clock
    moments = [now + 30 * DAY + number * 2 * DAY // 200 for number in range(200)] + [DEAD]
    table = pa.table({"ts": pa.array(moments, pa.timestamp("s", "UTC")), "key": [n % 2 for n in range(201)]})
    pq.write_table(table, data / "0.parquet", coerce_timestamps="us")
    run = engine_on(spark, data).start(tmp_path / "out", trigger=Trigger.available_now())
    run.await_termination()
    (batch,) = run.events("batch")
    assert (batch["future_event_times"], len(run.events("clock_behind"))) == (1, 1)
    write(data, 1, now + 32 * DAY)
    run = engine_on(spark, data).start(tmp_path / "out", trigger=Trigger.available_now(ended=True))
    run.await_termination()
    assert_final_means_final(spark, run, data, least=400, condition="ts < '2080-01-01'")
    run.stop()


def test_a_query_stopped_from_outside_is_no_end(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "in"
    write(data, 0)
    begun, stopped = threading.Event(), threading.Event()
    engine = engine_on(spark, data).view("all", "SELECT * FROM t WHERE key >= 0")
    # a batch is at hand while the query is stopped
    after_each_batch(monkeypatch, lambda _: (begun.set(), stopped.wait(20)))
    run = engine.start(tmp_path / "out")
    assert begun.wait(300)
    (query,) = [each for each in spark.streams.active if each.name.endswith(":t")]
    threading.Timer(1, stopped.set).start()
    query.stop()
    with pytest.raises(StreamFailedError, match="another program stopped"):
        run.await_termination(300)
    run.stop()
    assert [event["cause"] for event in run.events("run_failed")] == ["stopped_outside"]


class Source:
    """A device that sends without pause, 25 tuples a second, and keeps what it cannot get rid of until it can.

    Every fifth tuple is 1.5 seconds late.
    """

    def __init__(self, broker: KafkaBroker, topic: str) -> None:
        self._producer = KafkaProducer(
            bootstrap_servers=broker.address,
            acks="all",
            reconnect_backoff_max_ms=200,
            delivery_timeout_ms=300_000,
        )
        self._topic = topic
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._send_all, daemon=True)
        self.sent: list[tuple[datetime, int]] = []

    def _send_all(self) -> None:
        while not self._stopping.wait(0.04):
            number = len(self.sent)
            seconds = 0.04 * number - 1.5 * (number % 5 == 4)
            moment = datetime.fromtimestamp(START, UTC) + timedelta(seconds=seconds)
            self.sent.append((moment, number % 2))
            record = json.dumps({"ts": moment.isoformat(), "key": number % 2})
            self._producer.send(self._topic, record.encode())

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()
        self._producer.flush(60)
        self._producer.close()


@pytest.mark.long
@pytest.mark.kafka
def test_of_a_topic_whose_broker_is_killed(spark: SparkSession, kafka: KafkaBroker, tmp_path: Path) -> None:
    kafka.create_topic("final")
    options = (
        f"kafka.bootstrap.servers '{kafka.address}', subscribe 'final', startingOffsets 'earliest', event_time 'ts', "
        "kafka.request.timeout.ms '2000', kafka.default.api.timeout.ms '3000'"
    )
    text = f"CREATE TABLE t ({COLUMNS}) USING kafka OPTIONS ({options})"

    def engine() -> Engine:
        tune = {"watch_seconds": 0.5, "retry_seconds": 0.5, "idle_seconds": 3.0, "retry_attempts": 40}
        return Engine(spark, **tune).execute(text).view("v", SQL)

    run = engine().start(tmp_path)
    try:
        with Source(kafka, "final") as source:
            wait(lambda: finals(run) > 0)
            kafka.kill()
            killed, told = time.monotonic(), len(run.events("windows"))
            try:
                wait(lambda: bool(run.events("source_unreachable")))
                time.sleep(max(0.0, 60 - (time.monotonic() - killed)))
                # tuples come about during the outage
                wait(lambda: len(source.sent) - run.status().streams["t"].tuples > 100)
                during = [event["standing"].get("v", {}) for event in run.events("windows")[told:]]
            finally:
                kafka.start()
            wait(lambda: bool(run.events("source_reachable")))
            goal = len(source.sent) + 75
            wait(lambda: run.status().streams["t"].tuples >= goal)
            wait(lambda: finals(run) >= 10)
        wait(lambda: run.status().streams["t"].tuples == len(source.sent))
    finally:
        run.stop()
    early = run.changes("v").where("is_final").count()
    assert not [said for said in during if said and said["reached"] > said["newest"]], (
        "an outage is no silence"
    )
    run = run_to_end(engine(), tmp_path, ended=True, seconds=None)
    tuples = spark.createDataFrame(source.sent, COLUMNS)
    assert_final_over(spark, run, tuples, least=early)
    assert early >= 10
    assert run.results("v").count() == run.changes("v").where("is_final").count()
