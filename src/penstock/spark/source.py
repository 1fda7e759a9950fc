"""What every source of a stream offers to its ingest query."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from pyspark import Broadcast
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from penstock.operators.map_stage import StreamProgram
from penstock.plan.expressions import Derived
from penstock.spark.causes import Cause
from penstock.spark.dataframe_stage import run_behind_dataframe
from penstock.spark.derive import derive_packed
from penstock.spark.events import EventLog
from penstock.spark.layout import Layout
from penstock.spark.parquet_files import Stamp
from penstock.spark.past import CannotReadAgainError, Past
from penstock.spark.worker import SentSequence, TaskContextData, TaskReport


@dataclass(slots=True, eq=False)
class BoundBatch:
    """A batch and the plan that answers it.

    Attributes:
        number: the batch's number.
        program: the compiled plan version.
        derived: columns Spark computes for it.
        key: identifies the program in the workers' caches.
        broadcast: the pickled program.
        sequence: the evaluation sequence of its ASCs; None: the order of the attributes.
        staging, staged_envelopes: see `TaskContextData`.
        time_limit: the largest event time that is believed, microseconds in UTC.
        time_floor: tuples that are older do not matter for slack, microseconds.
        kept_ahead: how far beyond the limit tuples are in their windows all the same, microseconds.
        stamps: what its files were when they were read, by URI, where the source looks.
    """

    number: int
    program: StreamProgram
    derived: tuple[Derived, ...]
    key: tuple[str, int]
    broadcast: Broadcast[bytes]
    sequence: SentSequence | None
    staging: str
    staged_envelopes: str
    time_limit: int
    time_floor: int
    kept_ahead: int
    stamps: dict[str, Stamp] = field(default_factory=dict)
    _jobs: Callable[[], int] = field(default_factory=lambda: itertools.count().__next__)

    def job(self) -> TaskContextData:
        """Context of the batch's next job."""
        return TaskContextData(
            self.key,
            self.broadcast,
            self.sequence,
            self.staging,
            self.staged_envelopes,
            self._jobs(),
            self.time_limit,
            self.time_floor,
            self.kept_ahead,
        )

    def run_behind(self, df: DataFrame) -> list[TaskReport]:
        """Derives the columns the plan needs and runs the map stage behind the frame."""
        return run_behind_dataframe(derive_packed(df, self.derived), self.program, self.job())


class Source(Protocol):
    """A stream's source.

    Attributes:
        schema: the tuple's columns.
        event_time: name of the event time column, or None.
        is_finite: whether it is a stored table that is played: it ends by itself.
    """

    is_finite: ClassVar[bool]

    @property
    def schema(self) -> StructType:
        """The tuple's columns."""
        ...

    @property
    def event_time(self) -> str | None:
        """Name of the event time column, or None."""
        ...

    def prepare(self, layout: Layout, stream: str, events: EventLog) -> None:
        """Gets ready under a run's folders, before the first frame is asked for.

        Args:
            layout: the run's folders.
            stream: the stream's name.
            events: where the source tells what it notices by itself.
        """
        ...

    def frame(self, spark: SparkSession) -> DataFrame:
        """The streaming frame whose micro-batches `run` is given."""
        ...

    def run(self, df: DataFrame, batch: BoundBatch) -> list[TaskReport]:
        """Runs the map stage over one micro-batch; one report a task."""
        ...

    def again(self, spark: SparkSession, past: Past) -> Iterable[DataFrame]:
        """Frames for `run` of what was read before, some of it at a time.

        Raises:
            CannotReadAgainError: the source has not got it any more.
        """
        ...

    def place(self, derived: tuple[Derived, ...]) -> str:
        """Where the map stage runs for a plan with these derived columns, and why, for `explain`."""
        ...

    def named(self, cause: Cause) -> Cause:
        """What stopped the stream, in the light of what the source knows; it may ask."""
        ...

    def exhausted(self) -> bool:
        """Whether nothing more will ever come than what Spark can already see."""
        ...

    def close(self) -> None:
        """Ends what `frame` has begun; the run is over."""
        ...


@dataclass(frozen=True, slots=True)
class DataFrameSource:
    """Any streaming DataFrame.

    Attributes:
        schema: the tuple's columns.
        event_time: name of the event time column, or None.
        open: gives the streaming frame: the tuple's columns and, where the source tolerates
            malformed records, CORRUPT, REASON and ORIGIN.
        why: why the map stage cannot run in the scan.
        reopen: gives frames like `open` of what was read before; None where nobody can.
    """

    is_finite: ClassVar[bool] = False
    schema: StructType
    event_time: str | None
    open: Callable[[SparkSession], DataFrame]
    why: str
    reopen: Callable[[SparkSession, Past], Iterable[DataFrame]] | None = None

    def prepare(self, layout: Layout, stream: str, events: EventLog) -> None:
        """Nothing to get ready."""

    def frame(self, spark: SparkSession) -> DataFrame:
        """The streaming frame."""
        return self.open(spark)

    def run(self, df: DataFrame, batch: BoundBatch) -> list[TaskReport]:
        """One job behind the frame."""
        return batch.run_behind(df)

    def again(self, spark: SparkSession, past: Past) -> Iterable[DataFrame]:
        """What was read before, where the source keeps it."""
        if self.reopen is None:
            raise CannotReadAgainError(f"{self.why}, and such a source is read only once")
        return self.reopen(spark, past)

    def place(self, derived: tuple[Derived, ...]) -> str:  # noqa: ARG002 - one place for every plan
        """Always behind the DataFrame."""
        return f"behind the DataFrame: {self.why}"

    def named(self, cause: Cause) -> Cause:
        """As it is."""
        return cause

    def exhausted(self) -> bool:
        """Left to Spark."""
        return True

    def close(self) -> None:
        """Nothing to end."""
