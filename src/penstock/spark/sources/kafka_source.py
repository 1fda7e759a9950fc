"""Kafka topics: JSON values with declared columns, or Kafka's own columns where none are declared."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructType

from penstock.errors import InputError
from penstock.monitor.figures import counted
from penstock.operators.ingest.arrivals import RECORD
from penstock.operators.ingest.json_decode import decodable
from penstock.operators.ingest.malformed import RecordForm
from penstock.operators.windows.arrival_steps import OffsetSteps
from penstock.plan.expressions import Derived
from penstock.settings import Settings
from penstock.spark.analysis.schemas import arrow_schema
from penstock.spark.recovery.causes import Cause
from penstock.spark.recovery.messages import quoted
from penstock.spark.sources.event_times import StoredTimes
from penstock.spark.sources.kafka_admin import SUBSCRIPTIONS
from penstock.spark.sources.kafka_checks import check_broker, check_connector, check_topics
from penstock.spark.sources.providers import StreamTable
from penstock.spark.sources.source import (
    NO_OPTIONS,
    BoundBatch,
    DataFrameSource,
    Progress,
    stamped,
    untold,
)
from penstock.spark.sources.topics import TopicsSource
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.past import CannotReadAgainError, Past, offsets_of_batch, portions
from penstock.spark.tasks.dataframe_stage import ARRIVAL_STEP, ARRIVED, CORRUPT, ORIGIN, REASON
from penstock.spark.tasks.json_stage import TIMESTAMP, Block, run_raw_json
from penstock.spark.tasks.worker import TaskReport

#: options that say where a stream begins and ends, and how fast it goes
_PACING = (
    *("startingoffsets", "endingoffsets", "startingtimestamp", "endingtimestamp"),
    *("startingoffsetsbytimestamp", "endingoffsetsbytimestamp", "failondataloss"),
    *("maxoffsetspertrigger", "minoffsetspertrigger", "maxtriggerdelay"),
)
_RECORD = ("value", "topic", "partition", "offset", TIMESTAMP)
#: records that one job of a backfill reads, so that the stream's own jobs come in between
_PORTION_RECORDS = 1_000_000
#: polls of 500 records, the consumer's own default, halve the rate of small records
_POLLS = {"kafka.max.poll.records": "20000", "kafka.max.partition.fetch.bytes": str(16 << 20)}


def open_kafka(spark: SparkSession, opened: StreamTable) -> TopicsSource:
    """Opens the topics that a table declares.

    Args:
        spark: the session.
        opened: the table; without columns it has Kafka's own.

    Raises:
        InputError: no servers or no topic are named.
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
    own = {**_POLLS, **{name: value for name, value in options.items() if name != "format"}}
    if options.get("format", "json") != "json":
        raise InputError(f"table {table.name}: format is '{options['format']}'; allowed: 'json'")

    def load(session: SparkSession) -> DataFrame:
        return session.readStream.format("kafka").options(**own).load()

    def load_again(session: SparkSession, past: Past) -> Iterable[DataFrame]:
        return _records_of(session, own, past)

    def decoded(session: SparkSession) -> DataFrame:
        records = load(session)
        return records if declared is None else decode_json(records, declared, settings.max_record_bytes)

    source: KafkaJsonSource | DataFrameSource
    if declared is not None and arrival is None:
        one_topic = "," not in options.get("subscribe", ",")
        source = KafkaJsonSource(declared, event_time, load, settings, one_topic, load_again)
    else:
        schema = declared or load(spark).schema
        why = "Spark reads Kafka's records"
        source = DataFrameSource(schema, event_time, decoded, why, reopen=load_again)
        if arrival is not None:
            source = stamped(source, arrival)
    return TopicsSource(source, own)


@dataclass(frozen=True, slots=True)
class KafkaJsonSource:
    """JSON values of a topic, decoded in the worker where schema and plan allow it.

    Records that pyarrow's reader might read differently from Spark are refused by the task and read by
    `from_json` in a second job of the same batch.

    Attributes:
        schema: the tuple's columns.
        event_time: name of the event time column, or None.
        load: gives Kafka's records as a streaming frame.
        settings: frozen settings.
        one_topic: whether all records come from the same topic, so that they need not name it.
        load_again: gives the records that were read before; None where nobody can.
        times: how the event time is stored; None: as a timestamp.
    """

    is_finite: ClassVar[bool] = False
    schema: StructType
    event_time: str | None
    load: Callable[[SparkSession], DataFrame]
    settings: Settings
    one_topic: bool = False
    load_again: Callable[[SparkSession, Past], Iterable[DataFrame]] | None = None
    times: StoredTimes | None = None

    def timed(self, times: StoredTimes) -> KafkaJsonSource:
        """The source with its event time as a TIMESTAMP."""
        return replace(self, schema=times.schema, times=times)

    def prepare(self, layout: Layout, stream: str, events: EventLog, progress: Progress = untold) -> None:
        """Nothing to get ready."""

    def frame(self, spark: SparkSession) -> DataFrame:
        """Kafka's records."""
        return self.load(spark).select(*_RECORD)

    def again(self, spark: SparkSession, past: Past) -> Iterable[DataFrame]:
        """Kafka's records that were read before, as long as the topic has them."""
        if self.load_again is None:
            raise CannotReadAgainError("Penstock reads the records once")
        for records in self.load_again(spark, past):
            yield records.select(*_RECORD)

    def run(self, df: DataFrame, batch: BoundBatch) -> list[TaskReport]:
        """One job over the raw values, and one over what its tasks refused."""
        steps, times = self._steps(batch), self.times
        batch.arrived_by = RECORD

        def run_behind(records: DataFrame) -> list[TaskReport]:
            tuples = decode_json(
                records, self._stored, self.settings.max_record_bytes, steps, has_arrivals=True
            )
            if times is None:
                return batch.run_behind(tuples)
            return batch.run_behind(times.of(tuples), RecordForm(stored=arrow_schema(self._stored)))

        if self._why_not(batch.derived):
            return run_behind(df)
        raw = df.drop("topic") if self.one_topic else df
        epoch = None if times is None else times.epoch
        reports = run_raw_json(raw, arrow_schema(self._stored), batch.program, batch.job(), steps, epoch)
        refused = [block for report in reports for block in report.refused]
        if refused:
            reports += run_behind(df.where(_among(refused)))
        return reports

    def place(self, derived: tuple[Derived, ...]) -> str:
        """In the worker's own JSON decoder, or behind Spark's."""
        why = self._why_not(derived)
        return f"slower path: {why}" if why else "fast path: Python workers decode JSON"

    def named(self, cause: Cause) -> Cause:
        """As it is."""
        return cause

    def exhausted(self) -> bool:
        """Left to Spark."""
        return True

    def close(self) -> None:
        """Nothing to end."""

    def _steps(self, batch: BoundBatch) -> OffsetSteps | None:
        """The arrival steps of a batch; None where it has but one."""
        found = None if batch.checkpoint is None else offsets_of_batch(batch.checkpoint, batch.number)
        if found is None:
            return None
        first, until = found
        ranges = {
            (None if self.one_topic else topic, int(partition)): (first[topic][partition], end)
            for topic, partitions in until.items()
            for partition, end in partitions.items()
        }
        number = batch.cut(sum(end - begin for begin, end in ranges.values()))
        return OffsetSteps(ranges, number) if number > 1 else None

    def _why_not(self, derived: tuple[Derived, ...]) -> str | None:
        if not self.settings.decode_in_worker:
            return "the setting decode_in_worker is off"
        if derived:
            return f"Spark computes {counted(len(derived), 'expression')}, such as {derived[0].expression}"
        if not decodable(arrow_schema(self._stored)):
            return "only Spark decodes the type of a column"
        if self.times is not None and self.times.epoch is None:
            return "only Spark reads the format of the event time"
        return None

    @property
    def _stored(self) -> StructType:
        """The columns of the records."""
        return self.schema if self.times is None else self.times.stored


def _among(refused: Iterable[Block]) -> Column:
    """Whether a record is in one of the blocks."""
    offsets: dict[tuple[str | None, int], list[int]] = {}
    chosen = F.lit(False)
    for topic, partition, first, last in refused:
        if first == last:
            offsets.setdefault((topic, partition), []).append(first)
        else:
            chosen = chosen | (_from(topic, partition) & F.col("offset").between(first, last))
    for place, own in offsets.items():
        chosen = chosen | (_from(*place) & F.col("offset").isin(own))
    return chosen


def _from(topic: str | None, partition: int) -> Column:
    is_there = F.col("partition") == partition
    return is_there if topic is None else is_there & (F.col("topic") == topic)


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


def decode_json(
    records: DataFrame,
    schema: StructType,
    max_record_bytes: int,
    steps: OffsetSteps | None = None,
    options: Mapping[str, str] = NO_OPTIONS,
    *,
    has_arrivals: bool = False,
) -> DataFrame:
    """Kafka records to tuples with Spark's `from_json`: the exact path.

    Args:
        records: Kafka's columns.
        schema: the tuple's columns.
        max_record_bytes: a larger record is malformed.
        steps: the records' arrival steps; None: they have none.
        options: of Spark's JSON reader.
        has_arrivals: whether tuples get the time of their record as ARRIVED.

    Returns:
        The tuple's columns and CORRUPT, REASON and ORIGIN, ARRIVAL_STEP where they have steps, ARRIVED where that is
        asked for.
    """
    wide = StructType([*schema.fields]).add(CORRUPT, StringType())
    text = F.col("value").cast("string")
    small = F.length("value") <= max_record_bytes
    parsed = F.from_json(F.when(small, text), wide, {**options, "columnNameOfCorruptRecord": CORRUPT})
    frame = records.select("*", parsed.alias("tuple"))
    arrival = [] if steps is None else [_step_of(steps).alias(ARRIVAL_STEP)]
    if has_arrivals:
        arrival.append(F.col(TIMESTAMP).alias(ARRIVED))
    reason = (
        F.when(F.col("value").isNull(), "no value")
        .when(F.length("value") > max_record_bytes, "record too large")
        .when(~F.is_valid_utf8(text), "not UTF-8")
        .when(F.col("tuple").isNull() | F.col(f"tuple.{CORRUPT}").isNotNull(), "malformed JSON")
    )
    origin = F.concat_ws("-", "topic", "partition", "offset")
    return frame.select(
        *(F.col(f"tuple.{quoted(field.name)}").alias(field.name) for field in schema),
        F.when(reason.isNotNull(), F.col("value")).alias(CORRUPT),
        reason.alias(REASON),
        origin.alias(ORIGIN),
        *arrival,
    )


def _step_of(steps: OffsetSteps) -> Column:
    """What `OffsetSteps.of` gives, computed by Spark."""
    last = steps.number - 1
    step = F.when(F.lit(False), F.lit(last))
    for (topic, partition), (first, until) in steps.ranges.items():
        if until <= first:
            continue
        twice = (F.lit(2) * (F.col("offset") - first) + 1) * steps.number
        place = F.floor(twice / (2 * (until - first))).cast("int")
        step = step.when(_from(topic, partition), F.greatest(F.lit(0), F.least(F.lit(last), place)))
    return step.otherwise(F.lit(last))
