"""Every condition, bound and matched, selects the rows that Spark selects."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from forms import ALL
from penstock import Matcher
from penstock.errors import UnsupportedError
from penstock.operators.selection.matches import Matches
from penstock.operators.selection.selector import Selector, compile_selections
from penstock.spark.analysis.expressions import SparkExpressionHost
from penstock.sql.conditions.bind import BoundSelections, bind_selections
from penstock_lab.generators.queries import QueryGenerator

pytestmark = pytest.mark.spark

ROWS = 120
SETS_A_SCHEMA = 10
CONDITIONS_A_SET = 8


@pytest.mark.parametrize("seed", range(20 if ALL else 2))
def test_matcher_selects_what_spark_selects(spark: SparkSession, seed: int) -> None:
    generator = QueryGenerator(seed)
    schema = generator.schema()
    table = generator.table(schema, ROWS)
    sets = [generator.conditions(schema, CONDITIONS_A_SET) for _ in range(SETS_A_SCHEMA)]
    expected = _selected_by_spark(spark.createDataFrame(table), sets)
    for conditions, rows in zip(sets, expected, strict=True):
        known = {name: text for name, text in conditions.items() if _is_answered(text, schema)}
        assert len(known) >= len(conditions) / 2
        matches = Matcher(known, schema).match(table)
        _assert_same(known, rows, _selected(matches, list(known)), table)


def _is_answered(text: str, schema: pa.Schema) -> bool:
    """Whether the condition needs no Spark."""
    try:
        bind_selections({"q": text}, schema, None)
    except UnsupportedError:
        return False
    return True


@pytest.mark.parametrize("seed", range(100, 112 if ALL else 101))
def test_bound_selections_select_what_spark_selects(spark: SparkSession, seed: int) -> None:
    generator = QueryGenerator(seed, needs_spark=True)
    schema = generator.schema()
    table = generator.table(schema, ROWS)
    sets = [generator.conditions(schema, CONDITIONS_A_SET) for _ in range(SETS_A_SCHEMA)]
    frame = spark.createDataFrame(table)
    expected = _selected_by_spark(frame, sets)
    host = SparkExpressionHost(spark, frame.schema)
    for conditions, rows in zip(sets, expected, strict=True):
        bound = bind_selections(conditions, schema, host)
        _assert_same(conditions, rows, _matched(frame, bound), table)


def _selected_by_spark(frame: DataFrame, sets: list[dict[str, str]]) -> list[dict[str, list[int]]]:
    """For each set, the rows (by number) that satisfy each condition, by Spark alone."""
    texts = [text for conditions in sets for text in conditions.values()]
    answers = frame.selectExpr(*(f"({text}\n) IS TRUE AS _{n}" for n, text in enumerate(texts))).toArrow()
    columns = iter(answers.columns)
    return [{name: _true_rows(next(columns)) for name in conditions} for conditions in sets]


def _true_rows(column: pa.ChunkedArray) -> list[int]:
    return [row for row, value in enumerate(column.to_pylist()) if value]


def _matched(frame: DataFrame, bound: BoundSelections) -> dict[str, list[int]]:
    """The rows that the kernels select, over columns that Spark derives."""
    derived = {column.name: column for column in bound.derived}
    columns = {}
    for attribute in bound.selections.attributes:
        if attribute.name in derived:
            columns[attribute.name] = f"({attribute.expression}\n) AS `{attribute.name}`"
        elif attribute.name.endswith("_error"):
            columns[attribute.name] = f"false AS `{attribute.name}`"
        else:
            columns[attribute.name] = attribute.expression
    table = frame.selectExpr(*columns.values(), "1 AS __one").toArrow()
    found = dict(zip(columns, table.columns, strict=False))
    plan = compile_selections(bound.selections)
    matches = Selector(plan).match([found[name] for name in plan.columns], table.num_rows)
    return _selected(matches, [query.name for query in bound.selections.queries])


def _selected(matches: Matches, names: list[str]) -> dict[str, list[int]]:
    selected: dict[str, list[int]] = {name: [] for name in names}
    for row in range(len(matches.offsets) - 1):
        for query in matches.queries[matches.offsets[row] : matches.offsets[row + 1]]:
            selected[matches.names[query]].append(row)
    return selected


def _assert_same(
    conditions: Mapping[str, str],
    expected: Mapping[str, list[int]],
    actual: Mapping[str, list[int]],
    table: pa.Table,
) -> None:
    for name, text in conditions.items():
        different = sorted(set(expected[name]) ^ set(actual[name]))
        assert not different, (
            f"{text}\n  rows {different[:3]} {'missed' if different[0] in expected[name] else 'extra'}: "
            f"{table.take(different[:3]).to_pylist()}"
        )
