"""Window views bound with Spark's help: names, types and answers are those of the text itself."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from penstock.errors import SqlError, UnsupportedError
from penstock.plan.windows import ErrorBound
from penstock.spark.expressions import SparkExpressionHost
from penstock.spark.schemas import arrow_schema
from penstock.sql.bind_windows import BoundWindow, WindowBinder, bind_window
from penstock.sql.intervals import microseconds_of
from penstock.sql.query import SelectQuery
from penstock.sql.script import parse_query
from penstock.sql.views import flatten
from penstock.sql.window_query import WindowQuery, aggregate_name, key_name
from window_cases import QUERIES, TABLE, WRONG

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def _table(spark: SparkSession) -> None:
    spark.createDataFrame(TABLE).createOrReplaceTempView("t")


@pytest.fixture
def host(spark: SparkSession) -> SparkExpressionHost:
    return SparkExpressionHost(spark, spark.createDataFrame(TABLE).schema)


def bound(
    text: str, host: SparkExpressionHost, views: dict[str, SelectQuery | WindowQuery] | None = None
) -> BoundWindow:
    query = flatten(parse_query(text), views or {})
    assert isinstance(query, WindowQuery)
    return bind_window(query, "v", TABLE.schema, host)


def called(window: BoundWindow) -> list[str]:
    """The aggregates as Spark writes them, over derived columns."""
    calls = []
    for number, each in enumerate(window.plan.aggregates):
        argument = f"`{each.argument}`" if each.argument is not None else "*"
        if each.function == "count_distinct":
            call = f"count(DISTINCT {argument})"
        else:
            fraction = "" if each.parameter is None else f", {each.parameter}D"
            call = f"{each.function}({argument}{fraction})"
        calls.append(f"{call} AS {aggregate_name(number)}")
    return calls


def answer(spark: SparkSession, window: BoundWindow) -> pa.Table:
    """What Spark computes from a bound view's parts alone."""
    plan = window.plan
    derived = [f"{column.expression} AS {column.name}" for column in window.derived]
    inner = f"SELECT {', '.join(['*', *derived])} FROM t WHERE {window.condition or 'TRUE'}"
    spark.sql(inner).createOrReplaceTempView("tuples")
    call = f"window({plan.time}, {plan.windows.size}, {plan.windows.slide}, {plan.windows.start})"
    keys = [f"`{column}` AS {key_name(number)}" for number, (column, _) in enumerate(plan.keys)]
    by = ", ".join([call, *(f"`{column}`" for column, _ in plan.keys)])
    groups = f"SELECT {', '.join([f'{call} AS _w', *keys, *called(window)])} FROM tuples GROUP BY {by}"
    spark.sql(groups).createOrReplaceTempView("groups")
    outputs = ", ".join(f"{output.expression} AS `{output.name}`" for output in window.outputs)
    return spark.sql(f"SELECT {outputs} FROM groups WHERE {window.having or 'TRUE'}").toArrow()


def rows(table: pa.Table) -> list[str]:
    return sorted(
        repr(row) for row in zip(*(_rounded(column.to_pylist()) for column in table.columns), strict=True)
    )


def _rounded(values: Sequence[object]) -> list[object]:
    return [round(value, 9) if isinstance(value, float) else value for value in values]


def described(schema: pa.Schema) -> list[tuple[str, str]]:
    return [(field.name, str(field.type).replace(" not null", "")) for field in schema]


@pytest.mark.parametrize("text", QUERIES)
def test_a_bound_view_answers_as_its_text(spark: SparkSession, host: SparkExpressionHost, text: str) -> None:
    window = bound(text, host)
    expected = spark.sql(text)
    outputs = pa.schema([(output.name, output.type) for output in window.outputs])
    assert described(outputs) == described(arrow_schema(expected.schema))
    found = answer(spark, window)
    assert described(found.schema) == described(expected.toArrow().schema)
    assert rows(found) == rows(expected.toArrow())
    tuples = spark.table("tuples").toArrow().schema
    for column in window.derived:
        assert tuples.field(column.name).type == column.type
    for column, kind in window.plan.keys:
        assert str(tuples.field(column).type) == str(kind)
    types = spark.table("groups").toArrow().schema
    for number, each in enumerate(window.plan.aggregates):
        described_type = str(types.field(aggregate_name(number)).type).replace(" not null", "")
        assert described_type == str(each.type).replace(" not null", "")


def test_columns_stay_columns_and_expressions_are_shared(host: SparkExpressionHost) -> None:
    binder = WindowBinder(TABLE.schema, host)
    first = parse_query(
        "SELECT Origin, window(ts, '1 hour'), avg(i + 1), stddev(i), sum(number), max(6 / i) FROM t GROUP BY 1, 2"
    )
    second = parse_query("SELECT sum(i + 1), sum(x) FROM t GROUP BY window(ts, '1 hour'), length(origin)")
    assert isinstance(first, WindowQuery)
    assert isinstance(second, WindowQuery)
    one, two = binder.bind(first, "one"), binder.bind(second, "two")
    assert one.plan.time == two.plan.time == "ts"
    assert one.plan.keys == (("origin", pa.string()),)
    assert [each.argument for each in one.plan.aggregates] == ["__w0", "i", "__w1", "__w2"]
    assert [(column.name, column.expression, column.error_column) for column in one.derived] == [
        ("__w0", "i + 1", "__w0_error"),
        ("__w1", "CAST(number AS DOUBLE)", "__w1_error"),
        ("__w2", "6 / i", "__w2_error"),
    ]
    assert [column.name for column in two.derived] == ["__w3", "__w0"]
    assert one.plan.bound == ErrorBound(0.05, 0.05)


def test_the_bound_is_that_of_the_hint(host: SparkExpressionHost) -> None:
    window = bound(
        "SELECT /*+ MAX_ERROR(2, 0.1, 'absolute') */ count(*) FROM t GROUP BY window(ts, '1 hour')", host
    )
    assert window.plan.bound == ErrorBound(2.0, 0.1, absolute=True)


def test_window_views_on_selections(spark: SparkSession, host: SparkExpressionHost) -> None:
    below = parse_query(
        "SELECT ts AS time, i * 2 AS twice, origin, upper(origin) AS code FROM t WHERE i <> 0"
    )
    above = parse_query("SELECT time, twice + 1 AS odd, code AS origin FROM below WHERE twice > -4")
    assert isinstance(below, SelectQuery)
    assert isinstance(above, SelectQuery)
    views: dict[str, SelectQuery | WindowQuery] = {"BELOW": below, "ABOVE": flatten(above, {"BELOW": below})}
    text = (
        "SELECT origin, window.end, sum(odd), lower(origin) || count(*), count(*) FILTER (WHERE odd > 1) FROM above "
        "WHERE odd < 9 GROUP BY window(above.time, '1 hour'), above.origin HAVING avg(odd) > -1"
    )
    window = bound(text, host, views)
    assert window.plan.keys == (("__w0", pa.string()),)
    spark.sql(
        "SELECT ts AS time, i * 2 AS twice, origin, upper(origin) AS code FROM t WHERE i <> 0"
    ).createOrReplaceTempView("below")
    spark.sql(
        "SELECT time, twice + 1 AS odd, code AS origin FROM below WHERE twice > -4"
    ).createOrReplaceTempView("above")
    expected = spark.sql(text).toArrow()
    found = answer(spark, window)
    assert found.schema.names == expected.schema.names
    assert rows(found) == rows(expected)


@pytest.mark.parametrize(("text", "kind", "marked"), WRONG)
def test_mistakes_are_shown_where_they_are(
    host: SparkExpressionHost, text: str, kind: type[SqlError], marked: str | None
) -> None:
    with pytest.raises(kind) as raised:
        bound(text, host)
    assert type(raised.value) is kind
    assert raised.value.text == text
    if marked is not None:
        assert text[raised.value.start : raised.value.end] == marked


@pytest.mark.parametrize(
    "length",
    [
        "'1 hour'",
        "'interval 5 minutes'",
        "' INTERVAL  1  WEEK 2 days 1 microsecond  '",
        "'2 hours -30 minutes'",
        "'+1 Hours'",
        "'1.25 seconds 3 milliseconds'",
        "'1.0000019 second'",
        "3600000000",
        "5000000L",
        '"- 1 hour 2 days"',
    ],
)
def test_lengths_of_time_are_those_of_spark(spark: SparkSession, length: str) -> None:
    window = f"window(TIMESTAMP_NTZ'2024-03-01 12:00:00', {length})"
    row = spark.sql(
        f"SELECT unix_micros(w.end::TIMESTAMP) - unix_micros(w.start::TIMESTAMP) FROM (SELECT {window} AS w)"
    ).first()
    assert row is not None
    assert microseconds_of(length) == row[0]


def test_a_collated_key_is_refused(spark: SparkSession) -> None:
    frame = spark.sql("SELECT TIMESTAMP'2024-03-01 12:00:00' AS ts, 'a' COLLATE UTF8_LCASE AS s")
    query = parse_query("SELECT s, count(*) FROM t GROUP BY s, window(ts, '1 hour')")
    assert isinstance(query, WindowQuery)
    with pytest.raises(UnsupportedError, match="collation"):
        bind_window(query, "v", arrow_schema(frame.schema), SparkExpressionHost(spark, frame.schema))


_KEYS = ("origin", "upper(origin)", "i + l", "late", "place.gate", "i % 2 = 0")
_VALUES = ("i", "x", "money", "number", "l - i", "i * 2")
_CALLS = (
    "count({})",
    "sum({})",
    "avg({})",
    "min({})",
    "max({})",
    "count(DISTINCT {})",
    "median({})",
    "stddev({})",
)
_SHAPES = ("{}", "{} + 1", "coalesce({}, 0)", "-({})", "CASE WHEN {} > 1 THEN 'a' ELSE 'b' END")


@st.composite
def queries(draw: st.DrawFn) -> str:
    keys = draw(st.lists(st.sampled_from(_KEYS), max_size=3, unique=True))
    call = st.builds(str.format, st.sampled_from(_CALLS), st.sampled_from(_VALUES))
    calls = draw(st.lists(st.builds(str.format, st.sampled_from(_SHAPES), call), min_size=1, max_size=4))
    named = [f"{text} AS c{number}" for number, text in enumerate(calls)]
    named += [f"{key} AS k{number}" for number, key in enumerate(keys) if draw(st.booleans())]
    slide = draw(st.sampled_from(["", ", '20 minutes'", ", '7 minutes', '3 minutes'"]))
    window = f"window(ts, '1 hour'{slide})"
    by = [
        f"k{number}" if f"{key} AS k{number}" in named and draw(st.booleans()) else key
        for number, key in enumerate(keys)
    ]
    named += draw(st.sampled_from([[], ["window.start"], [f"{window} AS w"], ["window"]]))
    having = draw(
        st.sampled_from(
            ["", f" HAVING {draw(call)} IS NOT NULL", f" HAVING c0 IS NOT NULL AND {draw(call)} <> 1"]
        )
    )
    order = draw(st.permutations([*by, window]))
    return f"SELECT {', '.join(named)} FROM t GROUP BY {', '.join(order)}{having}"


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=queries())
def test_random_views_answer_as_their_text(spark: SparkSession, host: SparkExpressionHost, text: str) -> None:
    try:
        expected = spark.sql(text).toArrow()
    except Exception:
        return
    found = answer(spark, bound(text, host))
    assert found.schema.names == expected.schema.names
    assert rows(found) == rows(expected)
