"""A stream of orders in files, with NULLs in every column, and what Spark says of texts over it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from engine_cases import put_file
from penstock import Engine
from penstock.spark.run import Run
from spark_answers import frames_of, in_one_partition, tuples_of
from whole_runs import run_to_end

COLUMNS = "id BIGINT, amount INT, price DOUBLE, exact DECIMAL(20, 3), name STRING, seen TIMESTAMP"


def orders(rows: int, seed: int) -> pa.Table:
    """Orders with NULLs in every column, event times too, and in any order; ids differ."""
    rng = np.random.default_rng(seed)

    def holes() -> np.ndarray:
        return rng.random(rows) < 0.05

    names = np.array(["north", "norfolk", "south", "east", "w"])[rng.integers(0, 5, rows)]
    seen = np.datetime64("2026-01-01T00:00:00", "us") + rng.integers(0, 10**7, rows) * np.timedelta64(1, "s")
    return pa.table(
        {
            "id": pa.array(np.arange(rows) + 1000 * seed),
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
    script = f"CREATE TABLE orders ({COLUMNS}) USING parquet OPTIONS (path '{data}', max_files_per_trigger '2'{options});"
    return Engine(spark).execute(script).add_views(views)


def finished(made: Engine, out: Path, *, ended: bool = False) -> Run:
    return run_to_end(made, out, ended=ended, seconds=None)


def expected(spark: SparkSession, data: Path, views: dict[str, str]) -> dict[str, list[tuple[object, ...]]]:
    """The rows that Spark answers over the files of a folder; each view is a temporary view then."""
    in_one_partition(spark, tuples_of(data)).createOrReplaceTempView("orders")
    return {name: values(frame.toArrow().to_pylist()) for name, frame in frames_of(spark, views).items()}


def values(rows: list[dict[str, Any]]) -> list[tuple[object, ...]]:
    """The values of rows in order, doubles to nine digits."""
    return rounded([tuple(row.values()) for row in rows])


def rounded(rows: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    return sorted(
        (tuple(float(f"{each:.9g}") if isinstance(each, float) else each for each in row) for row in rows),
        key=repr,
    )
