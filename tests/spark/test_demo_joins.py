"""The join that `penstock demo joins` shows, over the whole year of real flights and weather."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from joined_inputs import answered, multiset
from penstock.cli.demo_data import prepare
from penstock.cli.demo_storms import FUNCTIONS
from penstock.spark.engine import Engine
from penstock.spark.storage.joins import read_joins
from penstock.spark.storage.layout import Layout

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


def test_a_year_of_flights_in_the_weather_is_what_spark_says(spark: SparkSession, tmp_path: Path) -> None:
    data = prepare(tmp_path / "data")
    script = resources.files("penstock.cli").joinpath("demo_storms.sql").read_text(encoding="utf-8")
    assert "speed '800000'" in script
    script = script.replace("speed '800000'", "speed 'max'").replace("examples/data", str(tmp_path / "data"))
    engine = Engine(spark)
    for name, (function, returns) in FUNCTIONS.items():
        engine.function(name, function, returns)
    run = answered(engine.execute(script), tmp_path / "out")
    told = run.explain()
    assert " rows/s put out, measured " in told
    assert "the runner-up: new tuples of f would take " in told
    for folder in data:
        spark.read.parquet(str(folder)).createOrReplaceTempView(folder.name)
    (view,) = read_joins(Layout.of(run.output, None)).joins
    joined = spark.sql(view.definition.sql)
    joined.createOrReplaceTempView("southbound_in_warm_air")
    found = run.results("southbound_in_warm_air")
    assert found.count() > 10_000
    assert multiset(found) == multiset(joined)
    windows = spark.sql(
        "SELECT origin, window(sched_dep, '30 days') AS w, count(*) AS departures FROM southbound_in_warm_air GROUP BY origin, w"
    )
    told = run.results("storm_season").select("origin", "w", "departures")
    assert multiset(told) == multiset(windows)
