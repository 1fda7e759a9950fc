"""Calls of users' functions within expressions that Spark computes, so that a row at which one raises costs that row alone.

Spark calls Python before and outside of the expression, so no try form reaches there. Each function is therefore registered a second time:
that one tells for each row a value or what was raised. Where a row has no value, the expression raises, in its own try form.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession

from penstock.spark.analysis.catalyst import java_class
from penstock.spark.analysis.functions import is_spark_s
from penstock.sql.text.lexing import Token, arguments, is_call, name_of, quote, tokenize

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
    tokens = tokenize(text)
    parts: list[str] = []
    done = position = 0
    while position < len(tokens):
        call, end = _told(spark, text, tokens, position)
        if call is not None:
            parts += [text[done : tokens[position].start], _value(call)]
            done = tokens[end - 1].end + 1
        position = end
    return "".join([*parts, text[done:]])


def _value(call: str) -> str:
    error = f"{call}.{ERROR}"
    return f"(CASE WHEN {error} IS NULL THEN {call}.{VALUE} ELSE raise_error({error}) END)"


def _told(spark: SparkSession, text: str, tokens: Sequence[Token], position: int) -> tuple[str | None, int]:
    """The call at a place as one of the second registration, None where there is none, and where to read on."""
    name = name_of(tokens[position])
    if name is None or not is_call(tokens, position) or not _is_registered(spark, name):
        return None, position + 1
    ranges, end = arguments(tokens, position + 1)
    given = []
    for first, last in ranges:
        inner, inner_end = _told(spark, text, tokens, first)
        whole = text[tokens[first].start : tokens[last - 1].end + 1]
        given.append(inner if inner is not None and inner_end == last else whole)
    return f"{quote(registered_name(name))}({', '.join(given)})", end


def _is_registered(spark: SparkSession, name: str) -> bool:
    if is_spark_s(name):
        return False
    identifier = java_class(spark, _IDENTIFIER)(registered_name(name))
    return bool(spark._jsparkSession.sessionState().catalog().isTemporaryFunction(identifier))
