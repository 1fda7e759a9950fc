"""Kafka topics whose values are JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructType

from penstock.monitor.figures import counted
from penstock.operators.ingest.arrivals import RECORD
from penstock.operators.ingest.json_decode import decodable
from penstock.operators.ingest.malformed import RecordForm
from penstock.operators.windows.arrival_steps import OffsetSteps
from penstock.plan.expressions import Derived
from penstock.spark.analysis.schemas import arrow_schema
from penstock.spark.recovery.messages import quoted
from penstock.spark.sources.event_times import StoredTimes
from penstock.spark.sources.kafka_records import KafkaRecords
from penstock.spark.sources.source import NO_OPTIONS, BoundBatch
from penstock.spark.sources.stored_fields import StoredFields
from penstock.spark.tasks.dataframe_stage import ARRIVAL_STEP, ARRIVED, CORRUPT, ORIGIN, REASON
from penstock.spark.tasks.json_stage import TIMESTAMP, Block, run_raw_json
from penstock.spark.tasks.worker import TaskReport


@dataclass(frozen=True, slots=True)
class KafkaJsonSource(KafkaRecords):
    """JSON values of a topic, decoded in the worker where schema and plan allow it.

    Records that pyarrow's reader might read differently from Spark are refused by the task and read by
    `from_json` in a second job of the same batch.

    Attributes:
        fields: how the columns are taken from the records; None: each has a field of its name.
    """

    fields: StoredFields | None = None

    def timed(self, times: StoredTimes) -> KafkaJsonSource:
        """The source with its event time as a TIMESTAMP."""
        return replace(self, schema=times.schema, times=times)

    def run(self, df: DataFrame, batch: BoundBatch) -> list[TaskReport]:
        """One job over the raw values, and one over what its tasks refused."""
        steps, times, fields = self.steps_of(batch), self.times, self.fields
        batch.arrived_by = RECORD

        def run_behind(records: DataFrame) -> list[TaskReport]:
            stored = self.stored if fields is None else fields.stored
            tuples = decode_json(records, stored, self.settings.max_record_bytes, steps, has_arrivals=True)
            if fields is not None:
                tuples = fields.of(tuples)
            if times is not None:
                tuples = times.of(tuples)
            form = RecordForm(stored=arrow_schema(stored), is_nested=fields is not None)
            return batch.run_behind(tuples, form)

        if self._why_not(batch.derived):
            return run_behind(df)
        raw = df.drop("topic") if self.one_topic else df
        epoch = None if times is None else times.epoch
        places = None if fields is None else fields.fields
        schema = arrow_schema(self.stored)
        reports = run_raw_json(raw, schema, batch.program, batch.job(), steps, epoch, places)
        refused = [block for report in reports for block in report.refused]
        if refused:
            reports += run_behind(df.where(_among(refused)))
        return reports

    def place(self, derived: tuple[Derived, ...]) -> str:
        """In the worker's own JSON decoder, or behind Spark's."""
        why = self._why_not(derived)
        return f"slower path: {why}" if why else "fast path: Python workers decode JSON"

    def _why_not(self, derived: tuple[Derived, ...]) -> str | None:
        if not self.settings.decode_in_worker:
            return "the setting decode_in_worker is off"
        if derived:
            return f"Spark computes {counted(len(derived), 'expression')}, such as {derived[0].expression}"
        if not decodable(arrow_schema(self.stored)):
            return "only Spark decodes the type of a column"
        if self.times is not None and self.times.epoch is None:
            return "only Spark reads the format of the event time"
        return None


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
