"""Several LEFT JOINs with static tables, as people write them: the rows are Spark's, over restarts and versions of a table."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from joined_inputs import answered, multiset
from penstock.spark.engine import Engine

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1_800)]

SCHEMAS = {
    "orders": pa.schema(
        {"id": pa.int64(), "customer": pa.int64(), "product": pa.string(), "at": pa.timestamp("us", "UTC")}
    ),
    "payments": pa.schema({"of": pa.int64(), "paid": pa.timestamp("us", "UTC")}),
    "customers": pa.schema({"id": pa.int32(), "name": pa.string()}),
    "products": pa.schema({"id": pa.string(), "title": pa.string(), "category": pa.int32()}),
    "categories": pa.schema({"id": pa.int64(), "name": pa.string(), "since": pa.int64()}),
}
STREAMS = {"orders": "at", "payments": "paid"}
_LOOKUPS = (
    "LEFT JOIN customers c ON o.customer = c.id LEFT JOIN products p ON o.product = p.id AND o.id > 1 "
    "LEFT JOIN categories g ON p.category = g.id AND g.since <= o.id"
)
VIEWS = {
    "described": f"SELECT o.id, c.name AS customer, p.title, g.name AS category FROM orders o {_LOOKUPS}",
    "chosen": f"SELECT o.id, upper(c.name) AS customer, coalesce(g.name, 'none') AS category FROM orders o {_LOOKUPS} "
    "WHERE g.name IS NULL OR c.name = 'Ada'",
    "paid": "SELECT o.id, y.paid, c.name AS customer, p.title FROM orders o JOIN payments y ON o.id = y.of AND y.paid BETWEEN o.at "
    "AND o.at + INTERVAL 1 HOUR LEFT JOIN customers c ON o.customer = c.id LEFT JOIN products p ON o.product = p.id",
    "maybe_paid": "SELECT o.id, y.paid, c.name AS customer, p.title FROM orders o LEFT JOIN customers c ON o.customer = c.id "
    "LEFT JOIN payments y ON o.id = y.of AND y.paid BETWEEN o.at AND o.at + INTERVAL 1 HOUR LEFT JOIN products p ON o.product = p.id "
    "WHERE p.title IS NULL OR p.category > 0",
}
CUSTOMERS = [(1, "Ada"), (2, "Bo"), (2, "Bob"), (None, "nobody")]
PRODUCTS = [("a", "apple", 1), ("b", "book", 2), ("b", "boot", None), ("z", None, 1)]
CATEGORIES = [(1, "food", 0), (1, "fruit", 4), (2, "things", 0)]
ORDERS = [
    [(1, 1, "a", 0), (2, 2, "b", 100), (3, None, "a", 50), (4, 9, None, 200)],
    [(5, 1, "b", 150), (6, 2, "q", 4_000), (7, 2, "z", 90), (8, 1, "a", 60_000)],
]
PAYMENTS = [[(1, 10), (4, 300), (2, 9_000)], [(5, 160), (5, 170), (3, 60), (1, 20), (9, 60_000)]]


def table(name: str, rows: list[tuple[Any, ...]]) -> pa.Table:
    """Rows of a table; times are seconds."""
    schema = SCHEMAS[name]
    columns = []
    for place, field in enumerate(schema):
        values = [row[place] for row in rows]
        if pa.types.is_timestamp(field.type):
            columns.append(pa.array([(1_700_000_000 + each) * 1_000_000 for each in values]).cast(field.type))
        else:
            columns.append(pa.array(values, field.type))
    return pa.Table.from_arrays(columns, schema=schema)


@pytest.mark.parametrize("changed", [False, True])
def test_views_with_several_left_joins_are_their_texts(
    spark: SparkSession, tmp_path: Path, changed: bool
) -> None:
    def put(name: str, rows: list[tuple[Any, ...]], number: int = 0) -> None:
        (tmp_path / name).mkdir(exist_ok=True)
        pq.write_table(table(name, rows), tmp_path / name / f"{number}.parquet")

    def expected(text: str, orders: list[tuple[Any, ...]], payments: list[tuple[Any, ...]]) -> Counter[str]:
        for name, rows in {"orders": orders, "payments": payments}.items():
            spark.createDataFrame(table(name, rows)).createOrReplaceTempView(name)
        for name in SCHEMAS.keys() - STREAMS.keys():
            spark.read.parquet(str(tmp_path / name)).createOrReplaceTempView(name)
        return multiset(spark.sql(text))

    for name, rows in {"customers": CUSTOMERS, "products": PRODUCTS, "categories": CATEGORIES}.items():
        put(name, rows)
    script = ";\n".join(
        f"CREATE TABLE {name} USING parquet OPTIONS (path '{tmp_path / name}', "
        + (f"event_time '{STREAMS[name]}')" if name in STREAMS else "static 'true')")
        for name in SCHEMAS
    )
    orders: list[tuple[Any, ...]] = []
    payments: list[tuple[Any, ...]] = []
    before: dict[str, Counter[str]] = {}
    for number in range(2):
        put("orders", ORDERS[number], number)
        put("payments", PAYMENTS[number], number)
        if number and changed:
            put("products", [("a", "apricot", 1), ("b", "book", 2)])
        run = answered(Engine(spark).execute(script).add_views(VIEWS), tmp_path / "out")
        told = {name: multiset(run.results(name)) for name in VIEWS}
        explained = run.explain()
        run.stop()
        orders, payments = [*orders, *ORDERS[number]], [*payments, *PAYMENTS[number]]
        for name, text in VIEWS.items():
            if not (number and changed):
                assert told[name] == expected(text, orders, payments), text
            elif name in ("described", "chosen"):
                # rows of before stay as they were
                assert told[name] == before[name] + expected(text, ORDERS[1], PAYMENTS[1]), text
        if number and changed:
            rows = told["maybe_paid"]
            assert not any("'id': 3" in row and "'paid': None" in row for row in rows), (
                "it was withdrawn by name"
            )
            assert any("'id': 3" in row and "apricot" in row for row in rows)
        before = told
    assert "then looked up in g (optional static table categories)" in explained
