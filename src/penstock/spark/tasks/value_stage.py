"""The map stage on Kafka's raw values in Avro or Protobuf: the worker decodes them, block by block."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType, TimestampType

from penstock.operators.ingest.event_times import EpochTimes
from penstock.operators.ingest.stream_program import StreamProgram
from penstock.operators.windows.arrival_steps import OffsetSteps
from penstock.operators.wire.readers import WantedColumn
from penstock.operators.wire.value_decoder import Decoded
from penstock.spark.tasks.dataframe_stage import ARRIVAL_STEP, ARRIVED, CORRUPT, ORIGIN, REASON
from penstock.spark.tasks.json_stage import TIMESTAMP, arrivals_of_records, steps_of_records
from penstock.spark.tasks.value_formats import ValueFormat
from penstock.spark.tasks.worker import (
    REPORT_SCHEMA,
    Mask,
    Task,
    TaskContextData,
    TaskReport,
    Tuples,
    partition_number,
)

#: bytes of a record that is too large that the quarantine keeps
_KEPT_BYTES = 1_024


def run_raw_values(
    df: DataFrame,
    wanted: Sequence[WantedColumn],
    form: ValueFormat,
    program: StreamProgram,
    context: TaskContextData,
    steps: OffsetSteps | None = None,
    times: EpochTimes | None = None,
) -> list[TaskReport]:
    """Runs one job over raw records.

    Args:
        df: the columns value, topic, partition and offset; TIMESTAMP where arrivals are wanted.
        wanted: the columns of the tuples.
        form: of the values.
        program: the bound plan.
        context: what the tasks need.
        steps: the batch's arrival steps; None: all of it came at once.
        times: the event time, where it is stored as numbers.

    Returns:
        One report a task.
    """
    df.sparkSession.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(program.settings.batch_rows))
    most = program.settings.max_record_bytes

    def stage(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = Task(context, partition_number())
        decoder = form.decoder(wanted, most)
        for batch in batches:
            found = decoder.decode(batch.column("value"))
            if found.reasons:
                aside = batch.filter(pa.array(~found.is_decoded))
                task.quarantine(_kept(aside, most), _origins(aside), pa.array(found.reasons, pa.string()))
                batch = batch.filter(pa.array(found.is_decoded))
            if not found.tuples.num_rows:
                continue
            tuples = found.tuples if times is None else times.of(found.tuples)
            own = None if steps is None else steps_of_records(steps, batch)
            arrived = arrivals_of_records(batch)
            task.process(tuples, _matched(tuples), steps=own, arrived=arrived)
        yield task.report().row()

    rows = df.mapInArrow(stage, REPORT_SCHEMA).collect()
    return [pickle.loads(row.report) for row in rows]


def _matched(tuples: pa.RecordBatch) -> Tuples:
    def matched(mask: Mask, columns: Sequence[str]) -> pa.RecordBatch:
        return tuples.select(list(columns)).filter(pa.array(mask))

    return matched


def decoded_values(
    records: DataFrame,
    schema: StructType,
    wanted: Sequence[WantedColumn],
    form: ValueFormat,
    max_record_bytes: int,
    steps: OffsetSteps | None = None,
) -> DataFrame:
    """Kafka records to tuples, as a DataFrame.

    Args:
        records: the columns value, topic, partition and offset; TIMESTAMP where arrivals are wanted.
        schema: the tuple's columns.
        wanted: likewise, as workers know them.
        form: of the values.
        max_record_bytes: a larger record is malformed.
        steps: the records' arrival steps; None: they have none.

    Returns:
        The tuple's columns and CORRUPT, REASON and ORIGIN, ARRIVAL_STEP where they have steps, and ARRIVED where records have TIMESTAMP.
    """
    beside = [
        StructField(CORRUPT, BinaryType()),
        StructField(REASON, StringType()),
        StructField(ORIGIN, StringType()),
        *([] if steps is None else [StructField(ARRIVAL_STEP, IntegerType())]),
        *([StructField(ARRIVED, TimestampType())] if TIMESTAMP in records.columns else []),
    ]
    names = [*schema.fieldNames(), *(each.name for each in beside)]
    kinds = [*(each.dataType for each in schema), *(each.dataType for each in beside)]

    def stage(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        decoder = form.decoder(wanted, max_record_bytes)
        for batch in batches:
            found = decoder.decode(batch.column("value"))
            columns = [*_all_rows(found), *_aside(batch, found, max_record_bytes)]
            if steps is not None:
                columns.append(pa.array(steps_of_records(steps, batch), pa.int32()))
            if TIMESTAMP in batch.schema.names:
                columns.append(batch.column(TIMESTAMP))
            yield pa.RecordBatch.from_arrays(columns, names=list(map(str, range(len(columns)))))

    # mapInArrow looks columns up by name and does not quote
    numbered = StructType([StructField(str(place), kind) for place, kind in enumerate(kinds)])
    return records.mapInArrow(stage, numbered).toDF(*names)


def _all_rows(found: Decoded) -> list[pa.Array]:
    """The columns of all values, NULL where one is no tuple."""
    if not found.reasons:
        return list(found.tuples.columns)
    places = found.is_decoded.cumsum() - 1
    taken = pa.array(places, mask=~found.is_decoded)
    return [column.take(taken) for column in found.tuples.columns]


def _aside(batch: pa.RecordBatch, found: Decoded, most: int) -> tuple[pa.Array, pa.Array, pa.Array]:
    if not found.reasons:
        rows = batch.num_rows
        return pa.nulls(rows, pa.binary()), pa.nulls(rows, pa.string()), _origins(batch)
    aside = pa.array(~found.is_decoded)
    places = pa.array((~found.is_decoded).cumsum() - 1, mask=found.is_decoded)
    reasons = pa.array(found.reasons, pa.string()).take(places)
    return pc.if_else(aside, _kept(batch, most), pa.scalar(None, pa.binary())), reasons, _origins(batch)


def _kept(batch: pa.RecordBatch, most: int) -> pa.Array:
    """The values; of one that is too large the beginning."""
    values = batch.column("value")
    is_large = pc.fill_null(pc.greater(pc.binary_length(values), most), False)
    if not pc.any(is_large).as_py():
        return values
    return pc.if_else(is_large, pc.binary_slice(values, 0, _KEPT_BYTES), values)


def _origins(batch: pa.RecordBatch) -> pa.Array:
    parts = [
        batch.column("topic"),
        *(batch.column(name).cast(pa.string()) for name in ("partition", "offset")),
    ]
    return pc.binary_join_element_wise(*parts, "-")
