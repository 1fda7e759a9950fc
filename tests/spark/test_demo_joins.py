"""The join that `penstock demo joins` shows, over a week of real flights and weather."""

from __future__ import annotations

from datetime import UTC, datetime
from importlib import resources
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from joined_inputs import answered, multiset
from penstock.cli.demo_data import prepare
from penstock.cli.demo_storms import FUNCTIONS
from penstock.spark.engine import Engine
from penstock.spark.storage.joins import JOINS
from penstock.spark.storage.layout import Layout

BEGIN, END = (pa.scalar(datetime(2013, 7, day, tzinfo=UTC)) for day in (1, 9))

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


def test_flights_in_the_weather_are_what_spark_says(spark: SparkSession, tmp_path: Path) -> None:
    data = prepare(tmp_path / "data")
    for folder, column in zip(data, ("sched_dep", "observed"), strict=False):
        # Spark looks at each pair of an airport's flights and hours: 10^9 of a year, 8 minutes
        (path,) = folder.iterdir()
        table = pq.read_table(path)
        pq.write_table(table.filter((pc.field(column) >= BEGIN) & (pc.field(column) < END)), path)
    script = resources.files("penstock.cli").joinpath("demo_storms.sql").read_text(encoding="utf-8")
    assert "speed '800000'" in script
    script = script.replace("speed '800000'", "speed 'max'").replace("examples/data", str(tmp_path / "data"))
    engine = Engine(spark)
    for name, (function, returns) in FUNCTIONS.items():
        engine.function(name, function, returns)
    run = answered(engine.execute(script), tmp_path / "out")
    assert "new tuples of f meet " in run.explain()
    for folder in data:
        spark.read.parquet(str(folder)).createOrReplaceTempView(folder.name)
    (view,) = JOINS.read(Layout.of(run.output, None)).views
    joined = spark.sql(view.definition.sql).cache()
    joined.createOrReplaceTempView("southbound_in_warm_air")
    found = run.results("southbound_in_warm_air")
    assert found.count() > 100
    assert multiset(found) == multiset(joined)
    windows = spark.sql(
        "SELECT origin, window(sched_dep, '30 days') AS w, count(*) AS departures FROM southbound_in_warm_air GROUP BY origin, w"
    )
    told = run.results("storm_season").select("origin", "w", "departures")
    assert multiset(told) == multiset(windows)
