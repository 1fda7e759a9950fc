"""A source that is away: told while it lasts, waited for, and then answered as if nothing had been."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from engine_cases import folder_bag, script, write_orders
from penstock.spark.engine import Engine
from penstock.spark.sources.probes import FolderProbe
from penstock_lab.servers.kafka import KafkaBroker

pytestmark = pytest.mark.spark

VIEWS = {"large": "SELECT * FROM orders WHERE amount > 900", "all": "SELECT * FROM orders WHERE id >= 0"}


def _until(condition: Callable[[], bool], seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_folder_that_is_gone_is_told_while_it_is(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    write_orders(folder, 2, 300)
    engine = Engine(spark, watch_seconds=0.1).execute(script(folder, VIEWS))
    run = engine.start(tmp_path / "out")
    try:
        _until(lambda: run.status().streams["orders"].tuples == 600)
        _until(lambda: (run.status().streams["orders"].to_dict()["lag"] or {}).get("backlog") == 0)
        folder.rename(tmp_path / "away")
        _until(lambda: bool(run.events("source_unreachable")))
        assert run.status().streams["orders"].to_dict()["outage"]["source"] == f"folder {folder}"
        _until(lambda: run._execution.queries["orders"].source_state().is_reachable is False)
        (tmp_path / "away").rename(folder)
        _until(lambda: bool(run.events("source_reachable")))
        write_orders(tmp_path / "more", 1, 100, seed=99)
        (tmp_path / "more" / "000.parquet").rename(folder / "900.parquet")
        _until(lambda: run.status().streams["orders"].tuples == 700)
    finally:
        run.stop()
    assert [event["kind"] for event in run.events() if event["kind"].startswith("source_")] == [
        "source_unreachable",
        "source_reachable",
    ]
    (gone,) = run.events("source_unreachable")
    assert gone["told"] == "No such file or directory"
    lag = run.events("lag")[-1]
    assert lag["unit"] == "files"
    assert lag["age_seconds"] > 0


#: a client that gives up soon: what comes after it is what is tested
QUICK = ", kafka.request.timeout.ms '2000', kafka.default.api.timeout.ms '3000'"


def _waits(folder: Path) -> Callable[[pa.Array], pa.Array]:
    """A function that says that a batch is being read, once it is asked to, and goes on once the broker is away."""

    def held(ids: pa.Array) -> pa.Array:
        if (folder / "asked").exists():
            (folder / "reading").touch()
            while not (folder / "away").exists():
                time.sleep(0.02)
        return ids

    return held


@pytest.mark.long
@pytest.mark.kafka
@pytest.mark.parametrize(
    ("client", "away_seconds"),
    [("", 10), pytest.param("", 75, marks=pytest.mark.long), pytest.param(QUICK, 60, marks=pytest.mark.long)],
)
def test_a_broker_killed_within_a_batch_is_waited_for_and_nothing_is_lost_or_repeated(
    spark: SparkSession, kafka: KafkaBroker, tmp_path: Path, client: str, away_seconds: float
) -> None:
    """The batch is read, and then the broker cannot say whether the topic is the one that it was read from."""
    topic = f"outage-{len(client)}-{away_seconds}"
    kafka.create_topic(topic, partitions=2)
    orders = [json.dumps({"id": number, "amount": number % 1000}) for number in range(4000)]
    kafka.produce(topic, orders[:1000])
    options = f"kafka.bootstrap.servers '{kafka.address}', subscribe '{topic}', startingOffsets 'earliest'"
    table = f"CREATE TABLE orders (id BIGINT, amount INT) USING kafka OPTIONS ({options}{client});"
    views = {**VIEWS, "all": "SELECT * FROM orders WHERE held(id) >= 0"}
    text = "\n".join([table, *(f"CREATE VIEW {name} AS {sql};" for name, sql in views.items())])
    # a quick client needs seconds until it gives up, so that these attempts outlast the outage
    engine = Engine(spark, watch_seconds=0.5, retry_attempts=20 if client else 8)
    run = engine.function("held", _waits(tmp_path), "BIGINT").execute(text).start(tmp_path / "out")
    try:
        _until(lambda: run.status().streams["orders"].tuples == 1000)
        (tmp_path / "asked").touch()
        kafka.produce(topic, orders[1000:2000])
        _until((tmp_path / "reading").exists)
        kafka.kill()
        killed = time.monotonic()
        (tmp_path / "away").touch()
        try:
            _until(lambda: bool(run.events("source_unreachable")))
            assert (
                run.status().streams["orders"].to_dict()["outage"]["source"]
                == f"topic {topic} at {kafka.address}"
            )
            _until(lambda: bool(run.events("stream_retried")))
            time.sleep(max(0.0, away_seconds - (time.monotonic() - killed)))
            assert run.active
        finally:
            kafka.start()
        _until(lambda: bool(run.events("source_reachable")))
        kafka.produce(topic, orders[2000:])
        _until(lambda: run.status().streams["orders"].tuples == 4000)
        _until(lambda: run.status().streams["orders"].to_dict()["lag"]["backlog"] == 0)
    finally:
        (tmp_path / "away").touch()
        run.stop()
    wanted = Counter((number, "all") for number in range(4000))
    wanted.update((number, "large") for number in range(4000) if number % 1000 > 900)
    assert folder_bag(tmp_path / "out", "orders", by_manifest=True) == wanted
    assert folder_bag(tmp_path / "out", "orders", by_manifest=False) == wanted
    assert not run.events("run_failed")
    retried = run.events("stream_retried")[0]
    assert (retried["cause"], retried["part"]) == ("source_unreachable", "ingest")
    assert f"topic {topic} at {kafka.address}: the broker does not answer" in retried["told"]
    assert any(event["backlog"] == 0 and event["unit"] == "records" for event in run.events("lag"))


def test_the_backlog_counts_what_spark_reads_and_nothing_else(spark: SparkSession, tmp_path: Path) -> None:
    names = ["a", "b._COPYING_", "_SUCCESS", ".c.crc", "nested/d"]
    partitioned = [*names[1:4], "_day=1/e", "_day=1/_f", "_day=1/g._COPYING_"]
    for folder, written in (("plain", names), ("partitioned", partitioned)):
        for name in written:
            path = tmp_path / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("a line\n")
        read: list[str] = []
        checkpoint = tmp_path / f"checkpoint-{folder}"
        probe = FolderProbe(tmp_path / folder)
        before = probe.backlog(checkpoint)
        lines = spark.readStream.text(str(tmp_path / folder)).select("_metadata.file_path")
        query = (
            lines.writeStream.foreachBatch(lambda df, _, read=read: read.extend(r[0] for r in df.collect()))
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        assert before == len(read) > 0
        assert probe.backlog(checkpoint) == 0
