"""The map stage on Kafka's raw values: the worker decodes JSON itself, block by block."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame

from penstock.operators.ingest.arrivals import Ints
from penstock.operators.ingest.event_times import EpochTimes
from penstock.operators.ingest.json_blocks import BlockDecoder, LateColumnsError
from penstock.operators.ingest.json_records import Records
from penstock.operators.ingest.record_fields import RecordFields
from penstock.operators.ingest.stream_program import StreamProgram
from penstock.operators.windows.arrival_steps import OffsetSteps, Steps
from penstock.spark.tasks.worker import REPORT_SCHEMA, Task, TaskContextData, TaskReport, partition_number

#: column of Kafka's time of a record
TIMESTAMP = "timestamp"
#: (topic or None where there is but one, partition, first offset, last offset)
Block = tuple[str | None, int, int, int]


def run_raw_json(
    df: DataFrame,
    schema: pa.Schema,
    program: StreamProgram,
    context: TaskContextData,
    steps: OffsetSteps | None = None,
    times: EpochTimes | None = None,
    fields: RecordFields | None = None,
) -> list[TaskReport]:
    """Runs one job over raw records.

    Args:
        df: the columns value, partition, offset and, where there are several topics, topic; TIMESTAMP where arrivals are wanted.
        schema: the columns of the records.
        program: the bound plan.
        context: what the tasks need.
        steps: the batch's arrival steps; None: all of it came at once.
        times: the event time, where it is stored as numbers.
        fields: where the columns are in a record; None: at its top, by their names.

    Returns:
        One report a task; `refused` lists the blocks that Spark has to read, of one record or more. Where a matched record turns out
        to need Spark, these are all blocks of its task.
    """
    df.sparkSession.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(program.settings.batch_rows))

    def stage(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = Task(context, partition_number())
        decoder = BlockDecoder(schema, task.stage.program, times, fields)
        read: list[Block] = []
        is_late = False
        for batch in batches:
            read += _blocks(batch)
            if not is_late:
                try:
                    _take_in(task, batch, decoder, steps)
                except LateColumnsError:
                    is_late = True
        if is_late:
            task.abandon()
            task = Task(context, partition_number())
            task.refused.extend(read)
        yield task.report().row()

    rows = df.mapInArrow(stage, REPORT_SCHEMA).collect()
    return [pickle.loads(row.report) for row in rows]


def _take_in(task: Task, batch: pa.RecordBatch, decoder: BlockDecoder, steps: OffsetSteps | None) -> None:
    decoded, tuples, is_decoded = decoder.decode(Records.of_values(batch.column("value")))
    if not len(decoded):
        task.refused.extend(_blocks(batch))
        return
    if len(decoded) < len(batch):
        apart = batch.filter(pa.array(~is_decoded))
        batch = batch.filter(pa.array(is_decoded))
        for record in range(len(apart)):
            task.refused.extend(_blocks(apart.slice(record, 1)))
    own = None if steps is None else steps_of_records(steps, batch)
    task.process(decoded, tuples, steps=own, arrived=arrivals_of_records(batch))


def arrivals_of_records(batch: pa.RecordBatch) -> Ints | None:
    """When records arrived by their TIMESTAMP, microseconds; None where they do not have it."""
    if TIMESTAMP not in batch.schema.names:
        return None
    moments: Ints = batch.column(TIMESTAMP).cast(pa.int64()).to_numpy()
    return moments


def steps_of_records(steps: OffsetSteps, batch: pa.RecordBatch) -> Steps:
    """The arrival steps of records by their columns partition, offset and, where there are several topics, topic."""
    topics = batch.column("topic") if "topic" in batch.schema.names else None
    partitions, offsets = (batch.column(name).to_numpy() for name in ("partition", "offset"))
    return steps.of(topics, partitions, offsets)


def _blocks(batch: pa.RecordBatch) -> list[Block]:
    """The offset ranges of a batch, one a topic partition."""
    places = [name for name in ("topic", "partition") if name in batch.schema.names]
    table = pa.Table.from_batches([batch.select([*places, "offset"])])
    grouped = table.group_by(places).aggregate([("offset", "min"), ("offset", "max")])
    return [
        (row.get("topic"), row["partition"], row["offset_min"], row["offset_max"])
        for row in grouped.to_pylist()
    ]
