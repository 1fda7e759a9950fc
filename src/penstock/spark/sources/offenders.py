"""Files that stop Spark's readers: whether a failure is the files' fault, and which of them it is."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pyarrow.orc as orc
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from penstock.spark.recovery.causes import cause_of, trace_of
from penstock.spark.tasks.dataframe_stage import CORRUPT, ORIGIN, REASON
from penstock.spark.tasks.parquet_files import READ_ERRORS, local_path, open_parquet, other_kind
from penstock.spark.tasks.worker import SetAside

#: what files are called in reasons
PARQUET, ORC = "Parquet", "ORC"
#: Spark does not pass over files without a word
NONE_PASSED_OVER = {"ignoreCorruptFiles": "false", "ignoreMissingFiles": "false"}
#: what Spark is told of pages with a checksum, which it passes over by itself
CHECKED = {"parquet.page.verify-checksum.enabled": "true"}

#: what Spark says where a file's content, or its absence, is at fault. Values of a dictionary are looked up behind the
#: reader that names the file: an index beyond it is a task's exception of any kind, without a trace once it came often
_OF_FILES = re.compile(
    r"FAILED_READ_FILE|PATH_NOT_FOUND|CANNOT_READ_FILE_FOOTER|INCONSISTENT_BEHAVIOR_CROSS_VERSION"
    r"|most recent failure: Lost task "
)
#: causes that leave the files at fault: all others say what else is
_LEFT = ("failed", "file_missing")


def fault_of_files(error: BaseException) -> str | None:
    """Why a job that only reads files failed, or None where something else than the files is at fault."""
    cause = cause_of(error)
    return cause.told if cause.kind in _LEFT and _OF_FILES.search(trace_of(error)) else None


def why_not(frame: DataFrame) -> str | None:
    """Why Spark cannot read all columns of files, or None where it can.

    Args:
        frame: over files, without anything computed from them.

    Raises:
        PySparkException, Py4JJavaError: something else than the files is at fault.
    """
    try:
        frame.write.format("noop").mode("overwrite").save()
    except (PySparkException, Py4JJavaError) as error:
        reason = fault_of_files(error)
        if reason is None:
            raise
        return reason
    return None


def rows_aside(spark: SparkSession, schema: StructType, aside: Sequence[SetAside]) -> DataFrame:
    """What is set aside as records that nobody could read, for the map stage behind a DataFrame."""
    return records_aside(spark, schema, [(None, each.reason, each.origin) for each in aside])


def records_aside(
    spark: SparkSession, schema: StructType, records: Sequence[tuple[bytes | None, str, str]]
) -> DataFrame:
    """Likewise of records: (bytes, reason, origin) of each."""
    broken = spark.createDataFrame(records, f"{CORRUPT} BINARY, {REASON} STRING, {ORIGIN} STRING")
    columns = [F.lit(None).cast(field.dataType).alias(field.name) for field in schema]
    return broken.select(*columns, CORRUPT, REASON, ORIGIN)


def offenders(paths: Sequence[str], read: Callable[[Sequence[str]], DataFrame]) -> dict[str, str]:
    """The files that cannot be read, by halving the list.

    Args:
        paths: the files.
        read: a frame over some of them.

    Returns:
        The reason of each.
    """
    reason = why_not(read(paths)) if paths else None
    if reason is None:
        return {}
    if len(paths) == 1:
        return {paths[0]: reason}
    middle = len(paths) // 2
    return {**offenders(paths[:middle], read), **offenders(paths[middle:], read)}


def rows_in_footer(uri: str, kind: str) -> int | None:
    """How many rows the footer of a file says it has; None where it has none that can be read.

    Args:
        uri: the file's URI.
        kind: Parquet, ORC or another.
    """
    path, rows = local_path(uri), None
    try:
        if kind == PARQUET:
            rows = open_parquet(uri).metadata.num_rows
        elif kind == ORC and path is not None and other_kind(uri) is None:
            rows = orc.ORCFile(path).nrows
    except READ_ERRORS:
        return None
    return rows
