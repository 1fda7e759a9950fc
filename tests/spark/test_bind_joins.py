"""Join views bound with Spark's help: names, types and answers are those of the text itself."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from join_texts import QUERIES, RELATIONS, SCHEMAS, VIEWS, random_tables
from naive_join import answer
from penstock.plan.joins import JoinPlan
from penstock.spark.analysis.joins import SparkJoinHost
from penstock.spark.analysis.schemas import arrow_schema
from penstock.sql.joins.bind import bind_join
from penstock.sql.joins.query import JoinQuery
from penstock.sql.script.script import parse_query
from penstock.sql.script.views import flatten

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def _tables(spark: SparkSession) -> None:
    for name, table in random_tables(seed=7, rows=40).items():
        spark.createDataFrame(table).createOrReplaceTempView(name)
    for name, text in VIEWS.items():
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {name} AS {text}")


@pytest.fixture
def zone(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", request.param)
    yield request.param
    spark.conf.set("spark.sql.session.timeZone", before)


def host(spark: SparkSession) -> SparkJoinHost:
    return SparkJoinHost(spark, {name: spark.table(name).schema for name in SCHEMAS})


def bound(text: str, host: SparkJoinHost) -> JoinPlan:
    query = flatten(parse_query(text), {name.upper(): parse_query(view) for name, view in VIEWS.items()})
    assert isinstance(query, JoinQuery)
    return bind_join(query, "v", RELATIONS, host)


def described(schema: pa.Schema) -> list[tuple[str, str]]:
    return [(field.name, str(field.type).replace(" not null", "")) for field in schema]


def rows(table: pa.Table) -> list[str]:
    return sorted(repr(row) for row in zip(*(column.to_pylist() for column in table.columns), strict=True))


@pytest.mark.usefixtures("zone")
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"], indirect=True)
@pytest.mark.parametrize("text", QUERIES)
def test_a_bound_view_answers_as_its_text(spark: SparkSession, text: str) -> None:
    plan = bound(text, host(spark))
    expected = spark.sql(text)
    outputs = pa.schema([(output.name, output.type) for output in plan.outputs])
    assert described(outputs) == described(arrow_schema(expected.schema))
    found = answer(spark, plan)
    assert rows(found) == rows(expected.toArrow())
    assert found.num_rows > 0, "a test that compares nothing"
