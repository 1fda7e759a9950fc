"""Joins of one stream with static tables: event times do not matter, so tuples without one, or with one far ahead, are in them as in Spark."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from joined_inputs import answered, multiset
from penstock.monitor.folder import folder_status
from penstock.spark.engine import Engine
from read_results import bag, published

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

VIEWS = {
    "named": "SELECT o.id, o.at, c.name FROM orders o JOIN customers c ON o.customer = c.id",
    "texts": "SELECT o.id, t.size FROM orders o JOIN tags t ON o.tag = t.tag",
    "no_key": "SELECT o.id, c.name FROM orders o JOIN customers c ON o.customer < c.id",
    "two": "SELECT o.id, c.name, t.size FROM orders o JOIN customers c ON o.customer = c.id JOIN tags t ON o.tag = t.tag",
    "maybe": "SELECT o.id, o.at, c.name FROM orders o LEFT JOIN customers c ON o.customer = c.id",
    "unknown": "SELECT o.id, o.at FROM orders o LEFT ANTI JOIN customers c ON o.customer = c.id",
    "conditional": "SELECT o.id, o.at IS NULL AS untimed, soundex(c.name) AS s FROM orders o JOIN customers c ON o.customer = c.id AND o.id > 1",
}
#: over a view that has rows without event time, and with one far ahead
OVER = {"per_day": "SELECT window(at, '1 day') AS w, count(*) AS n FROM named GROUP BY w"}
_TIMED = 1_700_000_000
_FAR = 4_000_000_000
ORDERS: list[list[tuple[int, int | None, str | None, int | None]]] = [
    [
        (1, 1, "a", _TIMED),
        (2, 2, "b", None),
        (3, None, "a", None),
        (4, 9, None, _TIMED + 5),
        (5, 1, "z", _FAR),
    ],
    [(6, 2, "b", None), (7, 2, "a", None)],
    [
        (8, 1, None, _TIMED + 9),
        (9, 1, "a", _TIMED - 4_000_000),
        (10, 3, "b", None),
        (11, 2, "b", _TIMED + 20),
    ],
]


def _put(folder: Path, number: int) -> None:
    columns = list(zip(*ORDERS[number], strict=True))
    moments = [None if each is None else datetime.fromtimestamp(each, UTC) for each in columns[3]]
    table = pa.table(
        {
            "id": pa.array(columns[0], pa.int64()),
            "customer": pa.array(columns[1], pa.int64()),
            "tag": pa.array(columns[2], pa.string()),
            "at": pa.array(moments, pa.timestamp("us", "UTC")),
        }
    )
    pq.write_table(table, folder / f"{number}.parquet")


def test_tuples_without_event_time_are_joined_as_spark_joins_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Over files of a batch each, and over a restart."""
    for name in ("orders", "customers", "tags"):
        (tmp_path / name).mkdir()
    customers: dict[str, Any] = {"id": [1, 2, 2, None], "name": ["a", "b", "bo", "nobody"]}
    pq.write_table(pa.table(customers), tmp_path / "customers" / "all.parquet")
    pq.write_table(
        pa.table({"tag": ["a", "b", "b", None], "size": [1, 2, 3, 4]}), tmp_path / "tags" / "all.parquet"
    )
    script = (
        f"CREATE TABLE orders USING parquet OPTIONS (path '{tmp_path / 'orders'}', event_time 'at', max_files_per_trigger '1');"
        f"CREATE TABLE customers USING parquet OPTIONS (path '{tmp_path / 'customers'}', static 'true');"
        f"CREATE TABLE tags USING parquet OPTIONS (path '{tmp_path / 'tags'}', static 'true')"
    )
    for files in ((0, 1), (2,)):
        for number in files:
            _put(tmp_path / "orders", number)
        run = answered(Engine(spark).execute(script).add_views({**VIEWS, **OVER}), tmp_path / "out")
        told = {name: bag(published(run, name)) for name in VIEWS}
        windows = multiset(run.results("per_day").select("w", "n"))
        run.stop()
        said = folder_status(tmp_path / "out")["views"]
        assert {name: said[name]["untimed"] for name in VIEWS} == dict.fromkeys(VIEWS, 0)
        for name in ("orders", "customers", "tags"):
            spark.read.parquet(str(tmp_path / name)).createOrReplaceTempView(name)
        for name, text in VIEWS.items():
            assert told[name] == multiset(spark.sql(text)), name
        spark.sql(VIEWS["named"]).createOrReplaceTempView("named")
        assert windows == multiset(spark.sql(OVER["per_day"])), "windows have no rows without event time"
