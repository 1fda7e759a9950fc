"""What the engine tests share: small real data, and the oracle over the same tuples."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock.spark.ingest.answering import BatchDone
from penstock.spark.ingest.rearranging import Rearranging
from penstock.spark.publication.manifests import published_paths
from penstock.spark.storage.layout import Layout
from publishing import shown

COLUMNS = "id BIGINT, amount INT, price DOUBLE, name STRING, seen TIMESTAMP"

#: views of every kind: kernel predicates, derived columns, an expression that raises, projections
VIEWS = {
    "large": "SELECT * FROM orders WHERE amount > 900",
    "cheap_or_unknown": "SELECT id, price FROM orders WHERE price < 5.5 OR price IS NULL",
    "north": "SELECT id, upper(name) AS shouted FROM orders WHERE name LIKE 'nor%' AND amount BETWEEN 100 AND 500",
    "never": "SELECT * FROM orders WHERE amount > 5000",
}
DERIVED_VIEWS = {
    "long_name": "SELECT * FROM orders WHERE octet_length(name) > 4 AND amount < 200",
    "ratio": "SELECT id FROM orders WHERE 1000 / amount > 20 AND name <> 'south'",
}


def write_orders(folder: Path, files: int, rows: int, seed: int = 7) -> None:
    """Parquet files of orders, exactly the declared columns, several row groups each."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(files):
        table = orders(rows, seed + number, number * rows)
        put_file(
            folder / f"{number:03d}.parquet", partial(pq.write_table, table, row_group_size=max(1, rows // 3))
        )


def put_file(path: Path, write: Callable[[Path], None]) -> None:
    """Lets a file appear whole, in a folder that may be read meanwhile, and later by its time than those that are there:
    Spark reads files in the order of their milliseconds.

    Args:
        path: the file.
        write: writes it to another path.
    """
    before = max((each.stat().st_mtime_ns for each in path.parent.iterdir()), default=0)
    unfinished = path.with_name(f".{path.name}")
    write(unfinished)
    moment = max(before + 1_000_000, unfinished.stat().st_mtime_ns)
    os.utime(unfinished, ns=(moment, moment))
    unfinished.rename(path)


def orders(rows: int, seed: int, first: int = 0) -> pa.Table:
    """A table of orders with NULLs and NaNs."""
    rng = np.random.default_rng(seed)
    price = rng.uniform(0, 100, rows)
    price[rng.random(rows) < 0.02] = np.nan
    names = np.array(["north", "norfolk", "south", "east", "w"])[rng.integers(0, 5, rows)]
    return pa.table(
        {
            "id": pa.array(np.arange(first, first + rows)),
            "amount": pa.array(rng.integers(0, 1000, rows).astype(np.int32), mask=rng.random(rows) < 0.05),
            "price": pa.array(price, mask=rng.random(rows) < 0.05, from_pandas=False),
            "name": pa.array(names, mask=rng.random(rows) < 0.05),
            "seen": pa.array(
                # half of a file's tuples are older than the newest of the file before
                np.datetime64("2026-01-01T00:00:00", "us")
                + (first // 2 + np.arange(rows)) * np.timedelta64(1, "s"),
                pa.timestamp("us", "UTC"),
            ),
        }
    )


def script(folder: Path, views: dict[str, str], source: str = "parquet", options: str = "") -> str:
    """A script over the orders of a folder."""
    declared = [
        f"CREATE TABLE orders ({COLUMNS}) USING {source} OPTIONS (path '{folder}', event_time 'seen'{options});"
    ]
    return "\n".join(declared + [f"CREATE VIEW {name} AS {sql};" for name, sql in views.items()])


def expected(
    spark: SparkSession, tuples: DataFrame, views: dict[str, str]
) -> dict[str, Counter[tuple[object, ...]]]:
    """What `spark.sql` answers over a static table of the same tuples; raising rows are no matches."""
    tuples.createOrReplaceTempView("orders")
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        return {name: rows(spark.sql(sql)) for name, sql in views.items()}
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before)


def rows(frame: DataFrame) -> Counter[tuple[object, ...]]:
    """The rows of a frame as a bag; NaN equals itself."""
    return Counter(tuple("NaN" if value != value else value for value in row) for row in frame.collect())


def names(paths: Iterable[Path]) -> list[str]:
    """The names of files in order."""
    return sorted(path.name for path in paths)


def folder_bag(output: Path, stream: str, by_manifest: bool) -> Counter[tuple[object, ...]]:
    """(id, query) pairs of the results folder, read through the manifests or as a plain folder without replaced files."""
    layout = Layout(output, output)
    paths = published_paths(layout, stream) if by_manifest else shown(layout, stream, layout.matches(stream))
    bag: Counter[tuple[object, ...]] = Counter()
    for path in paths:
        table = pq.read_table(path, columns=["id", "queries"])
        for key, queries in zip(table["id"].to_pylist(), table["queries"].to_pylist(), strict=True):
            bag.update((key, query) for query in queries)
    return bag


def put_rides(folder: Path, name: int, rows: int, begin: float, seconds: float) -> pa.Table:
    """A file of `folder/rides`: moments of so many seconds from `begin` on (since the epoch), in any order; k and x with NULLs."""
    rng = np.random.default_rng(name)
    moments = begin + rng.random(rows) * seconds
    table = pa.table(
        {
            "ts": pa.array((moments * 1e6).astype(np.int64)).cast(pa.timestamp("us", "UTC")),
            "k": pa.array(rng.choice(["a", "b", None], rows).tolist(), pa.string()),
            "x": pa.array(rng.integers(-50, 50, rows), mask=rng.random(rows) < 0.1),
        }
    )
    put_file(folder / "rides" / f"{name}.parquet", partial(pq.write_table, table))
    return table


def after_each_batch(monkeypatch: pytest.MonkeyPatch, act: Callable[[int], object]) -> None:
    """Calls a function with the number of each batch that is published, before the next one begins."""
    report = Rearranging.report

    def reporting(rearranging: Rearranging, done: BatchDone) -> None:
        report(rearranging, done)
        act(done.batch)

    monkeypatch.setattr(Rearranging, "report", reporting)
