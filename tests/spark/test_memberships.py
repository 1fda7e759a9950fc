"""Views with `[NOT] IN (SELECT ...)` answer as Spark does over the same files, NULL on either side included."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from penstock.errors import SqlError, UnsupportedError
from penstock.spark.engine import Engine
from penstock.trigger import Trigger

pytestmark = pytest.mark.spark

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
_BOUND = "r.at BETWEEN o.at - INTERVAL 10 MINUTES AND o.at + INTERVAL 10 MINUTES"
VIEWS = {
    "known": "SELECT id FROM orders WHERE k IN (SELECT k FROM vips)",
    "compared": "SELECT id FROM orders o WHERE o.k > 'a' AND NOT o.k IN (SELECT k FROM vips WHERE vips.k < 'd' AND level > 0)",
    "unknown": "SELECT id FROM orders o WHERE o.k IS NOT NULL AND o.k NOT IN (SELECT v.k FROM vips v WHERE v.k IS NOT NULL)",
    "refunded": f"SELECT o.id FROM orders o WHERE o.k IN (SELECT r.k FROM refunds r WHERE {_BOUND})",
    "kept": "SELECT o.id FROM orders o WHERE o.id > 0 AND o.k IS NOT NULL AND o.k NOT IN (SELECT r.k FROM refunds r WHERE r.k IS NOT NULL "
    f"AND {_BOUND})",
    "one_table": "SELECT id FROM orders AS o WHERE k IS NOT NULL AND k NOT IN (SELECT k FROM orders AS r WHERE k IS NOT NULL AND id > 5 "
    f"AND {_BOUND})",
    "other_table": f"SELECT id FROM orders AS o WHERE k IN (SELECT k FROM refunds AS r WHERE id > 1 AND at > o.at AND {_BOUND})",
    "existing": f"SELECT id FROM orders AS o WHERE EXISTS (SELECT 1 FROM orders AS r WHERE k = o.k AND id > o.id AND {_BOUND.replace('10', '50')})",
    "not_existing": f"SELECT id FROM orders AS o WHERE NOT EXISTS (SELECT 1 FROM refunds AS r WHERE k = o.k AND id < 2 AND {_BOUND})",
}


def write(folder: Path, rows: dict[str, list[object]], schema: dict[str, pa.DataType]) -> None:
    folder.mkdir()
    pq.write_table(pa.table(rows, pa.schema(schema)), folder / "a.parquet")


def test_in_and_not_in_answer_as_spark(spark: SparkSession, tmp_path: Path) -> None:
    keys = ["a", "b", None, "c", "d", None, "e", "b"]
    moments = [NOON + timedelta(minutes=7 * number) for number in range(len(keys))]
    at = pa.timestamp("us", "UTC")
    stream = {"id": pa.int64(), "at": at, "k": pa.string()}
    write(tmp_path / "orders", {"id": [*range(len(keys))], "at": moments, "k": keys}, stream)
    refunds = {"id": [0, 1, 2], "at": [moments[1], moments[4], moments[7]], "k": ["b", None, "e"]}
    write(tmp_path / "refunds", refunds, stream)
    vips = {"k": ["a", "c", None], "level": [1, 2, 1]}
    write(tmp_path / "vips", vips, {"k": pa.string(), "level": pa.int64()})
    engine = Engine(spark).execute(
        "".join(
            f"CREATE TABLE {name} USING parquet OPTIONS (path '{tmp_path / name}', event_time 'at');"
            for name in ("orders", "refunds")
        )
        + f"CREATE TABLE vips USING parquet OPTIONS (path '{tmp_path / 'vips'}', static 'true');"
    )
    engine.add_views(VIEWS)
    with engine.start(tmp_path / "out", trigger=Trigger.available_now(ended=True)) as run:
        assert run.await_termination(300)
        found = {name: sorted(row.id for row in run.results(name).collect()) for name in VIEWS}
    for name in ("orders", "refunds", "vips"):
        spark.read.parquet(str(tmp_path / name)).createOrReplaceTempView(name)
    assert found == {
        name: sorted(row.id for row in spark.sql(text).collect()) for name, text in VIEWS.items()
    }
    assert all(found.values())


def test_streams_need_a_bound_and_both_sides_one_type_without_null(
    spark: SparkSession, tmp_path: Path
) -> None:
    stream = {"id": pa.int64(), "at": pa.timestamp("us", "UTC"), "k": pa.string()}
    tables = ""
    for name in ("orders", "refunds"):
        write(tmp_path / name, {"id": [1], "at": [NOON], "k": ["a"]}, stream)
        tables += f"CREATE TABLE {name} USING parquet OPTIONS (path '{tmp_path / name}', event_time 'at');"
    engine = Engine(spark).execute(tables)
    with pytest.raises(SqlError, match=r"Add a bound to the query in IN, such as: WHERE refunds\.at BETWEEN"):
        engine.view("v", "SELECT id FROM orders WHERE k IN (SELECT k FROM refunds)")
    with pytest.raises(SqlError, match="Write CAST on one side"):
        engine.view(
            "v", f"SELECT o.id FROM orders o WHERE o.k IN (SELECT r.id FROM refunds r WHERE {_BOUND})"
        )
    for text in (
        "o.k NOT IN (SELECT r.k FROM refunds r WHERE {})",
        "o.k IS NOT NULL AND o.k NOT IN (SELECT r.k FROM refunds r WHERE {})",
        "o.k NOT IN (SELECT r.k FROM refunds r WHERE r.k IS NOT NULL AND {})",
        "lower(o.k) IS NULL AND lower(o.k) NOT IN (SELECT r.k FROM refunds r WHERE r.k > 'a' AND {})",
    ):
        with pytest.raises(UnsupportedError, match="NOT IN is unknown beside a NULL"):
            engine.view("v", f"SELECT o.id FROM orders o WHERE {text.format(_BOUND)}")
