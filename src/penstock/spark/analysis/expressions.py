"""Spark's own analysis of scalar expressions: types, constants, whether they raise, equivalence."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    CalendarIntervalType,
    DataType,
    MapType,
    StringType,
    StructType,
    VariantType,
    YearMonthIntervalType,
)

from penstock.errors import SqlError, TypeMismatchError, UnknownNameError, UnsupportedError, nearest
from penstock.plan.expressions import Aggregated, CommonType, Raised
from penstock.plan.scalar_trees import Scalar
from penstock.spark.analysis.catalyst import empty_frame, java_class, unlogged
from penstock.spark.analysis.catalyst_trees import projection
from penstock.spark.analysis.computable.trees import scalar_tree
from penstock.spark.analysis.functions import ALLOWED, refusal
from penstock.spark.analysis.gate import (
    boxed,
    changing,
    computed,
    one_row,
    patterns,
    queried,
    selected,
    tried,
)
from penstock.spark.analysis.planning import failures, refused
from penstock.spark.analysis.raising import raising
from penstock.spark.analysis.regular_expressions import refuse_patterns, refuse_patterns_of_query
from penstock.spark.analysis.schemas import spark_schema
from penstock.spark.recovery.messages import first_sentence
from penstock.sql.script.dialects import instead_of, instead_of_word

_Answer = TypeVar("_Answer")

#: expressions analysed together: large enough to hide the round trip, small enough to bisect
CHUNK_EXPRESSIONS = 500

#: whether ICU folds case, as the kernels do
_CASE_MAPPINGS = "spark.sql.icu.caseMappings.enabled"
_CASE_FUNCTIONS = {"lower", "lcase", "upper", "ucase", "ilike"}

#: settings, and which of their values gives some of Catalyst's nodes another meaning
_MEANINGS = {
    _CASE_MAPPINGS: ("FALSE", ("Lower", "Upper")),
    "spark.sql.legacy.timeParserPolicy": ("LEGACY", ("DateFormatClass",)),
}

_INTERVALS = (YearMonthIntervalType, CalendarIntervalType)
_LEFT_TO_SPARK = (*_INTERVALS, ArrayType, MapType, StructType, VariantType)


class SparkExpressionHost:
    """The `penstock.plan.expressions.ExpressionHost` of a Spark session.

    Expressions are analysed over an empty table of the stream's schema, so a stream and a table
    of the same columns give the same answers. The session's settings (ANSI mode, time zone)
    take part, and answers are remembered: take another host when they change.

    Args:
        spark: a classic session, not one of Spark Connect.
        schema: the stream's columns.
        declaring: whether expressions are new. New ones are refused where Spark raises before it reads a row; those that an
            earlier run took are told by `failures`.
    """

    def __init__(self, spark: SparkSession, schema: StructType, *, declaring: bool = False) -> None:
        self._declaring = declaring
        self._failures: dict[str, str | None] = {}
        self._spark = spark
        self._table = empty_frame(spark, schema)
        self._one_row = one_row(spark)
        self._schema = schema
        self._resolved: dict[str, DataType] = {}
        self._schemas: dict[str, pa.Schema] = {}
        self._calls: dict[str, Aggregated] = {}
        self._trees: dict[str, Scalar | None] = {}
        self._trees_over: dict[tuple[tuple[str, str], ...], dict[str, Scalar | None]] = {}
        self.stream = f"__penstock_{uuid.uuid4().hex}"

    @property
    def java(self) -> int:
        """See `ExpressionHost.java`."""
        return int(java_class(self._spark, "java.lang.Runtime").version().feature())

    def built_in(self, functions: Sequence[str]) -> list[bool]:
        """See `ExpressionHost.built_in`."""
        registry = self._spark._jsparkSession.sessionState().functionRegistry()
        identifier = java_class(self._spark, "org.apache.spark.sql.catalyst.FunctionIdentifier")
        some = java_class(self._spark, "scala.Option").apply
        is_folded_by_java = self._spark.conf.get(_CASE_MAPPINGS, "true") != "true"

        def own(name: str) -> bool:
            if name not in ALLOWED or (is_folded_by_java and name in _CASE_FUNCTIONS):
                return False
            return not registry.functionExists(identifier(name, some("session"), some("system")))

        return [own(name.lower()) for name in functions]

    def types(self, expressions: Sequence[str]) -> list[pa.DataType]:
        """See `ExpressionHost.types`."""
        return [_arrow_type(kind) for kind in self._types(expressions)]

    def names(self, expressions: Sequence[str]) -> list[str]:
        """What Spark calls the columns of expressions without an alias; each must be one that `types` takes."""

        def answer(chunk: Sequence[str]) -> list[str]:
            return self._table.select(*(computed(self._spark, text) for text in chunk)).columns

        return _chunked(expressions, answer)

    def plain(self, expressions: Sequence[str]) -> list[bool]:
        """See `ExpressionHost.plain`."""
        return [_plain(kind) for kind in self._types(expressions)]

    def constants(self, expressions: Sequence[str]) -> list[object]:
        """See `ExpressionHost.constants`."""
        return _chunked(expressions, self._constants)

    def may_raise(self, expressions: Sequence[str]) -> list[bool]:
        """See `ExpressionHost.may_raise`."""

        def answer(chunk: Sequence[str]) -> list[bool]:
            return raising(_analysed_json(self._table, chunk), chunk)

        return _chunked(expressions, answer)

    def null_on_nulls(self, expressions: Sequence[str]) -> list[bool]:
        """See `ExpressionHost.null_on_nulls`."""
        return _chunked(expressions, self._null_on_nulls)

    def trees(self, expressions: Sequence[str]) -> list[Scalar | None]:
        """See `ExpressionHost.trees`."""
        unseen = [text for text in dict.fromkeys(expressions) if text not in self._trees]
        others = [
            node
            for setting, (value, nodes) in _MEANINGS.items()
            for node in nodes
            if str(self._spark.conf.get(setting)).upper() == value
        ]

        def answer(chunk: Sequence[str]) -> list[Scalar | None]:
            found = projection(_analysed_json(self._table, chunk))
            return [scalar_tree(each, self._schema.fieldNames(), others) for each in found]

        self._trees.update(zip(unseen, _chunked(unseen, answer), strict=True))
        return [self._trees[text] for text in expressions]

    def equivalent(self, pairs: Sequence[tuple[str, str]]) -> list[bool]:
        """See `ExpressionHost.equivalent`: the same resolved plans, or the same optimised ones."""
        return _chunked(pairs, self._equivalent)

    def aggregates(self, calls: Sequence[str]) -> list[Aggregated]:
        """See `ExpressionHost.aggregates`."""
        self._calls.update((call, self._aggregated(call)) for call in calls if call not in self._calls)
        return [self._calls[call] for call in calls]

    def schema_of(self, query: str) -> pa.Schema:
        """See `ExpressionHost.schema_of`."""
        if query not in self._schemas:
            self._schemas[query] = query_schema(self._spark, query, {self.stream: self._table})
        return self._schemas[query]

    def trees_over(self, columns: pa.Schema, expressions: Sequence[str]) -> list[Scalar | None]:
        """See `ExpressionHost.trees_over`."""
        key = tuple((field.name, str(field.type)) for field in columns)
        known = self._trees_over.setdefault(key, {})
        unseen = [text for text in dict.fromkeys(expressions) if text not in known]
        if unseen:
            over = SparkExpressionHost(self._spark, spark_schema(columns), declaring=self._declaring)
            if self._declaring:
                over.types(unseen)
            known.update(zip(unseen, over.trees_if_known(unseen), strict=True))
        return [known[text] for text in expressions]

    def trees_if_known(self, expressions: Sequence[str]) -> list[Scalar | None]:
        """Likewise `trees`, of expressions that an earlier run took; None of all where Spark takes one no more."""
        try:
            return self.trees(expressions)
        except SqlError:
            return [None] * len(expressions)

    def common_types(self, pairs: Sequence[tuple[str, str]]) -> list[CommonType | None]:
        """See `ExpressionHost.common_types`."""
        return _chunked([f"({left}\n) = ({right}\n)" for left, right in pairs], self._common_types)

    def spark_types(self, expressions: Sequence[str]) -> list[DataType]:
        """The Spark type of each expression; raises what `types` raises."""
        return self._types(expressions)

    def failures(self, expressions: Sequence[str]) -> dict[str, str]:
        """The expressions at which Spark raises before it reads a row although it catches what rows raise, and what it says."""
        unseen = [text for text in dict.fromkeys(expressions) if text not in self._failures]
        for start in range(0, len(unseen), CHUNK_EXPRESSIONS):
            chunk = unseen[start : start + CHUNK_EXPRESSIONS]
            self._failures.update(dict.fromkeys(chunk))
            self._failures.update(failures(self._table, chunk, boxed))
        found = {text: self._failures[text] for text in expressions}
        return {text: message for text, message in found.items() if message is not None}

    def _aggregated(self, call: str) -> Aggregated:
        try:
            with unlogged():
                frame = selected(self._table, [call])
        except PySparkException as error:
            raise translated(error, call, self._table.columns) from None
        plan = frame._jdf.queryExecution().analyzed()
        function = plan.expressions().head().child().aggregateFunction()
        argument = function.children().head().dataType()
        kind = DataType.fromDDL(argument.sql())
        return Aggregated(_arrow_type(frame.schema[0].dataType), _arrow_type(kind), argument.sql())

    def _common_types(self, comparisons: Sequence[str]) -> list[CommonType | None]:
        analysed = _analyse(self._table, comparisons)._jdf.queryExecution().analyzed().projectList()
        found: list[CommonType | None] = []
        for position in range(len(comparisons)):
            comparison = analysed.apply(position).child()
            if comparison.nodeName() != "EqualTo":
                found.append(None)
                continue
            sql = comparison.left().dataType().sql()
            kind = DataType.fromDDL(sql)
            found.append(CommonType(_arrow_type(kind), sql, _plain(kind)))
        return found

    def _types(self, expressions: Sequence[str]) -> list[DataType]:
        unseen = [text for text in dict.fromkeys(expressions) if text not in self._resolved]

        def answer(chunk: Sequence[str]) -> list[DataType]:
            selection = _analyse(self._table, chunk)
            self._refuse_failing(chunk)
            if self._declaring:
                refuse_patterns(chunk, selection)
            return [field.dataType for field in selection.schema]

        self._resolved.update(zip(unseen, _chunked(unseen, answer), strict=True))
        return [self._resolved[text] for text in expressions]

    def _refuse_failing(self, expressions: Sequence[str]) -> None:
        if self._declaring:
            for text, message in failures(self._table, expressions, computed).items():
                raise refused(text, message)

    def _constants(self, expressions: Sequence[str]) -> list[object]:
        fields = _analyse(self._one_row, expressions).schema
        for text, field in zip(expressions, fields, strict=True):
            if not _plain(field.dataType):
                raise UnsupportedError(
                    f"A constant of type {field.dataType.simpleString()} has no ordered value.",
                    text,
                    0,
                    len(text),
                )
        values = [boxed(self._spark, text).alias(f"_{number}") for number, text in enumerate(expressions)]
        table = self._one_row.select(*values).toArrow().combine_chunks()
        return [
            _exact(column.chunk(0).field(0)[0])
            if column[0].is_valid
            else Raised(_raised_message(self._one_row, text))
            for text, column in zip(expressions, table.columns, strict=True)
        ]

    def _null_on_nulls(self, expressions: Sequence[str]) -> list[bool]:
        analysed = _analyse(self._table, expressions)._jdf.queryExecution().analyzed()
        values = [
            F.lit(False) if calls else tried(self._spark, f"({text}\n) IS NULL")
            for text, calls in zip(expressions, _calling_users(analysed.toJSON()), strict=True)
        ]
        nulls = [F.lit(None).cast(field.dataType).alias(field.name) for field in self._schema]
        (row,) = self._one_row.select(*nulls).select(*values).collect()
        return [value is True for value in row]

    def _equivalent(self, pairs: Sequence[tuple[str, str]]) -> list[bool]:
        try:
            left, right = (
                _analyse(self._table, side)._jdf.queryExecution() for side in zip(*pairs, strict=True)
            )
            if left.analyzed().sameResult(right.analyzed()):
                return [True] * len(pairs)
            if left.optimizedPlan().sameResult(right.optimizedPlan()):
                return [True] * len(pairs)
        except (SqlError, PySparkException):
            pass
        if len(pairs) == 1:
            return [False]
        middle = len(pairs) // 2
        return self._equivalent(pairs[:middle]) + self._equivalent(pairs[middle:])


def query_schema(spark: SparkSession, query: str, tables: Mapping[str, DataFrame]) -> pa.Schema:
    """The columns of a query on tables given by name; see `ExpressionHost.schema_of`."""
    for name, table in tables.items():
        table.createOrReplaceTempView(name)
    try:
        with unlogged():
            frame = queried(spark, query, tables)
    except PySparkException as error:
        columns = [column for table in tables.values() for column in table.columns]
        raise translated(error, query, columns, 0) from None
    finally:
        for name in tables:
            spark.catalog.dropTempView(name)
    if (reason := _not_of_groups(frame)) is not None:
        raise UnsupportedError(refusal(reason), query, 0, len(query))
    refuse_patterns_of_query(query, frame)
    return pa.schema([(field.name, _arrow_type(field.dataType)) for field in frame.schema])


def _chunked(items: Sequence[Any], answer: Callable[[Sequence[Any]], list[_Answer]]) -> list[_Answer]:
    answers: list[_Answer] = []
    for start in range(0, len(items), CHUNK_EXPRESSIONS):
        answers += answer(items[start : start + CHUNK_EXPRESSIONS])
    return answers


def _analyse(table: DataFrame, expressions: Sequence[str]) -> DataFrame:
    """The expressions selected from a table, or the first one's mistake raised."""
    try:
        with unlogged():
            result = selected(table, expressions)
    except PySparkException as error:
        if len(expressions) == 1:
            raise translated(error, expressions[0], table.columns) from None
    except SqlError:
        if len(expressions) == 1:
            raise
    else:
        if (reason := _not_scalar(result, table)) is None:
            return result
        if len(expressions) == 1:
            raise UnsupportedError(refusal(reason), expressions[0], 0, len(expressions[0]))
    middle = len(expressions) // 2
    _analyse(table, expressions[:middle])
    _analyse(table, expressions[middle:])
    raise AssertionError("expressions fail together that do not fail alone")


def _analysed_json(table: DataFrame, expressions: Sequence[str]) -> str:
    """Catalyst's JSON of the analysed selection of expressions."""
    found: str = _analyse(table, expressions)._jdf.queryExecution().analyzed().toJSON()
    return found


def _calling_users(plan_json: str) -> list[bool]:
    """Whether each expression of a resolved projection calls a user's function, by Catalyst's JSON of the plan."""
    projection = json.loads(plan_json)[0]["projectList"]
    return [any(str(node["class"]).endswith("UDF") for node in nodes) for nodes in projection]


def _not_scalar(result: DataFrame, table: DataFrame) -> str | None:
    """Why a selection is not a function of each row alone, if it is not."""
    plan = result._jdf.queryExecution().analyzed()
    if not plan.subqueriesAll().isEmpty():
        return "A subquery"
    shape = plan.getClass().getSimpleName()
    if shape != "Project" or not plan.child().equals(table._jdf.queryExecution().analyzed()):
        return "An aggregate, window or table-generating function"
    return changing(result)


def _not_of_groups(result: DataFrame) -> str | None:
    """Why a query's result is not a function of each group alone, if it is not."""
    plan = result._jdf.queryExecution().analyzed()
    if not plan.subqueriesAll().isEmpty():
        return "A subquery"
    pattern = patterns(result)
    if plan.containsPattern(pattern.WINDOW()) or plan.containsPattern(pattern.GENERATE()):
        return "A window or table-generating function"
    return changing(result)


def translated(error: PySparkException, text: str, columns: Sequence[str], before: int = 1) -> SqlError:
    """Spark's error as ours.

    Args:
        error: Spark's.
        text: what the user wrote.
        columns: those that exist.
        before: characters that stood before the text when Spark read it.
    """
    condition = error.getCondition() or ""
    parameters = error.getMessageParameters() or {}
    start, end = _place(error, text, before)
    if condition.startswith("UNRESOLVED_COLUMN"):
        name = parameters.get("objectName", "").strip("`").replace("`.`", ".")
        if (message := instead_of_word(name)) is not None:
            return UnknownNameError(message, text, start, end)
        return UnknownNameError.among("Column", name, columns, "Existing columns").at(text, start, end)
    if condition == "UNRESOLVED_ROUTINE":
        name = parameters.get("routineName", "").strip("`")
        if (message := instead_of(name)) is not None:
            return UnknownNameError(message, text, start, end, name, known=F.__all__)
        own = "The option --functions, or Engine.function, registers a function of your own."
        rest = own if nearest(name, F.__all__) is None else ""
        return UnknownNameError.among("Function", name, F.__all__, rest=rest).at(text, start, end)
    if condition == "FIELD_NOT_FOUND":
        name = parameters.get("fieldName", "").strip("`")
        fields = [each.strip("` ") for each in parameters.get("fields", "").split(",")]
        return UnknownNameError.among("Field", name, fields, "Existing fields").at(text, start, end)
    message = first_sentence(str(error))
    if condition.startswith(("UNRESOLVED", "FIELD_NOT_FOUND", "AMBIGUOUS_REFERENCE")):
        return UnknownNameError(message, text, start, end)
    if condition.startswith(("DATATYPE_MISMATCH", "CAST_", "COLLATION_MISMATCH", "UNEXPECTED_INPUT_TYPE")):
        return TypeMismatchError(message, text, start, end)
    return SqlError(message, text, start, end)


def _place(error: PySparkException, text: str, before: int) -> tuple[int, int]:
    """Where in the expression the mistake is; the whole of it where Spark does not say."""
    if isinstance(error, AnalysisException):
        for context in error.getQueryContext():
            start, end = context.startIndex() - before, context.stopIndex() + 1 - before
            if 0 <= start < end <= len(text):
                return start, end
    return 0, len(text)


def _raised_message(one_row: DataFrame, text: str) -> str:
    try:
        with unlogged():
            _analyse(one_row, [text]).collect()
    except PySparkException as error:
        return first_sentence(str(error))
    raise AssertionError(f"the constant {text} raises in its try form only")


def _plain(kind: DataType) -> bool:
    if isinstance(kind, StringType):
        return kind.isUTF8BinaryCollation()
    return not isinstance(kind, _LEFT_TO_SPARK)


def _arrow_type(kind: DataType) -> pa.DataType:
    if isinstance(kind, _INTERVALS):
        return pa.month_day_nano_interval()
    return to_arrow_type(kind, timezone="UTC")


def _exact(value: pa.Scalar) -> object:
    kind = value.type
    if pa.types.is_date32(kind):
        return value.cast(pa.int32()).as_py()
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind) or pa.types.is_duration(kind):
        return value.cast(pa.int64()).as_py()
    return value.as_py()
