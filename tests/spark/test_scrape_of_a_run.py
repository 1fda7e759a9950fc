"""A scrape of a run with views of every kind has each series that the alert rules and the dashboard read."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families as parsed
from pyspark.sql import SparkSession

from every_kind import FILES, SETTINGS, VIEWS, put
from monitoring_files import metrics_read
from page_cases import served
from penstock.spark.engine import Engine

#: seconds until all of it is there
_PATIENCE = 200.0
_PROMISED = "SELECT /*+ DEADLINE('60 seconds'), LOSS(1, 4) */ window(at, '10 seconds') AS w, count(*) AS n FROM s GROUP BY w"


@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_a_live_run_has_every_series_that_is_watched(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "in", 0)
    (tmp_path / "in" / "bad.parquet").write_bytes(b"no Parquet")
    table = (
        "CREATE TABLE s (at TIMESTAMP, id BIGINT, k INT, x DOUBLE) USING parquet "
        f"OPTIONS (path '{tmp_path / 'in'}', event_time 'at', max_files_per_trigger '1')"
    )
    engine = Engine(spark, **{**SETTINGS, "watch_seconds": 0.5}).execute(table)
    engine.add_views({**VIEWS, "promised": _PROMISED})
    run = engine.start(tmp_path / "out")
    try:
        with served(tmp_path / "out", metrics_alone=True) as page:
            until = time.monotonic() + _PATIENCE
            number, missing = 1, metrics_read()
            while missing and time.monotonic() < until:
                if number < 3 * FILES:
                    put(tmp_path / "in", number)
                    number += 1
                time.sleep(2.0)
                text = page.get("/metrics").body.decode()
                missing = metrics_read() - {each.name for family in parsed(text) for each in family.samples}
    finally:
        run.stop()
    assert missing == set()
