"""`kill -9` of a run with window views over a window view, between any two steps behind the window lane's publication.

`test_every_lane_killed.py` is the short form.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from derived_cases import FARES, OVER, assert_same_rows, expected, row_counts, write
from killing import ended, started
from penstock.spark.publication.kinds import results_of, rows_of
from penstock.spark.results.read import changes, results
from penstock.spark.storage.failpoints import CUT_NAMES, ROW_NAMES
from penstock.spark.storage.layout import Layout

pytestmark = [pytest.mark.spark, pytest.mark.chaos, pytest.mark.long, pytest.mark.timeout(3_600)]

PLACES = (*ROW_NAMES, *CUT_NAMES, "cut_compaction_listed")
LANE = results_of(rows_of("rides", "fares"))


def test_derived_views_killed_at_every_place(spark: SparkSession, tmp_path: Path) -> None:
    data, log, layout = tmp_path / "data", tmp_path / "victim.log", Layout.of(tmp_path / "out", None)
    files = 0
    for place in PLACES:
        write(data, range(files, files + 2))
        files += 2
        code = ended(started("derived_victim.py", tmp_path, log=log, failpoint=place))
        assert code == -signal.SIGKILL, f"{place} was never reached; {log.read_text()[-3000:]}"
    write(data, range(files, files + 1))
    assert ended(started("derived_victim.py", tmp_path, "--ended", log=log)) == 0, log.read_text()[-3000:]
    assert not layout.cuts(LANE).numbers()
    for name, wanted in expected(spark, data, {"fares": FARES, **OVER}).items():
        assert_same_rows(results(spark, layout, name), wanted)
        told = changes(spark, layout, name)
        assert max(row_counts(told).values()) == 1, "nothing is told twice"
        assert told.where("is_final AND op = 'upsert'").count() >= wanted.count()
