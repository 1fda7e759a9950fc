"""Runs of an engine with a join-like lane over two of its streams."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from engine_cases import put_file
from lane_cases import PartialsLane
from penstock.spark.engine import Engine
from penstock.spark.lanes.lane import LaneContext
from penstock.spark.lanes.registry import LanePlan

NAME = "orders.visits"
STREAMS = ("orders", "visits")
COLUMNS = "seen TIMESTAMP, name STRING, amount INT"
WINDOW = "SELECT name, window(seen, '10 minutes') AS w, count(*) AS n FROM {0} GROUP BY name, w"
SHARDS = 2


class Tables:
    """Two folders of Parquet, fed with tuples that come somewhat out of order."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._rng = np.random.default_rng(3)
        self._files = 0
        self.rows: dict[str, list[pa.Table]] = {name: [] for name in STREAMS}
        for name in STREAMS:
            (folder / name).mkdir()

    def feed(self, files: int, rows: int = 400) -> None:
        for _ in range(files):
            for name in STREAMS:
                seen = 1_700_000_000 + self._files * 300 + self._rng.integers(-900, 300, rows)
                table = pa.table(
                    {
                        "seen": pa.array(seen * 1_000_000).cast(pa.timestamp("us", "UTC")),
                        "name": self._rng.choice(["north", "south", "é"], rows),
                        "amount": pa.array(self._rng.integers(0, 9, rows), pa.int32()),
                    }
                )
                put_file(self._folder / name / f"{self._files:03d}.parquet", partial(pq.write_table, table))
                self.rows[name].append(table)
            self._files += 1

    def pairs(self) -> dict[tuple[int, str], int]:
        orders, visits = (pa.concat_tables(self.rows[name]) for name in STREAMS)  # noqa: RUF059 - DuckDB reads them
        slot = "epoch_us(time_bucket(INTERVAL 10 MINUTES, seen)) AS slot, name"
        sides = " JOIN ".join(f"(SELECT {slot} FROM {name}) {name}" for name in STREAMS)
        found = duckdb.sql(f"SELECT slot, name, count(*) FROM {sides} USING (slot, name) GROUP BY ALL")
        return {(slot, name): count for slot, name, count in found.fetchall()}


def lane_engine(spark: SparkSession, folder: Path) -> Engine:
    """An engine over the tables of a folder, each with a window view."""
    # Spark gives a Python process 10 s to start: on a loaded machine that fails again and again
    engine = Engine(spark, shards=SHARDS, retry_attempts=40)
    for name in STREAMS:
        options = f"path '{folder / name}', event_time 'seen', max_files_per_trigger '1'"
        engine.execute(f"CREATE TABLE {name} ({COLUMNS}) USING parquet OPTIONS ({options})")
        engine.view(f"by_{name}", WINDOW.format(name))
    return engine


def lane_plan(made: list[PartialsLane], paused: bool = False) -> LanePlan:
    """A lane over both streams, which is put into `made`."""

    def make(context: LaneContext, keepers: Sequence[Any]) -> PartialsLane:
        lane = PartialsLane(NAME, context, keepers, SHARDS, dict.fromkeys(STREAMS, 0))
        if paused:
            lane.goes_on.clear()
        made.append(lane)
        return lane

    return LanePlan(NAME, STREAMS, make)
