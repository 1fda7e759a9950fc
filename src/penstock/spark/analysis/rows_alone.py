"""Calls of users' functions within expressions that Spark computes, so that a row at which one raises costs that row alone.

Spark calls Python before and outside of the expression, so no try form reaches there. Each function is therefore registered a second time:
that one tells for each row a value or what was raised. Where a row has no value, the expression raises, in its own try form.
"""

from __future__ import annotations

from functools import partial

from pyspark.sql import SparkSession

from penstock.spark.analysis.catalyst import java_class
from penstock.spark.analysis.functions import is_spark_s
from penstock.sql.text.rewritten_calls import rewritten_calls

#: begins the name of the second registration
_PREFIX = "penstock_rows_of_"
#: the members of what it returns: the value of the function, or what was raised in its place
VALUE, ERROR = "penstock_value", "penstock_error"
_IDENTIFIER = "org.apache.spark.sql.catalyst.FunctionIdentifier"


def registered_name(function: str) -> str:
    """The name of the second registration of a function."""
    return f"{_PREFIX}{function}"


def rows_alone(spark: SparkSession, text: str) -> str:
    """An expression that raises only at the rows at which a user's function raises.

    Args:
        spark: the session.
        text: the expression.

    Returns:
        The text with its calls of functions that are registered a second time written anew. An argument that calls such a function within
        an expression remains as it is: it is computed before any try form.
    """
    return rewritten_calls(text, partial(_second, spark), _value)


def _value(call: str) -> str:
    error = f"{call}.{ERROR}"
    return f"(CASE WHEN {error} IS NULL THEN {call}.{VALUE} ELSE raise_error({error}) END)"


def _second(spark: SparkSession, function: str) -> str | None:
    if is_spark_s(function):
        return None
    name = registered_name(function)
    catalog = spark._jsparkSession.sessionState().catalog()
    return name if catalog.isTemporaryFunction(java_class(spark, _IDENTIFIER)(name)) else None
