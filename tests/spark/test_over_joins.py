"""Views over join views: what the engine publishes equals what Spark says of their texts over the same tuples."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from joined_inputs import Inputs, multiset
from penstock.monitor.folder import folder_status
from penstock.spark.engine import Engine
from penstock.spark.run import Run

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1_800)]

JOINS = {
    "pairs": "SELECT f.k, f.n, f.ts, w.ts AS seen, w.x, f.n + w.n AS total FROM flights f JOIN weather w ON f.k = w.k "
    "AND w.ts BETWEEN f.ts - INTERVAL 5 SECONDS AND f.ts + INTERVAL 3 SECONDS",
    "named": "SELECT f.ts AS at, f.k, a.name FROM flights f JOIN airports a ON f.k = a.k",
}
SELECTIONS = {
    "few": "SELECT k, x * 2 AS twice, seen FROM pairs p WHERE p.total > 4 AND x >= 0",
    "fewer": "SELECT twice + k AS y FROM few WHERE second(seen) % 2 = 0",
    "norths": "SELECT *, k % 2 AS odd FROM named WHERE name = 'north' OR k > 5",
}


def answered(engine: Engine, output: Path, *, ended: bool = False) -> Run:
    """A run over what is there."""
    run = engine.start(output, available_now=True, ended=ended)
    assert run.await_termination(900)
    run.stop()
    return run


def check(spark: SparkSession, inputs: Inputs, run: Run, views: Mapping[str, str]) -> None:
    inputs.register(spark)
    for name, text in views.items():
        wanted = spark.sql(text)
        wanted.createOrReplaceTempView(name)
        assert wanted.count() > 0, "a test that compares nothing"
        assert run.results(name).schema.simpleString() == wanted.schema.simpleString()
        assert multiset(run.results(name)) == multiset(wanted), text


def test_selections_over_joins_equal_spark_over_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    inputs = Inputs(tmp_path / "in", np.random.default_rng(3))
    views = {**JOINS, **SELECTIONS}
    for files in (3, 2):
        inputs.feed(files)
        run = answered(Engine(spark).execute(inputs.script()).views(views), tmp_path / "out")
        check(spark, inputs, run, views)
    assert folder_status(tmp_path / "out")["views"]["fewer"]["rows"] == run.results("fewer").count()
