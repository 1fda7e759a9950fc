"""Text patterns against Spark's own LIKE, ILIKE, RLIKE and lower()."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from forms import ALL
from penstock import Matcher
from penstock.operators.text.signatures import SignatureEncoder
from penstock.plan.java_regex import UnprovenError, parse, translated
from penstock.plan.letter_case import _LATER_KINDS
from penstock.plan.linear_regex import needs_linear_search
from penstock.plan.patterns import (
    TextPattern,
    holds,
    is_kernel_pattern,
    length_bounds,
    spark_lower,
    spark_upper,
)
from penstock.spark.analysis.expressions import SparkExpressionHost
from penstock.sql.conditions.bind import bind_selections
from penstock.sql.conditions.dropped_escapes import pattern_warnings
from penstock.sql.conditions.parsing import parse_condition
from penstock.sql.text.clauses import Clause
from penstock.sql.text.literals import string
from text_cases import SIGNS, called, literal, random_condition, random_pattern, random_regex, random_value

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

#: jobs of so many patterns over so many values
JOBS, PATTERNS, VALUES = (16, 64, 100) if ALL else (1, 50, 100)
#: conditions of several tests each, and rows
CONDITIONS, CONDITION_VALUES = (60, 2000) if ALL else (30, 300)


def sql(pattern: TextPattern) -> str:
    """A pattern as Spark SQL."""
    value = called(pattern.form, "value")
    if pattern.kind == "length":
        least, most = length_bounds(pattern.text)
        return f"length({value}) BETWEEN {least} AND {2**31 - 1 if most is None else most}"
    return f"{value} {'LIKE' if pattern.kind == 'like' else 'RLIKE'} {literal(pattern.text)}"


@pytest.mark.parametrize("job", range(JOBS))
def test_every_predicate_of_every_value(spark: SparkSession, job: int) -> None:
    random = Random(os.urandom(8) if ALL else job)
    values = [None, "", *(random_value(random, random.choice((4, 10, 30))) for _ in range(VALUES - 2))]
    texts = [value for value in values if value is not None]
    patterns: list[TextPattern] = []
    while len(patterns) < PATTERNS:
        pattern = random_pattern(random, random.choice(texts))
        if not is_exponential(pattern):
            patterns.append(pattern)
    compare(spark, patterns, values)


def test_conditions_that_need_no_spark(spark: SparkSession) -> None:
    """Tests of text in three-valued logic, of two columns: the matcher's answers and Spark's, TRUE, FALSE and NULL."""
    random = Random(os.urandom(8) if ALL else 5)
    texts = [
        "",
        "a" * 3000,
        *(random_value(random, random.choice((3, 6, 30))) for _ in range(CONDITION_VALUES)),
    ]
    values = [random.choice((text, text, text, None)) for text in texts]
    others = [random.choice((text, text.lower(), f" {text}", random.choice(texts), None)) for text in texts]
    table = pa.table({"number": range(len(texts)), "value": values, "other": others})
    conditions: dict[str, str] = {}
    while len(conditions) < CONDITIONS:
        condition = random_condition(random, texts[:1] + texts[2:])
        if not may_be_exponential(condition):
            conditions[f"c{len(conditions)}"] = condition
    matcher = Matcher(
        {**conditions, **{f"{name}_null": f"({text}) IS NULL" for name, text in conditions.items()}},
        table.schema,
    )
    matches = matcher.match(table)
    found = [
        {matches.names[query] for query in matches.queries[first:last].tolist()}
        for first, last in pairwise(matches.offsets.tolist())
    ]
    frame = spark.createDataFrame(table).selectExpr(
        "number", *(f"{text} AS {name}" for name, text in conditions.items())
    )
    wrong = []
    for row in frame.toArrow().to_pylist():
        number = row["number"]
        for name, text in conditions.items():
            answer = True if name in found[number] else None if f"{name}_null" in found[number] else False
            if row[name] is not answer:
                wrong.append((text, values[number], others[number], row[name], answer))
    assert wrong == []


def may_be_exponential(condition: str) -> bool:
    """Whether a condition has a regular expression for which Java may need exponential time."""
    texts = re.findall(r"RLIKE '((?:[^'\\]|\\.)*)'", condition, re.DOTALL)
    return any(needs_linear_search(parse(string(f"'{text}'"))) for text in texts)


def test_functions_of_the_session_are_left_to_spark(spark: SparkSession) -> None:
    """A function that a user registers by the name of Spark's own is called, not taken for Spark's."""
    schema = spark.createDataFrame(pa.table({"x": ["a"]})).schema
    assert SparkExpressionHost(spark, schema).built_in(["LOWER", "NVL"]) == [True, True]
    session = spark.newSession()
    session.udf.register("lower", lambda _: "z", "string")
    host = SparkExpressionHost(session, schema)
    assert host.built_in(["LOWER", "NVL"]) == [False, True]
    assert host.java >= 17
    arrow = pa.schema({"x": pa.string()})
    assert [each.expression for each in bind_selections({"q": "lower(x) = 'z'"}, arrow, host).derived] == [
        "lower(x)"
    ]
    assert bind_selections({"q": "contains(upper(x), 'z')"}, arrow, host).derived == ()


def test_patterns_that_are_searched_in_linear_time(spark: SparkSession) -> None:
    """Of short values: Java may need exponential time."""
    random = Random(11)
    values = ["".join(random.choice("aabbAk1\n") for _ in range(random.randrange(9))) for _ in range(VALUES)]
    patterns: list[TextPattern] = []
    while len(patterns) < PATTERNS:
        pattern = random_regex(random, random.choice(values))
        if is_exponential(pattern):
            patterns.append(pattern)
    compare(spark, patterns, values)


def is_exponential(pattern: TextPattern) -> bool:
    """Whether Java may need exponential time."""
    return pattern.kind == "regex" and needs_linear_search(parse(pattern.text))


def compare(spark: SparkSession, patterns: list[TextPattern], values: Sequence[str | None]) -> None:
    """Asserts that Spark, the definition and the encoder say the same of each pattern and value."""
    frame = spark.createDataFrame(pa.table({"value": pa.array(values)}))
    found = frame.selectExpr("value", *(f"{sql(pattern)} AS p{number}" for number, pattern in enumerate(patterns))).toArrow().to_pylist()  # fmt: skip
    encoder = SignatureEncoder(patterns)
    signatures = encoder.encode(pa.array([row["value"] for row in found]))
    wrong = []
    for row, signature in zip(found, signatures.tolist(), strict=True):
        value = row["value"]
        satisfied = set(encoder.satisfied(signature).tolist())
        for number, pattern in enumerate(patterns):
            by_spark = row[f"p{number}"]
            if value is None:
                assert by_spark is None
                assert signature == 0
            elif not by_spark == holds(pattern, value) == (number in satisfied):
                wrong.append((pattern, value, by_spark, holds(pattern, value), number in satisfied))
    assert wrong == []


def test_ilike_is_like_in_lower_case(spark: SparkSession) -> None:
    texts = ["ΟΔΟΣ", "%İ%", "_\u212a", "%Σ", "ẞ%", r"\%É"]
    values = ["οδος", "ΟΔΟΣ", "aİb", "xK", "x\u212a", "Σ", "ΑΣ", "ß", "%é", "%É"]
    frame = spark.createDataFrame(pa.table({"value": values}))
    tests = [sql(TextPattern("like", text)).replace(" LIKE ", " ILIKE ") for text in texts]
    rows = (
        frame.selectExpr("value", *(f"{test} AS p{number}" for number, test in enumerate(tests)))
        .toArrow()
        .to_pylist()
    )
    for row in rows:
        for number, text in enumerate(texts):
            pattern = TextPattern("like", spark_lower(text), ("lower",))
            assert row[f"p{number}"] == holds(pattern, row["value"]), (text, row["value"])


def test_backslashes_are_read_as_the_warning_of_a_pattern_says(spark: SparkSession) -> None:
    values = ["C:Windows", r"C:\Windows", r"C:\Users\x", "12", "d", "\\"]
    frame = spark.createDataFrame(pa.table({"value": values}))
    for condition, read, meant in (
        (r"value LIKE 'C:\Win%'", "C:Windows", r"C:\Windows"),
        (r"value ILIKE 'C:\win%'", "C:Windows", r"C:\Windows"),
        (r"value LIKE 'C:\Win%' ESCAPE '!'", "C:Windows", r"C:\Windows"),
        (r"value LIKE 'C:\Users\%'", None, r"C:\Users\x"),
        (r"value RLIKE '^\d+$'", "d", "12"),
    ):
        (told,) = pattern_warnings(Clause.alone(condition), parse_condition(condition))
        written, kept = re.search("the pattern (.*) as .* write (.*)[.]$", told.splitlines()[0]).groups()  # type: ignore[union-attr]
        right = condition.replace(written, kept)
        assert [row.value for row in frame.where(condition).collect()] == ([read] if read else [])
        assert [row.value for row in frame.where(right).collect()] == [meant], right


def test_lower_case(spark: SparkSession) -> None:
    """Letters in both cases of all blocks, and what stands beside a sigma."""
    step = 1 if ALL else 97
    codes = sorted({*range(1, 0x110000, step), *range(0x80, 0x600), *map(ord, _LATER_KINDS)})
    alone = [chr(code) for code in codes if not 0xD800 <= code < 0xE000]
    random = Random(7)
    letters = [*SIGNS, *_LATER_KINDS, *"ΣΣΣΣΣΣΣΣ"] + ["Σ"] * 60
    near = ["".join(random.choice(letters) for _ in range(6)) for _ in range(30_000 if ALL else 3_000)]
    beside = [text for each in alone for text in (f"A{each}Σ", f"AΣ{each}A", f"{each}Σ", f"AΣ{each}")]
    frame = spark.createDataFrame(pa.table({"value": [*alone, *near, *beside]}))
    rows = frame.selectExpr("value", "lower(value) AS low").toArrow()
    wrong = [
        (value, low)
        for value, low in zip(rows["value"].to_pylist(), rows["low"].to_pylist(), strict=True)
        if spark_lower(value) != low
    ]
    assert wrong == []


def test_upper_case(spark: SparkSession) -> None:
    """Letters of all blocks, alone and beside others."""
    step = 1 if ALL else 97
    codes = sorted({*range(1, 0x110000, step), *range(0x80, 0x600), *map(ord, _LATER_KINDS)})
    alone = [chr(code) for code in codes if not 0xD800 <= code < 0xE000]
    random = Random(9)
    near = ["".join(random.choice(SIGNS) for _ in range(6)) for _ in range(3_000)]
    rows = (
        spark.createDataFrame(pa.table({"value": [*alone, *near]}))
        .selectExpr("value", "upper(value) AS up")
        .toArrow()
    )
    pairs = zip(rows["value"].to_pylist(), rows["up"].to_pylist(), strict=True)
    assert [(value, up) for value, up in pairs if spark_upper(value) != up] == []


@pytest.mark.parametrize("text", ["a\\", r"a\b", r"\\\x"])
def test_spark_refuses_what_is_no_pattern_of_like(spark: SparkSession, text: str) -> None:
    from pyspark.errors import PySparkException

    assert not is_kernel_pattern(TextPattern("like", text))
    frame = spark.createDataFrame(pa.table({"value": ["a"]}))
    with pytest.raises(PySparkException, match="INVALID_FORMAT"):
        frame.selectExpr(sql(TextPattern("like", text))).collect()


def test_what_java_refuses_is_outside_the_subset(spark: SparkSession) -> None:
    """Random texts of signs: what is translated compiles in Java too."""
    assert spark._jvm is not None
    pattern = spark._jvm.java.util.regex.Pattern
    random = Random(3)
    for _ in range(3000 if ALL else 400):
        text = "".join(random.choice("ab-[]^&(){}?*+|\\.$,:=!<>1id") for _ in range(random.randrange(1, 9)))
        try:
            translated(text)
        except UnprovenError:
            continue
        pattern.compile(text)
