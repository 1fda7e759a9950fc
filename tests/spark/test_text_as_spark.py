"""Text patterns against Spark's own LIKE, ILIKE, RLIKE and lower()."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from forms import ALL
from penstock.operators.text.signatures import SignatureEncoder
from penstock.plan.java_regex import UnprovenError, parse, translated
from penstock.plan.linear_regex import needs_linear_search
from penstock.plan.lower_case import _LATER_KINDS
from penstock.plan.patterns import TextPattern, holds, is_kernel_pattern, spark_lower
from penstock.sql.conditions.dropped_escapes import pattern_warnings
from penstock.sql.conditions.parsing import parse_condition
from penstock.sql.text.clauses import Clause
from text_cases import SIGNS, random_pattern, random_regex, random_value

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

#: jobs of so many patterns over so many values
JOBS, PATTERNS, VALUES = (16, 64, 100) if ALL else (1, 50, 100)


def sql(pattern: TextPattern) -> str:
    """A pattern as Spark SQL."""
    signs = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r"}
    literal = "'" + "".join(signs.get(sign, sign) for sign in pattern.text) + "'"
    value = "lower(value)" if pattern.folding else "value"
    return f"{value} {'LIKE' if pattern.kind == 'like' else 'RLIKE'} {literal}"


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
            pattern = TextPattern("like", spark_lower(text), "lower")
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
