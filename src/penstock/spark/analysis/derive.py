"""Columns that Spark computes from each row before Python sees it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, reduce

from pyspark import SparkContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.operators.ingest.derived import NULL, RAISED, WORD_CODES, DerivedLayout
from penstock.plan.expressions import Derived
from penstock.spark.analysis.gate import boxed, computed, tried
from penstock.spark.analysis.rows_alone import rows_alone

#: with more packed codes than this, code that Spark fuses is too long for HotSpot to compile
FUSED_CODES = 32


def derive(df: DataFrame, derived: Sequence[Derived]) -> DataFrame:
    """Adds derived columns to a frame, and the error columns of those that may raise.

    A row that makes an expression with an `error_column` raise gets NULL and True there; the job goes on. So does a row at which a
    user's function raises, see `rows_alone`. What a function is given is computed before and outside of the try form: what is raised
    there stops the job, as a function does that takes iterators.
    """
    if not derived:
        return df
    scalars, values = _scalars(df.sparkSession.sparkContext, tuple(derived))
    errors = [
        F.col(_quoted(each.name)).isNull().alias(each.error_column) for each in derived if each.error_column
    ]
    existing = _named(df.sparkSession.sparkContext, tuple(df.columns))
    return df.select("*", *scalars).select(*existing, *values, *errors)


def derive_packed(df: DataFrame, derived: Sequence[Derived]) -> DataFrame:
    """Adds derived columns as `derive` does, in the columns that `DerivedLayout.unpack` takes.

    Many packed booleans turn whole-stage code generation off in the frame's session, which in
    `foreachBatch` is the streaming query's own.
    """
    if not derived:
        return df
    spark = df.sparkSession
    layout = DerivedLayout.of(derived)
    if len(layout.booleans) > FUSED_CODES:
        spark.conf.set("spark.sql.codegen.wholeStage", "false")
    scalars, values = _scalars(spark.sparkContext, layout.scalars)
    booleans, errors = _packed(spark.sparkContext, layout)
    existing = _named(spark.sparkContext, tuple(df.columns))
    words = _named(spark.sparkContext, tuple(layout.boolean_words))
    return df.select("*", *scalars, *booleans).select(*existing, *values, *words, *errors)


# Columns below are unresolved, so those made for one binding serve each of its batches.


@lru_cache(maxsize=64)
def _named(context: SparkContext, names: tuple[str, ...]) -> list[Column]:  # noqa: ARG001 - columns live in its JVM
    return [F.col(_quoted(name)) for name in names]


@lru_cache(maxsize=16)
def _scalars(context: SparkContext, derived: tuple[Derived, ...]) -> tuple[list[Column], list[Column]]:
    """What is computed from a tuple, and each expression's value in that."""
    spark = SparkSession(context)
    scalars, values = [], []
    for each in derived:
        if each.error_column is None:
            scalars.append(computed(spark, each.expression).alias(each.name))
            values.append(F.col(_quoted(each.name)))
        else:
            scalars.append(boxed(spark, rows_alone(spark, each.expression)).alias(each.name))
            values.append(F.col(_quoted(each.name)).getField("v").alias(each.name))
    return scalars, values


@lru_cache(maxsize=16)
def _packed(context: SparkContext, layout: DerivedLayout) -> tuple[list[Column], list[Column]]:
    """The words of the booleans, and those of the scalars' error flags."""
    spark = SparkSession(context)
    raised = [
        F.when(F.col(_quoted(each.name)).isNull(), F.lit(RAISED).cast("bigint")).otherwise(
            F.lit(0).cast("bigint")
        )
        for each in layout.raising
    ]
    return (
        _words([_code(spark, each) for each in layout.booleans], layout.boolean_words),
        _words(raised, layout.error_words),
    )


def _code(spark: SparkSession, boolean: Derived) -> Column:
    expression = boolean.expression
    if boolean.error_column is not None:
        expression = rows_alone(spark, expression)
    code = f"coalesce(CAST(({expression}\n) AS BIGINT), {NULL}L)"
    if boolean.error_column is None:
        return computed(spark, code)
    return F.coalesce(tried(spark, code), F.lit(RAISED).cast("bigint"))


def _words(codes: Sequence[Column], names: Sequence[str]) -> list[Column]:
    return [
        reduce(
            Column.bitwiseOR,
            (
                F.shiftleft(code, 2 * place)
                for place, code in enumerate(codes[number * WORD_CODES : (number + 1) * WORD_CODES])
            ),
        ).alias(name)
        for number, name in enumerate(names)
    ]


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
