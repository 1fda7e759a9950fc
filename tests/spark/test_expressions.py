"""What Spark's analysis says about expressions, asked through the expression host."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from forms import ALL
from penstock.errors import SqlError, TypeMismatchError, UnknownNameError, UnsupportedError
from penstock.plan.expressions import Raised
from penstock.spark.analysis.expressions import SparkExpressionHost

pytestmark = pytest.mark.spark

SCHEMA = (
    "a INT, b INT, big BIGINT, x DOUBLE, s STRING, t TIMESTAMP, n TIMESTAMP_NTZ, day DATE, d DECIMAL(10,2),"
    " ci STRING COLLATE UTF8_LCASE, list ARRAY<INT>, flag BOOLEAN, raw BINARY"
)


@pytest.fixture
def host(spark: SparkSession) -> SparkExpressionHost:
    return SparkExpressionHost(spark, StructType.fromDDL(SCHEMA))


def test_types_are_those_spark_hands_to_arrow(host: SparkExpressionHost) -> None:
    expected = {
        "a + b": pa.int32(),
        "a / b": pa.float64(),
        "length(s)": pa.int32(),
        "d * 2": pa.decimal128(12, 2),
        "t": pa.timestamp("us", "UTC"),
        "n": pa.timestamp("us"),
        "day + INTERVAL 1 DAY": pa.timestamp("us", "UTC"),
        "a > 1 -- a remark": pa.bool_(),
        "raw": pa.binary(),
        "INTERVAL '1-2' YEAR TO MONTH": pa.month_day_nano_interval(),
        "t - TIMESTAMP '2013-01-01'": pa.duration("us"),
    }
    types = dict(zip(expected, host.types(list(expected)), strict=True))
    assert types == expected | {"day + INTERVAL 1 DAY": pa.date32()}


def test_only_values_of_binary_order_are_plain(host: SparkExpressionHost) -> None:
    plain = ["a", "x", "s", "day", "d", "flag", "raw", "t - t"]
    others = ["ci", "upper(ci)", "'x' COLLATE UNICODE", "list", "named_struct('a', 1)", "INTERVAL 1 MONTH"]
    assert host.plain(plain + others) == [True] * len(plain) + [False] * len(others)


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("b + zz", UnknownNameError, "Column zz does not exist. Existing columns: a, b, big"),
        ("nofn(a)", UnknownNameError, "Function nofn does not exist."),
        ("a > array(1)", TypeMismatchError, "incompatible types"),
        ("a +", SqlError, "Syntax error"),
        ("length(a, b)", SqlError, "requires 1 parameters"),
        ("count(a)", UnsupportedError, "aggregate"),
        ("row_number() OVER (ORDER BY a)", UnsupportedError, "window"),
        ("explode(list)", UnsupportedError, "table-generating"),
        ("a IN (SELECT 1)", UnsupportedError, "subquery"),
        ("rand() < 0.5", UnsupportedError, "differs between evaluations"),
        ("t < current_timestamp()", UnsupportedError, "current time"),
    ],
)
def test_a_mistake_is_found_among_many_and_said_in_one_line(
    host: SparkExpressionHost,
    text: str,
    error: type[SqlError],
    words: str,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    good = [f"a + {number}" for number in range(20)]
    with pytest.raises(error) as caught:
        host.types([*good[:7], text, *good[7:]])
    assert words in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.text == text
    assert not caplog.records
    assert "Traceback" not in capfd.readouterr().err


def test_the_place_of_a_mistake(host: SparkExpressionHost) -> None:
    with pytest.raises(UnknownNameError) as caught:
        host.types(["b + zz"])
    assert "b + zz"[caught.value.start : caught.value.end] == "zz"


def test_constants_are_exact(host: SparkExpressionHost) -> None:
    expected: dict[str, object] = {
        "CAST('2013-01-01' AS TIMESTAMP)": 1356998400_000000,
        "TIMESTAMP '2013-01-01 00:00:00.000001'": 1356998400_000001,
        "TIMESTAMP_NTZ '1969-12-31 23:59:59.999999'": -1,
        "TIMESTAMP '+12345-01-01'": 327403382400_000000,
        "DATE '1970-01-02'": 1,
        "DATE '+12345-01-01'": 3789391,
        "0.10": Decimal("0.10"),
        "CAST(1 AS DECIMAL(38, 18))": Decimal("1.000000000000000000"),
        "9223372036854775807": 2**63 - 1,
        "1e-300": 1e-300,
        "'é' || 'a'": "éa",
        "X'00ff'": b"\x00\xff",
        "true AND NULL": None,
        "NULL": None,
        "INTERVAL '1' DAY": 86_400_000_000,
    }
    values = host.constants(list(expected))
    assert dict(zip(expected, values, strict=True)) == expected
    assert [type(value) for value in values] == [type(value) for value in expected.values()]


def test_a_constant_that_raises_is_said_to(host: SparkExpressionHost) -> None:
    one, raised, two = host.constants(["1", "CAST('x' AS INT)", "2"])
    assert (one, two) == (1, 2)
    assert isinstance(raised, Raised)
    assert "'x'" in raised.message
    _, divided = host.constants(["1", "1 / 0"])
    assert isinstance(divided, Raised)
    assert divided.message == (
        "Division by zero. Use `try_divide` to tolerate divisor being 0 and return NULL instead."
    )


def test_what_is_null_where_all_columns_are(spark: SparkSession) -> None:
    nested = "m MAP<STRING, INT>, place STRUCT<city: STRING>, span INTERVAL MONTH, `a.b` INT, v VARIANT"
    host = SparkExpressionHost(spark, StructType.fromDDL(f"{SCHEMA}, {nested}"))
    spark.udf.register("costly", lambda _: 1 / 0, "double")
    expected = {
        **dict.fromkeys(("list", "ci", "place", "place.city", "span", "m", "m['k']", "`a.b` + 1", "v"), True),
        **dict.fromkeys(("CASE WHEN a > 1 THEN TRUE END", "list = array(b) -- a remark", "raw"), True),
        **dict.fromkeys(("coalesce(a, 1)", "list IS NULL", "ci <=> ci", "1"), False),
        # raises, or is not run
        **dict.fromkeys(("1 / coalesce(a, 0)", "costly(x)", "costly(x) > 1"), False),
    }
    assert dict(zip(expected, host.null_on_nulls(list(expected)), strict=True)) == expected


def test_a_column_is_no_constant(host: SparkExpressionHost) -> None:
    with pytest.raises(UnknownNameError):
        host.constants(["1", "a"])


NEVER_RAISE = [
    "big % 123",
    "pmod(a, -7)",
    "big div 3",
    "a / 2 > 1",
    "0.908 * big + 1",
    "d * d - d",
    "a",
    "a > 1 AND (s LIKE 'x%' OR NOT flag)",
    "lower(trim(s)) = 'x'",
    "a > big",
    "a = 2.5",
    "d > 3",
    "x * 2 - 1 > a",
    "year(t) = 2013",
    "hour(t) BETWEEN 6 AND 9",
    "coalesce(a, b) IN (1, 2)",
    "CASE WHEN a = 1 THEN s ELSE 'q' END",
    "nvl(a, 0) <=> b",
    "CAST(a AS STRING) = '1'",
]
MAY_RAISE = [
    "a + b",
    "a / b",
    "x / x",
    "CAST(s AS INT)",
    "s = 1",
    "list[0]",
    "element_at(list, 1)",
    "to_date(s)",
    "CAST(big AS INT)",
    "CAST(x AS INT)",
    "d * d * d * d",
    "big % a",
    "big % 0",
    "big div -1",
    "d / 2",
    "d % 2",
    "-d",
    "s LIKE 'x\\\\'",
    "s LIKE 'x!' ESCAPE '!'",
    "CASE WHEN a = 1 THEN 1 / b END",
    "raise_error(s)",
]


def test_only_known_nodes_never_raise(host: SparkExpressionHost) -> None:
    expected = dict.fromkeys(NEVER_RAISE, False) | dict.fromkeys(MAY_RAISE, True)
    assert dict(zip(expected, host.may_raise(list(expected)), strict=True)) == expected


EQUAL = [
    ("a > 1", "(`a` > 1)"),
    ("a > 1", "1 < a"),
    ("s > 5", "CAST(s AS BIGINT) > 5L"),
    ("a BETWEEN 1 AND 2", "a >= 1 AND a <= 2"),
    ("a = 1 OR b = 2", "b = 2 OR a = 1"),
]
DIFFERENT = [
    ("a > 1", "a >= 1"),
    ("CAST(s AS INT) = 1", "TRY_CAST(s AS INT) = 1"),
    ("s = 'x'", "ci = 'x'"),
    ("a > 1", "a > zz"),
    ("s LIKE 'a!%'", "s LIKE 'a!%' ESCAPE '!'"),
    ("day > '2013-01-01'", "CAST(day AS STRING) > '2013-01-01'"),
]


def test_equivalence_is_that_of_resolved_plans(host: SparkExpressionHost) -> None:
    pairs = (EQUAL + DIFFERENT) * 3
    assert host.equivalent(pairs) == ([True] * len(EQUAL) + [False] * len(DIFFERENT)) * 3


def test_thousands_of_expressions_at_once(host: SparkExpressionHost) -> None:
    count = 2000 if ALL else 300
    texts = [f"a * {number} > b" for number in range(count)]
    assert host.types(texts) == [pa.bool_()] * count
    assert host.may_raise(texts) == [True] * count
    assert host.constants([str(number) for number in range(count)]) == list(range(count))
