"""The only door by which SQL text and stored schemas that are not Penstock's own reach Spark, whether a user wrote them or a file stored them.

A text is parsed, and its tree searched, before Spark resolves a name in it: resolving alone may load a class or read a file.
Only Spark's functions in `functions.ALLOWED` and those registered in the session pass; subqueries, window functions, parameters
and names that are computed do not. `${...}` in a text means nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import StructType

from penstock.errors import SqlError, UnsupportedError
from penstock.spark.analysis.catalyst import java_class
from penstock.spark.analysis.functions import ALLOWED, REFUSED, refusal
from penstock.spark.recovery.messages import first_sentence
from penstock.sql.script.dialects import other_arguments
from penstock.sql.text.lexing import is_call, tokenize

_CATALYST = "org.apache.spark.sql.catalyst."
_UNRESOLVED = frozenset(
    f"{_CATALYST}analysis.Unresolved{what}"
    for what in ("Alias", "Attribute", "ExtractValue", "Function", "Having", "Ordinal", "Relation", "Star")
)
_PLANS = frozenset(
    f"{_CATALYST}plans.logical.{what}" for what in ("Aggregate", "Filter", "Join", "Project", "SubqueryAlias")
)
_SUBQUERIES = frozenset(
    f"{_CATALYST}expressions.{what}"
    for what in (
        "Exists",
        "FunctionTableSubqueryArgumentExpression",
        "InSubquery",
        "LateralSubquery",
        "ListQuery",
        "ScalarSubquery",
    )
)
_WINDOWED = f"{_CATALYST}expressions.WindowExpression"
_CURRENT = f"{_CATALYST}expressions.Current"
#: words in the names of plans that do more than answer
_DEEDS = ("Command", "Insert", "Create", "Drop", "Replace", "Set", "ScriptTransformation", "Write", "Alter")
_FUNCTION, _RELATION = f"{_CATALYST}analysis.UnresolvedFunction", f"{_CATALYST}analysis.UnresolvedRelation"
_REASONS = {name: reason for reason, names in REFUSED.items() for name in names}
_WINDOW_FUNCTION = "An aggregate, window or table-generating function"
#: what a whole query may have, and an expression not
_OF_QUERIES = frozenset({_WINDOW_FUNCTION, "The current time, date or user"})
#: Spark's own failure, in place of the mistake that led to it
_INTERNAL = re.compile(r"\[INTERNAL_ERROR\] (.*?)(?:\. | SQLSTATE|$)", re.MULTILINE)
#: parsed texts that are kept
_KEPT_TEXTS = 10_000


def computed(spark: SparkSession, text: str) -> Column:
    """A column by its text.

    Raises:
        UnsupportedError: something in it may not be used; with the place.
        PySparkException: it is no expression.
    """
    return _column(spark, _parsed(spark, text))


def tried(spark: SparkSession, text: str) -> Column:
    """A column that is NULL where the expression raises.

    The expression sits behind a condition that is always true and that Spark cannot know to be.
    Else Spark computes what several expressions share before any of them, outside their try forms,
    and what is raised there stops the job (measured on 4.3.0).
    """
    _parsed(spark, text)
    return _caught(spark, f"if(spark_partition_id() >= 0, ({text}\n), NULL)")


def boxed(spark: SparkSession, text: str) -> Column:
    """A struct with the expression's value in `v`, NULL where the expression raises."""
    _parsed(spark, text)
    # the condition makes the member one that may be NULL, as it is beside a struct that is
    value = f"named_struct('v', if(spark_partition_id() >= 0, ({text}\n), NULL))"
    return _caught(spark, value)


def selected(table: DataFrame, texts: Sequence[str]) -> DataFrame:
    """Expressions selected from a table as `_0`, `_1`, ...

    Raises:
        UnsupportedError: something in one may not be used.
        PySparkException: one is no expression over the table.
    """
    spark = table.sparkSession
    utils = _expression_utils(spark.sparkContext)
    # named by the JVM: PySpark's own `alias` tells it the place in Python first, in several round trips
    columns = [
        Column(utils.column(_parsed(spark, text)).alias(f"_{number}")) for number, text in enumerate(texts)
    ]
    with _shallow(texts[0]):
        return table.select(*columns)


def queried(spark: SparkSession, query: str, tables: Collection[str]) -> DataFrame:
    """A SELECT on temporary views.

    Args:
        spark: the session.
        query: the text.
        tables: names of the views it may read.

    Raises:
        UnsupportedError: something in it may not be used, or it reads something else; the whole is the place.
        PySparkException: it is no query on these views.
    """
    try:
        with _parsing(query):
            plan = _parser(spark.sparkContext).parsePlan(query)
            _refuse(spark.sparkContext, query, plan.toJSON(), tables)
    except UnsupportedError as error:
        raise UnsupportedError(error.message, query, 0, len(query)) from None
    dataset = java_class(spark, "org.apache.spark.sql.classic.Dataset")
    with _shallow(query):
        return DataFrame(dataset.ofRows(spark._jsparkSession, plan), spark)


def answered(spark: SparkSession, query: str) -> DataFrame:
    """Any query on temporary views, subqueries and window functions among it.

    That it reads nothing else is what the parser of its tables has made sure of (`sql.refreshed`). Its functions are looked for in the
    text: a tree says nothing of common table expressions.

    Args:
        spark: the session.
        query: the text.

    Raises:
        UnsupportedError: a function in it may not be used, or it is no query.
        PySparkException: it is no query on these views.
    """
    context = spark.sparkContext
    tokens = tokenize(query)
    for position, token in enumerate(tokens):
        if is_call(tokens, position) and _REASONS.get(token.text.lower()) not in _OF_QUERIES:
            _refuse_function(context, query, [token.text])
    with _parsing(query):
        plan = _parser(context).parsePlan(query)
    for node in _values(json.loads(plan.toJSON())):
        name = str(node.get("class", "")) if isinstance(node, dict) else ""
        if name.startswith(f"{_CATALYST}plans.") and any(deed in name for deed in _DEEDS):
            raise _refused(query, f"This form of query ({name.rpartition('.')[2]})")
    dataset = java_class(spark, "org.apache.spark.sql.classic.Dataset")
    with _shallow(query):
        return DataFrame(dataset.ofRows(spark._jsparkSession, plan), spark)


def one_row(spark: SparkSession) -> DataFrame:
    """A frame of one row without columns, which takes no job to read."""
    return spark.sql("SELECT * FROM VALUES (1)").select()


def stored_schema(document: Mapping[str, Any]) -> StructType:
    """The columns that a stored document describes.

    Raises:
        UnsupportedError: it has a type with code of its own.
    """
    for value in _values(document):
        if isinstance(value, dict) and value.get("type") == "udt":
            raise UnsupportedError("A stored user-defined type cannot be used here.")
    return StructType.fromJson(dict(document))


def changing(result: DataFrame) -> str | None:
    """What makes values of a result differ from one evaluation to the next, if anything does."""
    plan = result._jdf.queryExecution().analyzed()
    if not plan.deterministic():
        return "A value that differs between evaluations"
    if plan.containsPattern(patterns(result).CURRENT_LIKE()):
        return "The current time, date or user"
    return None


def patterns(result: DataFrame) -> Any:
    """Catalyst's names of what a plan may contain."""
    return java_class(result.sparkSession, "org.apache.spark.sql.catalyst.trees.TreePattern")


@lru_cache(maxsize=1)
def _parser(context: SparkContext) -> Any:
    """Spark's parser of expressions and queries, without the commands and the `${...}` of a session's own."""
    return java_class(SparkSession(context), f"{_CATALYST}parser.CatalystSqlParser")()


@lru_cache(maxsize=1)
def _expression_utils(context: SparkContext) -> Any:
    return java_class(SparkSession(context), "org.apache.spark.sql.classic.ExpressionUtils")


def _parsed(spark: SparkSession, text: str) -> Any:
    return _parsed_in(spark.sparkContext, text)


@lru_cache(maxsize=_KEPT_TEXTS)
def _parsed_in(context: SparkContext, text: str) -> Any:
    """The tree of a text that may be used; nothing of it is resolved, so that it serves any table."""
    with _parsing(text):
        tree = _parser(context).parseExpression(f"({text}\n)")
        _refuse(context, text, tree.toJSON())
    return tree


@contextmanager
def _shallow(text: str) -> Iterator[None]:
    """Reports a text that is nested deeper than Spark can go, or that Spark fails at, as one that is not supported."""
    try:
        yield
    except Py4JJavaError as error:
        told = str(error.java_exception)
        if "StackOverflowError" in told:
            message = "This is nested too deeply for Spark. Move a part to its own view."
        elif (failed := _INTERNAL.search(told)) is not None:
            instead = other_arguments(text)
            message = f"Spark fails at this: {instead or f'{failed[1]}. Check the types of the arguments'}."
        else:
            raise
        raise UnsupportedError(message, text, 0, len(text)) from None


@contextmanager
def _parsing(text: str) -> Iterator[None]:
    """As `_shallow`, where Spark parses: whatever exception its parser raises is a mistake in the text."""
    try:
        with _shallow(text):
            yield
    except Py4JJavaError as error:
        kind, _, told = str(error.java_exception).partition(": ")
        if not kind.endswith("Exception"):
            raise
        message = f"Spark does not read this: {first_sentence(told) or kind.rpartition('.')[2]}"
        raise SqlError(message, text, 0, len(text)) from None


def _caught(spark: SparkSession, guarded: str) -> Column:
    tree = _parser(spark.sparkContext).parseExpression(guarded)
    return _column(spark, java_class(spark, f"{_CATALYST}expressions.TryEval")(tree))


def _column(spark: SparkSession, tree: Any) -> Column:
    return Column(_expression_utils(spark.sparkContext).column(tree))


def _refuse(context: SparkContext, text: str, tree: str, tables: Collection[str] = ()) -> None:
    """Raises where a tree, as Catalyst's JSON, has a node that may not be used."""
    for node in _values(json.loads(tree)):
        name = node.get("class") if isinstance(node, dict) else None
        if not isinstance(name, str):
            continue
        if name == _FUNCTION:
            _refuse_function(context, text, _parts(node["nameParts"]))
        elif name == _RELATION:
            if node["multipartIdentifier"].strip("[]") not in tables:
                raise _refused(text, "Another table or a file")
        elif name in _SUBQUERIES:
            raise _refused(text, "A subquery")
        elif name == _WINDOWED:
            raise _refused(text, _WINDOW_FUNCTION)
        elif name.startswith(_CURRENT):
            raise _refused(text, "The current time, date or user")
        elif not (name in _UNRESOLVED or name in _PLANS or name.startswith(f"{_CATALYST}expressions.")):
            raise _refused(text, f"This form of expression ({name.rpartition('.')[2]})")


def _refuse_function(context: SparkContext, text: str, parts: Sequence[str]) -> None:
    name = parts[-1].lower()
    is_spark_s = [part.lower() for part in parts[:-1]] in ([], ["builtin"], ["system", "builtin"])
    if is_spark_s and name in ALLOWED:
        return
    if is_spark_s and (reason := _REASONS.get(name)) is not None:
        raise _refused(text, reason, name)
    spark = SparkSession(context)
    catalog = spark._jsparkSession.sessionState().catalog()
    identifier = java_class(spark, f"{_CATALYST}FunctionIdentifier")(parts[-1])
    if len(parts) > 1 or (catalog.functionExists(identifier) and not catalog.isTemporaryFunction(identifier)):
        raise _refused(text, f"{'.'.join(parts)}, a function of a catalog,")


def _refused(text: str, what: str, function: str | None = None) -> UnsupportedError:
    call = re.search(rf"\b{re.escape(function)}\b", text, re.IGNORECASE) if function else None
    start, end = (call.start(), _closing(text, call.end())) if call else (0, len(text))
    return UnsupportedError(refusal(what), text, start, end)


def _closing(text: str, name_end: int) -> int:
    """Where a call ends whose name ends at a place."""
    depth = 0
    for position in range(name_end, len(text)):
        depth += (text[position] == "(") - (text[position] == ")")
        if depth == 0 and not text[position].isspace():
            return position + 1 if text[position] == ")" else name_end
    return len(text)


def _parts(listed: str) -> list[str]:
    """The parts of a name as Catalyst's JSON lists them, `[a, b]`."""
    return listed[1:-1].split(", ")


def _values(document: Any) -> Iterator[Any]:
    """Everything in a JSON document, itself first."""
    remaining = [document]
    while remaining:
        value = remaining.pop()
        yield value
        if isinstance(value, dict):
            remaining.extend(value.values())
        elif isinstance(value, list):
            remaining.extend(value)
