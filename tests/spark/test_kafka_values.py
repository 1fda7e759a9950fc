"""Topics of Avro and Protobuf values with a schema registry: the rows, the quarantine, and what is refused before anything starts."""

from __future__ import annotations

import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.parquet as pq
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from pyspark.sql import DataFrame, SparkSession

from penstock.errors import ConnectionFailedError, PenstockError, SqlError, UnknownNameError
from penstock.spark.engine import Engine
from penstock.spark.run import Run
from penstock.trigger import Trigger
from penstock_lab.servers.kafka import KafkaBroker
from penstock_lab.servers.schema_registry import SchemaRegistryServer
from whole_runs import run_to_end

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

FIRST = {
    "type": "record", "name": "Order", "fields": [
        {"name": "id", "type": "int"},
        {"name": "city", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "buyer", "type": {"type": "record", "name": "Buyer", "fields": [{"name": "name", "type": "string"}]}},
    ],
}  # fmt: skip
#: the next version has another order, a wider id and one more field
SECOND = {
    "type": "record", "name": "Order", "fields": [
        {"name": "amount", "type": "double"},
        {"name": "buyer", "type": {"type": "record", "name": "Buyer", "fields": [{"name": "age", "type": "int"}, {"name": "name", "type": "string"}]}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "city", "type": ["null", "string"]},
        {"name": "id", "type": "long"},
    ],
}  # fmt: skip
THIRD = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}
COLUMNS = "id BIGINT, city STRING, amount DOUBLE, at TIMESTAMP, buyer STRING PATH '$.buyer.name'"
VIEWS = {
    "large": "SELECT * FROM orders WHERE id >= 50",
    "in_bern": "SELECT id, buyer, amount FROM orders WHERE city = 'Bern' AND buyer <> 'b3'",
    "per_minute": "SELECT window(at, '1 minute') AS w, city, count(*) AS n, sum(amount) AS total FROM orders GROUP BY w, city",
}
NOON = 1_714_557_600_000


def topic_of(kafka: KafkaBroker, tmp_path: Path, name: str = "orders") -> str:
    topic = f"{name}-{tmp_path.name}".replace("_", "-")
    kafka.create_topic(topic)
    return topic


def written(schema: dict[str, Any], value: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def framed(number: int, value: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + value


def order(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "city": [None, "Bern", "Thun"][number % 3],
        "at": NOON + number * 1_000,
        "buyer": {"name": f"b{number % 7}", "age": number},
        "amount": number / 4,
    }


def ended(engine: Engine, out: Path) -> Run:
    return run_to_end(engine, out, ended=True, seconds=600)


def rows(frame: DataFrame) -> Counter[tuple[object, ...]]:
    return Counter(tuple(row) for row in frame.collect())


def aside(out: Path, stream: str = "orders") -> list[tuple[bytes, str, str]]:
    found = [
        row
        for path in (out / "quarantine" / stream).glob("*.parquet")
        for row in pq.read_table(path).to_pylist()
    ]
    return [
        (each["record"], each["origin"], each["reason"])
        for each in sorted(found, key=lambda each: each["origin"])
    ]


def table(kafka: KafkaBroker, topic: str, options: str, columns: str = f"({COLUMNS})") -> str:
    return (
        f"CREATE TABLE orders {columns} USING kafka OPTIONS (kafka.bootstrap.servers '{kafka.address}', "
        f"subscribe '{topic}', startingOffsets 'earliest', {options});"
    )


def test_schemas_are_followed_and_bad_values_set_aside(
    spark: SparkSession, kafka: KafkaBroker, tmp_path: Path
) -> None:
    topic = topic_of(kafka, tmp_path)
    with SchemaRegistryServer("reader:S3cret-Marker") as registry:
        first = registry.register(f"{topic}-value", json.dumps(FIRST))
        second = registry.register(f"{topic}-value", json.dumps(SECOND))
        third = registry.register("elsewhere", json.dumps(THIRD))
        orders = [order(number) for number in range(120)]
        values = [framed(first, written(FIRST, each)) for each in orders[:60]]
        values += [framed(second, written(SECOND, each)) for each in orders[60:]]
        bad = [b'{"id": 1}', framed(third, written(THIRD, {"id": "x"})), framed(99, b"\0"), values[0][:-2]]
        kafka.produce(topic, values[:30] + bad + values[30:], partition=0)
        options = (
            f"format 'avro', schema.registry.url '{registry.url}', schema.registry.basic.auth.user.info "
            "'reader:S3cret-Marker', event_time 'at'"
        )
        expected = [
            (each["id"], each["city"], None if each["id"] < 60 else each["amount"], each["buyer"]["name"])
            for each in orders
        ]
        for in_worker in (True, False):
            engine = Engine(spark, shards=2, decode_in_worker=in_worker).execute(table(kafka, topic, options))
            engine.add_views(VIEWS)
            assert ("Python workers decode Avro" in engine.explain()) == in_worker
            out = tmp_path / str(in_worker)
            run = ended(engine, out)
            large = run.results("large")
            assert large.schema["at"].dataType.simpleString() == "timestamp"
            found = Counter((row.id, row.city, row.amount, row.buyer) for row in large.collect())
            assert found == Counter(each for each in expected if each[0] >= 50)
            bern = [each for each in expected if each[1] == "Bern" and each[3] != "b3"]
            assert rows(run.results("in_bern")) == Counter((each[0], each[3], each[2]) for each in bern)
            assert sum(row.n for row in run.results("per_minute").collect()) == len(orders)
            assert [(origin, reason) for _, origin, reason in aside(out)] == [
                (f"{topic}-0-30", "malformed Avro: it does not begin with 0 and the number of a schema"),
                (f"{topic}-0-31", f"malformed Avro: schema {third}: id is string, no BIGINT"),
                (f"{topic}-0-32", "malformed Avro: the registry has no schema 99"),
                (f"{topic}-0-33", "malformed Avro: it ends within a field"),
            ]
            assert aside(out)[0][0] == bad[0]
            written_files = [path for path in out.rglob("*") if path.is_file()]
            assert not [path for path in written_files if b"S3cret-Marker" in path.read_bytes()]
            assert "S3cret-Marker" not in engine.explain()


@pytest.mark.long
def test_columns_come_from_the_newest_schema(spark: SparkSession, kafka: KafkaBroker, tmp_path: Path) -> None:
    topic = topic_of(kafka, tmp_path)
    plain = {**FIRST, "fields": FIRST["fields"][:3]}
    with SchemaRegistryServer() as registry:
        number = registry.register(f"{topic}-value", json.dumps(plain))
        kafka.produce(topic, [framed(number, written(plain, order(each))) for each in range(20)])
        options = f"format 'avro', schema.registry.url '{registry.url}'"
        engine = Engine(spark, shards=2).execute(table(kafka, topic, f"{options}, event_time 'at'", ""))
        # an expression of Spark's: the frame is what workers decode
        engine.view("odd", "SELECT id, city FROM orders WHERE minute(at) = 0 AND id % 2 = 1")
        assert "slower path: Spark computes" in engine.explain()
        assert rows(ended(engine, tmp_path / "out").results("odd")) == Counter(
            (each["id"], each["city"]) for each in map(order, range(1, 20, 2))
        )
        registry.register(f"{topic}-value", json.dumps(FIRST))
        with pytest.raises(SqlError, match="fields buyer are lists, maps, records"):
            Engine(spark).execute(table(kafka, topic, options, ""))


@pytest.mark.long
def test_a_file_has_the_schema_of_values_without_numbers(
    spark: SparkSession, kafka: KafkaBroker, tmp_path: Path
) -> None:
    topic = topic_of(kafka, tmp_path)
    file = tmp_path / "order.avsc"
    file.write_text(json.dumps(SECOND))
    kafka.produce(topic, [*(written(SECOND, order(each)) for each in range(20)), b"\x01"])
    for arrival in ("", ", arrival 'came'"):
        engine = Engine(spark, shards=2).execute(
            table(kafka, topic, f"format 'avro', schema.file '{file}'{arrival}")
        )
        engine.view("late", "SELECT id, buyer FROM orders WHERE id > 15")
        out = tmp_path / f"out{len(arrival)}"
        run = ended(engine, out)
        assert rows(run.results("late")) == Counter((each, f"b{each % 7}") for each in range(16, 20))
        assert [reason for _, _, reason in aside(out)] == ["malformed Avro: it ends within a field"]


def _proto() -> descriptor_pb2.FileDescriptorProto:
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    file.dependency.append("common.proto")
    message = file.message_type.add(name="Order")
    message.field.add(name="id", number=1, type=kinds.TYPE_INT64, label=1)
    message.field.add(name="city", number=2, type=kinds.TYPE_STRING, label=1)
    message.field.add(name="buyer", number=3, type=kinds.TYPE_MESSAGE, type_name=".shop.Buyer", label=1)
    message.field.add(name="ms", number=4, type=kinds.TYPE_INT64, label=1)
    return file


def _common() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="common.proto", package="shop", syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto
    file.message_type.add(name="Buyer").field.add(name="name", number=1, type=kinds.TYPE_STRING, label=1)
    return file


def test_protobuf_messages_with_a_registry_and_with_a_file(
    spark: SparkSession, kafka: KafkaBroker, tmp_path: Path
) -> None:
    import base64

    pool = descriptor_pool.DescriptorPool()
    pool.Add(_common())
    pool.Add(_proto())
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    messages = [
        kind(id=each, city=["", "Bern"][each % 2], ms=NOON + each, buyer={"name": f"b{each}"})
        for each in range(40)
    ]
    for each in messages[::3]:
        each.ClearField("buyer")
    framed_topic, plain_topic = topic_of(kafka, tmp_path, "framed"), topic_of(kafka, tmp_path, "plain")
    file = tmp_path / "order.desc"
    file.write_bytes(descriptor_pb2.FileDescriptorSet(file=[_common(), _proto()]).SerializeToString())
    columns = "(id BIGINT, city STRING, ms BIGINT, buyer STRING PATH '$.buyer.name')"
    expected = Counter(
        (each, ["", "Bern"][each % 2], None if each % 3 == 0 else f"b{each}") for each in range(31, 40)
    )
    with SchemaRegistryServer() as registry:
        registry.register("common", base64.b64encode(_common().SerializeToString()).decode(), "PROTOBUF")
        number = registry.register(
            f"{framed_topic}-value",
            base64.b64encode(_proto().SerializeToString()).decode(),
            "PROTOBUF",
            ({"name": "common.proto", "subject": "common", "version": 1},),
        )
        kafka.produce(
            framed_topic,
            [
                *(framed(number, b"\0" + each.SerializeToString()) for each in messages),
                framed(number, b"\0\x08"),
            ],
        )
        kafka.produce(plain_topic, [*(each.SerializeToString() for each in messages), b"\x08"])
        sources = (
            (framed_topic, f"schema.registry.url '{registry.url}'"),
            (plain_topic, f"schema.file '{file}', schema.message 'Order'"),
        )
        for topic, schema in sources:
            times = "event_time 'ms', event_time_format 'millis'"
            engine = Engine(spark, shards=2).execute(
                table(kafka, topic, f"format 'protobuf', {schema}, {times}", columns)
            )
            engine.view("late", "SELECT id, city, buyer FROM orders WHERE id > 30")
            engine.view("all_of", "SELECT window(ms, '1 minute') AS w, count(*) AS n FROM orders GROUP BY w")
            assert "Python workers decode Protobuf" in engine.explain()
            run = ended(engine, tmp_path / topic)
            assert rows(run.results("late")) == expected
            assert [row.n for row in run.results("all_of").collect()] == [40]
            assert [reason for _, _, reason in aside(tmp_path / topic)] == [
                "malformed Protobuf: it ends within a field"
            ]


@pytest.mark.long
def test_a_registry_that_fails_is_asked_again(
    spark: SparkSession, kafka: KafkaBroker, tmp_path: Path
) -> None:
    topic = topic_of(kafka, tmp_path)
    with SchemaRegistryServer() as registry:
        number = registry.register(f"{topic}-value", json.dumps(SECOND))
        kafka.produce(topic, [framed(number, written(SECOND, order(each))) for each in range(10)])
        engine = Engine(spark, shards=2, retry_attempts=0).execute(
            table(kafka, topic, f"format 'avro', schema.registry.url '{registry.url}'")
        )
        engine.view("every", "SELECT id FROM orders WHERE id >= 0")
        registry.is_failing = True
        run = engine.start(tmp_path / "out", trigger=Trigger.available_now())
        with pytest.raises(PenstockError, match="the schema registry does not answer"):
            run.await_termination(600)
        run.stop()
        registry.is_failing = False
        run = run_to_end(engine, tmp_path / "out", seconds=600)
        assert run.results("every").count() == 10
        assert not aside(tmp_path / "out")


@pytest.mark.parametrize(
    ("columns", "options", "kind", "told"),
    [
        ("(id INT)", "format 'avro', schema.registry.url '{url}'", SqlError, "id is long, no INT in the Avro schema"),
        ("(id BIGINT, town STRING)", "format 'avro', schema.registry.url '{url}'", UnknownNameError, "has no field town. Fields: amount, buyer, at, city, id"),
        ("(id BIGINT, c STRING PATH '$.buyer.nam')", "format 'avro', schema.registry.url '{url}'", UnknownNameError, r"has no field buyer\.nam"),
        ("(id BIGINT)", "format 'avro'", SqlError, "needs schema.registry.url or schema.file; none is given"),
        ("(id BIGINT)", "format 'avro', schema.registry.url '{url}', schema.file 'x'", SqlError, "both is given"),
        ("(id BIGINT)", "format 'avro', schema.registry.url 'localhost:8081'", SqlError, "schema.registry.url is no URL such as"),
        ("(id BIGINT)", "format 'avro', schema.registry.url 'http://u:S3cret-Marker@127.0.0.1:9'", ConnectionFailedError, "schema registry does not answer: http://127.0.0.1:9"),
        ("(id BIGINT)", "format 'avro', schema.registry.url '{url}', schema.subject 'other'", UnknownNameError, "no subject other"),
        ("(id BIGINT)", "format 'avro', schema.file '/nowhere/x.avsc'", ConnectionFailedError, "cannot be read: No such file"),
        ("(id BIGINT)", "format 'protobuf', schema.registry.url '{url}'", SqlError, "it is AVRO, not PROTOBUF"),
        ("(id BIGINT)", "format 'avro', schema.registry.url '{url}', schema.message 'M'", SqlError, "schema.message is for Protobuf"),
        ("(id BIGINT)", "format 'avro', schema.registry.url '{url}', schema.framed 'no'", SqlError, "schema.framed is 'no'"),
        ("(id BIGINT)", "schema.registry.url '{url}'", SqlError, "schema.registry.url is for format 'avro' and 'protobuf'"),
        ("(id BIGINT)", "format 'avrò'", SqlError, "allowed: 'json', 'debezium-json', 'avro', 'protobuf'"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused(
    spark: SparkSession,
    kafka: KafkaBroker,
    tmp_path: Path,
    columns: str,
    options: str,
    kind: type[Exception],
    told: str,
) -> None:
    topic = topic_of(kafka, tmp_path)
    with SchemaRegistryServer() as registry:
        registry.register(f"{topic}-value", json.dumps(SECOND))
        with pytest.raises(kind, match=told) as caught:
            Engine(spark).execute(table(kafka, topic, options.format(url=registry.url), columns))
    assert "S3cret-Marker" not in str(caught.value)
