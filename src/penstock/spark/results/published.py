"""Published files as a frame."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from penstock.spark.analysis.catalyst import empty_frame

#: Spark takes no name for a pattern, neither when it looks for the files nor when it lists them: without the second each file
#: in a folder called `a[1]` counts once for each of its neighbours
_BY_NAME = {"__globPaths__": "false", "recursiveFileLookup": "true"}


def published_frame(spark: SparkSession, schema: StructType, paths: Iterable[str | Path]) -> DataFrame:
    """The rows of Parquet files that were listed, whatever their names; no rows without a file.

    Args:
        spark: the session.
        schema: the files' columns.
        paths: names of files, none of them a pattern.
    """
    names = [str(path) for path in paths]
    if not names:
        return empty_frame(spark, schema)
    return spark.read.options(**_BY_NAME).schema(schema).parquet(*names)
