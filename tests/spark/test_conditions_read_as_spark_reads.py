"""Conditions whose reading is easy to get wrong: precedence, spelling, coercion at the edges."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from penstock import Matcher
from penstock.errors import UnsupportedError
from penstock.operators.selection.matches import Matches
from penstock.operators.selection.selector import Selector, compile_selections
from penstock.spark.analysis.expressions import SparkExpressionHost
from penstock.sql.conditions.bind import bind_selections

pytestmark = pytest.mark.spark

TABLE = pa.table(
    {
        "i": pa.array([0, 1, 5, -3, 2**31 - 1, None], pa.int32()),
        "l": pa.array([2**53, 2**53 + 1, 2**63 - 1, -(2**63), 7, None], pa.int64()),
        "f": pa.array([0.1, 16777216.0, float("nan"), -0.0, float("inf"), None], pa.float32()),
        "d": pa.array([0.1, 9007199254740993.0, float("nan"), -0.0, float("-inf"), None]),
        "m": pa.array(
            [Decimal("2.50"), Decimal("-0.01"), Decimal("9999999.99"), Decimal("5.00"), Decimal(0), None],
            pa.decimal128(9, 2),
        ),
        "w": pa.array(
            [Decimal("0.1"), Decimal("9007199254740993"), Decimal("-5"), Decimal("2.5"), Decimal(0), None],
            pa.decimal128(30, 5),
        ),
        "s": pa.array(["it's", "a\\b", "", "é%_", "x", None]),
        "e": pa.array(["\U0001f600", "?", "377", "\x7f", "?\n?", None]),
        "b": pa.array([True, False, None, True, False, None]),
        "c": pa.array([True, True, False, None, False, None]),
        "day": pa.array(
            [date(2013, 1, 1), date(1, 1, 1), date(1969, 12, 31), date(9999, 12, 31), None, None]
        ),
        "ts": pa.array(
            [
                datetime(2013, 3, 31, 2, 30, tzinfo=UTC),
                datetime(2013, 3, 31, 1, 30, tzinfo=UTC),
                datetime(2013, 10, 27, 0, 30, tzinfo=UTC),
                datetime(2013, 10, 27, 1, 30, tzinfo=UTC),
                datetime(1900, 1, 1, tzinfo=UTC),
                None,
            ],
            pa.timestamp("us", "UTC"),
        ),
        "like": pa.array([1, 2, 3, 4, 5, None], pa.int32()),
        "end": pa.array([1, 2, 3, 4, 5, None], pa.int32()),
        "my `col`": pa.array([1, 2, 3, 4, 5, None], pa.int32()),
    }
)
CONDITIONS = [
    "NOT b AND c",
    "NOT b OR c",
    "NOT b = c",
    "! b AND NOT NOT c",
    "b = c IS NULL",
    "b OR c AND NOT b",
    "NOT (b AND c) IS TRUE",
    "(b OR c) IS UNKNOWN",
    "(b AND c) IS NOT NULL",
    "NOT b IS NOT TRUE",
    "b = (i > 0)",
    "(i > 0) = TRUE",
    "(i > 0) IN (TRUE, NULL)",
    "i = 1 = c",
    "i BETWEEN 0 AND 5 AND b",
    "NOT i BETWEEN 0 AND 5 OR b",
    "i NOT BETWEEN 0.5 AND 99999999999999999999",
    "i BETWEEN -99999999999999999999 AND 2.5",
    "NOT i < 99999999999999999999",
    "NOT i > 99999999999999999999",
    "i <=> 99999999999999999999",
    "i = +5",
    "i = - 3",
    "i = -(3)",
    "i = - -5",
    "i=5.",
    "i>.5",
    "i IN (1, 2.5, 5)",
    "i IN (1, 2.5D, 5F)",
    "i IN ('1', '5')",
    "i IN (1, '5')",
    "i % 5 = 0",
    "i - 1 > 5 - 3",
    "i & 1 = 1",
    "i | 4 = 5 OR i ^ 1 = 0",
    "-i > 2.5",
    "~i = -1",
    "l = 9007199254740993",
    "l = 9007199254740993D",
    "l > 9007199254740992D",
    "l = 9223372036854775807",
    "l < 9223372036854775807.5",
    "l >= 9.3e18",
    "f = 0.1",
    "f = 0.1F",
    "f = 0.1D",
    "f IN (0.1F, 5F)",
    "f IN (0.1F, 0.1)",
    "f = 16777217",
    "f >= 'NaN'",
    "f = 0",
    "d = 9007199254740993",
    "d > 1e308 AND NOT d > double('Infinity')",
    "d < CAST('-Infinity' AS DOUBLE) OR d = CAST('NaN' AS DOUBLE)",
    "d IN (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)",
    "d = '0.1'",
    "m = 2.5",
    "m = 2.5D",
    "m = '2.5'",
    "m > 2.499999999999999999999999999999999999",
    "m <= 99999999999999999999.5",
    "m IN (5, 2.50, NULL)",
    "w = 9007199254740993",
    "w = 9007199254740993D",
    "w = 0.1D",
    "w > 1.2345678901234567890123456789",
    "s = 'it''s'",
    's = "it\'s"',
    "s = 'it' \"'s\"",
    "s = 'it\\'s'",
    r"s = 'a\\b'",
    r"s = r'a\b'",
    r"s = '\u00e9%_'",
    r"s LIKE 'é\%\_'",
    r"s LIKE 'é\\%%'",
    r"s LIKE 'a\\\\b'",
    "s LIKE 'é/%%' ESCAPE '/'",
    "s LIKE ''",
    "s NOT LIKE '%'",
    "s LIKE 'it_s'",
    "s LIKE ANY ('i%', 'x')",
    "s NOT LIKE ALL ('i%', 'x')",
    "s RLIKE '^i'",
    "NOT s ILIKE 'IT%'",
    "(s RLIKE 'x') IS NULL",
    "s NOT IN ('x', '')",
    "s > 'a' || 'b'",
    "s /* a 'comment' */ = -- another\n 'x'",
    "day = '2013-01-01'",
    "day >= '2013'",
    "day < '1970-1-1'",
    "day > DATE '1969-12-31'",
    "day = TIMESTAMP '2013-01-01 00:00:00'",
    "day IN ('2013-01-01', DATE '0001-01-01')",
    "day + INTERVAL 1 DAY = '2013-01-02'",
    "ts > DATE '2013-03-31'",
    "ts = '2013-03-31 02:30:00'",
    "ts = '2013-03-31 03:30'",
    "ts = '2013-10-27 02:30:00'",
    "ts >= '2013-10-27T02:30:00+01:00'",
    "ts >= TIMESTAMP '2013-10-27 02:30:00 Europe/London'",
    "ts < '1900-01-01 01:00:00.000001'",
    "ts > TIMESTAMP_NTZ '2013-06-01 00:00:00'",
    "year(ts) = 2013 AND hour(ts) BETWEEN 1 AND 3",
    "CASE WHEN i > 0 THEN b ELSE c END",
    "if(b, i, l) > 3",
    "coalesce(b, c)",
    "exists(array(i, 2), x -> x > 4)",
    "struct(i, b) = struct(1, FALSE)",
    "like > 2",
    "end > 2",
    "(end > 2) AND 3 < end",
    "end IN (2, 3) OR (end) = 5",
    "end BETWEEN 2 AND 4 AND NOT end = 3",
    "end IS NOT NULL AND -end < -2",
    "end + end > 5",
    "CASE WHEN end > 2 THEN TRUE END",
    "CASE end WHEN 3 THEN TRUE ELSE end = 1 END",
    "CASE WHEN b THEN end ELSE end END = 1 AND end < 3",
    r"e = '\uD83D\uDE00'",
    r"e = '\uD83D' '\uDE00'",
    r"e = '\U0001F600' OR e = '\uDE00'",
    r"e = '\U00110000' OR e = '\uD83D\n\uDE00'",
    r"e IN ('\377', '\177')",
    "ts < '2013-03-31 10:30:00+08:00'",
    "ts <= '2013-03-31 10:30:00 GMT+8'",
    "ts > '2013-10-27 08:30:00 UTC+8'",
    "ts > '2013-10-27 02:30:00 CST'",
    "ts = TIMESTAMP '2013-03-31 10:30:00 +8'",
    "ts = TIMESTAMP '2013-03-31 10:30:00+0800'",
    "`like` > 2 AND `my ``col``` < 5",
    "I = 1 OR `S` = 'x'",
    "TRUE",
    "NULL OR i = 1",
    "FALSE AND 1 = 1",
    "1 = 1",
    "NULL IS NULL AND i IS NOT NULL",
    "5 IN (i, 3)",
    "1 BETWEEN i AND 5",
    "i IS NOT DISTINCT FROM NULL",
    "i IS DISTINCT FROM l",
]


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "GMT+8"])
def test_conditions_select_what_spark_selects(spark: SparkSession, zone: str) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        frame = spark.createDataFrame(TABLE)
        answers = frame.selectExpr(
            *(f"({text}\n) IS TRUE AS _{n}" for n, text in enumerate(CONDITIONS))
        ).toArrow()
        bound = bind_selections(
            {text: text for text in CONDITIONS}, TABLE.schema, SparkExpressionHost(spark, frame.schema), zone
        )
        derived = {column.name: column.expression for column in bound.derived}
        columns = {
            attribute.name: f"({derived[attribute.name]}\n) AS `{attribute.name}`" if attribute.name in derived
            else "false AS e" if attribute.name.endswith("_error")
            else attribute.expression
            for attribute in bound.selections.attributes
        }  # fmt: skip
        table = frame.selectExpr(*columns.values()).toArrow()
    finally:
        spark.conf.set("spark.sql.session.timeZone", before or "UTC")
    plan, found = compile_selections(bound.selections), dict(zip(columns, table.columns, strict=True))
    matches = Selector(plan).match([found[name] for name in plan.columns], table.num_rows)
    selected = _rows(matches)
    expected = {
        text: [row for row, answer in enumerate(column.to_pylist()) if answer]
        for text, column in zip(CONDITIONS, answers.columns, strict=True)
    }
    assert {text: rows for text, rows in selected.items() if rows != expected[text]} == {}
    alone = {text: text for text in CONDITIONS if _needs_no_spark(text, zone)}
    assert len(alone) > len(CONDITIONS) / 3
    matches = Matcher(alone, TABLE.schema, zone).match(TABLE)
    assert {text: rows for text, rows in _rows(matches).items() if rows != expected[text]} == {}


def _needs_no_spark(text: str, zone: str) -> bool:
    try:
        bind_selections({text: text}, TABLE.schema, None, zone)
    except UnsupportedError:
        return False
    return True


def _rows(matches: Matches) -> dict[str, list[int]]:
    rows: dict[str, list[int]] = {name: [] for name in matches.names}
    for row in range(len(matches.offsets) - 1):
        for query in matches.queries[matches.offsets[row] : matches.offsets[row + 1]]:
            rows[matches.names[query]].append(row)
    return rows
