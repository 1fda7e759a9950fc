"""What Kafka's admin client is asked, and how what it does not know is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.spark.sources.kafka_admin import KafkaAdmin, client_options
from penstock.spark.sources.probes import KafkaProbe, SourceGoneError
from penstock_lab.servers.kafka import KafkaBroker

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


@pytest.mark.parametrize(
    ("set_ones", "request_ms", "answer_ms"),
    [
        ({}, 5_000, 8_000),
        ({"default.api.timeout.ms": "3000"}, 3_000, 3_000),
        ({"request.timeout.ms": "20000"}, 20_000, 20_000),
        ({"request.timeout.ms": "2000", "default.api.timeout.ms": "120000"}, 2_000, 120_000),
    ],
)
def test_the_client_gives_up_before_anybody_waits_in_vain(
    set_ones: dict[str, str], request_ms: int, answer_ms: int
) -> None:
    own, wait_ms = client_options(
        {"subscribe": "a", **{f"kafka.{name}": set_ones[name] for name in set_ones}}
    )
    assert (own["request.timeout.ms"], own["default.api.timeout.ms"]) == (str(request_ms), str(answer_ms))
    assert "subscribe" not in own
    assert wait_ms > answer_ms


def test_topics_are_found_by_a_pattern_and_a_missing_one_is_told_as_such(
    spark: SparkSession, kafka: KafkaBroker, tmp_path: Path
) -> None:
    for name in ("found-1", "found-2", "unfound-3"):
        kafka.create_topic(name, partitions=2)
    kafka.produce("found-1", ["{}"] * 3, partition=1)
    options = {"kafka.bootstrap.servers": kafka.address}
    admin = KafkaAdmin(spark, options)
    try:
        assert sorted(admin.matching("found-.")) == ["found-1", "found-2"]
        assert admin.matching("nothing.*") == []
        assert len(set(admin.ids(["found-1", "found-2"]).values())) == 2
        assert admin.ends(admin.partitions(["found-1"])) == {"found-1": {"0": 0, "1": 3}}
        assert admin.begins({"found-1": [1]}) == {"found-1": {"1": 0}}
    finally:
        admin.close(5)
    begins = tmp_path / "sources" / "0" / "0"
    begins.parent.mkdir(parents=True)
    for topic, told in (("found-1", None), ("gone", "the topic does not exist: UnknownTopicOrPartition")):
        begins.write_text("v1\n" + json.dumps({topic: {"1": 1}}))
        probe = KafkaProbe(spark, topic, options)
        try:
            if told is None:
                assert probe.backlog(tmp_path) == 2
            else:
                with pytest.raises(SourceGoneError, match=told):
                    probe.backlog(tmp_path)
        finally:
            probe.close()
