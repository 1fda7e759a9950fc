"""Tables that Spark's own queries are over, in one partition: no query over them exchanges rows, and each is one task."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession


def in_one_partition(spark: SparkSession, table: pa.Table) -> DataFrame:
    """A table as a frame of one partition."""
    return spark.createDataFrame(table).coalesce(1)


def tuples_of(folder: Path) -> pa.Table:
    """What the Parquet files of a folder hold."""
    return pa.concat_tables([pq.read_table(path) for path in sorted(folder.glob("*.parquet"))])


def frames_of(
    spark: SparkSession, views: Mapping[str, str], others: Collection[str] = ()
) -> dict[str, DataFrame]:
    """What Spark says of texts, each a temporary view for those after it and for other texts, which do not compute it again."""
    frames = {}
    texts = [*views.values(), *others]
    for place, (name, text) in enumerate(views.items()):
        frame = spark.sql(text)
        if any(re.search(rf"\b{name}\b", later) for later in texts[place + 1 :]):
            frame = frame.cache()
        frame.createOrReplaceTempView(name)
        frames[name] = frame
    return frames
