"""A script over a source that another package registers: the answers, and that a restart continues."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from gauges import levels
from installed import install
from penstock.spark.engine import Engine
from whole_runs import run_to_end

pytestmark = pytest.mark.spark

SCRIPT = """
CREATE TABLE river USING gauges OPTIONS (number_of_gauges '3');
CREATE VIEW high AS SELECT gauge, level FROM river WHERE level >= 60;
"""


def test_a_source_of_another_package_is_used_in_a_script(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, tmp_path / "package", "river", {"gauges": "gauges:GaugeProvider"})
    wanted = sorted((row["gauge"], row["level"]) for row in levels(3).to_pylist() if row["level"] >= 60)
    assert len(wanted) == 3
    for batches in (1, 0):
        engine = Engine(spark, shards=1).execute(SCRIPT)
        assert "fast path" in engine.explain()
        run = run_to_end(engine, tmp_path / "out", seconds=600)
        assert len(run.events("batch")) == batches
        assert sorted(map(tuple, run.results("high").collect())) == wanted
