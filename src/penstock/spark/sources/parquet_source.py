"""Parquet folders: Spark's file stream hands over paths, the map stage runs in the scan.

Spark reads files whose columns have other types than the stream's (widened types, INT96, ...) in the same batch. Files that
lack columns remain in the scan, with NULL. What nobody can read, a row group or a whole file, goes to the quarantine by its
place; all other row groups are answered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from penstock.monitor.figures import counted
from penstock.operators.ingest.arrivals import FILE
from penstock.operators.windows.arrival_steps import file_steps
from penstock.plan.expressions import Derived
from penstock.spark.analysis.schemas import arrow_schema
from penstock.spark.sessions.file_systems import is_left_to_spark, object_address
from penstock.spark.sources.event_times import StoredTimes
from penstock.spark.sources.offenders import CHECKED, NONE_PASSED_OVER, offenders, rows_aside, why_not
from penstock.spark.sources.parquet_rescue import UNREADABLE, in_types, rescue
from penstock.spark.sources.patterns import by_name, is_pattern, table_path
from penstock.spark.sources.source import BoundBatch, SimpleSource
from penstock.spark.storage.offsets import files_of_batch
from penstock.spark.storage.past import Past
from penstock.spark.tasks.dataframe_stage import ARRIVAL_STEP
from penstock.spark.tasks.parquet_files import (
    RowGroup,
    Stamp,
    missing_columns,
    open_parquet,
    open_settled,
    other_kind,
    readable_in_scan,
    row_groups,
)
from penstock.spark.tasks.scan_stage import run_in_scan, split
from penstock.spark.tasks.worker import SetAside, TaskReport
from penstock.stores.object_reader import names_below

#: the one schema Spark's binaryFile source has; only the path is read
_PATHS = "path STRING, modificationTime TIMESTAMP, length BIGINT, content BINARY"
#: what Spark does with dates before 1582 in files that do not say which Spark wrote them
_REBASE_MODE = "spark.sql.parquet.datetimeRebaseModeInRead"
#: tasks a core, so that an uneven split still keeps every core busy
_TASKS_A_CORE = 2
#: below this many rows a task its start costs more than it gains
_LEAST_ROWS_A_TASK = 50_000
#: ... but for cores that have nothing else to do, and for files, which are opened one after the other; each task writes its own files
_LEAST_ROWS_A_CORE, _LEAST_GROUPS_A_CORE = 2_000, 8


@dataclass(frozen=True, slots=True)
class ParquetSource(SimpleSource):
    """A folder of Parquet files, read in the scan where plan and file allow it.

    Attributes:
        schema: the tuple's columns.
        event_time: name of the event time column, or None.
        path: the folder.
        options: Spark's options for a file stream.
        in_scan: False keeps the map stage behind the DataFrame.
        times: how the event time is stored; None: as a timestamp.
    """

    schema: StructType
    event_time: str | None
    path: str
    options: Mapping[str, str]
    in_scan: bool = True
    times: StoredTimes | None = None

    def timed(self, times: StoredTimes) -> ParquetSource:
        """The source with its event time as a TIMESTAMP."""
        return replace(self, schema=times.schema, times=times)

    def frame(self, spark: SparkSession) -> DataFrame:
        """One row a new file: its path."""
        reader = spark.readStream.format("binaryFile").schema(_PATHS).options(**dict(self.options))
        return reader.load(table_path(self.path)).select("path")

    def run(self, df: DataFrame, batch: BoundBatch) -> list[TaskReport]:
        """One job in the scan, one behind a DataFrame for the files that need it."""
        batch.arrived_by = FILE
        expected = arrow_schema(self._stored)
        as_they_are = df.sparkSession.conf.get(_REBASE_MODE, "CORRECTED") == "CORRECTED"
        groups: list[RowGroup] = []
        behind: list[str] = []
        doubtful: list[str] = []
        scans = self._scans(batch.derived)
        rows: dict[str, int] = {}
        # Spark passes over what is no file, and FileWatch reports it
        for path in (each for each in _paths(df, batch) if other_kind(each) is None):
            opened = open_settled(path, batch.program.settings.settle_seconds)
            if opened is None:
                doubtful.append(path)
                continue
            if opened[0] is not None:
                batch.stamps[path] = opened[0]
            rows[path] = opened[1].metadata.num_rows
            if scans and readable_in_scan(opened[1], expected, others_as_they_are=as_they_are):
                missing = missing_columns(opened[1], expected)
                groups += row_groups(path, opened[0], opened[1].metadata, missing)
            else:
                behind.append(path)
        steps = {} if doubtful else _steps(rows, batch)
        reports: list[TaskReport] = []
        if scanned := sum(group.rows for group in groups):
            cores = df.sparkSession.sparkContext.defaultParallelism
            wanted = max(-(-scanned // _LEAST_ROWS_A_CORE), -(-len(groups) // _LEAST_GROUPS_A_CORE))
            least = min(cores, wanted)
            tasks = min(cores * _TASKS_A_CORE, max(least, scanned // _LEAST_ROWS_A_TASK))
            times = self.times.epoch if self.times is not None else None
            address = object_address(self.path)
            store = () if address is None else tuple(sorted(address.configuration().items()))
            groups = [
                replace(group, step=steps.get(group.path, 0), times=times, store=store) for group in groups
            ]
            reports += run_in_scan(df.sparkSession, split(groups, tasks), batch.job())
        return reports + self._run_behind(df.sparkSession, behind, doubtful, batch, steps)

    def again(self, spark: SparkSession, past: Past) -> Iterable[DataFrame]:
        """The paths of the files that were read before."""
        for paths in past.files():
            yield spark.createDataFrame([(path,) for path in paths], "path STRING")

    def place(self, derived: tuple[Derived, ...]) -> str:
        """In the scan unless a view needs a column that only Spark computes."""
        if not self.in_scan:
            return "slower path: the setting map_in_scan is off"
        if derived:
            return f"slower path: Spark computes {counted(len(derived), 'expression')}, such as {derived[0].expression}"
        if not self._reads_times:
            return "slower path: only Spark reads the format of the event time"
        return "fast path: Python workers read the compared columns of the Parquet files"

    def _scans(self, derived: tuple[Derived, ...]) -> bool:
        return self.in_scan and not derived and self._reads_times

    @property
    def _reads_times(self) -> bool:
        """Whether the worker can read the event time itself."""
        return self.times is None or self.times.epoch is not None

    @property
    def _stored(self) -> StructType:
        """The columns of the files."""
        return self.schema if self.times is None else self.times.stored

    def _run_behind(
        self,
        spark: SparkSession,
        readable: list[str],
        doubtful: list[str],
        batch: BoundBatch,
        steps: Mapping[str, int],
    ) -> list[TaskReport]:
        """One job over what Spark can read, and one for what is set aside.

        Args:
            spark: the session.
            readable: files with a footer.
            doubtful: files whose footer pyarrow cannot read.
            batch: the batch.
            steps: the arrival steps of its files, if it has several.
        """

        def read(paths: Sequence[str]) -> DataFrame:
            return self._read(spark, paths, lambda frame: _stepped(frame, steps, batch))

        bad = {
            path: reason for path in doubtful if (reason := why_not(self._read(spark, [path]))) is not None
        }
        readable = [*readable, *(path for path in doubtful if path not in bad)]
        reports: list[TaskReport] = []
        try:
            if readable:
                reports += batch.run_behind(read(readable))
        except (PySparkException, Py4JJavaError):
            found = offenders(readable, lambda paths: self._read(spark, paths))
            if not found:
                raise
            bad.update(found)
            readable = [path for path in readable if path not in found]
        aside: list[SetAside] = []
        copies: list[str] = []
        for path, why in bad.items():
            reason = in_types(path, why, self._stored)
            copy, lost = rescue(path, reason, self.schema.fieldNames(), batch.store.local)
            if copy is not None and (reason_of_copy := why_not(self._read(spark, [copy]))) is not None:
                rows = open_parquet(path).metadata.num_rows
                reason = in_types(path, reason_of_copy, self._stored)
                copy, lost = None, [SetAside(path, None, rows, f"{UNREADABLE}: {reason}")]
            copies += [] if copy is None else [copy]
            aside += lost
        left = copies if reports else [*readable, *copies]
        if left:
            reports += batch.run_behind(read(left))
        if aside:
            reports += batch.run_aside(rows_aside(spark, self.schema, aside), aside)
        return reports

    def _read(
        self,
        spark: SparkSession,
        paths: Sequence[str],
        more: Callable[[DataFrame], DataFrame] = lambda frame: frame,
    ) -> DataFrame:
        reader = spark.read.schema(self._stored).options(**NONE_PASSED_OVER, **CHECKED)
        frame = more(reader.parquet(*by_name(paths)))
        return frame if self.times is None else self.times.of(frame)


def _steps(rows: Mapping[str, int], batch: BoundBatch) -> dict[str, int]:
    """The arrival steps of a batch's files, by their times; all of a file has come at once.

    Args:
        rows: of each file.
        batch: the batch, with the files' stamps.

    Returns:
        The step of each file; nothing where the batch has but one.
    """
    if any(path not in batch.stamps for path in rows) or batch.cut(sum(rows.values())) < 2:
        return {}
    found = file_steps([(_milliseconds(batch.stamps[path]), own) for path, own in rows.items()], batch.steps)
    return dict(zip(rows, found, strict=True))


def _milliseconds(stamp: Stamp) -> int:
    """The time of the last modification as Spark knows it."""
    return stamp.modified_ns // 1_000_000


def _stepped(frame: DataFrame, steps: Mapping[str, int], batch: BoundBatch) -> DataFrame:
    """Rows of files of a batch with their arrival steps, if it has several; files of other times are of the last."""
    if not steps:
        return frame
    last: dict[int, int] = {}
    for path, step in steps.items():
        last[step] = max(last.get(step, 0), _milliseconds(batch.stamps[path]))
    time = F.unix_millis(F.col("_metadata.file_modification_time"))
    column = F.when(F.lit(False), F.lit(0))
    for step, moment in sorted(last.items()):
        column = column.when(time <= moment, F.lit(step))
    return frame.withColumn(ARRIVAL_STEP, column.otherwise(F.lit(batch.steps - 1)))


def _paths(df: DataFrame, batch: BoundBatch) -> list[str]:
    """The files of a batch: as Spark has planned it, where that is known, so that none that is gone by now is passed over."""
    planned = None if batch.checkpoint is None else files_of_batch(batch.checkpoint, batch.number)
    if planned is not None:
        return [path.replace("file:///", "file:/", 1) for path in planned]
    # where a batch has files with characters such as # or % in their names, Spark lists some several times
    return list(dict.fromkeys(row.path for row in df.coalesce(1).collect()))


def is_plain_folder(path: str) -> bool:
    """Whether a path is one local folder without partition folders (`key=value`), whose names become columns."""
    folder = Path(path.removeprefix("file://").removeprefix("file:"))
    return folder.is_dir() and not any("=" in entry.name for entry in folder.rglob("*") if entry.is_dir())


def is_plain_prefix(path: str) -> bool:
    """Whether a path, as its user wrote it, is a prefix of objects without partition folders; none that is left to Spark is."""
    address = object_address(path)
    if address is None or is_pattern(path) or is_left_to_spark(path):
        return False
    return not any("=" in name.rpartition("/")[0] for name in names_below(address))
