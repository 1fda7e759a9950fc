"""The surroundings themselves: a broker that restarts, a cluster that loses a worker."""

from __future__ import annotations

import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock_lab.servers.cluster import StandaloneCluster
    from penstock_lab.servers.kafka import KafkaBroker


@pytest.mark.long
@pytest.mark.kafka
@pytest.mark.spark
def test_kafka_keeps_records_over_a_restart(spark: SparkSession, kafka: KafkaBroker, tmp_path: Path) -> None:
    kafka.create_topic("restart-in", partitions=2)
    kafka.create_topic("restart-out")
    kafka.produce("restart-in", [f"first-{number}" for number in range(100)])
    source = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", kafka.address)
        .option("subscribe", "restart-in")
        .option("startingOffsets", "earliest")
        .load()
    )
    copy = (
        source.select("value")
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", kafka.address)
        .option("topic", "restart-out")
        .option("checkpointLocation", str(tmp_path))
    )

    copy.trigger(availableNow=True).start().awaitTermination()
    kafka.stop()
    kafka.start()
    kafka.produce("restart-in", [f"second-{number}" for number in range(50)])
    copy.trigger(availableNow=True).start().awaitTermination()

    expected = {f"first-{number}" for number in range(100)} | {f"second-{number}" for number in range(50)}
    copied = [value.decode() for value in kafka.consume("restart-out")]
    assert sorted(copied) == sorted(expected)


@pytest.mark.long
@pytest.mark.kafka
def test_a_broker_whose_port_is_taken_starts_on_another(tmp_path: Path) -> None:
    jars = Path(__file__).parents[2] / ".cache" / "kafka"
    if not any(jars.glob("kafka_*.jar")):
        pytest.skip("Kafka's jars are not there: `make kafka-jars` fetches them")
    from penstock_lab.servers.kafka import KafkaBroker

    broker = KafkaBroker(jars, tmp_path)
    with socket.socket() as other:
        other.bind(("127.0.0.1", broker.port))
        other.listen()
        taken = broker.address
        with broker:
            assert broker.address != taken
            broker.create_topic("reached")
            broker.produce("reached", ["a"])
            assert broker.consume("reached") == [b"a"]


JOB = """
import os, time
from pathlib import Path
from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.master({url!r})
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.ui.enabled", "false")
    .config("spark.executor.memory", "512m")
    .config("spark.scheduler.minRegisteredResourcesRatio", "1.0")
    .getOrCreate()
)

def slow_square(number):
    Path({folder!r}, f"started-{{number}}").write_text(os.getcwd())
    time.sleep(0.5)
    return number * number

print("sum", spark.sparkContext.parallelize(range(16), 16).map(slow_square).sum())
"""


@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.chaos
def test_cluster_finishes_a_job_without_one_of_its_workers(
    cluster: StandaloneCluster, tmp_path: Path
) -> None:
    job = textwrap.dedent(JOB).format(url=cluster.url, folder=str(tmp_path))
    driver = subprocess.Popen([sys.executable, "-c", job], stdout=subprocess.PIPE, text=True)
    try:
        while not any(str(cluster.work[0]) in started.read_text() for started in tmp_path.glob("started-*")):
            assert driver.poll() is None, "the job ended before the worker took part in it"
            time.sleep(0.05)
        cluster.kill_worker(0)
        output, _ = driver.communicate(timeout=500)
    finally:
        driver.kill()

    assert output.split() == ["sum", "1240"]
    assert cluster.alive_workers == 1
