"""Binding with Spark's help: derived columns, constants, expressions that raise, mistakes."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import Column, SparkSession

from penstock.errors import (
    MisplacedAggregateError,
    SqlError,
    TypeMismatchError,
    UnknownNameError,
    UnsupportedError,
)
from penstock.operators.selection.selector import Selector, compile_selections
from penstock.plan.selection import Query, SelectionSet
from penstock.spark.analysis.expressions import SparkExpressionHost
from penstock.spark.analysis.gate import tried
from penstock.sql.conditions.bind import BoundSelections, bind_selections
from penstock.sql.script.queries import parse_query

pytestmark = pytest.mark.spark

TABLE = pa.table(
    {
        "i": pa.array([0, 1, 2, 3, None], pa.int32()),
        "j": pa.array([1, 0, 2, None, 0], pa.int32()),
        "s": pa.array(["5", "x", None, "", "10"]),
        "d": pa.array([1.5, float("nan"), None, -0.0, 2.0]),
    }
)


@pytest.fixture
def host(spark: SparkSession) -> SparkExpressionHost:
    return SparkExpressionHost(spark, spark.createDataFrame(TABLE).schema)


def _tried(spark: SparkSession, expression: str) -> Column:
    """A struct of the expression's value; NULL where it raises."""
    return tried(spark, f"struct({expression} AS value)")


def rows_of(spark: SparkSession, bound: BoundSelections, queries: tuple[Query, ...]) -> dict[str, list[int]]:
    """Rows of TABLE that satisfy each query, over derived columns in their try form."""
    frame = spark.createDataFrame(TABLE)
    derived = {column.name: column for column in bound.derived}
    errors = {column.error_column: column for column in bound.derived if column.error_column}
    columns = {}
    for attribute in bound.selections.attributes:
        if attribute.name in errors:
            error = _tried(spark, errors[attribute.name].expression).isNull()
            columns[attribute.name] = error.alias(attribute.name)
        elif attribute.name in derived:
            columns[attribute.name] = _tried(spark, attribute.expression)["value"].alias(attribute.name)
        else:
            columns[attribute.name] = frame[attribute.name]
    table = frame.select(*columns.values()).toArrow()
    plan = compile_selections(SelectionSet(bound.selections.attributes, queries))
    matches = Selector(plan).match([table.column(name) for name in plan.columns], table.num_rows)
    found: dict[str, list[int]] = {query.name: [] for query in queries}
    for row in range(table.num_rows):
        for query in matches.queries[matches.offsets[row] : matches.offsets[row + 1]]:
            found[matches.names[query]].append(row)
    return found


def test_expressions_are_shared(host: SparkExpressionHost) -> None:
    conditions = {
        "a": "octet_length(s) > 1",
        "b": "octet_length(s)  < 1",
        "c": "NOT octet_length(s) BETWEEN 3 AND 4 OR i = 1",
    }
    bound = bind_selections(conditions, TABLE.schema, host)
    assert [(column.expression, column.type) for column in bound.derived] == [("octet_length(s)", pa.int32())]
    assert bound.error_queries == ()


def test_expressions_that_raise_stop_nobody(spark: SparkSession, host: SparkExpressionHost) -> None:
    conditions = {
        "quotient": "6 / j > 2 AND i < 3",
        "guarded": "j <> 0 AND 6 / j > 2",
        "unknown": "6 / j IS NULL",
        "number": "CAST(s AS INT) >= 5",
        "either": "i = 1 OR 6 / j = 6",
        "plain": "i = 1",
    }
    bound = bind_selections(conditions, TABLE.schema, host)
    assert rows_of(spark, bound, bound.selections.queries) == {
        "quotient": [0, 2],
        "guarded": [0, 2],
        "unknown": [3],
        "number": [0, 4],
        "either": [0, 1],
        "plain": [1],
    }
    assert rows_of(spark, bound, bound.error_queries) == {
        "quotient": [1],
        "guarded": [],
        "unknown": [1, 4],
        "number": [1, 3],
        "either": [1, 4],
    }


def test_constants_are_computed_once_by_spark(host: SparkExpressionHost) -> None:
    conditions = {"a": "i > 1 + 1", "b": "d = double('NaN')", "c": "i <= length('abc')"}
    bound = bind_selections(conditions, TABLE.schema, host)
    assert bound.derived == ()


def test_a_condition_with_too_many_terms_stays_a_tree(spark: SparkSession, host: SparkExpressionHost) -> None:
    factors = [f"(i > {number} OR j > {number} OR d > {number})" for number in range(-8, 8)]
    bound = bind_selections({"q": " AND ".join(factors)}, TABLE.schema, host)
    assert bound.selections.queries[0].tree is not None
    assert bound.derived == ()
    expected = spark.createDataFrame(TABLE).selectExpr(f"({' AND '.join(factors)}) IS TRUE AS q").toArrow()
    answer = [row for row, value in enumerate(expected.column("q").to_pylist()) if value]
    assert rows_of(spark, bound, bound.selections.queries) == {"q": answer}


def test_a_collated_column_is_left_to_spark(spark: SparkSession) -> None:
    frame = spark.sql("SELECT 'a' COLLATE UTF8_LCASE AS s")
    schema = pa.schema({"s": pa.string()})
    bound = bind_selections({"q": "s = 'A'"}, schema, SparkExpressionHost(spark, frame.schema))
    assert [column.type for column in bound.derived] == [pa.bool_()]


@pytest.mark.parametrize(
    ("condition", "kind", "marked"),
    [
        ("i = 1 AND length(nope) > 2", UnknownNameError, "nope"),
        ("i = 1 AND nope(s) > 2", UnknownNameError, "nope(s)"),
        ("i > 1 OR d + TRUE > 1", TypeMismatchError, "d + TRUE"),
        ("i > 1 OR array(i) = j", TypeMismatchError, "array(i) = j"),
        ("i > 0 AND length(s)", TypeMismatchError, "i > 0 AND length(s)"),
        ("i > 0 AND rand() > 0.5", UnsupportedError, "rand()"),
        ("count(i) > 3", MisplacedAggregateError, "count"),
        ("i > 5 s", SqlError, "5 s"),
        ("FALSE AND array(i) = j", TypeMismatchError, "array(i) = j"),
        ("i > 1 AND i BETWEEN 1 OR 5", SqlError, "OR"),
    ],
)
def test_mistakes_are_underlined_in_the_script(
    host: SparkExpressionHost, condition: str, kind: type[SqlError], marked: str
) -> None:
    script = f"SELECT *\nFROM t\nWHERE {condition}"
    with pytest.raises(kind) as raised:
        bind_selections({"v": parse_query(script)}, TABLE.schema, host)
    error = raised.value
    assert type(error) is kind
    assert error.text == script
    assert script[error.start : error.end] == marked


@pytest.mark.parametrize(
    ("condition", "culprit"),
    [
        ("d > 'abc'", "'abc'"),
        ("i IN (1, 'x')", "'x'"),
        ("d BETWEEN 0 AND 'high'", "'high'"),
        ("length(s) = 'three'", "'three'"),
        ("i = 1 OR NOT '2.5' < i", "'2.5'"),
    ],
)
def test_a_comparison_that_can_only_raise_is_refused_when_declared(
    host: SparkExpressionHost, condition: str, culprit: str
) -> None:
    with pytest.raises(TypeMismatchError, match="cannot be cast to") as refused:
        bind_selections({"q": condition}, TABLE.schema, host, declaring=True)
    assert condition[refused.value.start : refused.value.end] == culprit
    assert bind_selections({"q": condition}, TABLE.schema, host).derived


def test_a_string_column_cast_for_every_row_is_warned_of(host: SparkExpressionHost) -> None:
    conditions = {"a": "i > 0 AND s > 5", "b": "s IN (1, '2')", "c": "s = '5' AND i > '3' AND d = ' 1e3 '"}
    bound = bind_selections(conditions, TABLE.schema, host, declaring=True)
    assert [name for name, _ in bound.warnings] == ["a", "b"]
    text = bound.warnings[0][1]
    assert "casts `s` to BIGINT" in text
    line, caret = text.splitlines()[-2:]
    assert line.index("5") == caret.index("^")
    assert line.endswith("i > 0 AND s > 5")
    assert bind_selections(conditions, TABLE.schema, host).warnings == ()
