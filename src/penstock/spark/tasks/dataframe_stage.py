"""The map stage behind any DataFrame: tuples reach the worker through mapInArrow."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from penstock.operators.ingest.malformed import RecordForm
from penstock.operators.ingest.stream_program import StreamProgram
from penstock.operators.windows.arrival_steps import Steps
from penstock.spark.tasks.worker import REPORT_SCHEMA, Mask, Task, TaskContextData, TaskReport, run_partition

#: columns in which a source that tolerates malformed records says what one was (BINARY; NULL for a
#: good record), why it is malformed and which file or offset it came from
CORRUPT, REASON, ORIGIN = "__penstock_record", "__penstock_reason", "__penstock_origin"
#: what the quarantine calls them
QUARANTINED = {"record": CORRUPT, "origin": ORIGIN, "reason": REASON}
#: column of the arrival step (INT), where the source knows it
ARRIVAL_STEP = "__penstock_step"
#: column of the moment of arrival (TIMESTAMP), where the source knows it
ARRIVED = "__penstock_arrived"


def run_behind_dataframe(
    df: DataFrame, program: StreamProgram, context: TaskContextData, form: RecordForm
) -> list[TaskReport]:
    """Runs one job over a batch.

    Args:
        df: the tuple's columns, the derived ones and, from some sources, CORRUPT, REASON and ORIGIN.
        program: the bound plan.
        context: what the tasks need.
        form: of the records behind the tuples.

    Returns:
        One report a task.
    """
    df.sparkSession.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(program.settings.batch_rows))
    processor = batch_processor(program, form if CORRUPT in df.columns else None)
    names = df.columns

    def each(task: Task, batch: pa.RecordBatch) -> None:
        processor(task, batch, None)

    def stage(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return run_partition(context, (batch.rename_columns(names) for batch in batches), each)

    # mapInArrow looks columns up by name and does not quote: dots and backticks would go wrong
    rows = df.toDF(*map(str, range(len(names)))).mapInArrow(stage, REPORT_SCHEMA).collect()
    return [pickle.loads(row.report) for row in rows]


def batch_processor(
    program: StreamProgram, form: RecordForm | None
) -> Callable[[Task, pa.RecordBatch, Steps | None], None]:
    """What a task does with each batch of a DataFrame.

    Args:
        program: the bound plan.
        form: of the records, where the batches have CORRUPT, REASON and ORIGIN.
    """
    columns, derived = list(program.columns), program.derived

    def process(task: Task, batch: pa.RecordBatch, steps: Steps | None) -> None:
        if form is not None:
            batch = _set_corrupt_aside(task, batch, columns, form)
        if not batch.num_rows:
            return
        wide = batch if derived is None else derived.unpack(batch)

        def tuples(mask: Mask, wanted: Sequence[str]) -> pa.RecordBatch:
            return batch.select(list(wanted)).filter(pa.array(mask))

        if ARRIVAL_STEP in batch.schema.names:
            steps = batch.column(ARRIVAL_STEP).to_numpy(zero_copy_only=False).astype(np.int8)
        arrived = None
        if ARRIVED in batch.schema.names:
            arrived = batch.column(ARRIVED).cast(pa.int64()).to_numpy(zero_copy_only=False)
        task.process(wide, tuples, steps=steps, arrived=arrived)

    return process


def _set_corrupt_aside(
    task: Task, batch: pa.RecordBatch, columns: list[str], form: RecordForm
) -> pa.RecordBatch:
    reason = batch.column(REASON)
    if reason.null_count == len(reason):
        return batch
    rows = batch.filter(reason.is_valid())
    aside = pa.record_batch({name: rows.column(own) for name, own in QUARANTINED.items()})
    has_value = {} if form.is_nested else {name: rows.column(name).is_valid() for name in columns}
    task.quarantine_rows(aside, form.stored or rows.select(columns).schema, form, has_value)
    return batch.filter(reason.is_null())
