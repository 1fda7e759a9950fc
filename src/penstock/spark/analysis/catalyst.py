"""The few places where Penstock reaches past PySpark's API into Catalyst."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import StructType

_SEPARATOR = "\x1f"


def text_array(spark: SparkSession, texts: Sequence[str]) -> Any:
    """A Java `String[]` in a few round trips, however many texts."""
    pattern: Any = spark._jvm.java.util.regex.Pattern  # type: ignore[union-attr]
    return pattern.compile(_SEPARATOR, pattern.LITERAL).split(_SEPARATOR.join(texts), -1)


def try_form(spark: SparkSession, expression: str) -> Column:
    """A column that is NULL where the expression raises.

    The expression sits behind a condition that is always true and that Spark cannot know to be.
    Else Spark computes what several expressions share before any of them, outside their try forms,
    and what is raised there stops the job (measured on 4.3.0).
    """
    jvm: Any = spark._jvm
    parser = spark._jsparkSession.sessionState().sqlParser()
    guarded = parser.parseExpression(f"if(spark_partition_id() >= 0, {expression}, NULL)")
    caught = jvm.org.apache.spark.sql.catalyst.expressions.TryEval(guarded)
    return Column(jvm.org.apache.spark.sql.classic.ExpressionUtils.column(caught))


def empty_frame(spark: SparkSession, schema: StructType) -> DataFrame:
    """A frame without rows, made without Python workers, whose plan the optimiser does not see to be empty."""
    session: Any = spark._jsparkSession
    rows: Any = spark.sparkContext._jsc
    return DataFrame(session.createDataFrame(rows.emptyRDD(), session.parseDataType(schema.json())), spark)
