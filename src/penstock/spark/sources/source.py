"""What every source of a stream offers to its ingest query."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from math import ceil
from typing import ClassVar, Protocol
from urllib.parse import unquote

from py4j.protocol import Py4JJavaError
from pyspark import Broadcast
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType, TimestampType

from penstock.errors import InputError
from penstock.operators.ingest.arrivals import FILE, PLANNED
from penstock.operators.ingest.malformed import RecordForm
from penstock.operators.ingest.stream_program import StreamProgram
from penstock.operators.windows.arrival_steps import file_steps
from penstock.plan.expressions import Derived
from penstock.spark.analysis.derive import derive_packed
from penstock.spark.analysis.schemas import arrow_schema, spark_schema
from penstock.spark.publication.staged import BatchFiles
from penstock.spark.recovery.causes import Cause
from penstock.spark.sources.event_times import StoredTimes
from penstock.spark.sources.long_lines import TOO_LARGE, LongLine, long_lines, shorter_than, whole_files
from penstock.spark.sources.offenders import offenders, records_aside, rows_aside, rows_in_footer
from penstock.spark.sources.parquet_rescue import in_types
from penstock.spark.sources.patterns import has_signs
from penstock.spark.sources.stored_fields import StoredFields
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.offsets import files_of_batch, planned_at, times_of_batch
from penstock.spark.storage.past import CannotReadAgainError, Past
from penstock.spark.storage.store_paths import StorePath
from penstock.spark.tasks.dataframe_stage import ARRIVAL_STEP, run_behind_dataframe
from penstock.spark.tasks.parquet_files import Stamp, check_folder
from penstock.spark.tasks.worker import SentSequence, SetAside, TaskContextData, TaskReport

NO_OPTIONS: Mapping[str, str] = {}
PLAIN = RecordForm()


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
        store: see `TaskContextData`.
        time_limit: the largest event time that is believed, microseconds in UTC.
        time_floor: tuples that are older do not matter for slack, microseconds.
        kept_ahead: how far beyond the limit tuples are in their windows all the same, microseconds.
        too_late_before: tuples with an earlier event time are quarantined instead of being in windows, microseconds.
        checkpoint: of the streaming query that planned it; None: its frame is over files at rest.
        stamps: what its files were when they were read, by URI, where the source looks.
        pace: event time that one place of the source brings, microseconds; None: nothing is known of it.
        places: of the source in the batch (offsets, rows), where it knows an order of arrival; 0: it knows none.
        steps: arrival steps it is cut into.
        arrived_by: what says when its tuples arrived, see `Arrived`.
        call_order: see `TaskContextData`.
    """

    number: int
    program: StreamProgram
    derived: tuple[Derived, ...]
    key: tuple[str, int]
    broadcast: Broadcast[bytes]
    sequence: SentSequence | None
    store: BatchFiles
    time_limit: int
    time_floor: int
    kept_ahead: int
    too_late_before: int
    checkpoint: StorePath | None = None
    stamps: dict[str, Stamp] = field(default_factory=dict)
    pace: float | None = None
    places: int = 0
    steps: int = 1
    arrived_by: str = PLANNED
    call_order: tuple[int, ...] = ()
    _jobs: Callable[[], int] = field(default_factory=lambda: itertools.count().__next__)

    def job(self) -> TaskContextData:
        """Context of the batch's next job."""
        return TaskContextData(
            self.key,
            self.broadcast,
            self.sequence,
            self.store,
            self._jobs(),
            self.time_limit,
            self.time_floor,
            self.kept_ahead,
            self.too_late_before,
            self.steps,
            self.call_order,
        )

    def cut(self, places: int) -> int:
        """Cuts the batch into arrival steps about as long as the shortest pane, by what the batches before were like.

        Args:
            places: of the source in the batch, in the order in which tuples came.

        Returns:
            The number of steps, at most the setting `arrival_steps`; 1 where no window view needs them.
        """
        windows, most = self.program.windows, min(self.program.settings.arrival_steps, places)
        self.places, self.steps = places, 1
        if self.checkpoint is not None and windows is not None and windows.operators and most > 1:
            shortest = min(plan.pane for plan in windows.operators)
            self.steps = most if self.pace is None else max(1, min(most, ceil(self.pace * places / shortest)))
        return self.steps

    def run_behind(self, df: DataFrame, form: RecordForm = PLAIN) -> list[TaskReport]:
        """Derives the columns the plan needs and runs the map stage behind the frame, over records of a form."""
        return run_behind_dataframe(derive_packed(df, self.derived), self.program, self.job(), form)

    def run_aside(self, rows: DataFrame, aside: Sequence[SetAside]) -> list[TaskReport]:
        """Stages what is set aside, so that it is quarantined and told.

        Args:
            rows: see `rows_aside`.
            aside: the places.
        """
        told = self.run_behind(rows)
        told[0].set_aside.extend(aside)
        return told

    def files(self, df: DataFrame) -> list[str]:
        """The files that its frame is over; none where that cannot be known."""
        if self.checkpoint is None:
            return list(dict.fromkeys(map(unquote, df.inputFiles())))
        return files_of_batch(self.checkpoint, self.number) or []


#: told what a start is at, again and again while that takes long; what it raises ends the start
Progress = Callable[[str], None]


def untold(_: str) -> None:
    """Nobody asks what a start is at."""


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

    def prepare(self, layout: Layout, stream: str, events: EventLog, progress: Progress = untold) -> None:
        """Gets ready under a run's folders, before the first frame is asked for.

        Args:
            layout: the run's folders.
            stream: the stream's name.
            events: where the source tells what it notices by itself.
            progress: told what takes long.
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


class TimedSource(Source, Protocol):
    """A source whose event time may be stored as a number or as text."""

    def timed(self, times: StoredTimes) -> TimedSource:
        """The source with its event time as a TIMESTAMP."""
        ...


class SimpleSource:
    """What sources have in common that Spark alone follows: there is nothing to get ready, and nothing to end."""

    __slots__ = ()
    is_finite: ClassVar[bool] = False

    def prepare(self, layout: Layout, stream: str, events: EventLog, progress: Progress = untold) -> None:
        """Nothing to get ready."""

    def named(self, cause: Cause) -> Cause:
        """As it is."""
        return cause

    def exhausted(self) -> bool:
        """Spark sees all that there is."""
        return True

    def close(self) -> None:
        """Nothing to end."""


@dataclass(frozen=True, slots=True)
class DataFrameSource(SimpleSource):
    """Any streaming DataFrame.

    Attributes:
        schema: the tuple's columns.
        event_time: name of the event time column, or None.
        open: gives the streaming frame: the tuple's columns and, where the source tolerates
            malformed records, CORRUPT, REASON and ORIGIN.
        why: why the map stage cannot run in the scan.
        read: gives a frame like `open` over some files, with further options of Spark's reader; None where the source is none of files.
        kind: what such files are, as a reason says it.
        line_ends: bytes each of which ends a record of theirs; none where their records are no lines.
        form: of the records.
        stamp: column of the time at which Spark planned the tuple's batch, which `open` adds and `read` does not.
        reopen: gives frames like `open` of what was read before, of other sources; None where nobody can.
    """

    schema: StructType
    event_time: str | None
    open: Callable[[SparkSession], DataFrame]
    why: str
    read: Callable[[SparkSession, Sequence[str], Mapping[str, str]], DataFrame] | None = None
    kind: str = ""
    line_ends: bytes = b""
    form: RecordForm = PLAIN
    stamp: str | None = None
    reopen: Callable[[SparkSession, Past], Iterable[DataFrame]] | None = None

    def frame(self, spark: SparkSession) -> DataFrame:
        """The streaming frame."""
        return self.open(spark)

    def run(self, df: DataFrame, batch: BoundBatch) -> list[TaskReport]:
        """One job behind the frame, and one for files with lines that are too long; where files stop it, another one over the others."""
        paths = batch.files(df) if self.line_ends else []
        long = self._long(paths, batch)
        if long:
            return self._run_files(df.sparkSession, paths, long, batch)
        return self._run(self._of_batch(df, batch), lambda: batch.files(df), batch)

    def run_files(self, spark: SparkSession, paths: Sequence[str], batch: BoundBatch) -> list[TaskReport]:
        """Likewise over some files of a batch, where the source is one of files."""
        return self._run_files(spark, paths, self._long(paths, batch), batch)

    def again(self, spark: SparkSession, past: Past) -> Iterable[DataFrame]:
        """What was read before, where the source keeps it."""
        read = self.read
        if read is not None and self.stamp is None:
            return (read(spark, paths, {}) for paths in past.files())
        if self.reopen is None:
            raise CannotReadAgainError(f"{self.why}; Penstock reads such a source once")
        return self.reopen(spark, past)

    def place(self, derived: tuple[Derived, ...]) -> str:  # noqa: ARG002 - one place for every plan
        """Always behind the DataFrame."""
        return f"slower path: {self.why}"

    def timed(self, times: StoredTimes) -> DataFrameSource:
        """The source with its event time as a TIMESTAMP."""
        read, reopen = self.read, self.reopen
        return replace(
            self,
            schema=times.schema,
            open=lambda session: times.of(self.open(session)),
            read=read and (lambda session, paths, more: times.of(read(session, paths, more))),
            reopen=reopen and (lambda session, past: map(times.of, reopen(session, past))),
            form=replace(self.form, stored=self.form.stored or arrow_schema(times.stored)),
        )

    def of_fields(self, fields: StoredFields) -> DataFrameSource:
        """The source with its columns taken from inside its records."""
        read = self.read
        return replace(
            self,
            schema=fields.columns,
            open=lambda session: fields.of(self.open(session)),
            read=read and (lambda session, paths, more: fields.of(read(session, paths, more))),
            form=replace(self.form, columns=(), stored=arrow_schema(fields.stored), is_nested=True),
        )

    @property
    def _stored(self) -> StructType:
        """The columns of the files."""
        return self.schema if self.form.stored is None else spark_schema(self.form.stored)

    def _long(self, paths: Sequence[str], batch: BoundBatch) -> dict[str, list[LongLine]]:
        """The files with lines that are too long."""
        most = batch.program.settings.max_record_bytes
        return {path: lines for path in paths if (lines := long_lines(path, most, self.line_ends))}

    def _run_files(
        self,
        spark: SparkSession,
        paths: Sequence[str],
        long: Mapping[str, Sequence[LongLine]],
        batch: BoundBatch,
    ) -> list[TaskReport]:
        rest = [path for path in paths if path not in long]
        reports = self._run(self._read(spark, rest, batch), lambda: rest, batch) if rest else []
        if not long:
            return reports
        with whole_files(spark):
            bound = shorter_than(batch.program.settings.max_record_bytes)
            reports += self._run(
                self._read(spark, list(long), batch, bound), lambda: list(long), batch, bound
            )
        aside = [(each.beginning, TOO_LARGE, each.origin) for lines in long.values() for each in lines]
        return reports + batch.run_behind(records_aside(spark, self.schema, aside))

    def _of_batch(self, df: DataFrame, batch: BoundBatch) -> DataFrame:
        """The frame of a batch. Its files are read by their names where Spark would take those for patterns, and with
        arrival steps where they are cut into several: one read for each."""
        if batch.checkpoint is None:
            return df
        times = times_of_batch(batch.checkpoint, batch.number) or {}
        if times and self.stamp is None:
            batch.arrived_by = FILE
        if self.read is None:
            _refuse_signs(list(times))
            return df
        if self.stamp is not None or len(set(times.values())) < 2 or batch.cut(len(times)) < 2:
            return self._read(df.sparkSession, list(times), batch) if any(map(has_signs, times)) else df
        paths: dict[int, list[str]] = {}
        for path, step in zip(
            times, file_steps([(time, 1) for time in times.values()], batch.steps), strict=True
        ):
            paths.setdefault(step, []).append(path)
        frames = [
            self._read(df.sparkSession, own, batch).withColumn(ARRIVAL_STEP, F.lit(step))
            for step, own in paths.items()
        ]
        return reduce(DataFrame.unionAll, frames)

    def _read(
        self,
        spark: SparkSession,
        paths: Sequence[str],
        batch: BoundBatch,
        options: Mapping[str, str] = NO_OPTIONS,
    ) -> DataFrame:
        """A frame like `open` over files of a batch."""
        assert self.read is not None, "asked for sources of files"
        frame = self.read(spark, paths, options)
        if self.stamp is None or batch.checkpoint is None:
            return frame
        planned = F.lit(planned_at(batch.checkpoint, batch.number))
        return frame.withColumn(self.stamp, F.timestamp_millis(planned))

    def _run(
        self,
        frame: DataFrame,
        paths: Callable[[], list[str]],
        batch: BoundBatch,
        options: Mapping[str, str] = NO_OPTIONS,
    ) -> list[TaskReport]:
        """One job; where files cannot be read they are set aside, whole, and the others are answered.

        Args:
            frame: over the files.
            paths: gives the files.
            batch: the batch.
            options: that they are read with.
        """
        try:
            return batch.run_behind(frame, self.form)
        except (PySparkException, Py4JJavaError):
            if self.read is None:
                raise
            spark, every = frame.sparkSession, paths()
            found = offenders(every, lambda some: self._read(spark, some, batch, options))
            if not found:
                raise
        for path in found:
            check_folder(path)
        aside = [
            SetAside(
                path,
                None,
                rows_in_footer(path, self.kind),
                f"unreadable {self.kind} file: {in_types(path, why, self._stored)}",
            )
            for path, why in found.items()
        ]
        left = [path for path in every if path not in found]
        reports = batch.run_behind(self._read(spark, left, batch, options), self.form) if left else []
        return reports + batch.run_aside(rows_aside(spark, self.schema, aside), aside)


def _refuse_signs(paths: Sequence[str]) -> None:
    """Makes sure that Spark reads each file of a batch of somebody's streaming DataFrame once.

    Raises:
        InputError: the name of one is a pattern to Spark, for which it would read the others again.
    """
    named = next(filter(has_signs, paths), None)
    if named is not None and len(paths) > 1:
        raise InputError(
            f"File {named} has a name that Spark reads as a pattern, so it would read other files of the batch twice. Rename "
            "the file, or declare its folder with CREATE TABLE, which allows such names."
        )


def stamped(source: DataFrameSource, column: str) -> DataFrameSource:
    """A source whose tuples have one more column, their event time: when Spark planned the batch that brought them.

    Spark keeps that with the batch's offsets, so that a repeated batch has the time it had. What is read again outside a batch has none: such a
    source is read once.

    Args:
        source: without such a column, and without an event time.
        column: the new one's name.
    """
    return replace(
        source,
        schema=StructType([*source.schema.fields]).add(column, TimestampType()),
        event_time=column,
        open=lambda session: source.open(session).withColumn(column, F.current_timestamp()),
        why="Penstock adds the arrival time to each tuple",
        stamp=column,
        reopen=None,
    )
