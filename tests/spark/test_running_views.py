"""Running views: aggregations without a window are their text over the tuples taken in, at each end of a run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from engine_cases import put_file
from penstock import Engine
from penstock.spark.run import Run
from penstock.trigger import Trigger

pytestmark = pytest.mark.spark

COLUMNS = "id BIGINT, amount INT, price DOUBLE, exact DECIMAL(20, 3), name STRING, seen TIMESTAMP"
VIEWS = {
    "by_name": "SELECT name, count(*) AS n, sum(amount) AS s, avg(price) AS mean, min(price) AS least, max(name) AS m "
    "FROM orders GROUP BY name",
    "by_two": "SELECT amount % 7 AS k, name, count(price) AS c, count(DISTINCT amount) AS d, sum(exact) AS e, "
    "median(price) AS md FROM orders WHERE amount > 100 GROUP BY amount % 7, name",
    "large": "SELECT name, amount % 3 AS k, count(*) AS n FROM orders GROUP BY name, k HAVING count(*) % 5 <> 0",
    "total": "SELECT count(*) AS n, sum(price) AS s, stddev(price) AS dev, max(seen) AS newest FROM orders",
    "nothing": "SELECT count(*) AS n, sum(amount) AS s, count(DISTINCT name) AS d, max(price) AS m, stddev(price) AS dev "
    "FROM orders WHERE amount > 5000",
    "computed": "SELECT upper(name) AS who, sum(amount) / count(*) + 1 AS x FROM orders GROUP BY upper(name)",
    "above": "SELECT name, n FROM by_name WHERE n > 45",
    "names": "SELECT DISTINCT name, amount % 4 AS k FROM orders WHERE price IS NOT NULL",
}


def orders(rows: int, seed: int) -> pa.Table:
    """Orders with NULLs in every column, event times too, and in any order."""
    rng = np.random.default_rng(seed)

    def holes() -> np.ndarray:
        return rng.random(rows) < 0.05

    names = np.array(["north", "norfolk", "south", "east", "w"])[rng.integers(0, 5, rows)]
    seen = np.datetime64("2026-01-01T00:00:00", "us") + rng.integers(0, 10**7, rows) * np.timedelta64(1, "s")
    return pa.table(
        {
            "id": pa.array(np.arange(rows)),
            "amount": pa.array(rng.integers(0, 1000, rows).astype(np.int32), mask=holes()),
            "price": pa.array(np.round(rng.uniform(0, 100, rows) * 4) / 4, mask=holes()),
            "exact": pa.array(rng.integers(-(10**6), 10**6, rows), mask=holes())
            .cast(pa.decimal128(20, 0))
            .cast(pa.decimal128(20, 3)),
            "name": pa.array(names, mask=holes()),
            "seen": pa.array(seen, pa.timestamp("us", "UTC"), mask=holes()),
        }
    )


def write(folder: Path, files: range, rows: int = 60) -> None:
    folder.mkdir(exist_ok=True)
    for number in files:
        table = orders(rows, number)
        put_file(folder / f"{number:03d}.parquet", lambda path, table=table: pq.write_table(table, path))


def engine(
    spark: SparkSession, data: Path, views: dict[str, str], options: str = ", event_time 'seen'"
) -> Engine:
    script = f"CREATE TABLE orders ({COLUMNS}) USING parquet OPTIONS (path '{data}', max_files_per_batch '2'{options});"
    return Engine(spark).execute(script).add_views(views)


def finished(made: Engine, out: Path, *, ended: bool = False) -> Run:
    run = made.start(out, trigger=Trigger.available_now(ended=ended))
    run.await_termination()
    run.stop()
    return run


def expected(spark: SparkSession, data: Path, views: dict[str, str]) -> dict[str, list[tuple[object, ...]]]:
    spark.read.schema(COLUMNS).parquet(str(data)).createOrReplaceTempView("orders")
    found = {}
    for name, text in views.items():
        frame = spark.sql(text)
        frame.createOrReplaceTempView(name)
        found[name] = rounded(frame.collect())
    return found


def rounded(rows: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    return sorted(
        (tuple(float(f"{each:.9g}") if isinstance(each, float) else each for each in row) for row in rows),
        key=repr,
    )


def test_they_are_their_text_over_the_tuples_taken_in(spark: SparkSession, tmp_path: Path) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    for files, ended in ((range(4), False), (range(4, 6), True), (range(6, 7), False)):
        write(data, files)
        run = finished(engine(spark, data, VIEWS), out, ended=ended)
        for name, wanted in expected(spark, data, VIEWS).items():
            found = run.results(name)
            assert found.columns == spark.sql(VIEWS[name]).columns
            assert rounded(found.collect()) == wanted, (name, files)
            final = rounded(run.results(name, final_only=True).drop("corrected_after_final").collect())
            if files.start < 6:
                assert final == (wanted if ended else []), name
    told = run.changes("large")
    assert {row.op for row in told.select("op").distinct().collect()} == {"upsert", "delete"}
