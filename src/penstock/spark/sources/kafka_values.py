"""Kafka topics whose values are Avro or Protobuf."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame

from penstock.monitor.figures import counted
from penstock.operators.ingest.arrivals import RECORD
from penstock.operators.wire.readers import TITLES
from penstock.plan.expressions import Derived
from penstock.spark.sources.event_times import StoredTimes
from penstock.spark.sources.kafka_records import KafkaRecords
from penstock.spark.sources.source import BoundBatch
from penstock.spark.sources.value_options import StoredValues
from penstock.spark.tasks.value_stage import decoded_values, run_raw_values
from penstock.spark.tasks.worker import TaskReport


@dataclass(frozen=True, slots=True)
class KafkaValueSource(KafkaRecords):
    """Values of a topic in Avro or Protobuf, which workers decode: in the scan's place, or before Spark computes expressions.

    Attributes:
        values: how they are decoded.
    """

    values: StoredValues = field(kw_only=True)

    def timed(self, times: StoredTimes) -> KafkaValueSource:
        """The source with its event time as a TIMESTAMP."""
        return replace(self, schema=times.schema, times=times)

    def run(self, df: DataFrame, batch: BoundBatch) -> list[TaskReport]:
        """One job over the raw values, or behind the frame of what they decode to."""
        steps, times, values = self.steps_of(batch), self.times, self.values
        batch.arrived_by = RECORD
        if self._why_not(batch.derived) is None:
            epoch = None if times is None else times.epoch
            return run_raw_values(df, values.wanted, values.form, batch.program, batch.job(), steps, epoch)
        most = self.settings.max_record_bytes
        tuples = decoded_values(df, self.stored, values.wanted, values.form, most, steps)
        return batch.run_behind(tuples if times is None else times.of(tuples))

    def place(self, derived: tuple[Derived, ...]) -> str:
        """In the worker's decoder, before or after Spark."""
        why = self._why_not(derived)
        title = TITLES[self.values.form.form]
        return f"slower path: {why}" if why else f"fast path: Python workers decode {title}"

    def _why_not(self, derived: tuple[Derived, ...]) -> str | None:
        if not self.settings.decode_in_worker:
            return "the setting decode_in_worker is off"
        if derived:
            return f"Spark computes {counted(len(derived), 'expression')}, such as {derived[0].expression}"
        if self.times is not None and self.times.epoch is None:
            return "only Spark reads the format of the event time"
        return None
