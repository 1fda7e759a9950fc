"""Columns that Spark computes from each row before Python sees it."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name Spark's documentation uses

from penstock.plan.expressions import Derived
from penstock.spark.catalyst import try_form


def derive(df: DataFrame, derived: Sequence[Derived]) -> DataFrame:
    """Adds derived columns to a frame.

    A row that makes an expression with an `error_column` raise gets NULL and True there; the job
    goes on. Python functions inside an expression run outside of it: what they raise stops the job.
    """
    spark = df.sparkSession
    tried = {each.name: try_form(spark, each.expression) for each in derived if each.error_column}
    wide = df.select("*", *(column.alias(name) for name, column in tried.items()))
    columns = []
    for each in derived:
        if each.error_column:
            columns.append(F.col(each.name).getField("v").alias(each.name))
            columns.append(F.col(each.name).isNull().alias(each.error_column))
        else:
            columns.append(F.expr(each.expression).alias(each.name))
    return wide.select(*df.columns, *columns)
