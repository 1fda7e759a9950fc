"""The engine on a real broker: decoding in the worker equals `from_json`, nothing malformed is lost."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from engine_cases import expected, rows
from penstock.errors import ConnectionFailedError
from penstock.spark.engine import Engine
from penstock.spark.run import Run
from penstock_lab.servers.kafka import KafkaBroker
from whole_runs import run_to_end

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

COLUMNS = "id BIGINT, amount INT, price DOUBLE, name STRING, good BOOLEAN, seen TIMESTAMP"
MAX_RECORD_BYTES = 4_000
VIEWS = {
    "large": "SELECT * FROM orders WHERE amount > 900",
    "named": "SELECT id, upper(name) AS shouted FROM orders WHERE name >= 'é' OR name LIKE 'nor%'",
    "dear": "SELECT id FROM orders WHERE price > 90 AND good",
    "unknown": "SELECT id FROM orders WHERE price IS NULL OR seen IS NULL",
    "early": "SELECT id FROM orders WHERE seen < TIMESTAMP '2026-01-01T00:01:00Z'",
}

#: read alike by both decoders, or refused by the worker's and read by Spark's
ODD = [
    '{"id": 1, "amount": 901.0}',
    '{"id": 2, "price": "NaN"}',
    '{"id": 3, "price": 1e2, "price": 95, "good": true}',
    "{'id': 4, 'amount': 999}",
    '{"id": 5, "name": 17}',
    '{"id": 6, "name": "\\u00e9t\\u00e9", "other": {"amount": 1000}}',
    '{"id": 7, "seen": "2026-01-01 00:00:30"}',
    '{"id": 8, "seen": "2026-01-01T00:00:30.123456Z", "AMOUNT": 1000}',
    '{"id": 9,\n "amount": 950}',
    "{}",
    ' {"id": 10, "amount": 902} ',
    '{"id": 11, "amount": 902}{"id": 12, "amount": 903}',
]
#: quarantined
MALFORMED = [
    b'{"id": 20, "amount": 95',
    b'{"id": 21, "amount": "many"}',
    b'{"id": 22, "name": "\xff\xfe"}',
    b"not json",
    b"",
    b'{"id": 23, "amount": 99999999999}',
    b'{"id": 24, "name": "' + b"x" * 5000 + b'"}',
    # pyarrow's reader takes all of these
    b'{"id": 25, "price": Inf}',
    b'{"id": 26, "price": -Inf}',
    b'{"id": 27, "price": -NaN}',
    b'{"id": 28, "amount": 950, "other": ' + b"1" * 1_500 + b"}",
    b'{"id": 29, "amount": 950, "other": ' + b"[" * 1_100 + b"]" * 1_100 + b"}",
]


def _orders(count: int) -> list[str]:
    names = ["north", "norfolk", "south", "été", None]
    return [
        json.dumps(
            {
                "id": 1000 + number,
                "amount": (number * 37) % 1000,
                "price": None if number % 11 == 0 else number % 100 + 0.5,
                "name": names[number % 5],
                "good": number % 3 == 0,
                "seen": f"2026-01-01T00:{number // 60 % 60:02d}:{number % 60:02d}Z",
            },
            ensure_ascii=number % 2 == 0,
        )
        for number in range(count)
    ]


def _script(kafka: KafkaBroker, topic: str, more: str = "") -> str:
    options = f"kafka.bootstrap.servers '{kafka.address}', subscribe '{topic}', startingOffsets 'earliest'"
    table = f"CREATE TABLE orders ({COLUMNS}) USING kafka OPTIONS ({options}, event_time 'seen');"
    return "\n".join([table, *(f"CREATE VIEW {name} AS {sql};" for name, sql in VIEWS.items()), more])


def _run(engine: Engine, output: Path) -> Run:
    return run_to_end(engine, output, seconds=None)


def _records(spark: SparkSession, kafka: KafkaBroker, topic: str) -> DataFrame:
    """What Spark itself makes of the records: `value`, the tuple `t`, and whether it is `good`."""
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", kafka.address)
    wide = f"{COLUMNS}, bad STRING"
    text = F.col("value").cast("string")
    parsed = F.from_json(text, wide, {"columnNameOfCorruptRecord": "bad"})
    whole = F.col("t").isNotNull() & F.col("t.bad").isNull()
    good = whole & (F.length("value") <= MAX_RECORD_BYTES) & F.is_valid_utf8(text)
    return reader.option("subscribe", topic).load().withColumn("t", parsed).withColumn("good", good)


def _tuples(spark: SparkSession, kafka: KafkaBroker, topic: str) -> DataFrame:
    """The tuples of the good records."""
    return _records(spark, kafka, topic).where("good").select("t.*").drop("bad")


@pytest.mark.parametrize(
    "decode_in_worker", [True, pytest.param(False, marks=pytest.mark.long)], ids=["worker", "spark"]
)
def test_decoding_equals_from_json_and_malformed_records_are_kept(
    spark: SparkSession, kafka: KafkaBroker, tmp_path: Path, decode_in_worker: bool
) -> None:
    topic = f"odd-{decode_in_worker}"
    kafka.create_topic(topic, partitions=2)
    kafka.produce(topic, _orders(500), partition=0)
    kafka.produce(topic, [*_orders(50), *ODD, *MALFORMED], partition=1)
    engine = Engine(spark, max_record_bytes=MAX_RECORD_BYTES, decode_in_worker=decode_in_worker)
    engine.execute(_script(kafka, topic))
    assert ("Python workers decode JSON" in engine.explain()) == decode_in_worker
    run = _run(engine, tmp_path)
    tuples = _tuples(spark, kafka, topic)
    assert {name: rows(run.results(name)) for name in VIEWS} == expected(spark, tuples, VIEWS)
    status = run.status().streams["orders"].to_dict()
    assert status["tuples"] == tuples.count()
    bad = [bytes(row.value) for row in _records(spark, kafka, topic).where("NOT good").collect()]
    assert set(MALFORMED) <= set(bad)
    assert len(bad) < len(MALFORMED) + len(ODD) // 4
    assert sum(status["quarantined"].values()) == len(bad)
    assert {reason.partition(":")[0] for reason in status["quarantined"]} == {
        "malformed JSON",
        "not UTF-8",
        "record too large",
    }
    kept = [
        row
        for path in tmp_path.glob("quarantine/orders/*.parquet")
        for row in pq.read_table(path).to_pylist()
    ]
    assert sorted(row["record"] for row in kept) == sorted(bad)
    assert all(row["origin"].startswith(f"{topic}-1-") for row in kept)


def test_sink_and_broker_restart_in_the_middle(
    spark: SparkSession, kafka: KafkaBroker, tmp_path: Path
) -> None:
    kafka.create_topic("middle", partitions=2)
    kafka.create_topic("alerts")
    kafka.create_topic("named-alerts")
    sink = "USING kafka OPTIONS (kafka.bootstrap.servers '{}', topic '{}');"
    more = "\n".join(
        [
            "CREATE TABLE alerts " + sink.format(kafka.address, "alerts"),
            "CREATE TABLE chosen " + sink.format(kafka.address, "named-alerts"),
            "INSERT INTO alerts SELECT * FROM large;",
            "INSERT INTO chosen SELECT CAST(id AS STRING) AS key, name AS value FROM large WHERE name = 'north';",
        ]
    )
    orders = _orders(400)
    kafka.produce("middle", orders[:200])
    text = _script(kafka, "middle", more)
    _run(Engine(spark).execute(text), tmp_path)
    kafka.stop()
    with pytest.raises(ConnectionFailedError, match="no Kafka broker answers"):
        Engine(spark).execute(text)
    kafka.start()
    kafka.produce("middle", orders[200:])
    run = _run(Engine(spark).execute(text), tmp_path)
    wanted = Counter(json.loads(order)["id"] for order in orders if json.loads(order)["amount"] > 900)
    assert Counter(row.id for row in run.results("large").collect()) == wanted
    sent = [json.loads(value) for value in kafka.consume("alerts")]
    assert Counter(each["id"] for each in sent) == wanted
    assert all(".000000" in each["seen"] for each in sent), "as `penstock results` writes it"
    assert any(each["name"] is None for each in sent)
    assert set(kafka.consume("named-alerts")) == {b"north"}
    headers = (
        spark.read.format("kafka")
        .options(
            **{"kafka.bootstrap.servers": kafka.address, "subscribe": "alerts", "includeHeaders": "true"}
        )
        .load()
    )
    keys = [tuple(sorted((h.key, bytes(h.value)) for h in row.headers)) for row in headers.collect()]
    assert len(set(keys)) == len(keys) == sum(wanted.values())


def test_topic_that_does_not_exist(spark: SparkSession, kafka: KafkaBroker) -> None:
    with pytest.raises(ConnectionFailedError, match="nowhere"):
        Engine(spark).execute(_script(kafka, "nowhere"))
