"""Topics that change under a stream: created anew under their names, or with more partitions."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.spark.engine import Engine
from penstock.spark.recovery.causes import DATA_LOST, Cause
from penstock.spark.run import Run
from penstock.trigger import Trigger
from penstock_lab.servers.kafka import KafkaBroker
from whole_runs import run_to_end

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def _engine(spark: SparkSession, kafka: KafkaBroker, topic: str) -> Engine:
    options = f"kafka.bootstrap.servers '{kafka.address}', subscribe '{topic}', startingOffsets 'earliest'"
    return Engine(spark).execute(
        f"CREATE TABLE orders (id BIGINT) USING kafka OPTIONS ({options});"
        "CREATE VIEW every_one AS SELECT id FROM orders WHERE id >= 0;"
    )


def _values(ids: Iterable[int]) -> list[str]:
    return [f'{{"id": {each}}}' for each in ids]


def _run(engine: Engine, output: Path) -> Run:
    return run_to_end(engine, output, seconds=None)


def _ids(run: Run) -> list[int]:
    return sorted(row.id for row in run.results("every_one").collect())


def test_a_topic_created_anew_between_two_runs(
    spark: SparkSession, kafka: KafkaBroker, tmp_path: Path
) -> None:
    topic = "anew"
    kafka.create_topic(topic)
    kafka.produce(topic, _values(range(1_000)))
    assert not _run(_engine(spark, kafka, topic), tmp_path).events("topic_recreated")
    kafka.delete_topic(topic)
    kafka.create_topic(topic, partitions=2)
    kafka.produce(topic, _values(range(1_000, 2_500)), partition=0)
    kafka.produce(topic, _values(range(2_500, 4_000)), partition=1)
    run = _run(_engine(spark, kafka, topic), tmp_path)
    assert _ids(run) == list(range(4_000))
    (told,) = run.events("topic_recreated")
    assert (told["topic"], told["expected"]) == (topic, {"0": 1_000})
    assert told["ends"] == {"0": 1_500, "1": 1_500}
    assert told["was"] != told["now"]
    kafka.produce(topic, _values(range(4_000, 4_010)), partition=1)
    run = _run(_engine(spark, kafka, topic), tmp_path)
    assert _ids(run) == list(range(4_010))
    assert not run.events("topic_recreated")


@pytest.mark.long
@pytest.mark.parametrize("new", [30, 300], ids=["shorter", "longer"])
def test_a_topic_created_anew_under_a_running_stream(
    spark: SparkSession, kafka: KafkaBroker, tmp_path: Path, new: int
) -> None:
    """Nothing read by the old topic's offsets is published; the stream goes on from the new one's beginning."""
    topic = f"anew-live-{new}"
    kafka.create_topic(topic)
    kafka.produce(topic, _values(range(100)))
    run = _engine(spark, kafka, topic).start(tmp_path, trigger=Trigger.every("1 second"))
    try:
        _wait(run, 100)
        kafka.delete_topic(topic)
        kafka.create_topic(topic)
        kafka.produce(topic, _values(range(100, 100 + new)))
        _wait(run, 100 + new)
        assert _ids(run) == list(range(100 + new))
    finally:
        run.stop()
    (told,) = run.events("topic_recreated")
    assert told["expected"] == {"0": 100}
    assert not run.events("run_failed")


@pytest.mark.long
def test_lost_records_are_told_from_a_topic_that_is_not_there_or_another(
    spark: SparkSession, kafka: KafkaBroker, tmp_path: Path
) -> None:
    topic, lost = "anew-asked", Cause(DATA_LOST, "some data may have been missed")
    kafka.create_topic(topic)
    kafka.produce(topic, _values(range(10)))
    run = _engine(spark, kafka, topic).start(tmp_path, trigger=Trigger.available_now())
    try:
        run.await_termination()
        source = run._execution.queries["orders"].source
        assert source.named(lost) is lost
        kafka.delete_topic(topic)
        missing = source.named(lost)
        kafka.create_topic(topic)
        recreated = source.named(lost)
    finally:
        run.stop()
    assert (missing.kind, missing.is_transient) == ("topic_missing", True)
    assert (recreated.kind, recreated.is_transient) == ("topic_recreated", True)
    assert f"topic {topic} was deleted and created again" in recreated.told


@pytest.mark.long
def test_partitions_added_to_a_topic(spark: SparkSession, kafka: KafkaBroker, tmp_path: Path) -> None:
    topic = "grown"
    kafka.create_topic(topic)
    kafka.produce(topic, _values(range(100)))
    _run(_engine(spark, kafka, topic), tmp_path)
    kafka.add_partitions(topic, 3)
    for partition in range(3):
        kafka.produce(topic, _values(range(100 + partition * 50, 150 + partition * 50)), partition=partition)
    run = _run(_engine(spark, kafka, topic), tmp_path)
    assert _ids(run) == list(range(250))
    assert not run.events("topic_recreated")


def _wait(run: Run, tuples: int) -> None:
    deadline = time.monotonic() + 300
    while run.status().streams["orders"].tuples < tuples:
        assert time.monotonic() < deadline
        run.await_termination(0.2)
