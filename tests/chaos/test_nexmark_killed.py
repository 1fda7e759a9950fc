"""All queries of Nexmark in one run over events out of order, killed again and again: in the end each answer is that of Spark and of DuckDB."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
import victim
from pyspark.sql import SparkSession

from forms import INTERPRETED
from killing import forked
from nexmark_cases import QUERIES, bag, duckdb_answers
from penstock.spark.engine import Engine
from penstock.spark.results.read import results
from penstock.spark.storage.layout import Layout
from penstock_lab.generators.nexmark import STREAMS, Nexmark, nexmark_tables, write_nexmark
from penstock_lab.generators.nexmark_views import declare_nexmark, refreshed

pytestmark = [pytest.mark.spark, pytest.mark.chaos, pytest.mark.long, pytest.mark.timeout(3_600)]

EVENTS = 30_000
#: where the ingest and each kind of lane that answers these queries kills the run; one more file of each stream lies there at each
#: start. A refreshed view answers each minute while a run is open.
PLACES = (
    "staged",
    "before_commit",
    "cut_put",
    "cut_answered",
    "cut_published",
    "cut_answered@refreshed.0",
)


def test_every_query_is_answered_exactly_after_kills(spark: SparkSession, tmp_path: Path) -> None:
    events, source = tmp_path / "events", tmp_path / "in"
    made = Nexmark(EVENTS, seed=7, rate=200, disorder_seconds=3.0)
    written = write_nexmark(events, made, files=len(PLACES) + 1)
    for stream in STREAMS:
        (source / stream).mkdir(parents=True)
    (events / "side_input").rename(source / "side_input")
    for stream in STREAMS:
        _put(written[stream][0], source / stream)
    reasons = declare_nexmark(Engine(spark).execute(nexmark_tables(source)), QUERIES)
    views = {name: refreshed(query) if name in reasons else query for name, query in QUERIES.items()}
    script, log, output = tmp_path / "script.sql", tmp_path / "victim.log", tmp_path / "out"
    script.write_text(
        nexmark_tables(source) + "".join(f"CREATE VIEW {name} AS {text};\n" for name, text in views.items())
    )
    conf = [
        f"{key}={value}"
        for key, value in {"spark.python.daemon.module": "pyspark.daemon", **INTERPRETED}.items()
    ]
    for number, place in enumerate((*PLACES, "")):
        if number:
            for stream in STREAMS:
                _put(written[stream][number], source / stream)
        ended = ["--open"] if place else ["--ended"]
        code = forked(victim.main_with, {}, str(script), str(output), *conf, *ended, log=log, failpoint=place)
        assert code == (-signal.SIGKILL if place else 0), f"{place}: {code}; {log.read_text()[-3000:]}"
    for stream in (*STREAMS, "side_input"):
        spark.read.parquet(str(source / stream)).createOrReplaceTempView(stream)
    layout, by_duckdb = Layout.of(output, None), duckdb_answers(source)
    for name, query in QUERIES.items():
        answer = bag(results(spark, layout, name).toArrow())
        assert answer == bag(spark.sql(query).toArrow()), f"{name} is not Spark's"
        assert answer == bag(by_duckdb[name]), f"{name} is not DuckDB's"
        assert answer, f"{name} has no rows"


def _put(file: Path, folder: Path) -> None:
    file.rename(folder / file.name)
