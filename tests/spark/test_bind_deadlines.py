"""Window views with a deadline bound with Spark's help: their frozen plan, and the answers of their text from it."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from forms import thinned
from penstock.operators.deadlines.aggregates import UserAggregate
from penstock.plan.deadlines import DeadlineQuery, LossConstraint, UserCall
from penstock.plan.windows import Aggregate, ErrorBound, Windows
from penstock.spark.analysis.expressions import SparkExpressionHost
from penstock.spark.declaring.functions import register_aggregate
from penstock.spark.ingest.tuple_demands import compile_demands, only
from penstock.spark.lanes.deadlines.views import demand_of
from penstock.spark.storage.codec import Codec
from penstock.sql.script.queries import parse_query
from penstock.sql.script.views import flatten
from penstock.sql.text.query import SelectQuery
from penstock.sql.windows.deadlines import BoundDeadline, bind_deadline
from penstock.sql.windows.query import WindowQuery, aggregate_name, key_name
from window_cases import TABLE

pytestmark = pytest.mark.spark

MINUTE = 60_000_000
QUERIES = [
    "SELECT /*+ DEADLINE('3 seconds') */ origin, window(ts, '1 hour', '15 minutes') AS w, round(weighted(x, i + 1), 3) AS s, "
    "weighted(x, i + 1) > 1 AS many, longest(upper(origin)) FROM t WHERE i > -2 GROUP BY origin, w "
    "HAVING weighted(x, i + 1) IS NOT NULL",
    "SELECT /*+ DEADLINE('3 seconds') */ names_of(number, x * 2).n AS n, NAMES_OF(number,X*2).names, late, "
    "window(ts, '1 hour').start AS begun FROM t GROUP BY window(ts, '1 hour'), late",
    "SELECT /*+ DEADLINE('3 seconds') */ window(ts, '1 hour'), longest('x'), longest(place.city) FROM t GROUP BY window(ts, '1 hour')",
    "SELECT /*+ DEADLINE('3 seconds') */ window(ts, '1 hour') AS w, count(*), sum(number), median(i), "
    "max(x) FILTER (WHERE late) FROM t GROUP BY w",
    "SELECT /*+ DEADLINE('3 seconds') */ window(ts, '1 hour') AS w, origin FROM t GROUP BY w, origin",
]


def _given() -> dict[str, Any]:
    """Local ones, which Spark sends to its workers whole."""

    def weighted(values: pa.Array, weights: pa.Array) -> object:
        return pc.sum(pc.multiply(values, weights))

    def longest(names: pa.Array) -> str | None:
        return max((each for each in names.to_pylist() if each is not None), default=None)

    class Names:
        """The names there are; the numbers beside them count for nothing."""

        def __init__(self) -> None:
            self.names: list[str] = []

        def add(self, names: pa.Array, numbers: pa.Array) -> None:
            assert len(names) == len(numbers)
            self.names += names.to_pylist()

        def remove(self, names: pa.Array, numbers: pa.Array) -> None:
            assert len(names) == len(numbers)
            for name in names.to_pylist():
                self.names.remove(name)

        def result(self) -> object:
            return {"names": sorted(self.names), "n": len(self.names)}

    return {
        "weighted": (weighted, "DOUBLE"),
        "Longest": (longest, "STRING"),
        "names_of": (Names, "STRUCT<names: ARRAY<STRING>, n: INT>"),
    }


@pytest.fixture
def aggregates(spark: SparkSession) -> dict[str, UserAggregate]:
    spark.createDataFrame(TABLE).createOrReplaceTempView("t")
    return {
        name.upper(): register_aggregate(spark, name, given, returns)
        for name, (given, returns) in _given().items()
    }


@pytest.fixture
def host(spark: SparkSession) -> SparkExpressionHost:
    return SparkExpressionHost(spark, spark.createDataFrame(TABLE).schema)


def bound(
    text: str,
    host: SparkExpressionHost,
    aggregates: dict[str, UserAggregate],
    views: dict[str, SelectQuery] | None = None,
) -> BoundDeadline:
    query = flatten(parse_query(text, aggregates), views or {})
    assert isinstance(query, WindowQuery)
    users = {name: aggregate.signature for name, aggregate in aggregates.items()}
    found = bind_deadline(query, "v", TABLE.schema, host, users)
    codec = Codec(BoundDeadline)
    assert codec.value(json.loads(json.dumps(codec.document(found)))) == found, "as a checkpoint keeps it"
    return found


def answer(spark: SparkSession, found: BoundDeadline) -> pa.Table:
    """What Spark computes from the parts alone: from the tuples that are asked for."""
    view, window = found.view, found.window
    columns = ", ".join(f"{text} AS `{name}`" for text, name in view.columns)
    tuples = spark.sql(f"SELECT {columns} FROM t WHERE {window.condition or 'TRUE'}")
    assert tuples.toArrow().schema.names == [name for _, name in view.columns]
    tuples.createOrReplaceTempView("tuples")
    windows = view.plan.windows
    call = f"window(`{view.plan.time}`, {windows.size}, {windows.slide}, {windows.start})"
    items = [f"{call} AS _w"]
    items += [f"`{column}` AS {key_name(number)}" for number, (column, _) in enumerate(view.plan.keys)]
    items += [
        f"{each.name}({', '.join(f'`{column}`' for column in each.arguments)}) AS {aggregate_name(number)}"
        for number, each in enumerate(view.calls)
    ]
    items += [
        f"{each.function}({'*' if each.argument is None else f'`{each.argument}`'}"
        f"{'' if each.parameter is None else f', {each.parameter}D'}) AS {aggregate_name(number)}"
        for number, each in enumerate(view.plan.aggregates)
    ]
    by = ", ".join([call, *(f"`{column}`" for column, _ in view.plan.keys)])
    groups = spark.sql(f"SELECT {', '.join(items)} FROM tuples GROUP BY {by}")
    for number, each in enumerate(view.calls):
        described = str(groups.select(aggregate_name(number)).toArrow().schema.field(0).type)
        assert described.replace(" not null", "") == str(each.type).replace(" not null", "")
    groups.createOrReplaceTempView("groups")
    outputs = ", ".join(f"{output.expression} AS `{output.name}`" for output in window.outputs)
    return spark.sql(f"SELECT {outputs} FROM groups WHERE {window.having or 'TRUE'}").toArrow()


@pytest.mark.parametrize("text", thinned(QUERIES, 2))
def test_a_bound_view_answers_as_its_text(
    spark: SparkSession, host: SparkExpressionHost, aggregates: dict[str, UserAggregate], text: str
) -> None:
    found = answer(spark, bound(text, host, aggregates))
    expected = spark.sql(text).toArrow()
    assert found.schema.names == expected.schema.names
    assert found.num_rows > 1
    assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, expected.to_pylist()))


def test_the_frozen_plan(host: SparkExpressionHost, aggregates: dict[str, UserAggregate]) -> None:
    found = bound(
        "SELECT /*+ LOSS(1, 4, 'late'), MAX_ERROR(0.2, 0.1), DEADLINE('1.5 seconds') */ Origin, weighted(X, i + 1) + 1 AS s, "
        "names_of(number, x) FROM t WHERE late GROUP BY 1, window(ts, '1 hour', '15 minutes')",
        host,
        aggregates,
    )
    view, window = found.view, found.window
    assert view.query == DeadlineQuery("v", 1.5, LossConstraint(1, 4), incremental=True)
    assert view.late
    assert view.plan == window.plan
    assert (view.plan.time, view.plan.keys) == ("ts", (("origin", pa.string()),))
    assert view.plan.windows == Windows(60 * MINUTE, 15 * MINUTE)
    assert view.plan.aggregates == ()
    assert view.plan.bound == ErrorBound(0.2, 0.1)
    assert view.calls == (
        UserCall("weighted", ("x", "__w0"), pa.float64()),
        UserCall("names_of", ("number", "x"), aggregates["NAMES_OF"].type),
    )
    assert view.columns == (
        ("`ts`", "ts"),
        ("`origin`", "origin"),
        ("`x`", "x"),
        ("i + 1", "__w0"),
        ("`number`", "number"),
    )
    assert window.condition == "late"
    assert [output.expression for output in window.outputs] == ["_k0", "_a0 + 1", "_a1"]
    compiled = compile_demands(only(demand_of(found)), TABLE.schema, host)
    assert compiled.program is not None
    (plan,) = compiled.program.plans
    assert [column.name for column in plan.columns] == ["ts", "origin", "x", "__w0", "number"]
    assert (plan.run.key, plan.run.time) == ((), "ts")


def test_without_loss_all_may_miss_and_none_comes_late(
    host: SparkExpressionHost, aggregates: dict[str, UserAggregate]
) -> None:
    hint = "/*+ DEADLINE('2 seconds') */"
    users = bound(f"SELECT {hint} weighted(x, x) FROM t GROUP BY window(ts, '1 hour')", host, aggregates)
    assert users.view.query == DeadlineQuery("v", 2.0, LossConstraint(1, 1), incremental=False)
    assert not users.view.late
    sparks = bound(f"SELECT {hint} max(i), count(*) FROM t GROUP BY window(ts, '1 hour')", host, aggregates)
    assert sparks.view.query.incremental, "partials of its panes are kept"
    assert sparks.view.calls == ()
    assert sparks.view.plan.aggregates == (
        Aggregate("max", "i", pa.int32()),
        Aggregate("count", None, pa.int64()),
    )
    assert sparks.view.columns == (("`ts`", "ts"), ("`i`", "i"))


def test_a_view_on_a_selection(host: SparkExpressionHost, aggregates: dict[str, UserAggregate]) -> None:
    below = parse_query("SELECT i * 2 AS x, x AS y, ts FROM t WHERE late")
    above = (
        "SELECT /*+ DEADLINE('2 seconds') */ weighted(x, y) FROM v0 WHERE x > 1 GROUP BY window(ts, '1 hour')"
    )
    assert isinstance(below, SelectQuery)
    found = bound(above, host, aggregates, {"V0": below})
    (call,) = found.view.calls
    assert ("(i * 2)", call.arguments[0]) in found.view.columns
    assert call.arguments[1] == "x"
    assert demand_of(found).condition == found.window.condition
    assert "late" in (found.window.condition or "")
    assert "(i * 2) > 1" in (found.window.condition or "")
