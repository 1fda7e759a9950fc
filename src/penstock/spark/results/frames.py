"""Published files as frames."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType, TimestampNTZType

from penstock.spark.analysis.catalyst import empty_frame
from penstock.spark.sessions.file_systems import hadoop_path
from penstock.spark.storage.store_paths import StorePath

#: Spark neither passes over files without a word nor takes a name for a pattern, neither when it looks for the files nor when it
#: lists them: without the lookup each file in a folder called `a[1]` counts once for each of its neighbours
_EXACTLY = {
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    "__globPaths__": "false",
    "recursiveFileLookup": "true",
    "parquet.page.verify-checksum.enabled": "true",
}
_DAY = 86_400_000_000


def moment(time: int, kind: DataType) -> Column:
    """A time in microseconds, as a constant of one of the timestamp types."""
    if not isinstance(kind, TimestampNTZType):
        return F.timestamp_micros(F.lit(time))
    days, rest = divmod(time, _DAY)
    length = F.make_dt_interval(F.lit(days), F.lit(0), F.lit(0), F.lit(Decimal(rest) / 1_000_000))
    return F.lit("1970-01-01").cast("timestamp_ntz") + length


def published_frame(spark: SparkSession, schema: StructType, paths: Iterable[str | StorePath]) -> DataFrame:
    """The rows of published files. Evaluated within `replaced_seconds` it has them all, whatever was merged since.

    Args:
        spark: the session.
        schema: the columns; one that a file lacks is NULL.
        paths: the files; none of them: a frame without rows.
    """
    names = [hadoop_path(str(path)) for path in paths]
    if not names:
        return empty_frame(spark, schema)
    return spark.read.schema(schema).options(**_EXACTLY).parquet(*names)
