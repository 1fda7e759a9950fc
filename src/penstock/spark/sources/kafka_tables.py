"""CREATE TABLE over Kafka: topics whose values are JSON, Avro or Protobuf, or Kafka's own columns where none are declared."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.errors import InputError, SqlError
from penstock.operators.wire.readers import AVRO, PROTOBUF
from penstock.spark.sources.kafka_admin import SUBSCRIPTIONS
from penstock.spark.sources.kafka_checks import check_broker, check_connector, check_topics
from penstock.spark.sources.kafka_source import KafkaJsonSource, decode_json
from penstock.spark.sources.kafka_values import KafkaValueSource
from penstock.spark.sources.providers import StreamTable
from penstock.spark.sources.source import DataFrameSource, TimedSource, stamped
from penstock.spark.sources.stored_fields import DEBEZIUM, WITH_SCHEMA
from penstock.spark.sources.topics import TopicsSource
from penstock.spark.sources.value_options import VALUE_OPTIONS, stored_values
from penstock.spark.storage.past import CannotReadAgainError, Past, portions

#: options that say where a stream begins and ends, and how fast it goes
_PACING = (
    *("startingoffsets", "endingoffsets", "startingtimestamp", "endingtimestamp"),
    *("startingoffsetsbytimestamp", "endingoffsetsbytimestamp", "failondataloss"),
    *("maxoffsetspertrigger", "minoffsetspertrigger", "maxtriggerdelay"),
)
#: records that one job of a backfill reads, so that the stream's own jobs come in between
_PORTION_RECORDS = 1_000_000
#: forms of values
_FORMATS = ("json", DEBEZIUM, AVRO, PROTOBUF)
#: polls of 500 records, the consumer's own default, halve the rate of small records
_POLLS = {"kafka.max.poll.records": "20000", "kafka.max.partition.fetch.bytes": str(16 << 20)}


def open_kafka(spark: SparkSession, opened: StreamTable) -> TopicsSource:
    """Opens the topics that a table declares.

    Args:
        spark: the session.
        opened: the table; without columns it has Kafka's own.

    Raises:
        InputError: no servers or no topic are named, or values are in no form that is read.
        ConnectionFailedError: no broker answers, a topic does not exist, or the session has no Kafka connector.
    """
    table, declared, options = opened.statement, opened.columns, opened.options
    event_time, settings, arrival = opened.event_time, opened.settings, opened.arrival
    servers = options.get("kafka.bootstrap.servers")
    if not servers:
        raise InputError(f"table {table.name}: the option kafka.bootstrap.servers is missing")
    if not any(name in options for name in SUBSCRIPTIONS):
        raise InputError(f"table {table.name}: one of the options {', '.join(SUBSCRIPTIONS)} is needed")
    with table.pointing("kafka.bootstrap.servers"):
        check_broker(table.name, servers)
    check_connector(spark, table.name)
    with table.pointing(next(name for name in SUBSCRIPTIONS if name in options)):
        check_topics(spark, table.name, options)
    form = options.get("format", "json")
    if form not in _FORMATS:
        allowed = ", ".join(map(repr, _FORMATS))
        raise SqlError(f"table {table.name}: format is '{form}'; allowed: {allowed}", *table.at("format"))
    values = stored_values(opened, form)
    if values is not None:
        declared = values.columns
    ours = ("format", WITH_SCHEMA, *VALUE_OPTIONS)
    own = {**_POLLS, **{name: value for name, value in options.items() if name not in ours}}
    fields, is_change = opened.fields, form == DEBEZIUM

    def load(session: SparkSession) -> DataFrame:
        return told(session.readStream.format("kafka").options(**own).load())

    def load_again(session: SparkSession, past: Past) -> Iterable[DataFrame]:
        return map(told, _records_of(session, own, past))

    def told(records: DataFrame) -> DataFrame:
        # a record without a value follows a delete and says nothing else
        return records.where(F.col("value").isNotNull()) if is_change else records

    def decoded(session: SparkSession) -> DataFrame:
        records = load(session)
        if declared is None:
            return records
        if values is not None:
            return values.of(records, settings.max_record_bytes)
        if fields is None:
            return decode_json(records, declared, settings.max_record_bytes)
        return fields.of(decode_json(records, fields.stored, settings.max_record_bytes))

    source: TimedSource
    one_topic = "," not in options.get("subscribe", ",")
    if values is not None and arrival is None:
        source = KafkaValueSource(
            values.columns, event_time, load, settings, one_topic, load_again, values=values
        )
    elif declared is not None and arrival is None:
        source = KafkaJsonSource(declared, event_time, load, settings, one_topic, load_again, fields=fields)
    else:
        schema = declared or load(spark).schema
        why = "Spark reads Kafka's records"
        frames = DataFrameSource(schema, event_time, decoded, why, reopen=load_again)
        source = frames if arrival is None else stamped(frames, arrival)
    return TopicsSource(source, own)


def _records_of(spark: SparkSession, options: Mapping[str, str], past: Past) -> Iterator[DataFrame]:
    """The records of offsets that were read before, some at a time.

    Raises:
        CannotReadAgainError: the topic has not got all of them any more.
    """
    first, until = past.partitions()
    own = {name: value for name, value in options.items() if name not in SUBSCRIPTIONS + _PACING}

    def read(topics: Mapping[str, Sequence[str]], **offsets: str) -> DataFrame:
        assigned = json.dumps({topic: sorted(map(int, partitions)) for topic, partitions in topics.items()})
        return spark.read.format("kafka").options(**own, **offsets, assign=assigned).load()

    for topic, partitions in first.items():
        for partition, offset in partitions.items():
            if offset >= until[topic][partition]:
                continue
            held = read({topic: [partition]}, startingOffsets="earliest").select("offset").limit(1).collect()
            if not held or held[0].offset > offset:
                raise CannotReadAgainError(
                    f"topic {topic} has lost records of partition {partition} that were read before, "
                    f"from offset {offset} on"
                )
    for begin, end in portions(first, until, _PORTION_RECORDS):
        yield read(
            {topic: list(partitions) for topic, partitions in until.items()},
            startingOffsets=json.dumps(begin),
            endingOffsets=json.dumps(end),
            failOnDataLoss="true",
        )
