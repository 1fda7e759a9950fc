"""Refreshed views: what the engine publishes, rows withdrawn left out, equals what Spark says of the same tuples, as multisets."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from engine_cases import put_file
from penstock.spark.engine import Engine
from penstock.spark.results.read import results
from penstock.spark.storage.layout import Layout
from penstock.trigger import Trigger

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1_800)]

SCHEMA = pa.schema(
    [
        ("seen", pa.timestamp("us", "UTC")),
        ("k", pa.string()),
        ("v", pa.float64()),
        ("tags", pa.list_(pa.string())),
    ]
)
VIEWS = {
    "counts": "SELECT /*+ REFRESH('1 minute') */ k, count(*) AS n, max(v) AS most FROM orders GROUP BY k",
    "distinct_keys": "SELECT /*+ REFRESH('1 minute') */ DISTINCT k FROM orders",
    "best": (
        "WITH ranked AS (SELECT /*+ REFRESH('1 minute') */ *, row_number() OVER (PARTITION BY k ORDER BY v DESC, seen) AS place "
        "FROM orders) SELECT k, v, place FROM ranked WHERE place <= 2"
    ),
    "both": "SELECT /*+ REFRESH('1 minute') */ k, v FROM orders WHERE v > 40 UNION ALL SELECT name, 0D FROM names",
    "named": (
        "SELECT /*+ REFRESH('1 minute') */ n.name, o.v, struct(o.k, o.v) AS pair FROM orders o LEFT JOIN names n ON o.k = n.k "
        "WHERE o.v >= (SELECT avg(v) FROM large)"
    ),
    "tagged": "SELECT /*+ REFRESH('1 minute') */ tag, count(*) AS n FROM orders LATERAL VIEW explode(tags) t AS tag GROUP BY tag",
}
#: a view that a refreshed one reads by its text
LARGE = "SELECT seen, v FROM orders WHERE v > 10"


def write_orders(folder: Path, number: int, rows: range) -> None:
    """A file of orders."""
    folder.mkdir(parents=True, exist_ok=True)
    start = 1_577_836_800_000_000
    table = pa.table(
        {
            "seen": pa.array([start + each % 7 * 1_000_000 for each in rows]).cast(SCHEMA.field("seen").type),
            "k": [None if each % 11 == 0 else f"k{each % 5}" for each in rows],
            "v": [None if each % 13 == 0 else float(each % 50) for each in rows],
            "tags": [[f"t{each % 3}", "all"] for each in rows],
        },
        schema=SCHEMA,
    )
    put_file(folder / f"{number}.parquet", lambda path: pq.write_table(table, path))


def script(root: Path, views: dict[str, str] = VIEWS) -> str:
    """The tables and views."""
    (root / "names").mkdir(exist_ok=True)
    pq.write_table(
        pa.table({"k": ["k0", "k1", "k1"], "name": ["a", "b", None]}), root / "names" / "0.parquet"
    )
    declared = [
        f"CREATE TABLE orders USING parquet OPTIONS (path '{root / 'orders'}', event_time 'seen')",
        f"CREATE TABLE names USING parquet OPTIONS (path '{root / 'names'}', static 'true')",
        f"CREATE VIEW large AS {LARGE}",
        *(f"CREATE VIEW {name} AS {text}" for name, text in views.items()),
    ]
    return ";\n".join(declared)


def run_once(spark: SparkSession, root: Path, views: dict[str, str] = VIEWS) -> Engine:
    """A run over the files that there are."""
    engine = Engine(spark)
    engine.execute(script(root, views))
    with engine.start(root / "out", trigger=Trigger.available_now()) as run:
        assert run.await_termination(300)
    return engine


def multiset(rows: DataFrame) -> Counter[str]:
    """Rows, counted."""
    return Counter(repr(row) for row in rows.collect())


def expected(spark: SparkSession, root: Path, text: str) -> Counter[str]:
    """What Spark answers over the files."""
    spark.read.parquet(str(root / "orders")).createOrReplaceTempView("orders")
    spark.read.parquet(str(root / "names")).createOrReplaceTempView("names")
    spark.sql(LARGE).createOrReplaceTempView("large")
    try:
        return multiset(spark.sql(text))
    finally:
        for name in ("orders", "names", "large"):
            spark.catalog.dropTempView(name)


def check(spark: SparkSession, root: Path, views: dict[str, str] = VIEWS) -> None:
    """Every view has the rows that Spark answers."""
    for name, text in views.items():
        found = multiset(results(spark, Layout.of(root / "out", None), name))
        assert found == expected(spark, root, text), name


def test_answers_equal_sparks_and_change_with_more_tuples(spark: SparkSession, tmp_path: Path) -> None:
    write_orders(tmp_path / "orders", 0, range(100))
    run_once(spark, tmp_path)
    check(spark, tmp_path)
    write_orders(tmp_path / "orders", 1, range(100, 160))
    run_once(spark, tmp_path)
    check(spark, tmp_path)
