"""Many of everything: views that come and go, window views on one stream, groups of a window. Exact, and nothing is left behind.

The long form: 2,000 views 50 times, 500 window views, 200,000 groups.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from disturbed_runs import Orders, until
from engine_cases import folder_bag, put_file
from forms import ALL
from penstock.spark.engine import Engine
from penstock.spark.results.read_plain import plain_rows
from penstock.spark.storage.layout import Layout
from penstock.trigger import Trigger
from whole_runs import run_to_end

pytestmark = [pytest.mark.spark, pytest.mark.chaos, pytest.mark.timeout(7_200)]

VIEWS, TIMES = (2_000, 50) if ALL else (200, 2)
WINDOW_VIEWS = 500 if ALL else 20
GROUPS = 200_000 if ALL else 20_000
KEPT = {"large": "SELECT * FROM orders WHERE amount > 900"}


def test_views_come_and_go(spark: SparkSession, tmp_path: Path) -> None:
    orders = Orders(tmp_path / "in")
    orders.feed(1)
    engine = Engine(spark, compact_every_batches=4).execute(orders.script(KEPT))
    run = engine.start(tmp_path / "out")
    try:
        for turn in range(TIMES):
            # each has a table's rows of its own: those of the batch that it is there for
            engine.add_views(
                {
                    f"v{n}": f"SELECT * FROM orders WHERE id % {VIEWS} = {(n + turn) % VIEWS}"
                    for n in range(VIEWS)
                }
            )
            orders.feed(1, VIEWS)
            until(lambda: run.status().streams["orders"].tuples == orders.rows, run.events)
            engine.drop(*(f"v{n}" for n in range(VIEWS)))
            orders.feed(1, 50)
            until(lambda: run.status().streams["orders"].tuples == orders.rows, run.events)
    finally:
        run.stop()
    bag = folder_bag(tmp_path / "out", "orders", by_manifest=True)
    assert max(bag.values()) == 1
    mine = Counter(key for key, view in bag if view.startswith("v"))
    while_there = {key for table in orders.tables[1::2] for key in table.column("id").to_pylist()}
    assert mine == Counter(while_there)
    kept = Counter(key for key, view in bag if view == "large")
    large = {
        key
        for table in orders.tables
        for key in table.filter(pc.field("amount") > 900).column("id").to_pylist()
    }
    assert kept == Counter(large)
    plans = Layout.of(tmp_path / "out", None).plans("orders").numbers()
    assert len(plans) < 2 * TIMES + 2 or TIMES < 10, "plans that no batch is bound to are removed"


def test_many_window_views(spark: SparkSession, tmp_path: Path) -> None:
    orders = Orders(tmp_path / "in")
    views = {
        f"w{n}": f"SELECT name, window(seen, '10 minutes') AS w, count(*) AS n, sum(amount) AS s FROM orders WHERE amount % {WINDOW_VIEWS} = {n} GROUP BY name, w"
        for n in range(WINDOW_VIEWS)
    }
    orders.feed(3)
    engine = Engine(spark).execute(orders.script(views))
    for _ in range(2):
        run_to_end(engine, tmp_path / "out", seconds=None)
        orders.feed(1)
    tuples = pa.concat_tables(orders.tables[:-1])
    layout = Layout.of(tmp_path / "out", None)
    for n in range(0, WINDOW_VIEWS, max(1, WINDOW_VIEWS // 20)):
        found = plain_rows(layout, f"w{n}", 0, False)
        assert found is not None
        own = tuples.filter(pc.field("amount").is_valid()).to_pylist()
        wanted: Counter[tuple[object, ...]] = Counter()
        for row in own:
            if row["amount"] % WINDOW_VIEWS == n:
                wanted[row["name"], int(row["seen"].timestamp()) // 600 * 600] += 1
        assert (
            Counter(
                {
                    (row["name"], int(row["w"]["start"].timestamp())): row["n"]
                    for row in found.rows.to_pylist()
                }
            )
            == wanted
        )


def test_many_groups(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    rng = np.random.default_rng(5)
    tables = []
    for number in range(4):
        moments = 1_700_000_000_000_000 + number * 30_000_000 + rng.integers(0, 30_000_000, 2 * GROUPS)
        table = pa.table(
            {
                "ts": pa.array(np.sort(moments)).cast(pa.timestamp("us", "UTC")),
                "k": rng.integers(0, GROUPS, 2 * GROUPS),
                "x": rng.integers(-50, 50, 2 * GROUPS),
            }
        )
        put_file(tmp_path / "in" / f"{number}.parquet", partial(pq.write_table, table))
        tables.append(table)
    run = (
        Engine(spark)
        .execute(
            f"CREATE TABLE t (ts TIMESTAMP, k BIGINT, x BIGINT) USING parquet OPTIONS (path '{tmp_path / 'in'}', event_time 'ts', max_files_per_trigger '1');"
            "CREATE VIEW g AS SELECT k, window(ts, '1 minute') AS w, count(*) AS n, sum(x) AS s FROM t GROUP BY k, w;"
        )
        .start(tmp_path / "out", trigger=Trigger.available_now(ended=True))
    )
    run.await_termination()
    run.stop()
    found = plain_rows(Layout.of(tmp_path / "out", None), "g", 0, False)
    assert found is not None
    starts = pc.struct_field(found.rows.column("w"), "start").cast(pa.int64())
    mine = pa.table(
        {
            "k": found.rows.column("k"),
            "start": starts,
            "n": found.rows.column("n"),
            "s": found.rows.column("s"),
        }
    )
    every = pa.concat_tables(tables)
    moments = every.column("ts").cast(pa.int64()).to_numpy()
    every = every.append_column("start", pa.array(moments // 60_000_000 * 60_000_000))
    wanted = every.group_by(["k", "start"]).aggregate([("x", "count"), ("x", "sum")])
    wanted = wanted.rename_columns(["k", "start", "n", "s"])
    order = [("k", "ascending"), ("start", "ascending")]
    assert (
        mine.sort_by(order).combine_chunks()
        == wanted.select(mine.column_names).sort_by(order).combine_chunks()
    )
