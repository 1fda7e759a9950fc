"""The sink `kafka` against a broker: transactions that are not repeated, keys, headers, JSON and Avro."""

from __future__ import annotations

import base64
import io
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, message_factory
from pyspark.sql import SparkSession

from penstock.errors import InputError
from penstock.operators.wire.protobuf_programs import ProtobufFiles
from penstock.spark.sinks import kafka as sink_module
from penstock.spark.sinks.kafka_client import KafkaProducer, _calls, one_record
from penstock.spark.storage.formats import SINK
from penstock_lab.servers.kafka import KafkaBroker
from penstock_lab.servers.schema_registry import SchemaRegistryServer
from sink_cases import CUTS, SELECTION, WINDOWS, Folder, until

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(900)]

_TOPICS = iter(range(1_000))


@pytest.fixture
def folder(spark: SparkSession, tmp_path: Path) -> Iterator[Folder]:
    """A results folder whose batches are merged now and then."""
    found = Folder(tmp_path / "out", 2, spark=spark)
    yield found
    found.close()


@pytest.fixture
def topic(kafka: KafkaBroker) -> dict[str, str]:
    """The options of a topic of its own."""
    name = f"sink-{next(_TOPICS)}"
    kafka.create_topic(name, partitions=2)
    return {"kafka.bootstrap.servers": kafka.address, "topic": name}


def records_of(topic: dict[str, str], isolation: str = "read_committed") -> list[Any]:
    """The records that a reader sees."""
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=topic["kafka.bootstrap.servers"],
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level=isolation,
    )
    try:
        places = [TopicPartition(topic["topic"], number) for number in range(2)]
        consumer.assign(places)
        consumer.seek_to_beginning(*places)
        ends = consumer.end_offsets(places)
        found: list[Any] = []
        while any(consumer.position(place) < ends[place] for place in places):
            for each in consumer.poll(timeout_ms=500).values():
                found += each
        return found
    finally:
        consumer.close()


def ids(topic: dict[str, str], isolation: str = "read_committed") -> list[int]:
    """The ids among the values."""
    return sorted(json.loads(each.value)["id"] for each in records_of(topic, isolation))


def set_back(folder: Folder, before: Any) -> None:
    """As if the process had been killed behind the commit of the newest delivery."""
    where = folder.layout.sinks["target.large"]
    after = SINK.read(where)
    assert after is not None
    planned = {"feed": {"query": "orders", "kind": "matches"}, "definition": 1}
    SINK.replace(where, {**before, "planned": {**planned, "end": after["feeds"][0]["place"]}})


@pytest.mark.parametrize(("transactions", "wanted"), [("true", [1, 2, 3, 4]), ("false", [1, 2, 3, 3, 4])])
def test_a_delivery_that_was_committed_and_not_marked(
    folder: Folder, topic: dict[str, str], transactions: str, wanted: list[int]
) -> None:
    sink = folder.sink("kafka", **topic, transactions=transactions)
    assert sink.promise == ("exactly once" if transactions == "true" else "at least once")
    folder.match([1, 2])
    folder.deliver(sink)
    before = SINK.read(folder.layout.sinks["target.large"])
    folder.match([3])
    folder.deliver(sink)
    set_back(folder, before)
    folder.match([4])
    folder.deliver(sink)
    assert ids(topic) == wanted
    headers = {tuple(sorted(each.headers)) for each in records_of(topic)}
    assert len(headers) == 4, "a repeated record has the same headers"


@pytest.mark.long
def test_a_transaction_that_a_kill_left_open_is_given_up(
    folder: Folder, topic: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = folder.sink("kafka", **topic, transactions="true")
    folder.match([1])
    folder.deliver(sink)
    left: list[KafkaProducer] = []
    close = KafkaProducer.close

    class Killed(sink_module._TopicInTransactions):
        """Sends half of a delivery and ends without a word."""

        def deliver(self, delivery: Any) -> None:
            left.append(self._producer)
            self._producer._producer.beginTransaction()
            (half,) = _calls(self._form.of(delivery).slice(0, 1))
            self._producer._records.send(self._producer._producer, self._topic, half)
            self._producer._records.acknowledged(30_000)
            raise ConnectionError("killed")

    monkeypatch.setattr(KafkaProducer, "close", lambda _: None)
    monkeypatch.setattr(sink_module, "_TopicInTransactions", Killed)
    folder.match([2, 3])
    followers, _ = folder.followers(lambda: True, retry_attempts=0)
    followers.set([folder.sink("kafka", **topic, transactions="true")])
    followers.start()
    assert followers.join(float("inf"))
    assert followers.failed
    monkeypatch.undo()
    folder.deliver(folder.sink("kafka", **topic, transactions="true"))
    assert ids(topic) == [1, 2, 3]
    assert len(ids(topic, "read_uncommitted")) == 4
    # the run that was taken for dead cannot go on
    with pytest.raises(ConnectionError, match="Kafka: "):
        left[0].send({topic["topic"]: one_record(b"", b'{"id": 9}')})
    close(left[0])
    assert ids(topic) == [1, 2, 3]


@pytest.mark.long
def test_marks_behind_an_open_transaction_of_another_sink_are_seen(
    folder: Folder, topic: dict[str, str], spark: SparkSession
) -> None:
    marks = {"marks_topic": f"marks-{topic['topic']}"}
    sink = folder.sink("kafka", **topic, **marks, transactions="true")
    other = KafkaProducer(spark, topic, "other")
    with folder.following(sink) as told:
        folder.match([1])
        until(lambda: told["target.large"].get("deliveries") == 1)
        other._producer.beginTransaction()
        (mark,) = _calls(one_record(b"other", b"7"))
        other._records.send(other._producer, marks["marks_topic"], mark)
        other._records.acknowledged(30_000)
        before = SINK.read(folder.layout.sinks["target.large"])
        folder.match([2])
        until(lambda: told["target.large"]["deliveries"] == 2)
    set_back(folder, before)
    waiting = threading.Timer(3, other._producer.commitTransaction)
    waiting.start()
    folder.deliver(sink)
    waiting.join()
    other.close()
    assert ids(topic) == [1, 2]


def test_a_topic_of_marks_that_deletes_them_is_refused(
    folder: Folder, topic: dict[str, str], kafka: KafkaBroker
) -> None:
    marks = f"plain-{topic['topic']}"
    kafka.create_topic(marks)
    folder.match([1])
    followers, _ = folder.followers(lambda: True, retry_attempts=0)
    followers.set([folder.sink("kafka", **topic, transactions="true", marks_topic=marks)])
    followers.start()
    assert followers.join(float("inf"))
    (failed,) = followers.failed
    assert f"topic {marks} deletes old records" in failed["told"]


def test_a_producer_that_is_opened_again_says_what_kafka_says(spark: SparkSession) -> None:
    """And not that its class in Java is another one of the same name."""
    nobody = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.max.block.ms": "50"}
    for _ in range(2):
        with (
            KafkaProducer(spark, nobody) as producer,
            pytest.raises(ConnectionError, match="Kafka: TimeoutException"),
        ):
            producer.send({"t": one_record(b"k", b"1")})


def test_many_records_without_a_broker_fail_after_one_wait(spark: SparkSession) -> None:
    """Kafka's client waits for each record anew, and fails it alone."""
    nobody = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.max.block.ms": "500"}
    records = pa.table([[b"key"] * 1_000, [b"value"] * 1_000], ["key", "value"])
    began = time.monotonic()
    with KafkaProducer(spark, nobody) as producer, pytest.raises(ConnectionError, match="TimeoutException"):
        producer.send({"topic": records})
    assert time.monotonic() - began < 100


@pytest.mark.long
def test_a_broker_that_is_away_delays_and_loses_nothing(
    folder: Folder, topic: dict[str, str], kafka: KafkaBroker
) -> None:
    patience = {"max.block.ms": "3000", "delivery.timeout.ms": "4000", "request.timeout.ms": "2000"}
    options = {f"kafka.{name}": value for name, value in patience.items()}
    sink = folder.sink("kafka", **topic, transactions="true", **options)
    with folder.following(sink) as told:
        folder.match([1])
        # a broker that is killed between a commit and its markers may lose these (docs/known-limits.md)
        until(lambda: ids(topic) == [1])
        kafka.kill()
        try:
            folder.match([2], [3])
            until(lambda: any(event["kind"] == "sink_retried" for event in folder.events.recent), 120)
        finally:
            kafka.start()
        until(lambda: told["target.large"]["backlog"] == 0, 120)
    assert ids(topic) == [1, 2, 3]


def test_keys_and_headers_are_chosen(folder: Folder, topic: dict[str, str]) -> None:
    headers = '{"key": "x", "origin": "penstock", "town": "${city}", "what": "${id} in ${city}"}'
    folder.match([1, 5])
    folder.deliver(folder.sink("kafka", **topic, record_key="city", headers=headers))
    found = {each.key: dict(each.headers) for each in records_of(topic)}
    assert set(found) == {b"city 1", b"city 2"}
    first = found[b"city 1"]
    assert first["key"] == b"x"
    assert (first["origin"], first["town"], first["what"]) == (b"penstock", b"city 1", b"1 in city 1")
    assert (first["penstock-batch"], first["penstock-ordinal"], first["penstock-definition"]) == (
        b"0",
        b"0",
        b"1",
    )


def test_a_key_of_several_columns_is_an_object(folder: Folder, topic: dict[str, str]) -> None:
    folder.answer(*CUTS)
    folder.deliver(folder.sink("kafka", WINDOWS, **topic, record_key="city,w"))
    found = records_of(topic)
    assert len(found) == sum(map(len, CUTS))
    assert {json.loads(each.key)["city"] for each in found} == {"a", "b", "c", None}
    assert all(json.loads(each.value)["revision"] >= 0 for each in found)


def test_avro_values_have_the_number_of_their_registered_schema(
    folder: Folder, topic: dict[str, str]
) -> None:
    with SchemaRegistryServer("me:marker-password") as registry:
        url = registry.url.replace("http://", "http://me:marker-password@")
        options = {**topic, "format": "avro", "schema.registry.url": url, "transactions": "true"}
        folder.answer(*CUTS)
        folder.deliver(folder.sink("kafka", WINDOWS, **options))
        assert registry.requests == {f"/subjects/{topic['topic']}-value/versions": 1}
        schema = fastavro.parse_schema(json.loads(registry._schemas[0].text))
        found = records_of(topic)
        assert all(each.value[:5] == b"\0\0\0\0\1" for each in found)
        rows = [fastavro.schemaless_reader(io.BytesIO(each.value[5:]), schema, None) for each in found]
        assert sorted((row["city"] or "", row["n"] or 0) for row in rows) == sorted(
            (city or "", 0 if gone else n) for cut in CUTS for city, _, n, _, gone in cut
        )
        registry.is_failing = True
        folder.answer([("z", 0, 1, False, False)])
        followers, _ = folder.followers(lambda: True, retry_attempts=0)
        followers.set([folder.sink("kafka", WINDOWS, **options)])
        followers.start()
        assert followers.join(float("inf"))
        (failed,) = followers.failed
        assert "the schema registry does not answer" in failed["told"]
        assert "marker-password" not in str(failed) + str(folder.events.recent)


def _alert_type() -> descriptor_pb2.FileDescriptorProto:
    """A message with the columns of the selection, behind another one."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="alert.proto", package="town", syntax="proto3")
    file.message_type.add(name="Other")
    alert = file.message_type.add(name="Alert")
    for number, (name, kind) in enumerate((("city", "STRING"), ("id", "INT64"), ("amount", "DOUBLE")), 3):
        alert.field.add(name=name, number=number, type=getattr(kinds, f"TYPE_{kind}"), label=1)
    return file


@pytest.mark.parametrize("is_registered", [True, False])
def test_protobuf_values_are_messages_of_the_users_type(
    folder: Folder, topic: dict[str, str], tmp_path: Path, is_registered: bool
) -> None:
    file = _alert_type()
    (tmp_path / "types").write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    options = {"schema.file": str(tmp_path / "types")}
    with SchemaRegistryServer() as registry:
        registry.register("alerts", base64.b64encode(file.SerializeToString()).decode(), "PROTOBUF")
        if is_registered:
            options = {"schema.registry.url": registry.url, "schema.subject": "alerts"}
        folder.match([1, 5])
        folder.deliver(
            folder.sink("kafka", **topic, format="protobuf", **{"schema.message": "Alert", **options})
        )
    prefix = b"\0\0\0\0\1\2\2" if is_registered else b""
    values = [each.value for each in records_of(topic)]
    assert all(value.startswith(prefix) for value in values)
    kind = message_factory.GetMessageClass(ProtobufFiles([file]).message("Alert"))
    found = [kind.FromString(value[len(prefix) :]) for value in values]
    assert sorted((each.id, each.city, each.amount) for each in found) == [
        (1, "city 1", 0.5),
        (5, "city 2", 2.5),
    ]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"format": "xml"}, "format is 'xml'; allowed: json, avro, protobuf"),
        ({"format": "protobuf"}, "format 'protobuf' needs schema.registry.url or schema.file; none is given"),
        ({"format": "protobuf", "schema.file": "/nowhere"}, "schema.file /nowhere cannot be read"),
        ({"format": "avro", "schema.file": "x"}, "schema.file is for format 'protobuf'"),
        ({"format": "avro"}, "set the option schema.registry.url"),
        ({"format": "avro", "schema.registry.url": "nowhere"}, "schema.registry.url is no URL"),
        (
            {"schema.registry.url": "http://127.0.0.1:1"},
            "schema.registry.url belongs to format 'avro' or 'protobuf'",
        ),
        ({"transactions": "maybe"}, "transactions is 'maybe'; allowed: false, true"),
        ({"marks_topic": "x"}, "marks_topic belongs to transactions 'true'"),
        ({"kafka.transactional.id": "x"}, "Penstock chooses transactional.id"),
        ({"record_key": "town"}, "record_key names column town, which does not exist"),
        ({"headers": "[]"}, "headers is not an object of texts"),
        ({"headers": '{"a": "${town}"}'}, "headers: template names town, which does not exist"),
        ({"headers": '{"penstock-batch": "1"}'}, "names that begin with penstock- are Penstock's"),
        ({"heders": "{}"}, "sink kafka has no option heders; did you mean headers"),
    ],
)
def test_options_that_cannot_be_are_refused_by_name(
    folder: Folder, topic: dict[str, str], options: dict[str, str], told: str
) -> None:
    with pytest.raises(InputError, match=told):
        folder.sink("kafka", SELECTION, **{**topic, **options})
