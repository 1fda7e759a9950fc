"""Published files as frames."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

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
