"""The few places where Penstock reaches past PySpark's API into the JVM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import StructType

_SEPARATOR = "\x1f"


def java_class(spark: SparkSession, name: str) -> Any:
    """A class of the JVM by its full name.

    Of `spark._jvm.org.apache...` each package on the way is looked for as a class, in every jar, and the first one also in
    all packages that PySpark imports.
    """
    return getattr(spark._jvm, name)


def text_array(spark: SparkSession, texts: Sequence[str]) -> Any:
    """A Java `String[]` in a few round trips, however many texts."""
    pattern = java_class(spark, "java.util.regex.Pattern")
    return pattern.compile(_SEPARATOR, pattern.LITERAL).split(_SEPARATOR.join(texts), -1)


def try_form(spark: SparkSession, expression: str) -> Column:
    """A column that is NULL where the expression raises.

    The expression sits behind a condition that is always true and that Spark cannot know to be.
    Else Spark computes what several expressions share before any of them, outside their try forms,
    and what is raised there stops the job (measured on 4.3.0).
    """
    parser = spark._jsparkSession.sessionState().sqlParser()
    guarded = parser.parseExpression(f"if(spark_partition_id() >= 0, {expression}, NULL)")
    caught = java_class(spark, "org.apache.spark.sql.catalyst.expressions.TryEval")(guarded)
    return Column(java_class(spark, "org.apache.spark.sql.classic.ExpressionUtils").column(caught))


def empty_frame(spark: SparkSession, schema: StructType) -> DataFrame:
    """A frame without rows, made without Python workers, whose plan the optimiser does not see to be empty."""
    session: Any = spark._jsparkSession
    rows: Any = spark.sparkContext._jsc
    return DataFrame(session.createDataFrame(rows.emptyRDD(), session.parseDataType(schema.json())), spark)
