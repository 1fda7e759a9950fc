"""Window views bound with Spark's help: names, types and answers are those of the text itself."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from penstock.errors import (
    DuplicateNameError,
    SqlError,
    TypeMismatchError,
    UnknownNameError,
    UnsupportedError,
)
from penstock.plan.windows import ErrorBound
from penstock.spark.expressions import SparkExpressionHost
from penstock.spark.schemas import arrow_schema
from penstock.sql.bind_windows import BoundWindow, WindowBinder, bind_window
from penstock.sql.query import SelectQuery
from penstock.sql.script import parse_query
from penstock.sql.views import flatten
from penstock.sql.window_query import WindowQuery, aggregate_name, key_name

pytestmark = pytest.mark.spark

ROWS = 40
NOON = datetime(2024, 3, 1, 12)
TABLE = pa.table(
    {
        "ts": pa.array(
            [
                None if row == 7 else NOON + timedelta(minutes=17 * row % 150, seconds=row)
                for row in range(ROWS)
            ],
            pa.timestamp("us", "UTC"),
        ),
        "ntz": pa.array(
            [NOON + timedelta(minutes=11 * row % 200) for row in range(ROWS)], pa.timestamp("us")
        ),
        "day": pa.array([date(2024, 3, 1 + row % 4) for row in range(ROWS)]),
        "said": pa.array([f"2024-03-01 {row % 24:02}:30:00" for row in range(ROWS)]),
        "origin": pa.array([("JFK", "LGA", None, "EWR")[row % 4] for row in range(ROWS)]),
        "i": pa.array([None if row % 9 == 0 else row % 5 - 2 for row in range(ROWS)], pa.int32()),
        "l": pa.array([row * 10**9 for row in range(ROWS)], pa.int64()),
        "x": pa.array([None if row % 7 == 0 else row % 8 / 4 for row in range(ROWS)]),
        "money": pa.array([Decimal(row % 6) / 4 for row in range(ROWS)], pa.decimal128(10, 2)),
        "number": pa.array([str(row % 3) for row in range(ROWS)]),
        "late": pa.array([row % 3 == 0 for row in range(ROWS)]),
        "place": pa.array([{"city": f"c{row % 2}", "gate": row % 3} for row in range(ROWS)]),
    }
)

QUERIES = [
    "SELECT /*+ MAX_ERROR(0.1, 0.2) */ origin, window(ts, '1 hour', '15 minutes') AS w, count(*) AS n, "
    "round(avg(x), 1) AS mean_x FROM t WHERE i > -2 GROUP BY origin, w HAVING count(*) > 1",
    "SELECT window(ts, '1 hour'), count(1), count(i), COUNT('a') AS also, count(DISTINCT i) FROM t GROUP BY 1",
    "SELECT window.start, window.end, sum(i), sum(l), sum(x), sum(money), sum(number) FROM t "
    "GROUP BY window(ts, '1 hour')",
    "SELECT window(ts, '30 minutes') AS w, w.start AS s, avg(i), mean(i), avg(money), avg(number) FROM t "
    "GROUP BY window(ts, '30 minutes')",
    "SELECT window(ts, '1 hour') AS w, w.start, w.end AS e, min(origin), max(day), min(late), max(money), "
    "min(place), max(ts) FROM t GROUP BY w",
    "SELECT window(ts, '2 hours') AS w, std(i), stddev(x), stddev_samp(money), stddev_pop(l), variance(i), "
    "var_samp(number), var_pop(x) FROM t GROUP BY w",
    "SELECT window(ts, '2 hours') AS w, median(i), percentile(money, 0.25), percentile(number, 1), "
    "approx_percentile(i, 0.5D), percentile_approx(day, 0.9), approx_count_distinct(origin), median(x) "
    "FROM t GROUP BY w",
    "SELECT upper(origin) AS where_from, where_from || '!' AS loud, window, sum(i) FILTER (WHERE late) AS s, "
    "count(*) FILTER (WHERE x > 1) AS c, count(DISTINCT number) FILTER (WHERE i > 0), s + c "
    "FROM t GROUP BY window(ts, '20 minutes'), where_from HAVING where_from <> 'EWR' AND c > 0",
    "SELECT ORIGIN, `origin` AS o, t.origin AS p, count(*) n FROM t GROUP BY Origin, window(t.ts, '1 hour')",
    "SELECT f.origin AS o, sum(f.x + f.i), max(f.l) - min(f.l) spread FROM t AS f GROUP BY o, window(f.ts, '3600 seconds')",
    "SELECT i + l, (i + l) * 2, -(i + l) AS m, count(*) FROM t GROUP BY i + l, window(ts, '1 hour')",
    "SELECT place.city, place.gate + 1, count(*) FROM t GROUP BY place.city, place.gate, window(ts, '1 hour')",
    "SELECT CASE WHEN late THEN count(*) ELSE 0 END AS c, coalesce(sum(x), 0.0) / count(*), "
    "date_format(window.start, 'HH') AS hour FROM t GROUP BY late, window(ts, '1 hour', '30 minutes', '-5 minutes')",
    "SELECT window(ntz, '1 hour') AS w, count(*) FROM t GROUP BY w",
    "SELECT window(day, '2 days') AS w, count(*) FROM t GROUP BY w",
    "SELECT window(said, '12 hours', '6 hours', '1 hour') AS w, max(said) FROM t GROUP BY w",
    "SELECT window(ts + INTERVAL 1 HOUR, '1 hour') AS w, count(*) FROM t GROUP BY w",
    "SELECT 1, 'x' AS s, pi() AS c, count(*) FROM t GROUP BY window(ts, 3600000000)",
    "SELECT max(-x) AS x, sum(i) AS i FROM t GROUP BY window(ts, '1 hour'), origin HAVING sum(x) > 1 AND x < 0 AND i > 0",
    "SELECT lower(origin) AS origin, count(*) FROM t GROUP BY window(ts, '1 hour'), t.origin "
    "HAVING origin = 'jfk' OR upper(origin) = 'LGA'",
    "SELECT upper(origin) AS origin, lower(origin) || origin FROM t GROUP BY window(ts, '1 hour'), t.origin, upper(t.origin) "
    "HAVING t.origin = origin AND upper(origin) <> 'LGA'",
    "SELECT upper(origin) AS origin, count(*) AS i FROM t GROUP BY window(ts, '1 hour'), upper(origin) "
    "HAVING origin = 'JFK' OR upper(origin) = 'LGA' AND lower(origin) = 'lga' AND i > 1",
    "SELECT (late) AND NOT (late) AS never, late IS NULL, sum(CAST(late AS INT)) FROM t "
    "GROUP BY (late), window(ts, '1 hour') HAVING window.start > '2024-03-01 13:00:00'",
    "SELECT cast(sum(i) AS DECIMAL(10, 1)), sum(i)::string || 'x', named_struct('a', origin, 'n', count(*)) AS st "
    "FROM t GROUP BY window(ts, '1 hour'), origin HAVING st.n > 2",
    "SELECT date_trunc('HOUR', ts) AS h, extract(MINUTE FROM h) AS m, count(*) FROM t GROUP BY h, window(ts, '1 day')",
    "SELECT count(NULL), sum(NULL), min(2), sum(1), window FROM t GROUP BY window(ts, '1 hour')",
    "SELECT transform(sequence(1, count(*)), v -> v + i) AS l, 10 / count(*) FROM t GROUP BY window(ts, '2 hours'), i",
    "SELECT avg(100 / i), count(*) FROM t WHERE i <> 0 GROUP BY window(ts, '1 hour')",
    "SELECT count(*) FROM t GROUP BY window(ts, '1 hour') HAVING max(x) > 1 AND window.end IS NOT NULL",
    "SELECT window(ts, '1 hour').start, window(ts, '60 minutes').end AS e, count(*) AS end FROM t GROUP BY window(ts, '1 hour')",
    "SELECT -- a remark\n count(*) /* another */ AS n, -- FROM\n origin FROM t GROUP BY origin, -- GROUP\n window(ts, '1 hour')",
]


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


WRONG = [
    ("SELECT sum(late) FROM t GROUP BY window(ts, '1 hour')", TypeMismatchError, "sum(late)"),
    ("SELECT avg(nothing) FROM t GROUP BY window(ts, '1 hour')", UnknownNameError, "nothing"),
    (
        "SELECT count(*) FILTER (WHERE nothing > 1) FROM t GROUP BY window(ts, '1 hour')",
        UnknownNameError,
        "nothing",
    ),
    ("SELECT count(*) FROM t GROUP BY window(nothing, '1 hour')", UnknownNameError, "nothing"),
    ("SELECT count(*) FROM t GROUP BY window(l, '1 hour')", TypeMismatchError, "l"),
    ("SELECT count(*) FROM t GROUP BY window(ts, '1 hour'), nothing", UnknownNameError, "nothing"),
    (
        "SELECT round(count(*), 'a', 3) FROM t GROUP BY window(ts, '1 hour')",
        SqlError,
        "round(count(*), 'a', 3)",
    ),
    (
        "SELECT count(*) + origin.x AS q, origin FROM t GROUP BY window(ts, '1 hour'), origin",
        SqlError,
        "origin.x",
    ),
    (
        "SELECT nonsense(count(*)) FROM t GROUP BY window(ts, '1 hour')",
        UnknownNameError,
        "nonsense(count(*))",
    ),
    ("SELECT window.begin, count(*) FROM t GROUP BY window(ts, '1 hour')", UnknownNameError, "window.begin"),
    (
        "SELECT count(*) FROM t GROUP BY window(ts, '1 hour') HAVING count(*) > array(1)",
        TypeMismatchError,
        "count(*) > array(1)",
    ),
    ("SELECT count(*) AS n FROM t GROUP BY window(ts, '1 hour') HAVING n", TypeMismatchError, "n"),
    ("SELECT count(*), count(1) FROM t GROUP BY window(ts, '1 hour')", DuplicateNameError, "count(1)"),
    (
        "SELECT upper(origin) AS origin, count(*) FROM t GROUP BY window(ts, '1 hour'), origin",
        UnsupportedError,
        "origin",
    ),
    ("SELECT window(ts, '1 hour') AS x, count(*) FROM t GROUP BY x", UnsupportedError, "x"),
    ("SELECT rand() AS r, count(*) FROM t GROUP BY window(ts, '1 hour')", UnsupportedError, "rand() AS r"),
    (
        "SELECT current_timestamp() AS r, count(*) FROM t GROUP BY window(ts, '1 hour')",
        UnsupportedError,
        "current_timestamp() AS r",
    ),
    ("SELECT sum(rand()) AS r FROM t GROUP BY window(ts, '1 hour')", UnsupportedError, "rand()"),
    ("SELECT count(*) FROM t GROUP BY window(ts, '1 hour'), place", UnsupportedError, "place"),
    (
        "SELECT count(DISTINCT place) FROM t GROUP BY window(ts, '1 hour')",
        UnsupportedError,
        "count(DISTINCT place)",
    ),
    ("SELECT min(NULL) FROM t GROUP BY window(ts, '1 hour')", TypeMismatchError, "min(NULL)"),
    ("SELECT n + 1, count(*) AS n FROM t GROUP BY window(ts, '1 hour')", SqlError, "n"),
    ("SELECT count(*) FROM t GROUP BY window(ts, '1 hour', )", SqlError, None),
    ("SELECT max(window.start) FROM t GROUP BY window(ts, '1 hour')", UnknownNameError, "window.start"),
]


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
