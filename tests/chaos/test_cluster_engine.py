"""A script of selections, windows, a join and views with a deadline on a standalone cluster that loses a worker: the same answers."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import duckdb
import pytest
from pyspark.sql import SparkSession

from engine_cases import COLUMNS, folder_bag, write_orders
from killing import ended, killed, started
from penstock.monitor.folder import folder_status
from penstock.spark.publication.manifests import read_published
from penstock.spark.results.read import results
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.spark_files import numbered
from penstock_lab.servers.cluster import StandaloneCluster

pytestmark = [pytest.mark.cluster, pytest.mark.chaos, pytest.mark.long]

FILES, ROWS = 8, 20_000
WINDOWS = (
    "SELECT name, window(seen, '10 minutes') AS w, count(*) AS n, sum(id) AS s FROM orders GROUP BY name, w"
)
#: most of the later orders are of the same file, some of the next one, which overlaps it
PAIRS = (
    "SELECT a.id AS one, b.id AS other FROM orders a JOIN orders b ON a.amount = b.amount AND a.name = b.name AND "
    "b.seen BETWEEN a.seen AND a.seen + INTERVAL 1 MINUTE AND a.id <> b.id"
)
#: windows of the second all miss, and are answered late
DEADLINES = {
    "timely": "/*+ DEADLINE('1 hour') */",
    "owed": "/*+ DEADLINE('1 millisecond'), LOSS(1, 1, 'late') */",
}
CONDITIONS = {"large": "amount > 900", "short": "length(name) = 1 AND amount < 300", "dear": "price > 97.5"}


def test_worker_killed_in_the_middle(cluster: StandaloneCluster, spark: SparkSession, tmp_path: Path) -> None:
    write_orders(tmp_path / "in", FILES, ROWS)
    views = [f"CREATE VIEW {name} AS SELECT * FROM orders WHERE {text};" for name, text in CONDITIONS.items()]
    views += [f"CREATE VIEW by_name AS {WINDOWS};", f"CREATE VIEW pairs AS {PAIRS};"]
    views += [
        f"CREATE VIEW {name} AS {WINDOWS.replace('SELECT', f'SELECT {hints}')};"
        for name, hints in DEADLINES.items()
    ]
    options = f"path '{tmp_path / 'in'}', event_time 'seen', max_files_per_trigger '1'"
    script = tmp_path / "script.sql"
    script.write_text(
        "\n".join([f"CREATE TABLE orders ({COLUMNS}) USING parquet OPTIONS ({options});", *views])
    )
    log = tmp_path / "driver.log"
    conf = {
        "spark.master": cluster.url,
        "spark.executor.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    pairs = [f"{key}={value}" for key, value in conf.items()]
    driver = started("victim.py", script, tmp_path / "out", *pairs, log=log)
    layout = Layout.of(tmp_path / "out", None)
    commits = layout.spark("orders") / "commits"
    try:
        while driver.poll() is None and (len(numbered(commits, "")) < 2 or _cuts(layout) < 1):
            time.sleep(0.1)
        assert driver.poll() is None, log.read_text()[-3000:]
        before = _cuts(layout)
        cluster.kill_worker(0)
        assert ended(driver) == 0, log.read_text()[-3000:]
    finally:
        killed(driver)
    tuples = f"read_parquet('{tmp_path / 'in'}/*.parquet')"
    wanted = {
        (key, name)
        for name, condition in CONDITIONS.items()
        for (key,) in duckdb.sql(f"SELECT id FROM {tuples} WHERE {condition}").fetchall()
    }
    bag = folder_bag(tmp_path / "out", "orders", by_manifest=True)
    assert set(bag) == wanted
    assert max(bag.values()) == 1
    assert folder_bag(tmp_path / "out", "orders", by_manifest=False) == bag
    spark.read.parquet(str(tmp_path / "in")).createOrReplaceTempView("orders")
    found, expected = results(spark, layout, "by_name"), spark.sql(WINDOWS)
    assert found.exceptAll(expected).isEmpty()
    assert expected.exceptAll(found).isEmpty()

    views = folder_status(tmp_path / "out")["views"]
    assert views["timely"]["released"] == views["timely"]["created"] > 0
    most = {(row.name, row.w): row.n for row in expected.collect()}
    for view in DEADLINES:
        told = results(spark, layout, view).collect()
        rows = {(row.name, row.w): row.n for row in told}
        assert len(rows) == len(told), "nothing is answered twice"
        assert rows.keys() == most.keys()
        assert all(0 < count <= most[key] for key, count in rows.items())
    assert views["owed"]["late"] == views["owed"]["created"] == views["timely"]["created"]

    assert _cuts(layout) > before, "the join went on without the worker"
    pairs, wanted_pairs = (
        results(spark, layout, "pairs"),
        duckdb.sql(PAIRS.replace("orders", tuples)).fetchall(),
    )
    assert Counter(map(tuple, pairs.collect())) == Counter(wanted_pairs)
    assert wanted_pairs


def _cuts(layout: Layout) -> int:
    """Cuts of the join that are published."""
    return read_published(layout, "joins.0").last + 1
