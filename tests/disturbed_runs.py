"""Runs that something is done to while they go on: files come one after the other, and in the end the answers are exact."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from engine_cases import folder_bag, orders, put_file, script
from penstock.spark.results.read_plain import plain_rows
from penstock.spark.storage.layout import Layout

VIEWS = {
    "large": "SELECT * FROM orders WHERE amount > 900",
    "north": "SELECT * FROM orders WHERE name LIKE 'nor%' AND amount < 300",
    "by_name": "SELECT name, window(seen, '10 minutes') AS w, count(*) AS n, sum(amount) AS s FROM orders GROUP BY name, w",
}
_MOST_SECONDS = 300


def until(
    condition: Callable[[], bool], told: Callable[[], object] = lambda: "", seconds: float = _MOST_SECONDS
) -> None:
    """Waits for a condition.

    Args:
        condition: what is to become true.
        told: what is told where it does not.
        seconds: the longest that it is waited for.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, told()
        time.sleep(0.05)


def slope(moments: Sequence[float], values: Sequence[float]) -> float:
    """How fast values grow: the median over all pairs of them (Theil and Sen), so that a few outliers do not matter."""
    points = list(zip(moments, values, strict=True))
    return median((b - a) / (later - early) for (early, a), (later, b) in combinations(points, 2))


class Orders:
    """A folder of orders that grows by a file at a time, and what views of them are.

    Args:
        folder: a new one.
        keep: whether the orders stay in memory, to compare answers with.
    """

    def __init__(self, folder: Path, *, keep: bool = True) -> None:
        self.folder = folder
        self.tables: list[pa.Table] = []
        self.files = self.rows = 0
        self._keep = keep
        folder.mkdir()

    def feed(self, files: int, rows: int = 2_000) -> None:
        """Puts so many files more."""
        for _ in range(files):
            table = orders(rows, self.files, self.rows)
            put_file(self.folder / f"{self.files:05d}.parquet", partial(pq.write_table, table))
            self.files += 1
            self.rows += table.num_rows
            if self._keep:
                self.tables.append(table)

    def script(self, views: dict[str, str] | None = None) -> str:
        """A table over the folder, a batch a file, and views."""
        return script(self.folder, VIEWS if views is None else views, options=", max_files_per_trigger '1'")

    def assert_answered(self, output: Path, selections: dict[str, str] | None = None) -> None:
        """Makes sure that VIEWS, or other selections, are exactly what they are of all orders, each match once."""
        conditions = {
            name: text.partition(" WHERE ")[2]
            for name, text in (selections or VIEWS).items()
            if " WHERE " in text
        }
        with duckdb.connect() as connection:
            connection.register("tuples", pa.concat_tables(self.tables))
            wanted = Counter(
                (key, name)
                for name, condition in conditions.items()
                for (key,) in connection.sql(f"SELECT id FROM tuples WHERE {condition}").fetchall()
            )
            groups = connection.sql(
                "SELECT name, epoch_us(time_bucket(INTERVAL 10 MINUTES, seen)), count(*), sum(amount) FROM tuples GROUP BY ALL"
            ).fetchall()
        assert folder_bag(output, "orders", by_manifest=True) == wanted
        if selections is not None:
            return
        found = plain_rows(Layout.of(output, None), "by_name", 0, False)
        assert found is not None
        assert Counter(map(_group, found.rows.to_pylist())) == Counter(groups)


def _group(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["name"], round(row["w"]["start"].timestamp() * 1_000_000), row["n"], row["s"]
