"""A source that is away: told while it lasts, waited for, and then answered as if nothing had been."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from engine_cases import folder_bag, script, write_orders
from penstock.spark.engine import Engine
from penstock.testing.kafka import KafkaBroker

pytestmark = pytest.mark.spark

FULL = os.environ.get("PENSTOCK_CHAOS") == "full"
VIEWS = {"large": "SELECT * FROM orders WHERE amount > 900", "all": "SELECT * FROM orders WHERE id >= 0"}


def _until(condition: Callable[[], bool], seconds: float = 60) -> None:
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
        _until(lambda: run.status()["orders"]["tuples"] == 600)
        _until(lambda: (run.status()["orders"]["lag"] or {}).get("backlog") == 0)
        folder.rename(tmp_path / "away")
        _until(lambda: bool(run.events("source_unreachable")))
        assert run.status()["orders"]["outage"]["source"] == f"folder {folder}"
        assert run.queries["orders"].source_state().is_reachable is False
        (tmp_path / "away").rename(folder)
        _until(lambda: bool(run.events("source_reachable")))
        write_orders(tmp_path / "more", 1, 100, seed=99)
        (tmp_path / "more" / "000.parquet").rename(folder / "900.parquet")
        _until(lambda: run.status()["orders"]["tuples"] == 700)
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


@pytest.mark.kafka
def test_a_killed_broker_is_waited_for_and_nothing_is_lost_or_repeated(
    spark: SparkSession, kafka: KafkaBroker, tmp_path: Path
) -> None:
    kafka.create_topic("outage", partitions=2)
    orders = [json.dumps({"id": number, "amount": number % 1000}) for number in range(4000)]
    kafka.produce("outage", orders[:2000])
    options = (
        f"kafka.bootstrap.servers '{kafka.address}', subscribe 'outage', startingOffsets 'earliest', "
        # a client that gives up soon: what comes after it is what is tested
        "kafka.request.timeout.ms '2000', kafka.default.api.timeout.ms '3000'"
    )
    table = f"CREATE TABLE orders (id BIGINT, amount INT) USING kafka OPTIONS ({options});"
    text = "\n".join([table, *(f"CREATE VIEW {name} AS {sql};" for name, sql in VIEWS.items())])
    # a query needs seconds until it gives up, so that these attempts outlast the outage
    engine = Engine(spark, watch_seconds=0.5, retry_seconds=0.5, retry_attempts=20).execute(text)
    run = engine.start(tmp_path)
    try:
        _until(lambda: run.status()["orders"]["tuples"] > 0)
        kafka.kill()
        killed = time.monotonic()
        try:
            _until(lambda: bool(run.events("source_unreachable")))
            assert run.status()["orders"]["outage"]["source"] == f"topic outage at {kafka.address}"
            _until(lambda: bool(run.events("stream_retried")), 120)
            time.sleep(max(0.0, (60 if FULL else 8) - (time.monotonic() - killed)))
            assert run.active
        finally:
            kafka.start()
        _until(lambda: bool(run.events("source_reachable")))
        kafka.produce("outage", orders[2000:])
        _until(lambda: run.status()["orders"]["tuples"] == 4000, 120)
        _until(lambda: run.status()["orders"]["lag"]["backlog"] == 0)
    finally:
        run.stop()
    wanted = Counter((number, "all") for number in range(4000))
    wanted.update((number, "large") for number in range(4000) if number % 1000 > 900)
    assert folder_bag(tmp_path, "orders", by_manifest=True) == wanted
    assert folder_bag(tmp_path, "orders", by_manifest=False) == wanted
    assert not run.events("run_failed")
    retried = run.events("stream_retried")[0]
    assert (retried["cause"], retried["part"]) == ("source_unreachable", "ingest")
    assert f"topic outage at {kafka.address}: the broker does not answer" in retried["told"]
    assert any(event["backlog"] == 0 and event["unit"] == "records" for event in run.events("lag"))
