"""A key that most tuples have: several tasks share the work of its cell, and every row is told once."""

from __future__ import annotations

import errno
import itertools
import os
from functools import partial
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from engine_cases import names, put_file
from joined_inputs import wait
from penstock.operators.joins.tuples import Stripe
from penstock.spark.engine import Engine
from penstock.spark.lanes.joins import balance
from penstock.spark.lanes.joins.balance import CellBalance, Floats, Place
from penstock.spark.lanes.joins.task import CellReport
from penstock.spark.publication import publish
from penstock.spark.publication.manifests import published_paths
from penstock.spark.run import Run
from penstock.spark.storage.layout import Layout
from penstock.stores.durable import sync_folder
from publishing import shown
from whole_runs import run_to_end

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

HOT, SHARE, KEYS = 7, 0.6, 500
ROWS, PARTS, MOST_PARTS, SECONDS = 4_000, 3, 12, 100
NEAR = "b.ts BETWEEN a.ts - INTERVAL 20 SECONDS AND a.ts + INTERVAL 20 SECONDS"
PAIRS = f"SELECT a.id AS one, b.id AS other FROM a JOIN b ON a.k = b.k AND {NEAR}"
VIEWS = {
    "pairs": (PAIRS, ROWS),
    "alone": (PAIRS.replace("JOIN", "LEFT JOIN"), ROWS),
    # Spark computes what is between the rows of both
    "computed": (f"{PAIRS} AND (a.id * b.id) % 3 = 1", ROWS // 2),
    # without a key there is one cell
    "timed": (
        "SELECT a.id AS one, b.id AS other FROM a JOIN b ON b.ts BETWEEN a.ts - INTERVAL 4 SECONDS AND a.ts "
        "WHERE a.k <> b.k",
        ROWS // 2,
    ),
}


class Skewed:
    """Two streams that come in parts, and a view over them.

    Args:
        spark: the session.
        folder: of everything.
        rows: of each stream and part.
    """

    def __init__(self, spark: SparkSession, folder: Path, rows: int) -> None:
        self._folder, self._rows, self._rng = folder, rows, np.random.default_rng(5)
        self._tuples: dict[str, list[pa.Table]] = {"a": [], "b": []}
        # Spark gives a Python process 10 s to start: on a loaded machine that fails again and again
        self.engine = Engine(spark, shards=2, retry_attempts=40, retry_seconds=0.2, idle_seconds=0)
        for name in self._tuples:
            (folder / name).mkdir()
            options = f"path '{folder / name}', event_time 'ts'"
            self.engine.execute(
                f"CREATE TABLE {name} (ts TIMESTAMP, k BIGINT, id BIGINT) USING parquet OPTIONS ({options})"
            )

    def feed(self, run: Run) -> None:
        """Lets a part come, and waits until it is answered."""
        for name, own in self._tuples.items():
            own.append(self._part(len(own)))
            path = self._folder / name / f"{len(own)}.parquet"
            put_file(path, partial(pq.write_table, own[-1]))
        parts = sum(map(len, self._tuples.values()))
        wait(lambda: sum(cut["entries"] for cut in run.events("cut")) == parts, run)

    def check(self, view: str, text: str) -> None:
        """Compares the view's rows with those that DuckDB finds, after a run that tells what is due at the end."""
        run_to_end(self.engine, self._folder / "out")
        layout = Layout.of(self._folder / "out", None)
        paths = sorted(published_paths(layout, "joins.0", f"0/{view}"))
        assert names(paths) == names(shown(layout, "joins.0", layout.results(view)))
        with duckdb.connect() as connection:
            for name, own in self._tuples.items():
                connection.register(name, pa.concat_tables(own))
            connection.sql(f"CREATE TABLE wanted AS {text}")
            connection.sql(f"CREATE TABLE found AS SELECT * FROM read_parquet({list(map(str, paths))})")
            if view == "alone":
                connection.sql("DELETE FROM found WHERE _row IN (SELECT _row FROM found WHERE op = 'delete')")
            found = "SELECT one, other FROM found"
            assert connection.sql(f"{found} EXCEPT ALL FROM wanted").fetchall() == []
            assert connection.sql(f"FROM wanted EXCEPT ALL {found}").fetchall() == []
            ((count,),) = connection.sql("SELECT count(*) FROM wanted").fetchall()
        assert count > self._rows

    def _part(self, part: int) -> pa.Table:
        rng, rows = self._rng, self._rows
        keys = np.where(rng.random(rows) < SHARE, HOT, rng.integers(0, KEYS, rows))
        moments = ((1_700_000_000 + (part + rng.random(rows)) * SECONDS) * 1e6).astype(np.int64)
        ids = part * rows + rng.permutation(rows)
        return pa.table({"ts": pa.array(moments).cast(pa.timestamp("us", "UTC")), "k": keys, "id": ids})


@pytest.mark.long
@pytest.mark.parametrize(
    "view",
    ["pairs", *(pytest.param(view, marks=pytest.mark.long) for view in ("alone", "computed", "timed"))],
)
def test_a_hot_key_is_joined_by_several_tasks(
    spark: SparkSession, tmp_path: Path, view: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # so little work pays for no task otherwise, nor for making tables once more
    monkeypatch.setattr(balance, "_LEAST_SECONDS", 0.001)
    monkeypatch.setattr(CellReport, "building", 0.0)
    text, rows = VIEWS[view]
    skewed = Skewed(spark, tmp_path, rows)
    run = skewed.engine.view(view, text).start(tmp_path / "out")
    cells, tasks = 1 if view == "timed" else 2, [0]
    # what a worker's first task costs says little of its cell, and is forgotten by halves
    for _ in range(MOST_PARTS):
        skewed.feed(run)
        tasks = [cut["figures"]["tasks"]["count"] for cut in run.events("cut")]
        if max(tasks) > cells:
            break
    run.stop()
    assert tasks[0] <= cells < max(tasks)
    skewed.check(view, text)


@pytest.mark.long
def test_a_cut_that_is_answered_again_may_be_divided_otherwise(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every cut fails once all of its files have their names: what is surplus the second time goes."""
    answers = itertools.count()
    failed: set[Path] = set()

    def divided(_: CellBalance, tuples: Floats) -> list[Place]:
        of = 1 if next(answers) % 2 else 3
        every = itertools.product(range(len(tuples)), range(of))
        return [Place(number, cell, Stripe(stripe, of)) for number, (cell, stripe) in enumerate(every)]

    def torn(folder: Path) -> None:
        files = set(folder.glob("*.parquet"))
        if folder.name == "pairs" and not files <= failed:
            failed.update(files)
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(folder))
        sync_folder(folder)

    monkeypatch.setattr(CellBalance, "places", divided)
    monkeypatch.setattr(publish, "sync_folder", torn)
    skewed = Skewed(spark, tmp_path, 200)
    run = skewed.engine.view("pairs", PAIRS).start(tmp_path / "out")
    for _ in range(PARTS):
        skewed.feed(run)
    run.stop()
    assert [cut["figures"]["tasks"]["count"] for cut in run.events("cut") if cut["figures"]["tasks"]["count"]]
    assert len(failed) > 2 * PARTS
    skewed.check("pairs", PAIRS)
