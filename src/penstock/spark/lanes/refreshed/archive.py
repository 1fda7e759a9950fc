"""The tuples of a stream that its log holds, as a frame: what a refreshed view reads of the stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from penstock.operators.routing.routers import HashRouter
from penstock.spark.analysis.catalyst import empty_frame
from penstock.spark.log.run_files import FoundRuns
from penstock.spark.recovery.messages import quoted
from penstock.spark.storage.demands import TupleDemand
from penstock.spark.storage.refreshed import ReadStream

#: the event time that runs have a column of, of a stream without one
_NO_TIME = "penstock.no_time"
#: rows that Spark is given at once
_ROWS = 1 << 16
#: tasks a core that read the files of a stream
_TASKS = 2


def demand_of(read: ReadStream) -> TupleDemand:
    """What is asked of a stream: all of its tuples, in the order of their event times."""
    columns = [(quoted(name), name) for name in read.columns]
    time = read.time
    if time is None:
        time = _NO_TIME
        columns.append(("timestamp_micros(0)", time))
    elif time not in read.columns:
        columns.append((quoted(time), time))
    return TupleDemand(None, tuple(columns), (), time, HashRouter((), 1).document())


def archive_frame(spark: SparkSession, runs: FoundRuns, columns: StructType) -> DataFrame:
    """The tuples of some entries.

    Args:
        spark: the session.
        runs: where they lie.
        columns: those that are wanted of the stream's.
    """
    tasks = min(len(runs.files), _TASKS * spark.sparkContext.defaultParallelism)
    if not tasks:
        return empty_frame(spark, columns)
    dealt = [replace(runs, files=runs.files[number::tasks]) for number in range(tasks)]
    return spark.range(0, tasks, 1, tasks).mapInArrow(_Reader(dealt, columns.names), columns)


class _Reader:
    """Reads files in a worker; a row of its input is the number of a task.

    Args:
        dealt: the files of each task.
        columns: those that are wanted.
    """

    def __init__(self, dealt: Sequence[FoundRuns], columns: Sequence[str]) -> None:
        self._dealt = dealt
        self._columns = list(columns)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self._tuples(self._dealt[number])

    def _tuples(self, runs: FoundRuns) -> Iterator[pa.RecordBatch]:
        for opened in runs.open():
            for number in opened.run.parts:
                part = opened.run.part(number)
                assert part is not None, "it is in the directory"
                tuples, wanted = part.tuples.select(self._columns), part.rows_of(opened.after, opened.until)
                if wanted is not None and not wanted.all():
                    tuples = tuples.filter(pa.array(wanted))
                for first in range(0, tuples.num_rows, _ROWS):
                    yield tuples.slice(first, _ROWS)
