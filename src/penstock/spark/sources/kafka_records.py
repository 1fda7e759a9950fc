"""What all sources over Kafka's records share, whatever form the values have."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from penstock.operators.windows.arrival_steps import OffsetSteps
from penstock.settings import Settings
from penstock.spark.sources.event_times import StoredTimes
from penstock.spark.sources.source import BoundBatch, SimpleSource
from penstock.spark.storage.past import CannotReadAgainError, Past, offsets_of_batch
from penstock.spark.tasks.json_stage import TIMESTAMP

_RECORD = ("value", "topic", "partition", "offset", TIMESTAMP)


@dataclass(frozen=True, slots=True)
class KafkaRecords(SimpleSource):
    """The records of topics.

    Attributes:
        schema: the tuple's columns.
        event_time: name of the event time column, or None.
        load: gives Kafka's records as a streaming frame.
        settings: frozen settings.
        one_topic: whether all records come from the same topic, so that they need not name it.
        load_again: gives the records that were read before; None where nobody can.
        times: how the event time is stored; None: as a timestamp.
    """

    schema: StructType
    event_time: str | None
    load: Callable[[SparkSession], DataFrame]
    settings: Settings
    one_topic: bool = False
    load_again: Callable[[SparkSession, Past], Iterable[DataFrame]] | None = None
    times: StoredTimes | None = None

    def frame(self, spark: SparkSession) -> DataFrame:
        """Kafka's records."""
        return self.load(spark).select(*_RECORD)

    def again(self, spark: SparkSession, past: Past) -> Iterable[DataFrame]:
        """Kafka's records that were read before, as long as the topic has them."""
        if self.load_again is None:
            raise CannotReadAgainError("Penstock reads the records once")
        for records in self.load_again(spark, past):
            yield records.select(*_RECORD)

    @property
    def stored(self) -> StructType:
        """The columns with the types of their fields in the records."""
        return self.schema if self.times is None else self.times.stored

    def steps_of(self, batch: BoundBatch) -> OffsetSteps | None:
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
