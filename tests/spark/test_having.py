"""HAVING judged in the worker: the rows are those that Spark's judgement leaves, in a first and in a later revision."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from forms import thinned
from penstock.operators.windows.answers import Answer
from penstock.operators.windows.rows import OVERFLOWED
from penstock.plan.windows import Aggregate, ErrorBound, WindowPlan, Windows
from penstock.spark.analysis.expressions import SparkExpressionHost
from penstock.spark.results import window_staging
from penstock.spark.results.having import group_condition
from penstock.spark.results.window_rows import make_results
from penstock.spark.results.window_staging import ResultStage
from penstock.spark.storage.codec import Codec
from penstock.sql.windows.bind import BoundOutput, BoundWindow

MOMENT = pa.timestamp("us", "UTC")
#: how a run stores what it has bound
STORED = Codec(tuple[BoundWindow, ...])
WINDOW = pa.struct([pa.field("start", MOMENT, nullable=False), pa.field("end", MOMENT, nullable=False)])
KEYS = (("town", pa.string()), ("number", pa.int32()))
AGGREGATES = {
    "count": pa.int64(),
    "avg": pa.float64(),
    "sum": pa.decimal128(20, 2),
    "max": pa.string(),
    "bool_or": pa.bool_(),
}
VALUES: dict[str, list[Any]] = {
    "town": ["", "a", "Aix", "aix ", "zürich", None],
    "number": [-3, 0, 1, 7, 2**31 - 1, None],
    "count": [0, 1, 5, 6, 2**62],
    "avg": [float("nan"), float("inf"), -0.0, 0.0, 2.5, 0.1, None],
    "sum": [Decimal("0.00"), Decimal("2.50"), Decimal("-17.01"), Decimal("99999999999.99"), None],
    "max": ["", "b", "B", "b%", None],
    "bool_or": [True, False, None],
}
JUDGED = [
    "_a0 > 5",
    "_a0 >= 5 AND (_a1 < 2.5 OR _a1 IS NULL)",
    "_a1 > 0.1",
    "_a1 = 0.0",
    "_a1 <> 2.5",
    "NOT (_a1 <= 2.5)",
    "_a2 BETWEEN -20 AND 2.5",
    "_a2 > 2.505",
    "_k0 IN ('a', 'Aix') OR _a3 LIKE 'b%'",
    "_k1 IS NULL",
    "_k1 IN (1, 7, NULL)",
    "_k1 NOT IN (1, 7)",
    "_a0 > 4.5 AND _k1 < 7.0",
    "_a4",
    "NOT _a4 OR _a0 = 1",
    "upper(_k0) = 'AIX'",
]


#: conditions that are judged by their trees
COMPUTED = [
    "_a0 / _a1 > 2",
    "_a0 > _k1",
    "_a0 % 5 = 1 AND _w.end IS NOT NULL",
    "1 / _k1 > 0",
    "coalesce(_a2, 0) * 2 > 1",
    "length(concat(_k0, _a3)) > 2",
    "hour(_w.start) = 0 AND _a4",
    "_a2 > 0 AND _a0 % 2 = 0",
    "to_date(_w.start) < DATE '2026-01-01'",
]
#: outputs that are, some of which raise
OUTPUTS = [
    "_a0 / _k1",
    "_a0 + 1",
    "1 div _k1",
    "CASE WHEN _a4 THEN upper(_k0) ELSE _a3 END",
    "_a2 * 2",
    "date_format(_w.start, 'yyyy-MM-dd HH:mm')",
    "_a0 * _a0",
    "coalesce(_a1, -1.0D)",
]


def view(
    having: str | None, computed: Sequence[str] = (), host: SparkExpressionHost | None = None
) -> BoundWindow:
    aggregates = tuple(Aggregate(name, None, kind) for name, kind in AGGREGATES.items())
    plan = WindowPlan("v", "ts", Windows(10, 5), KEYS, aggregates, ErrorBound(0.05, 0.05), 0)
    columns = [*((f"_k{number}", kind) for number, (_, kind) in enumerate(KEYS))]
    columns += [(f"_a{number}", kind) for number, kind in enumerate(AGGREGATES.values())]
    outputs = (
        *(BoundOutput(name, f"o{name}", kind) for name, kind in columns),
        BoundOutput("_w.end", "until", MOMENT),
    )
    bound = BoundWindow(plan, (), None, WINDOW, outputs, having)
    if host is None:
        return bound
    schema = pa.schema([("_w", WINDOW), *columns])
    trees = dict(zip(computed, host.trees_over(schema, computed), strict=True)) if computed else {}
    kinds = {text: tree.type for text, tree in trees.items() if tree is not None}
    assert kinds.keys() == trees.keys(), "left to Spark"
    own = [BoundOutput(text, f"c{number}", kinds[text], trees[text]) for number, text in enumerate(computed)]
    tree = None if having is None else host.trees_over(schema, [having])[0]
    return replace(bound, outputs=(*outputs, *own), having_tree=tree)


def groups(chance: random.Random, keys: list[tuple[Any, Any]]) -> pa.Table:
    columns: dict[str, pa.Array] = {
        name: pa.array([key[number] for key in keys], kind) for number, (name, kind) in enumerate(KEYS)
    }
    for number, (name, kind) in enumerate(AGGREGATES.items()):
        columns[f"_a{number}"] = pa.array([chance.choice(VALUES[name]) for _ in keys], kind)
    return pa.table(columns | {OVERFLOWED: pa.array([False] * len(keys))})


def answers(seed: int) -> list[Answer]:
    """A first revision, and one that replaces some of it, and knows groups that the first one did not."""
    chance = random.Random(seed)
    keys = [(town, number) for town in VALUES["town"] for number in VALUES["number"]]
    first = groups(chance, keys[:25])
    later = groups(chance, keys[10:])
    begun = Answer("v", 0, 10, 0, True, 3, 1.0, False, first, first.slice(0, 0))
    corrected = replace(begun, revision=2, rows=later, replaced=first.slice(10, 15), final=True)
    return [begun, replace(begun, start=5, end=15), corrected]


def rows(tables: list[pa.Table]) -> list[str]:
    return sorted(map(repr, pa.concat_tables(tables).to_pylist()))


@pytest.mark.parametrize("having", thinned(JUDGED, 4))
def test_what_the_worker_leaves_is_what_spark_leaves(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, having: str
) -> None:
    compare(spark, tmp_path, monkeypatch, view(having), having)


@pytest.mark.parametrize("having", [*thinned(COMPUTED, 3), None])
def test_what_the_worker_computes_is_what_spark_computes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, having: str | None
) -> None:
    host = SparkExpressionHost(spark, StructType([]))
    bound = view(having, OUTPUTS, host)
    (given,) = STORED.value(json.loads(json.dumps(STORED.document((bound,)))))
    assert having is None or given.having_tree is not None
    compare(spark, tmp_path, monkeypatch, given, having or "")


def compare(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: BoundWindow, having: str
) -> None:
    """Compares the rows that the worker stages with those that Spark makes of the same answers."""
    staged = {}
    for where in ("worker", "spark"):
        if where == "spark":
            monkeypatch.setattr(window_staging, "is_plain", lambda _: False)
        stage = ResultStage(None, tmp_path / where, 0, lambda _: {"v": given})
        for answer in answers(len(having)):
            stage.add(3, answer)
        (staged[where],) = stage.close()
    assert not staged["worker"].raw, "it was left to Spark"
    (made,) = make_results(spark, [staged["spark"]], lambda _: given, None)
    by_spark = [pq.read_table(each.path) for each in made.left]
    by_worker = [pq.read_table(each.path) for each in staged["worker"].left]
    assert rows(by_worker) == rows(by_spark)
    assert by_spark, "the condition keeps nothing: it shows nothing"
    assert by_worker[0].schema.equals(by_spark[0].schema)
    if not having:
        return
    said = staged["worker"].said
    count = sum(len(table) for table in by_spark)
    assert (said.rows, said.revised_rows) == (count, count - made.more)


def test_a_row_is_withdrawn_whatever_a_second_estimate_says(spark: SparkSession, tmp_path: Path) -> None:
    given = view("_a1 > 5")
    aggregates = [*given.plan.aggregates]
    aggregates[1] = Aggregate("approx_percentile", None, pa.float64(), 0.5)
    given = replace(given, plan=replace(given.plan, aggregates=tuple(aggregates)))
    told = groups(random.Random(1), [("a", 1), ("b", 2)])
    place = told.column_names.index("_a1")
    for estimate in (1.0, 9.0):
        told = told.set_column(place, "_a1", pa.array([estimate] * 2))
        stage = ResultStage(None, tmp_path / str(estimate), 0, lambda _: {"v": given})
        stage.add(3, Answer("v", 0, 10, 1, False, 3, None, False, told, told.slice(0, 0), withdrawn=True))
        (made,) = make_results(spark, stage.close(), lambda _: given, None)
        (rows,) = (pq.read_table(each.path) for each in made.left)
        assert rows.column("op").to_pylist() == ["delete"] * 2


@pytest.mark.parametrize("having", ["soundex(_k0) = 'A000'", "_w.end > TIMESTAMP'1970-01-01'"])
def test_other_conditions_are_left_to_spark(spark: SparkSession, having: str) -> None:
    assert group_condition(view(having, (), SparkExpressionHost(spark, StructType([])))) is None
