"""Expressions that workers compute: values, NULLs and rows that raise are Spark's, over values at the edges of each type."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from engine_cases import rows
from forms import thinned
from penstock.operators.scalars.columns import ComputedColumns
from penstock.operators.scalars.evaluation import Evaluation
from penstock.plan.expressions import Derived
from penstock.spark.analysis.derive import derive
from penstock.spark.analysis.expressions import SparkExpressionHost
from penstock.spark.engine import Engine
from penstock.trigger import Trigger

pytestmark = pytest.mark.spark

ROWS = 300
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TEXTS = [
    "",
    "a",
    "A",
    "apple",
    "https://x.y/a/b/c?d=1",
    "/",
    "//",
    "ÀÉ ß",
    "ΟΔΟΣ",
    "İ",
    "𝒳/y",
    " a ",
    "ab" * 40,
    "a/b",
    "c/c",
]
MOMENTS = [
    datetime(1, 1, 1), datetime(1582, 10, 4), datetime(1900, 1, 1), datetime(1969, 12, 31, 23, 59, 59, 999_999), datetime(1970, 1, 1),
    datetime(2000, 2, 29, 12), datetime(2024, 12, 31, 23, 59, 59), datetime(9999, 12, 31, 23, 59, 59, 999_999),
]  # fmt: skip
PLACE = pa.struct([("town", pa.string()), ("at", pa.struct([("x", pa.int32())]))])
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "t": (pa.int8(), [-128, -127, -1, 0, 1, 2, 127]),
    "h": (pa.int16(), [-(2**15), -1, 0, 1, 3, 2**15 - 1]),
    "i": (pa.int32(), [-(2**31), -(2**31) + 1, -7, -1, 0, 1, 2, 7, 46_341, 2**31 - 1]),
    "l": (pa.int64(), [-(2**63), -(2**63) + 1, -(2**31) - 1, -7, -1, 0, 1, 2, 123, 3_037_000_500, 2**62, 2**63 - 1]),
    "f": (pa.float32(), [-math.inf, -1.5, -0.0, 0.0, 0.1, 1.0, 3.4e38, math.inf, math.nan]),
    "x": (pa.float64(), [-math.inf, -1.5, -0.0, 0.0, 0.1, 1.0, 1.7e308, 5e-324, math.inf, math.nan]),
    "c": (pa.decimal128(10, 2), [Decimal(v) for v in ("-99999999.99", "-0.01", "0.00", "0.50", "12.34", "99999999.99")]),
    "w": (pa.decimal128(20, 3), [Decimal(v) for v in ("-99999999999999999.999", "0.000", "0.001", "7.250", "99999999999999999.999")]),
    "s": (pa.string(), TEXTS),
    "q": (pa.string(), TEXTS),
    "b": (pa.bool_(), [True, False]),
    "p": (PLACE, [{"town": "Aix", "at": {"x": 1}}, {"town": None, "at": {"x": None}}, {"town": "B", "at": None}]),
    "d": (pa.date32(), [each.date() for each in MOMENTS]),
    "u": (pa.timestamp("us", "UTC"), [each.replace(tzinfo=UTC) for each in MOMENTS]),
    "n": (pa.timestamp("us"), MOMENTS),
}  # fmt: skip
#: expressions that workers compute
OURS = [
    "l % 123", "l % 1", "l % -7", "l % l", "i % t", "t % h", "pmod(i, 7)", "pmod(l, -7)", "pmod(t, t)", "l div 3", "l div i", "l div -1",
    "i + 1", "i + i", "t + t", "h - t", "l - l", "l + 1", "l * 2", "l * l", "i * i", "t * t", "h * h", "-i", "-l", "- t", "+i", "abs(i)", "abs(l)", "abs(x)",
    "abs(c)", "-c", "-x", "x + 1", "x * x", "f * f", "f + x", "i / 2", "l / i", "x / f", "x / x", "0.908 * l", "c * 0.5", "c + w", "c - w", "c * c", "w + l",
    "l * 0.1 + 1", "c + 1", "i & 7", "l | i", "t ^ h", "i > 3 AND 1 / t > 0", "t <> 0 AND 1 / t > 0", "t = 0 OR 10 / t > 1", "NOT (l % 3 = 0)", "i IN (1, 2, 7)",
    "s IN ('a', 'apple')", "c IN (0.50, 12.34)", "l % 3 IN (1, 2)", "x = x", "x < f", "x <= f", "f > x", "f >= f", "s < q", "s = q", "b = (i > 1)", "d < DATE '2000-01-01'",
    "d = DATE '1583-01-01'", "s IS NULL", "i + 1 IS NOT NULL", "coalesce(i, 1)", "coalesce(i + 1, l)", "coalesce(t, h, 1 / t)", "if(i > 1, s, q)", "if(t = 0, 0, 10 / t)",
    "CASE WHEN i > 3 THEN 'x' WHEN i < 0 THEN s ELSE 'y' END", "CASE WHEN t <> 0 THEN 1 / t END", "CASE WHEN s = 'a' THEN l % 2 ELSE NULL END", "CAST(i AS BIGINT)",
    "CAST(l AS STRING)", "CAST(t AS STRING)", "CAST(l AS DECIMAL(20, 0))", "CAST(c AS DECIMAL(20, 5))", "CAST(l AS DOUBLE)", "CAST(i AS FLOAT)", "CAST(u AS DATE)", "CAST(n AS DATE)",
    "to_date(u)", "hour(u)", "minute(u)", "second(u)", "hour(n)", "year(u)", "month(u)", "day(u)", "quarter(d)", "year(d)", "day(d)", "extract(HOUR FROM u)",
    "extract(YEAR FROM u)", "date_part('MONTH', u)", "date_trunc('HOUR', u)", "date_trunc('minute', u)", "date_trunc('DAY', u)", "date_trunc('MONTH', u)", "date_trunc('YEAR', u)",
    "date_trunc('SECOND', u)", "date_format(u, 'yyyy-MM-dd')", "date_format(u, 'HH:mm')", "date_format(u, 'yyyyMMdd HH:mm:ss')", "date_format(u, 'dd/MM/yyyy')", "length(s)",
    "length(s) - length(replace(s, 'c', ''))", "replace(s, '/', '::')", "replace(s, 'aa', 'a')", "lower(s)", "upper(s)", "lower(concat(s, '-', q))", "s || q", "concat(s, i)",
    "startswith(s, 'a')", "endswith(s, '/')", "contains(s, 'b/c')", "split_part(s, '/', 4)", "split_part(s, '/', -1)", "split_part(s, '//', 2)", "split_part(s, 'a', 1)",
    "concat(s, 1 div t)", "round(x, 2)", "round(x)", "round(x * 100, 1)", "round(i / 7, 3)", "round(l, 2)", "floor(x)", "ceil(x)", "ceil(i / 3)", "floor(x * 1e15)",
    "greatest(i, 3, l)", "least(c, 1)", "greatest(d, DATE '2000-01-01')", "unix_seconds(u)", "nvl(i, 7)", "ifnull(l, i)",
    "nvl2(s, i, 1)", "nullif(i, 7)", "i BETWEEN 1 AND 7", "NOT (l % 5 BETWEEN 1 AND 3)", "substring(s, 2, 3)", "substring(s, 0, 2)", "substring(s, 1, 0)",
    "substring(s, 3, -1)", "trim(s)", "ltrim(s)", "rtrim(concat(' ', s, ' '))", "upper(p.town)", "p.at.x + 1", "coalesce(p.at.x, i)", "regexp_extract(s, '(&|^)channel_id=([^&]*)', 2)", "regexp_extract(s, '([a-z]+)/(b?)', 2)", "regexp_extract(s, 'a|ap+le', 0)",
    "regexp_extract(s, '^(.)(.*?)(b*)', 3)", "regexp_extract(s, '(?i)((?:À|ß)+)', 1)", r"regexp_extract(s, '((?:\\w|/)+)\\?(\\S+)')", "regexp_extract(s, '(a|(b))', 2)",
    "regexp_extract(concat(q, s), '(?:a/?){2,3}(.?)', 1)", "length(regexp_extract(s, '.', 0))",
    # in another case than the columns
    "L % 7", "concat(`S`, Q)", "CASE WHEN T <> 0 THEN 10 / T ELSE X END",
    # constants of other types
    "x * 0.1F", "CAST(0.1F AS DOUBLE) + x", "f > 0.1F", "x * 0.5", "x > 0.1", "f * CAST(1152921573326323713L AS FLOAT)", "f + CAST(16777217 AS FLOAT)",
    # constants that Spark puts together
    "i * 60 * 1000", "i + 1 + 2147483646", "t + 1Y + 2Y", "l - 1 + 2", "i + -1 + -5", "3 + (i + 4)",
    "CASE WHEN i > 0 THEN NULL WHEN t <> 0 THEN 1 / t ELSE x END", "coalesce(1 / t, x) + 1", "(i + 1) IS NULL", "i = 1 AND 1 / t > 0 AND NOT (l > 5)",
]  # fmt: skip
#: expressions that are left to Spark
SPARKS = [
    "CAST(s AS INT)", "CAST(l AS INT)", "try_cast(l AS INT)", "try_add(i, 1)", "try_divide(i, 0)", "CAST(x AS STRING)", "unix_timestamp(u)", "greatest(l, 10 div t)", "nullif(10 div t, 1)", "round(f, 2)", "round(x, -1)", "round(c, 1)", "substring(s, -2, 1)", "floor(c)", "trim('a' FROM s)", "greatest(x, 1)", "s RLIKE 'a'", "w * w", "c / w", "c % 3",
    "date_format(u, 'EEE')", "date_format(u, \"yyyy-MM-dd'T'HH\")", "date_format(u, 'MMMM')", "date_format(u, 'yy')", "hash(i)", "split(s, '/')[0]", "split_part(s, q, 1)", "replace(s, '', 'x')",
    "CAST(u AS STRING)", "x IN (1.0D)", "array(i)[0]", "d = DATE '1582-10-10'", "d < DATE '0000-03-01'", "regexp_extract(s, '(a)\\\\1', 1)", "regexp_extract(s, 'a$', 0)", "regexp_extract(s, q, 0)", "regexp_extract(s, '(a|(b))+', 2)", "1 + 1", "u > n",
    "to_date(s, 'yyyy')", "to_date(u, 'yyyy')", "i / CAST(true AS INT)", "x * -0.0D",
    # Spark puts the constants together, or leaves out something that raises
    "i + 1 + 2147483647", "i + 2147483647 + -1", "i * 2 * 1073741824", "i * 0 * 5", "i + 1 + t + 2", "i > 3 OR (i > 3 AND 1 / t > 0)", "1 / t > 0 AND false", "true OR 1 / t > 0",
    "i > 3 AND NOT (i <= 3 AND 1 / t > 0)", "if(1 / t > 0, 1, 1)", "CASE WHEN 1 / t > 0 THEN 1 ELSE 2 END = 3", "(coalesce(i + 1, 1)) IS NULL", "10 / t + CAST(NULL AS DOUBLE)",
    "coalesce(1 div t, 0) = coalesce(1 div t, 0)", " + ".join(["x"] * 100),
]  # fmt: skip


def table() -> pa.Table:
    """Values at the edges of each type, and some between them, with NULLs."""
    of = random.Random(11)

    def between(name: str, kind: pa.DataType) -> Any:
        if pa.types.is_integer(kind):
            return of.randrange(-(1 << (kind.bit_width - 1)), 1 << (kind.bit_width - 1))
        if pa.types.is_floating(kind):
            return of.uniform(-1e3, 1e3)
        if pa.types.is_date(kind):
            return date(1970, 1, 1) + timedelta(days=of.randrange(-100_000, 100_000))
        if pa.types.is_timestamp(kind):
            moment = EPOCH + timedelta(microseconds=of.randrange(-(10**15), 4 * 10**15))
            return moment if kind.tz else moment.replace(tzinfo=None)
        return of.choice(COLUMNS[name][1])

    found = {}
    for name, (kind, edges) in COLUMNS.items():
        values = [
            None if of.random() < 0.1 else of.choice(edges) if of.random() < 0.7 else between(name, kind)
            for _ in range(ROWS)
        ]
        found[name] = pa.array(values, kind)
    return pa.table(found)


def nested(seed: int, count: int) -> list[str]:
    """Random expressions of several functions."""
    of = random.Random(seed)

    def whole(depth: int) -> str:
        if depth == 0:
            return of.choice(["i", "l", "t", "h", "1", "7", "-3", "0"])
        one, other = whole(depth - 1), whole(depth - 1)
        return of.choice(
            [
                f"({one} {of.choice(['+', '-', '*', '%', 'div'])} {other})",
                f"pmod({one}, {other})",
                f"coalesce({one}, {other})",
                f"CASE WHEN {truth(depth - 1)} THEN {one} ELSE {other} END",
                f"length({text(depth - 1)})",
                f"-({one})",
                "hour(u)",
            ]
        )

    def truth(depth: int) -> str:
        if depth == 0:
            return of.choice(["b", "i > 0", "s = 'a'", "x < 1", "l IS NULL"])
        return of.choice(
            [
                f"({truth(depth - 1)} AND {truth(depth - 1)})",
                f"({truth(depth - 1)} OR {truth(depth - 1)})",
                f"NOT {truth(depth - 1)}",
                f"({whole(depth - 1)} {of.choice(['<', '>=', '=', '<>'])} {whole(depth - 1)})",
                f"({text(depth - 1)} IS NOT NULL)",
            ]
        )

    def text(depth: int) -> str:
        if depth == 0:
            return of.choice(["s", "q", "'x/y'", "date_format(u, 'HH')"])
        return of.choice(
            [
                f"concat({text(depth - 1)}, {text(depth - 1)})",
                f"concat({text(depth - 1)}, CAST({whole(depth - 1)} AS STRING))",
                f"if({truth(depth - 1)}, {text(depth - 1)}, {text(depth - 1)})",
                f"replace({text(depth - 1)}, 'a', 'bc')",
                f"split_part({text(depth - 1)}, '/', {of.choice([1, 2, -1])})",
                f"upper({text(depth - 1)})",
            ]
        )

    return [of.choice((whole, truth, text))(3) for _ in range(count)]


def declared(host: SparkExpressionHost, expressions: Sequence[str]) -> list[Derived]:
    return [
        Derived(f"v{number}", text, kind, f"e{number}" if raises else None)
        for number, (text, kind, raises) in enumerate(
            zip(expressions, host.types(expressions), host.may_raise(expressions), strict=True)
        )
    ]


def bits(value: object) -> object:
    """A value by which NaN is itself and -0.0 is not 0.0."""
    return repr(value) if isinstance(value, float) else value


def listed(values: pa.Array | pa.ChunkedArray) -> list[object]:
    """Values as Python has them, those that it has not as bytes and numbers."""
    if pa.types.is_string(values.type):
        values = values.cast(pa.binary())
    elif pa.types.is_timestamp(values.type) or pa.types.is_date(values.type):
        values = values.cast(pa.int64() if pa.types.is_timestamp(values.type) else pa.int32())
    return [bits(value) for value in values.to_pylist()]


def compare(
    spark: SparkSession,
    folder: Path,
    expressions: Sequence[str],
    *,
    all_ours: bool,
    tuples: pa.Table | None = None,
) -> int:
    """Compares what workers compute with what Spark does; how many expressions they do compute."""
    tuples = table() if tuples is None else tuples
    path = folder / "tuples.parquet"
    pq.write_table(tuples, path)
    frame = spark.read.parquet(str(path))
    host = SparkExpressionHost(spark, frame.schema)
    trees = host.trees(expressions)
    left = [text for text, tree in zip(expressions, trees, strict=True) if tree is None]
    assert not left or not all_ours, f"left to Spark: {left}"
    ours = [text for text in expressions if text not in left]
    columns = declared(host, ours)
    known = tuple(tree for tree in trees if tree is not None)
    computed = ComputedColumns(tuple(columns), known)
    names = [name for each in columns for name in (each.name, each.error_column) if name]
    batch = tuples.combine_chunks().to_batches()[0]
    found = computed.added_to(batch.select(computed.read_for(names)), names)
    read = batch.select(computed.read_for(names))
    for first in range(0, batch.num_rows, 100):
        part, whole = computed.added_to(read.slice(first, 100), names), found.slice(first, 100)
        for name in names:
            told = part.column(name).to_string(window=100)
            assert told == whole.column(name).to_string(window=100), f"{name} of a slice"
    assert computed.added_to(read.slice(0, 0), names).num_rows == 0
    for first in range(0, len(columns), 40):
        some = columns[first : first + 40]
        expected = derive(frame, some).toArrow()
        for each in some:
            values = listed(expected.column(each.name))
            assert found.column(each.name).type == each.type, each.expression
            own = listed(found.column(each.name))
            wrong = [
                ({name: listed(tuples.column(name))[row] for name in tuples.column_names}, a, b)
                for row, (a, b) in enumerate(zip(own, values, strict=True))
                if a != b
            ]
            assert not wrong, f"{each.expression}: {len(wrong)} rows, such as {wrong[0]}"
            if each.error_column:
                raised = expected.column(each.error_column).to_pylist()
                assert found.column(each.error_column).to_pylist() == raised, each.expression
    return len(ours)


def test_what_workers_compute_is_what_spark_computes(spark: SparkSession, tmp_path: Path) -> None:
    assert compare(spark, tmp_path, OURS, all_ours=True) == len(OURS)


def test_what_is_not_known_to_be_the_same_is_left_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(table(), tmp_path / "tuples.parquet")
    host = SparkExpressionHost(spark, spark.read.parquet(str(tmp_path / "tuples.parquet")).schema)
    assert [text for text, tree in zip(SPARKS, host.trees(SPARKS), strict=True) if tree is not None] == []
    # a constant of another type, and an expression that is deep
    assert host.may_raise(["i / CAST(true AS INT)", SPARKS[-1], "i % 3"]) == [True, True, False]


def test_batches_of_all_shapes(spark: SparkSession, tmp_path: Path) -> None:
    """Slices, batches without rows, dictionaries and long strings give what the whole batch gives."""
    tuples = table()
    pq.write_table(tuples, tmp_path / "tuples.parquet")
    host = SparkExpressionHost(spark, spark.read.parquet(str(tmp_path / "tuples.parquet")).schema)
    columns, trees = declared(host, OURS), host.trees(OURS)
    computed = ComputedColumns(tuple(columns), tuple(tree for tree in trees if tree is not None))
    names = [name for each in columns for name in (each.name, each.error_column) if name]
    (batch,) = tuples.combine_chunks().to_batches()
    whole = computed.added_to(batch, names).select(names)

    def texts(change: Callable[[pa.Array], pa.Array]) -> pa.RecordBatch:
        arrays = [change(each) if pa.types.is_string(each.type) else each for each in batch.columns]
        return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)

    dictionaries = texts(lambda column: column.dictionary_encode())
    shapes = [
        (batch.slice(37, 101), whole.slice(37, 101)),
        (batch.slice(5, 0), whole.slice(5, 0)),
        (dictionaries, whole),
        (dictionaries.slice(11, 50), whole.slice(11, 50)),
        (texts(lambda column: column.cast(pa.large_string())), whole),
    ]
    for shape, expected in shapes:
        found = computed.added_to(shape, names)
        for name in names:
            assert found.column(name).type == expected.column(name).type, name
            assert listed(found.column(name)) == listed(expected.column(name)), name


def test_moments_and_texts_that_are_none(spark: SparkSession, tmp_path: Path) -> None:
    """The first and last moments of all, and texts that are no UTF-8."""
    least, day = -(2**63), 86_400_000_000
    moments = [
        least,
        least + 1,
        2**63 - 1,
        -1,
        0,
        None,
        -62_167_219_200_000_001,
        -62_198_755_200_000_000 - 800 * day,
        253_402_300_800_000_000,
    ]
    texts = [b"\x80\x80", b"\xc3", b"a\xffb", b"ok", b"\xf0\x9f", b"", None, b"\xed\xa0\x80", b"\xc3/\x80/"]
    tuples = pa.table(
        {
            "u": pa.array(moments, pa.int64()).cast(pa.timestamp("us", "UTC")),
            "s": pa.Array.from_buffers(pa.string(), len(texts), pa.array(texts, pa.binary()).buffers()),
        }
    )
    units = ("SECOND", "MINUTE", "HOUR", "DAY", "MONTH", "YEAR")
    expressions = [
        *(f"date_trunc('{unit}', u)" for unit in units),
        *(
            "date_format(u, 'yyyy-MM-dd HH:mm:ss')",
            "date_format(u, 'yyyy')",
            "to_date(u)",
            "year(u)",
            "day(u)",
            "hour(u)",
        ),
        *(
            "length(s)",
            "upper(s)",
            "replace(s, '/', 'x')",
            "split_part(s, '/', 2)",
            "concat(s, '-', s)",
            "length(concat(s, 'x'))",
            "lower(s)",
            "trim(concat(' ', s))",
            "ltrim(s)",
            "rtrim(concat(s, ' '))",
            "substring(s, 2, 1)",
            "endswith(s, '/')",
        ),
        *(
            "startswith(s, 'a')",
            "contains(s, 'b')",
            "s = 'ok'",
            "s < 'b'",
            "s IN ('ok', 'a')",
            "regexp_extract(s, '(.)b?', 1)",
        ),
    ]
    assert compare(spark, tmp_path, expressions, all_ours=True, tuples=tuples) == len(expressions)


def test_long_expressions(spark: SparkSession, tmp_path: Path) -> None:
    choices = " ".join(f"WHEN i = {number} THEN 'v{number}'" for number in range(-7, 400))
    expressions = [f"CASE {choices} END", f"CASE {choices} ELSE s END", " + ".join(["x"] * 40)]
    assert compare(spark, tmp_path, expressions, all_ours=True) == len(expressions)


@pytest.mark.parametrize(
    ("setting", "value", "expression"),
    [
        ("spark.sql.legacy.timeParserPolicy", "LEGACY", "date_format(u, 'yyyy-MM-dd')"),
        ("spark.sql.icu.caseMappings.enabled", "false", "upper(s)"),
    ],
)
def test_settings_of_other_meanings(
    spark: SparkSession, tmp_path: Path, setting: str, value: str, expression: str
) -> None:
    pq.write_table(table(), tmp_path / "tuples.parquet")
    schema = spark.read.parquet(str(tmp_path / "tuples.parquet")).schema
    assert SparkExpressionHost(spark, schema).trees([expression]) != [None]
    before = spark.conf.get(setting)
    spark.conf.set(setting, value)
    try:
        assert SparkExpressionHost(spark, schema).trees([expression]) == [None]
    finally:
        spark.conf.set(setting, before)


@pytest.mark.parametrize("seed", thinned(range(8), 8))
def test_expressions_of_expressions(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    expressions = list(dict.fromkeys(nested(seed, 80)))
    assert compare(spark, tmp_path, expressions, all_ours=False) > len(expressions) // 2


def patterns(seed: int, count: int) -> list[str]:
    """Random patterns of Java with groups."""
    of = random.Random(seed)

    def made(depth: int) -> str:
        if depth == 0:
            return of.choice(["a", "b", "/", "[ab]", "[^a]", ".", r"\\w", r"\\d", "ß", "x"])
        one, other = made(depth - 1), made(depth - 1)
        return of.choice(
            [
                f"({one})",
                f"(?:{one}|{other})",
                f"({one}|{other}|)",
                f"{one}{other}",
                f"(?:{one}){of.choice(['*', '+', '?', '{2}', '{0,2}', '*?', '+?'])}",
                f"({one}){of.choice(['*', '+', '?'])}{other}",
            ]
        )

    return [made(3) for _ in range(count)]


@pytest.mark.parametrize("seed", thinned(range(6), 6))
def test_groups_of_random_patterns(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    expressions = [
        f"regexp_extract(concat(s, q), '{pattern}', {number})"
        for pattern in patterns(seed, 60)
        for number in range(min(3, pattern.replace("(?", "").count("(") + 1))
    ]
    assert compare(spark, tmp_path, list(dict.fromkeys(expressions)), all_ours=False) > len(expressions) // 4


@pytest.mark.parametrize("digits", [0, 1, 2, 3, 6, 8])
def test_halves_are_rounded_as_java_rounds_what_it_writes(
    spark: SparkSession, tmp_path: Path, digits: int
) -> None:
    of = np.random.default_rng(digits)
    power = 10.0**digits
    halves = (of.integers(-(10**6), 10**6, 60_000) * 2 + 1) / (2 * power)
    large = (of.integers(-(10**12), 10**12, 20_000) * 2 + 1) / (2 * power)
    near = np.nextafter(halves[:20_000], of.choice([-np.inf, np.inf], 20_000))
    any_size = of.standard_normal(40_000) * 10.0 ** of.integers(-20, 22, 40_000)
    values = np.concatenate([halves, large, near, any_size])
    pq.write_table(pa.table({"x": values}), tmp_path / "x.parquet")
    frame = spark.read.parquet(str(tmp_path / "x.parquet"))
    text = f"round(x, {digits})"
    (tree,) = SparkExpressionHost(spark, frame.schema).trees([text])
    assert tree is not None
    stored = pq.read_table(tmp_path / "x.parquet").combine_chunks().to_batches()[0]
    own = Evaluation(stored).column(tree).to_numpy()
    expected = frame.selectExpr("x", f"{text} AS r").toArrow()
    assert np.array_equal(expected.column("x").to_numpy(), stored.column(0).to_numpy()), (
        "the rows keep their order"
    )
    theirs = expected.column("r").to_numpy()
    wrong = np.flatnonzero(own.view(np.int64) != theirs.view(np.int64))
    assert not len(wrong), [(repr(values[each]), own[each], theirs[each]) for each in wrong[:5]]


#: columns in other cases, with signs, and views whose expressions spell them otherwise
SPELLED = "Id BIGINT, I INT, `a.b` BIGINT, `we``ird` INT, name STRING, Seen TIMESTAMP"
SPELLING = {
    "cased": "SELECT * FROM t WHERE id % 7 = 3",
    "both": "SELECT ID, name FROM t WHERE i % 3 = 1 AND Id > 900",
    "dotted": "SELECT id FROM t WHERE `A.B` + `we``ird` = 5 OR `WE``IRD` % 4 = 3",
    "raising": "SELECT id FROM t WHERE 100 / i > 20 AND NAME = 'north'",
    "texts": "SELECT id FROM t WHERE upper(Name) = 'SÜDOST' AND name LIKE 's%'",
    "ruled_out": "SELECT id FROM t WHERE id > 100000000 AND i % 3 = 1",
    "counted": "SELECT count(*) AS c, sum(I % 3) AS s FROM t",
    "grouped": "SELECT i % 3 AS k, upper(NAME) AS u, count(*) AS c FROM t WHERE ID > 900 GROUP BY i % 3, upper(NAME)",
}


@pytest.mark.parametrize("source", ["parquet", "json"])
def test_columns_that_queries_spell_otherwise(spark: SparkSession, tmp_path: Path, source: str) -> None:
    of, folder = random.Random(4), tmp_path / "in"
    folder.mkdir()
    for number in range(2):
        first = 600 * number
        tuples = pa.table(
            {
                "Id": pa.array(range(first, first + 600), pa.int64()),
                "I": pa.array([of.choice([None, 0, 1, 3, 4, 5, 30]) for _ in range(600)], pa.int32()),
                "a.b": pa.array([of.randrange(9) for _ in range(600)], pa.int64()),
                "we`ird": pa.array([of.randrange(9) for _ in range(600)], pa.int32()),
                "name": pa.array([of.choice(["north", "südost", "", None]) for _ in range(600)]),
                "Seen": pa.array([EPOCH + timedelta(seconds=row) for row in range(first, first + 600)], pa.timestamp("us", "UTC")),
                # by the name that the workers give a column: its statistics say nothing of theirs
                "__d0": pa.array([1_000_000] * 600, pa.int64()),
            }
        )  # fmt: skip
        if source == "parquet":
            pq.write_table(tuples, folder / f"{number}.parquet", row_group_size=200)
        else:
            lines = [json.dumps({**row, "Seen": row["Seen"].isoformat()}) for row in tuples.to_pylist()]
            (folder / f"{number}.json").write_text("\n".join(lines))
    engine = Engine(spark, retry_attempts=0)
    options = f"path '{folder}', event_time 'Seen'"
    engine.execute(f"CREATE TABLE t ({SPELLED}) USING {source} OPTIONS ({options})")
    engine.add_views(SPELLING)
    assert "fast path" in engine.explain()
    with engine.start(tmp_path / "out", trigger=Trigger.available_now(ended=True)) as run:
        assert run.await_termination(600)
        found = {name: rows(run.results(name)) for name in SPELLING}
    spark.read.schema(SPELLED).format(source).load(str(folder)).createOrReplaceTempView("t")
    for name, text in SPELLING.items():
        # a row that raises matches nothing
        expected = rows(spark.sql(text.replace("100 / i", "try_divide(100, i)")))
        assert found[name] == expected, name
        assert expected or name == "ruled_out"
