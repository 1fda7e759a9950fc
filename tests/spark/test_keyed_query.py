"""The keyed query over envelope logs: its results are those of `spark.sql` over the same tuples."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from penstock.spark.events import EventLog
from penstock.spark.expressions import SparkExpressionHost
from penstock.spark.keyed_query import KeyedQuery
from penstock.spark.layout import Layout
from penstock.spark.window_results import window_changes, window_results
from penstock.sql.bind_windows import BoundWindow, bind_window
from penstock.sql.script import parse_query
from penstock.sql.views import flatten
from penstock.sql.window_query import WindowQuery
from window_log import LogWriter

pytestmark = pytest.mark.spark

STREAM, SHARDS = "t", 2


def tuples(rows: int, seed: int) -> pa.Table:
    """A stream in order of arrival, its event times up to a minute late."""
    rng = np.random.default_rng(seed)
    began = datetime(2024, 3, 1, 12)
    late = rng.exponential(8, rows).clip(0, 60)
    times = [began + timedelta(seconds=round(row * 0.5 - late[row], 3)) for row in range(rows)]
    return pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us", "UTC")),
            "origin": pa.array([("JFK", "LGA", None, "EWR")[k] for k in rng.integers(0, 4, rows)]),
            "i": pa.array(rng.integers(-5, 50, rows), pa.int32(), mask=rng.random(rows) < 0.1),
            "x": pa.array(rng.normal(10, 3, rows), mask=rng.random(rows) < 0.1),
        }
    )


def bound(spark: SparkSession, name: str, text: str, table: pa.Table) -> BoundWindow:
    query = flatten(parse_query(text), {})
    assert isinstance(query, WindowQuery)
    host = SparkExpressionHost(spark, spark.createDataFrame(table.slice(0, 0)).schema)
    return bind_window(query, name, table.schema, host)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    made = Layout(tmp_path / "out", tmp_path / "checkpoint")
    made.open()
    return made


def keyed(spark: SparkSession, layout: Layout, **options: int) -> KeyedQuery:
    return KeyedQuery(spark, STREAM, layout, EventLog(layout.events), shards=SHARDS, **options)


def rows(table: pa.Table) -> list[str]:
    return sorted(
        repr([float(f"{value:.9g}") if isinstance(value, float) else value for value in row.values()])
        for row in table.to_pylist()
    )


def test_counts_and_sums_of_tumbling_windows(spark: SparkSession, layout: Layout) -> None:
    table = tuples(600, 1)
    text = (
        "SELECT origin, window(ts, '20 seconds') AS w, count(*) AS n, sum(i) AS s FROM t GROUP BY origin, w"
    )
    log = LogWriter(layout, STREAM, SHARDS)
    log.views(0, {0: bound(spark, "v", text, table)})
    for first in range(0, 600, 150):
        log.put(spark, table.slice(first, 150))
    end = log.end()
    query = keyed(spark, layout)
    query.start()
    query.finish(end.batch, end.mark)
    spark.createDataFrame(table).createOrReplaceTempView("t")
    assert rows(window_results(spark, layout, STREAM, "v").toArrow()) == rows(spark.sql(text).toArrow())
    told = window_changes(spark, layout, STREAM, "v").toArrow()
    assert told.schema.names == ["origin", "w", "n", "s", "revision", "coverage", "slack", "is_final", "op"]
