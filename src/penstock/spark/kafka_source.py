"""Kafka topics: JSON values with declared columns, or Kafka's own columns where none are declared."""

from __future__ import annotations

import socket
from collections.abc import Mapping

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructType

from penstock.errors import ConnectionFailedError, InputError
from penstock.settings import Settings
from penstock.spark.dataframe_stage import CORRUPT, ORIGIN, REASON
from penstock.spark.source import DataFrameSource, Source
from penstock.sql.script import CreateTable

_SUBSCRIPTIONS = ("subscribe", "subscribePattern", "assign")
_CONNECT_SECONDS = 3.0


def open_kafka(
    spark: SparkSession,
    table: CreateTable,
    declared: StructType | None,
    options: Mapping[str, str],
    event_time: str | None,
    settings: Settings,
) -> Source:
    """Opens a topic.

    Raises:
        InputError: no servers or no topic are named.
        ConnectionFailedError: no broker answers, the topic does not exist, or Spark has no Kafka
            connector.
    """
    servers = options.get("kafka.bootstrap.servers")
    if not servers:
        raise InputError(f"table {table.name}: the option kafka.bootstrap.servers is missing")
    if not any(name in options for name in _SUBSCRIPTIONS):
        raise InputError(f"table {table.name}: one of the options {', '.join(_SUBSCRIPTIONS)} is needed")
    check_broker(table.name, servers)
    _check_topic(spark, table.name, options)
    own = {name: value for name, value in options.items() if name != "format"}
    if options.get("format", "json") != "json":
        raise InputError(f"table {table.name}: format is '{options['format']}'; allowed: 'json'")

    def load(session: SparkSession) -> DataFrame:
        return session.readStream.format("kafka").options(**own).load()

    if declared is None:
        return DataFrameSource(load(spark).schema, event_time, load, "Kafka's records are read by Spark")
    schema = declared
    return DataFrameSource(
        schema,
        event_time,
        lambda session: decode_json(load(session), schema, settings.max_record_bytes),
        "JSON is decoded by Spark's from_json",
    )


def decode_json(records: DataFrame, schema: StructType, max_record_bytes: int) -> DataFrame:
    """Kafka records to tuples with Spark's `from_json`: the exact path.

    Args:
        records: Kafka's columns.
        schema: the tuple's columns.
        max_record_bytes: a larger record is malformed.

    Returns:
        The tuple's columns and CORRUPT, REASON and ORIGIN.
    """
    wide = StructType([*schema.fields]).add(CORRUPT, StringType())
    text = F.col("value").cast("string")
    small = F.length("value") <= max_record_bytes
    parsed = F.from_json(F.when(small, text), wide, {"columnNameOfCorruptRecord": CORRUPT})
    frame = records.select("value", "topic", "partition", "offset", parsed.alias("tuple"))
    reason = (
        F.when(F.col("value").isNull(), "no value")
        .when(F.length("value") > max_record_bytes, "record too large")
        .when(~F.is_valid_utf8(text), "not UTF-8")
        .when(F.col("tuple").isNull() | F.col(f"tuple.{CORRUPT}").isNotNull(), "malformed JSON")
    )
    origin = F.concat_ws("-", "topic", "partition", "offset")
    return frame.select(
        *(F.col(f"tuple.`{field.name}`").alias(field.name) for field in schema),
        F.when(reason.isNotNull(), F.col("value")).alias(CORRUPT),
        reason.alias(REASON),
        origin.alias(ORIGIN),
    )


def check_broker(name: str, servers: str) -> None:
    """Makes sure that one of the servers accepts connections.

    Raises:
        ConnectionFailedError: none does.
        InputError: a server is not written as host:port.
    """
    for server in servers.split(","):
        host, _, port = server.strip().rpartition(":")
        if not host or not port.isdigit():
            raise InputError(f"table {name}: kafka.bootstrap.servers holds '{server}'; allowed: host:port, ...")
        try:
            socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS).close()
        except OSError:
            continue
        return
    raise ConnectionFailedError(f"table {name}: no Kafka broker answers at {servers}")


def _check_topic(spark: SparkSession, name: str, options: Mapping[str, str]) -> None:
    wanted = {key: value for key, value in options.items() if key in _SUBSCRIPTIONS or key.startswith("kafka.")}
    try:
        reader = spark.read.format("kafka").options(**{"kafka.default.api.timeout.ms": "10000", **wanted})
        reader.option("startingOffsets", "earliest").load().limit(1).count()
    except PySparkException as error:
        text = str(error)
        if "Failed to find data source" in text or error.getCondition() == "DATA_SOURCE_NOT_FOUND":
            raise ConnectionFailedError(
                f"table {name}: this Spark has no Kafka connector; start it with "
                "--conf spark.jars.packages=org.apache.spark:spark-sql-kafka-0-10_2.13:<your Spark version>"
            ) from error
        topic = next(options[key] for key in _SUBSCRIPTIONS if key in options)
        if "UnknownTopicOrPartition" in text:
            raise ConnectionFailedError(f"table {name}: topic {topic} does not exist") from error
        raise ConnectionFailedError(f"table {name}: topic {topic}: {text.splitlines()[0]}") from error
