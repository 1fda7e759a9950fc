"""`kill -9` of the keyed query at its named places: the results equal an undisturbed run's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.spark.expressions import SparkExpressionHost
from penstock.spark.failpoints import KEYED_NAMES
from penstock.spark.layout import Layout
from penstock.spark.publish import published_paths, results_of, view_kind
from penstock.spark.window_results import window_changes, window_results
from penstock.sql.bind_windows import bind_window
from penstock.sql.script import parse_query
from penstock.sql.window_query import WindowQuery
from window_cases import TABLE
from window_log import LogWriter

pytestmark = [pytest.mark.spark, pytest.mark.chaos]

STREAM = "t"
PLACES = (
    KEYED_NAMES if os.environ.get("PENSTOCK_CHAOS") == "full" else ("keyed_staged", "keyed_manifest_written")
)
VIEWS = {
    "plain": "SELECT origin, window(ts, '10 minutes') AS w, count(*) AS n, sum(l) AS s FROM t GROUP BY origin, w",
    "made": "SELECT window(ts, '1 hour', '30 minutes') AS w, count(*) + 1 AS n FROM t "
    "GROUP BY window(ts, '1 hour', '30 minutes') HAVING count(*) > 3",
}


def test_killed_at_failpoints(spark: SparkSession, tmp_path: Path) -> None:
    layout = Layout(tmp_path / "out", tmp_path / "checkpoint")
    layout.open()
    host = SparkExpressionHost(spark, spark.createDataFrame(TABLE).schema)
    queries = {name: parse_query(text) for name, text in VIEWS.items()}
    log = LogWriter(spark, layout, STREAM, 2, TABLE)
    log.views(
        0,
        {
            number: bind_window(query, name, TABLE.schema, host)
            for number, (name, query) in enumerate(queries.items())
            if isinstance(query, WindowQuery)
        },
    )
    for _ in range(len(PLACES) + 1):
        log.put(TABLE.num_rows // (len(PLACES) + 1))
    log.put(TABLE.num_rows - log.taken)
    end = log.end()
    command = [
        sys.executable,
        str(Path(__file__).with_name("keyed_victim.py")),
        *map(str, (layout.output, layout.checkpoint, STREAM, end.batch, end.mark)),
    ]
    for batch, place in enumerate(PLACES, start=1):
        environment = {**os.environ, "PENSTOCK_FAILPOINT": f"{place}:{batch}"}
        killed = subprocess.run(command, env=environment, timeout=300, check=False, capture_output=True)
        assert killed.returncode == -signal.SIGKILL, killed.stderr[-2000:].decode()
    subprocess.run(command, timeout=300, check=True, capture_output=True)

    spark.createDataFrame(TABLE).createOrReplaceTempView("t")
    for number, (view, text) in enumerate(VIEWS.items()):
        found, expected = window_results(spark, layout, STREAM, view), spark.sql(text)
        assert found.exceptAll(expected).isEmpty()
        assert expected.exceptAll(found).isEmpty()
        listed = set(published_paths(layout, results_of(STREAM), view_kind(number, view)))
        assert set(layout.results(view).glob("*.parquet")) == listed
        told = window_changes(spark, layout, STREAM, view)
        assert told.count() == told.distinct().count()
