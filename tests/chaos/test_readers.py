"""Readers beside merging: each of their answers is what had been published when they began, or more, and never a row twice."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from disturbed_runs import VIEWS, Orders, until
from engine_cases import folder_bag
from forms import ALL
from penstock.spark.engine import Engine
from penstock.spark.results.read_plain import plain_rows
from penstock.spark.storage.layout import Layout

pytestmark = [pytest.mark.spark, pytest.mark.chaos, pytest.mark.timeout(3_600)]

FILES = 300 if ALL else 18
VIEW = {"large": VIEWS["large"]}


@pytest.mark.parametrize("kind", [pytest.param("spark", marks=pytest.mark.long), "plain"])
def test_readers_beside_merging(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    orders, output = Orders(tmp_path / "in"), tmp_path / "out"
    orders.feed(2)
    run = Engine(spark, compact_every_batches=2).execute(orders.script(VIEW)).start(output)
    done, faults, answers = threading.Event(), [], []

    def read() -> None:
        most = 0
        while not done.is_set():
            try:
                if kind == "spark":
                    ids = [row.id for row in run.results("large").select("id").collect()]
                else:
                    found = plain_rows(Layout.of(output, None), "large", 0, False)
                    ids = [] if found is None else found.rows.column("id").to_pylist()
                assert len(set(ids)) == len(ids), "rows twice"
                assert len(ids) >= most, f"{most} rows, then {len(ids)}"
            except Exception as fault:
                faults.append(f"{type(fault).__name__}: {fault}"[:2_000])
                return
            most = len(ids)
            answers.append(most)

    reader = threading.Thread(target=read)
    try:
        until(lambda: run.status().streams["orders"].tuples == orders.rows, run.events)
        reader.start()
        while len(orders.tables) < FILES:
            orders.feed(3, 300)
            until(lambda: bool(faults) or run.status().streams["orders"].tuples == orders.rows, run.events)
            assert not faults
    finally:
        done.set()
        if reader.ident is not None:
            reader.join(120)
        run.stop()
    assert not faults
    assert len(answers) > 1
    assert max(folder_bag(output, "orders", by_manifest=True).values()) == 1
    orders.assert_answered(output, VIEW)
