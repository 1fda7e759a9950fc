"""500 queries are added and 300 dropped while a million tuples flow: each batch has exactly its own."""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from engine_cases import after_each_batch
from penstock.spark.engine import Engine
from penstock.spark.publication.manifests import read_published
from penstock.spark.storage.bindings import PlanLog
from penstock.spark.storage.layout import Layout
from penstock.trigger import Trigger

pytestmark = pytest.mark.spark

BATCHES, ROWS = 20, 50_000
SHARES = BATCHES - 4
ADDED, DROPPED = 500, 300
_CONDITION = "SELECT * FROM readings WHERE level BETWEEN {} AND {}"


def test_every_tuple_is_answered_by_the_views_of_its_batch(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in").mkdir()
    rng = np.random.default_rng(11)
    tables = []
    for number in range(BATCHES):
        ids = np.arange(number * ROWS, (number + 1) * ROWS)
        tables.append(pa.table({"id": ids, "level": rng.integers(0, 100_000, ROWS)}))
        path = tmp_path / "in" / f"{number:02d}.parquet"
        pq.write_table(tables[-1], path)
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
    source = (
        f"CREATE TABLE readings (id BIGINT, level BIGINT) USING parquet OPTIONS (path '{tmp_path / 'in'}', "
    )
    engine = Engine(spark).execute(source + "max_files_per_trigger '1')")
    bounds = {f"q{number}": (number * 190, number * 190 + 150) for number in range(ADDED)}
    names = list(bounds)
    engine.view(names[0], _CONDITION.format(*bounds[names[0]]))
    turn, begun = threading.Semaphore(0), threading.Semaphore(0)

    def publish(batch: int) -> None:
        """A thread of its own changes the views: each batch lets it go on a little, beside the next one."""
        turn.release()
        if batch < SHARES:
            assert begun.acquire(timeout=120)

    after_each_batch(monkeypatch, publish)
    run = engine.start(tmp_path / "out", trigger=Trigger.available_now())
    changer = threading.Thread(target=_change, args=(engine, turn, begun, names, bounds))
    changer.start()
    run.await_termination()
    changer.join(timeout=120)
    assert not changer.is_alive()
    run.stop()

    layout = Layout(tmp_path / "out", tmp_path / "out/_penstock/checkpoint")
    plans = PlanLog(layout, "readings")
    manifests = read_published(layout, "readings").single
    assert sum(manifest["batches"][0]["tuples"] for manifest in manifests) == BATCHES * ROWS
    versions = set()
    for manifest in manifests:
        (figures,) = manifest["batches"]
        versions.add(figures["plan"])
        views = plans.load(figures["plan"])
        found = set()
        for file in manifest["files"]:
            table = pq.read_table(layout.matches("readings") / file["name"], columns=["id", "queries"])
            for key, queries in zip(table["id"].to_pylist(), table["queries"].to_pylist(), strict=True):
                assert len(set(queries)) == len(queries)
                found.update((key, query) for query in queries)
        assert found == _expected(tables[figures["batch"]], {name: bounds[name] for name in views})
    assert len(versions) > SHARES
    assert len(plans.load(max(versions))) < ADDED


def _change(
    engine: Engine,
    turn: threading.Semaphore,
    begun: threading.Semaphore,
    names: list[str],
    bounds: dict[str, tuple[int, int]],
) -> None:
    """Adds all but the first view and drops 300 of them, a few dozen a published batch."""
    chooser = random.Random(5)
    to_add, present, dropped = names[1:], [], 0
    share = len(to_add) // SHARES + 1
    while to_add:
        turn.acquire(timeout=120)
        for number, name in enumerate([to_add.pop(0) for _ in range(min(share, len(to_add)))]):
            engine.view(name, _CONDITION.format(*bounds[name]))
            if not number:
                begun.release()
            present.append(name)
            if dropped < DROPPED and len(present) > 10 and chooser.random() < 0.75:
                engine.drop(present.pop(chooser.randrange(len(present))))
                dropped += 1
    while dropped < DROPPED:
        engine.drop(present.pop())
        dropped += 1


def _expected(table: pa.Table, views: dict[str, tuple[int, int]]) -> set[tuple[int, str]]:
    ids, levels = table["id"].to_numpy(), table["level"].to_numpy()
    return {
        (int(key), name)
        for name, (low, high) in views.items()
        for key in ids[(levels >= low) & (levels <= high)]
    }
