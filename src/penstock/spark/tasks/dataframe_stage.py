"""The map stage behind any DataFrame: tuples reach the worker through mapInArrow."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame

from penstock.operators.ingest.malformed import explained_each
from penstock.operators.ingest.map_stage import StreamProgram
from penstock.operators.windows.arrival_steps import Steps
from penstock.spark.tasks.worker import REPORT_SCHEMA, Task, TaskContextData, TaskReport, run_partition

#: columns in which a source that tolerates malformed records says what one was (BINARY; NULL for a
#: good record), why it is malformed and which file or offset it came from
CORRUPT, REASON, ORIGIN = "__penstock_record", "__penstock_reason", "__penstock_origin"
#: column of the arrival step (INT), where the source knows it
ARRIVAL_STEP = "__penstock_step"


def run_behind_dataframe(
    df: DataFrame, program: StreamProgram, context: TaskContextData, stored: pa.Schema | None = None
) -> list[TaskReport]:
    """Runs one job over a batch.

    Args:
        df: the tuple's columns, the derived ones and, from some sources, CORRUPT, REASON and ORIGIN.
        program: the bound plan.
        context: what the tasks need.
        stored: the tuple's columns as records have them, where these are others.

    Returns:
        One report a task.
    """
    df.sparkSession.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(program.settings.batch_rows))
    processor = batch_processor(program, CORRUPT in df.columns, stored)
    names = df.columns

    def each(task: Task, batch: pa.RecordBatch) -> None:
        processor(task, batch, None)

    def stage(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return run_partition(context, (batch.rename_columns(names) for batch in batches), each)

    # mapInArrow looks columns up by name and does not quote: dots and backticks would go wrong
    rows = df.toDF(*map(str, range(len(names)))).mapInArrow(stage, REPORT_SCHEMA).collect()
    return [pickle.loads(row.report) for row in rows]


def batch_processor(
    program: StreamProgram, has_corrupt: bool, stored: pa.Schema | None = None
) -> Callable[[Task, pa.RecordBatch, Steps | None], None]:
    """What a task does with each batch of a DataFrame."""
    columns, derived = list(program.columns), program.derived

    def process(task: Task, batch: pa.RecordBatch, steps: Steps | None) -> None:
        if has_corrupt:
            batch = _set_corrupt_aside(task, batch, columns, stored)
        if not batch.num_rows:
            return
        wide = batch if derived is None else derived.unpack(batch)

        def tuples(mask: npt.NDArray[np.bool_]) -> pa.RecordBatch:
            return batch.select(columns).filter(pa.array(mask))

        if ARRIVAL_STEP in batch.schema.names:
            steps = batch.column(ARRIVAL_STEP).to_numpy(zero_copy_only=False).astype(np.int8)
        task.process(wide, tuples, steps=steps)

    return process


def _set_corrupt_aside(
    task: Task, batch: pa.RecordBatch, columns: list[str], stored: pa.Schema | None
) -> pa.RecordBatch:
    reason = batch.column(REASON)
    if reason.null_count == len(reason):
        return batch
    aside = batch.filter(reason.is_valid())
    schema = stored or pa.schema([batch.schema.field(name) for name in columns])
    records, reasons = aside.column(CORRUPT), aside.column(REASON)
    task.quarantine_lines(records, aside.column(ORIGIN), explained_each(reasons, records, schema))
    return batch.filter(reason.is_null())
