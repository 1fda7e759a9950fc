"""Join views bound with Spark's help: names, types and answers are those of the text itself."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from forms import thinned
from join_texts import QUERIES, RELATIONS, SCHEMAS, SHIFTED, VIEWS, random_query, random_tables
from naive_join import answer
from penstock.plan.joins import Comparison, JoinColumn, JoinKey, JoinPlan, Operator, TimeBound
from penstock.spark.analysis.joins import SparkJoinHost
from penstock.spark.analysis.schemas import arrow_schema
from penstock.sql.joins.bind import bind_join
from penstock.sql.joins.query import JoinQuery
from penstock.sql.script.queries import parse_query
from penstock.sql.script.views import flatten

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def frames(_session: SparkSession) -> dict[str, DataFrame]:
    tables = random_tables(seed=7, rows=40)
    return {name: _session.createDataFrame(table) for name, table in tables.items()}


@pytest.fixture(autouse=True)
def _tables(spark: SparkSession, frames: dict[str, DataFrame]) -> None:
    for name, frame in frames.items():
        frame.createOrReplaceTempView(name)
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
    plan, _ = bind_join(query, "v", RELATIONS, host)
    return plan


def test_a_text_that_is_compared_with_a_number_is_told(spark: SparkSession) -> None:
    query = parse_query(
        "SELECT f.x FROM flights f JOIN weather w ON f.said = w.k AND w.seen BETWEEN f.dep - INTERVAL 20 MINUTES AND f.dep"
    )
    assert isinstance(query, JoinQuery)
    _, (warning,) = bind_join(query, "v", RELATIONS, host(spark))
    assert "f.said is STRING, the other side is not: Spark casts f.said to BIGINT" in warning
    assert "try_cast(f.said AS BIGINT)" in warning
    same = parse_query(
        "SELECT f.x FROM flights f JOIN weather w ON f.said = w.origin AND w.seen BETWEEN f.dep - INTERVAL 20 MINUTES AND f.dep"
    )
    assert isinstance(same, JoinQuery)
    assert bind_join(same, "v", RELATIONS, host(spark))[1] == []


def test_a_pattern_that_loses_a_backslash_is_warned_of(spark: SparkSession) -> None:
    join = (
        "SELECT f.x, f.said FROM flights f JOIN weather w ON w.seen BETWEEN f.dep AND f.dep + INTERVAL 1 HOUR"
    )
    texts = [
        rf"{join} AND w.origin NOT LIKE 'C:\Win%'",
        rf"{join} WHERE f.said LIKE 'C:\Win%' OR f.k = 1",
        r"SELECT x FROM told WHERE said ILIKE 'C:\Win%'",
    ]
    for text in texts:
        query = flatten(parse_query(text), {"TOLD": parse_query(join)})
        assert isinstance(query, JoinQuery)
        _, (warning,) = bind_join(query, "v", RELATIONS, host(spark))
        assert warning.startswith("Spark reads the pattern 'C:\\Win%' as C:Win%"), text


def described(schema: pa.Schema) -> list[tuple[str, str]]:
    return [(field.name, str(field.type).replace(" not null", "")) for field in schema]


def rows(table: pa.Table) -> list[str]:
    return sorted(repr(row) for row in zip(*(column.to_pylist() for column in table.columns), strict=True))


def raise_always(_: object) -> float:
    raise ZeroDivisionError


@pytest.mark.usefixtures("zone")
@pytest.mark.parametrize(
    ("text", "zone"),
    thinned([(text, "UTC") for text in QUERIES], 4, 2)
    + thinned([(text, "Europe/Berlin") for text in SHIFTED], 4, 2),
    indirect=["zone"],
)
def test_a_bound_view_answers_as_its_text(spark: SparkSession, text: str) -> None:
    plan = bound(text, host(spark))
    expected = spark.sql(text)
    outputs = pa.schema([(output.name, output.type) for output in plan.outputs])
    assert described(outputs) == described(arrow_schema(expected.schema))
    found = answer(spark, plan)
    assert rows(found) == rows(expected.toArrow())
    assert found.num_rows > 0, "a test that compares nothing"


@pytest.mark.usefixtures("zone")
@pytest.mark.parametrize("zone", ["Europe/Berlin"], indirect=True)
@pytest.mark.parametrize("seed", thinned(range(20), 5))
def test_random_joins_answer_as_their_texts(spark: SparkSession, seed: int) -> None:
    for name, table in random_tables(seed, rows=15).items():
        spark.createDataFrame(table).createOrReplaceTempView(name)
    text = random_query(seed)
    assert rows(answer(spark, bound(text, host(spark)))) == rows(spark.sql(text).toArrow()), text


def test_the_plan_of_a_chain(spark: SparkSession) -> None:
    plan = bound(
        "SELECT f.dest, w.x, f.k * 2 AS twice, f.x + b.x AS total FROM flights f JOIN weather w ON f.k = w.k "
        "AND w.seen >= f.dep AND w.seen < f.dep + INTERVAL 1 HOUR AND w.x > f.x JOIN bookings b ON b.k = w.k AND b.k = w.k "
        "AND w.seen <= b.at AND b.at - INTERVAL 1 MINUTE < w.seen AND (b.x > 1 OR w.x > 1) WHERE f.dest <> 'EWR' AND 1 < 2",
        host(spark),
    )
    assert [(each.alias, each.relation, each.is_static, each.time) for each in plan.inputs] == [
        ("f", "flights", False, "_0_dep"),
        ("w", "weather", False, "_1_seen"),
        ("b", "bookings", False, "_2_at"),
    ]
    assert [each.condition for each in plan.inputs] == ["((`dest`) <> ('EWR')) AND ((1) < (2))", None, None]
    assert plan.keys == (JoinKey(("_0x0", "_1_k", "_2_k"), pa.int64()),)
    assert plan.inputs[0].columns[1] == JoinColumn("_0_x", "`x`", pa.float64())
    hour, minute = 3_600_000_000, 60_000_000
    assert plan.bounds == (
        TimeBound(0, 1, 0, hour - 1),
        TimeBound(0, 2, 0, hour + minute - 2),
        TimeBound(1, 2, 0, minute - 1),
    )
    assert plan.comparisons == (Comparison("_1x0", Operator.GREATER, "_0_x"),)
    assert plan.residual == ("`_2_x` > 1 OR `_1_x` > 1",)
    assert [(each.name, each.column, each.text) for each in plan.outputs] == [
        ("dest", "_0_dest", "`_0_dest`"),
        ("x", "_1_x", "`_1_x`"),
        ("twice", None, "`_0_k` * 2"),
        ("total", None, "`_0_x` + `_2_x`"),
    ]
    casts = {
        column.name: column.text for each in plan.inputs for column in each.columns if "x0" in column.name
    }
    assert casts == {"_0x0": "CAST(`k` AS BIGINT)", "_1x0": "CAST(`x` AS DOUBLE)"}


def test_where_makes_an_outer_join_an_inner_one_where_it_is_true_of_no_row_without_a_partner(
    spark: SparkSession,
) -> None:
    left = (
        "SELECT f.k, w.x FROM flights f LEFT JOIN weather w ON f.k = w.k AND w.seen BETWEEN f.dep AND f.dep"
    )
    asked = host(spark)
    assert bound(left, asked).optional == (1,)
    for condition in ("w.x > 0", "w.x IS NOT NULL", "w.k + 1 > f.k", "NOT (w.x IS NULL)"):
        plan = bound(f"{left} WHERE {condition}", asked)
        assert (plan.optional, plan.filters) == ((), ()), condition
    for condition in ("w.x IS NULL", "coalesce(w.k, 1) > f.k", "w.x > f.x OR f.k > 1", "w.x <=> f.x"):
        plan = bound(f"{left} WHERE {condition}", asked)
        assert plan.optional == (1,), condition
        assert len(plan.filters) == 1
    # values without an order
    nested = "SELECT w.k FROM weather w LEFT JOIN flights f ON f.k = w.k AND f.dep BETWEEN w.seen AND w.seen"
    for value, optional in (
        ("f.place", ()),
        ("coalesce(f.place, named_struct('city', '', 'gate', 1))", (1,)),
    ):
        text = f"{nested} WHERE {value} = named_struct('city', w.origin, 'gate', 1)"
        assert bound(text, asked).optional == optional, value
    # what a user's function makes of NULL is not asked
    spark.udf.register("costly", raise_always, "double")
    for condition in ("costly(w.x) > 0", "costly(w.x) > f.x"):
        plan = bound(f"{left} WHERE {condition}", asked)
        assert (plan.optional, len(plan.filters)) == ((1,), 1), condition
    plan = bound(f"{left} AND f.k > 1 AND w.x > 2 AND w.x > f.x WHERE f.x > 3", asked)
    assert [each.condition for each in plan.inputs] == ["(`x`) > (3)", "(`x`) > (2)"]
    # who does not meet the condition on the left input alone has no key
    assert plan.keys == (
        JoinKey(("_0x0", "_1_k"), pa.int64()),
        JoinKey(("_0x1", "_1x1"), pa.bool_()),
    )
    texts = {column.name: column.text for each in plan.inputs for column in each.columns}
    assert texts["_0x1"] == "CASE WHEN ((`k`) > (1)) THEN TRUE END"
    assert texts["_1x1"] == "TRUE"
    assert (plan.residual, len(plan.comparisons)) == ((), 1)


def test_views_among_the_inputs_are_pushed_into_them(spark: SparkSession) -> None:
    plan = bound(
        "SELECT l.*, w.x AS wx FROM later l JOIN weather w ON w.k = l.k1 AND w.seen BETWEEN l.t AND l.t",
        host(spark),
    )
    one = plan.inputs[0]
    assert (one.alias, one.relation, one.time) == ("l", "flights", "_0_t")
    assert one.condition is not None
    assert "(k + 1) > 1" in one.condition
    assert {column.name: column.text for column in one.columns}["_0_loud"] == "upper(dest)"
    assert [output.name for output in plan.outputs] == ["t", "origin", "k1", "x", "loud", "wx"]


def test_bounds_that_the_clock_shifts_are_wider_and_judged_again(spark: SparkSession) -> None:
    text = "SELECT f.k, w.x FROM flights f JOIN weather w ON f.k = w.k AND w.seen BETWEEN f.dep AND f.dep + INTERVAL 1 DAY"
    day = 86_400_000_000
    before = spark.conf.get("spark.sql.session.timeZone")
    try:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        plain = bound(text, host(spark))
        spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
        shifted = bound(text, host(spark))
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    assert (plain.bounds, plain.comparisons, plain.residual) == ((TimeBound(0, 1, 0, day),), (), ())
    (bound_,) = shifted.bounds
    assert bound_.lower == 0
    assert day < bound_.upper < day + 4 * 3_600_000_000
    assert len(shifted.residual) == 1, "the sum may raise, so that Spark judges it"
