"""Nexmark: every query, by whichever way answers it, equals what Spark says of the same events."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from answered_page import QUERY, REFERENCE, WAY, tables
from answered_ways import REFRESH, answered
from nexmark_cases import QUERIES, bag, duckdb_answers
from penstock.spark.engine import Engine
from penstock.spark.results.read import results
from penstock.spark.storage.layout import Layout
from penstock.trigger import Trigger
from penstock_lab.generators.nexmark import STREAMS, Nexmark, nexmark_tables, write_nexmark
from penstock_lab.generators.nexmark_views import declare_nexmark

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1_800)]

EVENTS = 200_000


def documented() -> dict[str, str]:
    """How each query is answered, as the page says."""
    rows = [row for table in tables(REFERENCE / "refreshed.md") for row in table if WAY in row]
    return {name: row[WAY] for row in rows for name in re.findall(r"q\d+", row[QUERY])}


def multiset(rows: DataFrame) -> Counter[str]:
    """Rows, counted."""
    return Counter(repr(tuple(row)) for row in rows.collect())


def test_each_query_is_declared_the_way_that_is_documented(spark: SparkSession, tmp_path: Path) -> None:
    write_nexmark(tmp_path / "in", Nexmark(1_000, seed=5, rate=500), files=1)
    engine = Engine(spark).execute(nexmark_tables(tmp_path / "in"))
    reasons = declare_nexmark(engine, QUERIES)
    ways = documented()
    assert ways == {name: answered(engine, name).way for name in QUERIES}
    assert {name for name, way in ways.items() if way == REFRESH} == reasons.keys(), reasons


@pytest.mark.long
@pytest.mark.parametrize("disorder_seconds", [0.0, 3.0])
def test_every_query_equals_spark(spark: SparkSession, tmp_path: Path, disorder_seconds: float) -> None:
    events = Nexmark(EVENTS, seed=5, rate=500, disorder_seconds=disorder_seconds)
    write_nexmark(tmp_path / "in", events, files=3)
    engine = Engine(spark)
    engine.execute(nexmark_tables(tmp_path / "in"))
    declare_nexmark(engine, QUERIES)
    with engine.start(tmp_path / "out", trigger=Trigger.available_now(ended=True)) as run:
        assert run.await_termination(900)
    for stream in (*STREAMS, "side_input"):
        spark.read.parquet(str(tmp_path / "in" / stream)).createOrReplaceTempView(stream)
    for name, query in QUERIES.items():
        found = multiset(results(spark, Layout.of(tmp_path / "out", None), name))
        expected = multiset(spark.sql(query))
        assert found == expected, name
        assert expected, name


def test_spark_and_duckdb_agree(spark: SparkSession, tmp_path: Path) -> None:
    write_nexmark(tmp_path, Nexmark(5_000, seed=6, rate=200, disorder_seconds=2.0), files=2)
    for stream in (*STREAMS, "side_input"):
        spark.read.parquet(str(tmp_path / stream)).createOrReplaceTempView(stream)
    by_duckdb = duckdb_answers(tmp_path)
    for name, query in QUERIES.items():
        assert bag(spark.sql(query).toArrow()) == bag(by_duckdb[name]), name
