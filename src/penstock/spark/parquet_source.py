"""Parquet folders: Spark's file stream hands over paths, the map stage runs in the scan.

Files whose columns are not exactly the stream's (missing columns, widened types, INT96, ...) are
read by Spark in the same batch; a file that nobody can read goes to the quarantine by its path.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from penstock.plan.expressions import Derived
from penstock.spark.dataframe_stage import CORRUPT, ORIGIN, REASON
from penstock.spark.layout import Layout
from penstock.spark.messages import first_line
from penstock.spark.past import Past
from penstock.spark.scan_stage import open_parquet, readable_in_scan, run_in_scan, split
from penstock.spark.schemas import arrow_schema
from penstock.spark.source import BoundBatch
from penstock.spark.worker import TaskReport

#: the one schema Spark's binaryFile source has; only the path is read
_PATHS = "path STRING, modificationTime TIMESTAMP, length BIGINT, content BINARY"
#: what Spark does with dates before 1582 in files that do not say which Spark wrote them
_REBASE_MODE = "spark.sql.parquet.datetimeRebaseModeInRead"
#: tasks a core, so that an uneven split still keeps every core busy
_TASKS_A_CORE = 2
#: below this many rows a task its start costs more than it gains
_LEAST_ROWS_A_TASK = 50_000


@dataclass(frozen=True, slots=True)
class ParquetSource:
    """A folder of Parquet files, read in the scan where plan and file allow it.

    Attributes:
        schema: the tuple's columns.
        event_time: name of the event time column, or None.
        path: the folder.
        options: Spark's options for a file stream.
        in_scan: False keeps the map stage behind the DataFrame.
    """

    is_finite: ClassVar[bool] = False
    schema: StructType
    event_time: str | None
    path: str
    options: Mapping[str, str]
    in_scan: bool = True

    def prepare(self, layout: Layout, stream: str) -> None:
        """Nothing to get ready."""

    def frame(self, spark: SparkSession) -> DataFrame:
        """One row a new file: its path."""
        reader = spark.readStream.format("binaryFile").schema(_PATHS).options(**dict(self.options))
        return reader.load(self.path).select("path")

    def run(self, df: DataFrame, batch: BoundBatch) -> list[TaskReport]:
        """One job in the scan, one behind a DataFrame for the files that need it."""
        expected = arrow_schema(self.schema)
        as_they_are = df.sparkSession.conf.get(_REBASE_MODE, "CORRECTED") == "CORRECTED"
        exact: list[tuple[str, pq.FileMetaData]] = []
        other: list[str] = []
        for row in df.coalesce(1).collect():
            metadata = _exact_metadata(row.path, expected, others_as_they_are=as_they_are)
            if metadata is None:
                other.append(row.path)
            else:
                exact.append((row.path, metadata))
        reports: list[TaskReport] = []
        behind = []
        if not self._scans(batch.derived):
            behind = [path for path, _ in exact]
        elif rows := sum(metadata.num_rows for _, metadata in exact):
            cores = df.sparkSession.sparkContext.defaultParallelism
            tasks = min(cores * _TASKS_A_CORE, max(cores, rows // _LEAST_ROWS_A_TASK))
            reports += run_in_scan(df.sparkSession, split(exact, tasks), batch.job())
        return reports + self._run_behind(df.sparkSession, behind, other, batch)

    def again(self, spark: SparkSession, past: Past) -> Iterable[DataFrame]:
        """The paths of the files that were read before."""
        for paths in past.files():
            yield spark.createDataFrame([(path,) for path in paths], "path STRING")

    def place(self, derived: tuple[Derived, ...]) -> str:
        """In the scan unless a view needs a column that only Spark computes."""
        if not self.in_scan:
            return "behind the DataFrame: map_in_scan is off"
        if derived:
            return f"behind the DataFrame: {len(derived)} expressions are computed by Spark, first {derived[0].expression}"
        return "in the scan: every compared expression is a column of the Parquet files"

    def exhausted(self) -> bool:
        """Spark sees every file that is there."""
        return True

    def close(self) -> None:
        """Nothing to end."""

    def _scans(self, derived: tuple[Derived, ...]) -> bool:
        return self.in_scan and not derived

    def _run_behind(
        self, spark: SparkSession, readable: list[str], doubtful: list[str], batch: BoundBatch
    ) -> list[TaskReport]:
        aside = []
        for path in doubtful:
            reason = self._unreadable(spark, path)
            if reason is None:
                readable.append(path)
            else:
                aside.append((None, reason, path))
        reports: list[TaskReport] = []
        if readable:
            reports += batch.run_behind(self._read(spark, readable))
        if aside:
            broken = spark.createDataFrame(aside, f"{CORRUPT} BINARY, {REASON} STRING, {ORIGIN} STRING")
            columns = [F.lit(None).cast(field.dataType).alias(field.name) for field in self.schema]
            reports += batch.run_behind(broken.select(*columns, CORRUPT, REASON, ORIGIN))
        return reports

    def _read(self, spark: SparkSession, paths: list[str]) -> DataFrame:
        return spark.read.schema(self.schema).parquet(*paths)

    def _unreadable(self, spark: SparkSession, path: str) -> str | None:
        try:
            self._read(spark, [path]).write.format("noop").mode("overwrite").save()
        except PySparkException as error:
            return f"unreadable Parquet file: {error.getCondition() or first_line(error)}"
        except Py4JJavaError as error:
            return f"unreadable Parquet file: {error.java_exception.getMessage()}"
        return None


def _exact_metadata(path: str, expected: pa.Schema, *, others_as_they_are: bool) -> pq.FileMetaData | None:
    try:
        file = open_parquet(path)
    except (OSError, pa.ArrowException):
        return None
    as_spark = readable_in_scan(file, expected, others_as_they_are=others_as_they_are)
    return file.metadata if as_spark else None


def is_plain_folder(path: str) -> bool:
    """Whether a path is one local folder without partition folders (`key=value`), whose names become columns."""
    folder = Path(path.removeprefix("file://").removeprefix("file:"))
    return folder.is_dir() and not any("=" in entry.name for entry in folder.rglob("*") if entry.is_dir())
