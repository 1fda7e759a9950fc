"""Window views bound with Spark's help: names, types and answers are those of the text itself."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from forms import examples, thinned
from penstock.errors import SqlError, UnsupportedError
from penstock.plan.windows import ErrorBound
from penstock.spark.analysis.expressions import SparkExpressionHost
from penstock.spark.analysis.schemas import arrow_schema
from penstock.spark.storage.codec import Codec
from penstock.sql.script.queries import parse_query
from penstock.sql.script.views import flatten
from penstock.sql.text.intervals import microseconds_of
from penstock.sql.text.query import SelectQuery
from penstock.sql.windows.bind import BoundWindow, WindowBinder, bind_window
from penstock.sql.windows.query import WindowQuery, aggregate_name, key_name
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
    window = bind_window(query, "v", TABLE.schema, host)
    codec = Codec(BoundWindow)
    assert codec.value(json.loads(json.dumps(codec.document(window)))) == window, "as a checkpoint keeps it"
    return window


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


@pytest.mark.parametrize("text", thinned(QUERIES, 4))
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


#: a window view, and selections each over the one before
SELECTED = [
    (
        "SELECT origin, window(ts, '1 hour', '15 minutes') AS w, count(*) AS n, round(avg(x), 1) AS mean_x FROM t "
        "WHERE i > -2 GROUP BY origin, w HAVING count(*) > 1",
        "SELECT v0.origin, n * 2 AS twice, w.start, v0.w.end AS until FROM v0 WHERE mean_x > 0.3 OR n >= 3",
        "SELECT *, hour(start) + twice AS both, upper(origin) FROM v1 WHERE until > '2024-03-01 12:30:00' AND twice <> 6",
        "SELECT both FROM v2 AS last WHERE last.origin IS NOT NULL AND CASE WHEN both > 3 THEN true END",
    ),
    (
        "SELECT window(ts, '1 hour'), count(1), min(origin) AS first, sum(i) AS `end`, place.city FROM t "
        "GROUP BY 1, place.city",
        "SELECT * FROM v0 WHERE window.start >= TIMESTAMP '2024-03-01 12:00:00' AND `end` BETWEEN -9 AND 9",
        "SELECT first, window, timestampdiff(MINUTE, window.start, window.end) AS long, "
        "extract(HOUR FROM window.start) AS at, city, `end` FROM v1 WHERE city LIKE 'c%' AND first IN ('EWR', 'JFK')",
        "SELECT named_struct('w', window, 'n', `end`) AS s, exists(array(at), n -> n > long), "
        "CAST(long AS STRING) || '-' || city AS told, 1, true AS yes FROM v2",
    ),
    (
        "SELECT window(ts, '2 hours') AS w, w.start AS s, max(money) AS money, max(place) AS place, "
        "count(*) FILTER (WHERE late) AS late FROM t GROUP BY w",
        "SELECT s + INTERVAL 1 HOUR AS s, place.gate, money / 2 AS half, late > 2 AS `are late` FROM v0 WHERE NOT late = 0",
        "SELECT s, gate, -half, `are late` FROM v1 WHERE `are late`",
    ),
    ("SELECT count(*) FROM t GROUP BY window(ts, '1 hour')", "SELECT * FROM v0", "SELECT 2 AS two FROM v1"),
]


@pytest.mark.parametrize("texts", thinned(SELECTED, 2))
def test_selections_over_window_views_answer_as_their_text(
    spark: SparkSession, host: SparkExpressionHost, texts: Sequence[str]
) -> None:
    assert_selections_answer_as_spark(spark, host, texts)


def assert_selections_answer_as_spark(
    spark: SparkSession, host: SparkExpressionHost, texts: Sequence[str]
) -> None:
    views: dict[str, SelectQuery | WindowQuery] = {}
    for number, text in enumerate(texts):
        window = bound(text, host, views)
        frame = spark.sql(text)
        expected = frame.toArrow()
        outputs = pa.schema([(output.name, output.type) for output in window.outputs])
        assert described(outputs) == described(arrow_schema(frame.schema))
        found = answer(spark, window)
        assert described(found.schema) == described(expected.schema)
        assert rows(found) == rows(expected)
        frame.createOrReplaceTempView(f"v{number}")
        views[f"V{number}"] = parse_query(text)


def test_mistakes_of_a_selection_over_a_window_view_are_shown_where_they_are(
    host: SparkExpressionHost,
) -> None:
    views = {
        "V0": parse_query(
            "SELECT window(ts, '1 hour') AS w, count(*) AS n, max(place) AS p FROM t GROUP BY w"
        )
    }
    for text, marked in (
        ("SELECT n, nothing(n) AS m FROM v0", "nothing(n)"),
        ("SELECT n, w.begin FROM v0", "w.begin"),
        ("SELECT n FROM v0 WHERE n > 3 AND w.start > 3", "w.start > 3"),
        ("SELECT n AS m FROM v0 WHERE n", "n"),
        ("SELECT n, n + 1 AS N FROM v0", "n + 1 AS N"),
        ("SELECT n, rand() AS r FROM v0", "rand() AS r"),
        ("SELECT n FROM v0 WHERE now() > w.end", "now() > w.end"),
    ):
        with pytest.raises(SqlError) as raised:
            bound(text, host, views)
        assert raised.value.text == text
        assert raised.value.text[raised.value.start : raised.value.end] == marked


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


@settings(
    max_examples=examples(15),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(text=queries())
def test_random_views_answer_as_their_text(spark: SparkSession, host: SparkExpressionHost, text: str) -> None:
    try:
        expected = spark.sql(text).toArrow()
    except Exception:
        return
    found = answer(spark, bound(text, host))
    assert found.schema.names == expected.schema.names
    assert rows(found) == rows(expected)


@st.composite
def selections(draw: st.DrawFn) -> list[str]:
    """A window view, a selection over it and one over that."""
    first = draw(queries())
    names = sorted(set(re.findall(r" AS (\w+)", first)))
    moment = "w.start" if "w" in names else "start" if "window.start" in first else None
    texts = [first]
    for number in range(2):
        each = st.sampled_from(names)
        tests = st.builds(str.format, st.sampled_from(_TESTS), each)
        if moment is not None:
            tests |= st.just(f"{moment} > TIMESTAMP '2024-03-01 12:40:00'")
        condition = draw(
            st.sampled_from(["", f" WHERE {draw(tests)}", f" WHERE {draw(tests)} OR {draw(tests)}"])
        )
        items = [draw(st.sampled_from(["*", *names]))] if draw(st.booleans()) else ["*"]
        items += [
            f"{draw(st.sampled_from(_ITEMS)).format(draw(each))} AS d{number}_{place}"
            for place in range(draw(st.integers(0, 2)))
        ]
        texts.append(f"SELECT {', '.join(items)} FROM v{number}{condition}")
        if items[0] != "*":
            names, moment = [items[0]], "w.start" if items[0] == "w" else None
        names += [item.rpartition(" ")[2] for item in items[1:]]
    return texts


_TESTS = (
    "{} IS NOT NULL",
    "{} IS NULL",
    "{0} = {0}",
    "length(to_json(named_struct('a', {}))) % 2 = 0",
    "NOT {} <=> NULL",
)
_ITEMS = ("{}", "{} IS NULL", "to_json(named_struct('a', {}))", "coalesce({0}, {0})", "array({})")


@settings(
    max_examples=examples(15),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(texts=selections())
def test_random_selections_over_window_views_answer_as_their_text(
    spark: SparkSession, host: SparkExpressionHost, texts: list[str]
) -> None:
    try:
        for number, text in enumerate(texts):
            frame = spark.sql(text)
            frame.toArrow()
            frame.createOrReplaceTempView(f"v{number}")
    except Exception:
        return
    assert_selections_answer_as_spark(spark, host, texts)
