"""Derived columns on Spark: values, NULLs, rows that raise, batch and stream."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException, PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import IntegerType

from forms import ALL, thinned
from penstock.operators.ingest.derived import DerivedLayout
from penstock.plan.expressions import Derived
from penstock.spark.analysis.derive import derive, derive_packed
from penstock.spark.analysis.expressions import SparkExpressionHost

pytestmark = pytest.mark.spark

SCHEMA = "a INT, b INT, s STRING, `odd ``name` INT"
ROWS = [(1, 0, "x", 1), (2, 1, "5", 2), (3, None, None, None), (2**31 - 1, 2, "2020-02-30", 3)]
TYPED_ROW = "SELECT CAST({} AS INT) a, CAST({} AS INT) b, CAST({} AS STRING) s, CAST({} AS INT) `odd ``name`"
#: expressions that raise for some of ROWS; pairs of them share what raises
RAISING = [
    "1 / b > 0",
    "1 / b > 5",
    "1 / b",
    "1 / b BETWEEN 0 AND 5",
    "nullif(1 / b, 3)",
    "CAST(s AS INT)",
    "CAST(s AS INT) > 0",
    "a + 1",
    "a + 1 > 3 AND 1 / b > 0",
    "to_date(s)",
    "array(1, 2)[a]",
    "unix_micros(DATE '2020-01-01' + INTERVAL 1 DAY * a)",
    "raise_error(s) IS NULL",
    "CAST('x' AS INT) = a",
    "transform(array(a, b), q -> 1 / q)[0] > 0",
    "s RLIKE concat('(', s)",
]
SAFE = [
    "a > 1",
    "s LIKE '%x%'",
    "b IS NULL",
    "length(s)",
    "upper(s)",
    "`odd ``name` > 2 -- a remark",
    "b > 0",
]


def declare(host: SparkExpressionHost, expressions: list[str]) -> list[Derived]:
    return [
        Derived(f"v{number}", text, kind, f"e{number}" if raises else None)
        for number, (text, kind, raises) in enumerate(
            zip(expressions, host.types(expressions), host.may_raise(expressions), strict=True)
        )
    ]


def computed(df: DataFrame, derived: list[Derived]) -> pa.Table:
    layout = DerivedLayout.of(derived)
    batches = derive_packed(df, derived).toArrow().to_batches()
    return pa.Table.from_batches([layout.unpack(batch) for batch in batches])


def one_by_one(spark: SparkSession, derived: list[Derived]) -> list[dict[str, Any]]:
    """The same values asked of Spark one row and one expression at a time."""
    answers = []
    for a, b, s, odd in ROWS:
        values = ("NULL" if value is None else repr(value) for value in (a, b, s, odd))
        row = TYPED_ROW.format(*values)
        answer: dict[str, Any] = {}
        for each in derived:
            raised = False
            try:
                answer[each.name] = (
                    spark.sql(f"SELECT ({each.expression}\n) AS v FROM ({row})").collect()[0].v
                )
            except PySparkException:
                answer[each.name] = None
                raised = True
            assert each.error_column or not raised
            if each.error_column:
                answer[each.error_column] = raised
        answers.append(answer)
    return answers


@pytest.fixture(params=thinned([("true", "NO_CODEGEN"), ("true", "FALLBACK"), ("false", "CODEGEN_ONLY")], 3))
def code_generation(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[None]:
    names = ("spark.sql.codegen.wholeStage", "spark.sql.codegen.factoryMode")
    before = {name: spark.conf.get(name) for name in names}
    for name, value in zip(names, request.param, strict=True):
        spark.conf.set(name, value)
    yield
    for name, value in before.items():
        spark.conf.set(name, value)


@pytest.fixture(scope="module")
def alone(_session: SparkSession) -> list[dict[str, Any]]:
    """The values of all expressions; of one row Spark's optimizer computes them, however code is generated."""
    host = SparkExpressionHost(_session, _session.createDataFrame(ROWS, SCHEMA).schema)
    return one_by_one(_session, declare(host, RAISING + SAFE))


@pytest.mark.usefixtures("code_generation")
def test_each_row_gets_what_spark_computes_for_it_alone(
    spark: SparkSession, alone: list[dict[str, Any]]
) -> None:
    df = spark.createDataFrame(ROWS, SCHEMA).repartition(1).sortWithinPartitions("a")
    derived = declare(SparkExpressionHost(spark, df.schema), RAISING + SAFE)
    assert [each.error_column is not None for each in derived] == [True] * len(RAISING) + [False] * len(SAFE)
    table = computed(df, derived)
    assert table.select(df.columns).to_pylist() == df.toArrow().to_pylist()
    names = [name for each in derived for name in (each.name, each.error_column) if name]
    assert table.select(names).to_pylist() == alone
    assert derive(df, derived).toArrow().select(names).to_pylist() == alone


def test_two_thousand_booleans_take_words_not_columns(spark: SparkSession) -> None:
    df = spark.range(1000).selectExpr("CAST(id AS INT) AS a", "CAST(id % 7 AS INT) AS b")
    count, words = (1990, 63) if ALL else (190, 7)
    expressions = [f"(a > {number}) = (b < {number % 7})" for number in range(count)] + ["a / b > 3"] * 10
    derived = declare(SparkExpressionHost(spark, df.schema), expressions)
    try:
        assert len(derive_packed(df, derived).columns) == 2 + DerivedLayout.of(derived).columns == 2 + words
        table = computed(df, derived)
    finally:
        spark.conf.unset("spark.sql.codegen.wholeStage")
    rows = range(1000)
    for number in (0, 31, 32, count // 2, count - 1):
        assert table[f"v{number}"].to_pylist() == [(a > number) == (a % 7 < number % 7) for a in rows]
    assert table[f"v{count + 9}"].to_pylist() == [a / (a % 7) > 3 if a % 7 else None for a in rows]
    assert table[f"e{count + 9}"].to_pylist() == [a % 7 == 0 for a in rows]


def test_a_stream_is_derived_batch_by_batch(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(2):
        pq.write_table(pa.table({"a": pa.array([0, 1, number], pa.int32())}), tmp_path / f"{number}.parquet")
    host = SparkExpressionHost(spark, spark.read.parquet(str(tmp_path)).schema)
    derived = declare(host, ["1 / a", "1 / a > 0", "a IS NULL"])
    batches: dict[int, list[dict[str, Any]]] = {}

    def keep(df: DataFrame, number: int) -> None:
        batches[number] = computed(df, derived).select(["a", "v0", "e0", "v1", "e1", "v2"]).to_pylist()

    stream = spark.readStream.schema("a INT").option("maxFilesPerTrigger", 1).parquet(str(tmp_path))
    stream.writeStream.foreachBatch(keep).trigger(availableNow=True).start().awaitTermination()
    zero = {"a": 0, "v0": None, "e0": True, "v1": None, "e1": True, "v2": False}
    one = {"a": 1, "v0": 1.0, "e0": False, "v1": True, "e1": False, "v2": False}
    assert sorted(batches) == [0, 1]
    assert sorted(map(str, batches[0] + batches[1])) == sorted(map(str, [zero] * 3 + [one] * 3))


def test_a_python_function_is_computed_and_what_it_raises_stops_the_job(spark: SparkSession) -> None:
    def double(value: int) -> int:
        if value == 3:
            raise ValueError("three")
        return 2 * value

    spark.udf.register("double_it", double, IntegerType())
    df = spark.createDataFrame(ROWS, SCHEMA)
    derived = declare(SparkExpressionHost(spark, df.schema), ["double_it(a) / b"])
    assert derived[0].error_column
    assert computed(df.where("a < 3"), derived).select(["v0", "e0"]).to_pylist() == [
        {"v0": None, "e0": True},
        {"v0": 4.0, "e0": False},
    ]
    with pytest.raises(PythonException, match="three"):
        computed(df, derived)
