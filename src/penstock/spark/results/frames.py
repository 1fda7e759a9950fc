"""Published files as frames."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from penstock.spark.analysis.catalyst import empty_frame

#: Spark neither passes over files without a word nor takes a name for a pattern, and looks at the checksums of pages
_EXACTLY = {
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    "__globPaths__": "false",
    "parquet.page.verify-checksum.enabled": "true",
}


def published_frame(spark: SparkSession, schema: StructType, paths: Sequence[Path]) -> DataFrame:
    """The rows of published files. Evaluated within `replaced_seconds` it has them all, whatever was merged since.

    Args:
        spark: the session.
        schema: the columns; one that a file lacks is NULL.
        paths: the files; none of them: a frame without rows.
    """
    if not paths:
        return empty_frame(spark, schema)
    return spark.read.schema(schema).options(**_EXACTLY).parquet(*map(str, paths))
