"""Arguments of users' functions as the worker gives them."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import SparkSession

from penstock.plan.calls import Argument
from penstock.spark.analysis.gate import computed


def argument(spark: SparkSession, given: Argument) -> str | pa.Scalar:
    """The name of a column, or the value of a constant."""
    if given.column is not None:
        return given.column
    return spark.range(1).select(computed(spark, given.constant or "")).toArrow().column(0)[0]


def given_type(kind: pa.DataType, zone: str) -> pa.DataType:
    """The type in which Spark hands a column to a function: moments are told by the session's clock."""
    return pa.timestamp("us", zone) if pa.types.is_timestamp(kind) and kind.tz is not None else kind
