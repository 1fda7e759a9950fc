"""A stream that reads another folder or topic than its checkpoint goes on with is refused, before anything changes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import Engine
from penstock.errors import CheckpointError
from penstock.spark.reporting.catalog import PARTS, known_catalog
from penstock.spark.reporting.known_streams import refuse_another_source
from penstock.spark.storage.formats import BINDING, CATALOG
from penstock.spark.storage.layout import Layout
from whole_runs import run_to_end

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def _put(folder: Path, number: int) -> None:
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.table({"k": pa.array(range(10), pa.int64())}), folder / f"{number}.parquet")


def _answered(spark: SparkSession, folder: Path, output: Path, groups: int) -> dict[int, int]:
    """What a running view tells of each group once all files of a folder are read."""
    engine = Engine(spark).execute(
        f"CREATE TABLE s USING parquet OPTIONS (path '{folder}');\n"
        f"CREATE VIEW n AS SELECT k % {groups} AS g, count(*) AS n FROM s GROUP BY k % {groups};"
    )
    run = run_to_end(engine, output, seconds=None)
    return {row["g"]: row["n"] for row in run.results("n").collect()}


def test_another_folder_is_refused_and_the_first_one_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    here, there, output = tmp_path / "here", tmp_path / "there", tmp_path / "out"
    _put(here, 0)
    _put(there, 0)
    assert _answered(spark, here, output, groups=2) == {0: 5, 1: 5}
    with pytest.raises(
        CheckpointError,
        match=f"stream s reads folder {there}; .* continues with folder {here}, .* Put that back",
    ):
        # the view is another one too: it must not be begun anew
        _answered(spark, there, output, groups=5)
    _put(here, 1)
    assert _answered(spark, here, output, groups=2) == {0: 10, 1: 10}


def test_topics_may_be_added_and_none_may_go(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "out", tmp_path / "checkpoint")
    layout.open()
    catalog = CATALOG.stamped({"streams": {}, "views": {}, PARTS: {"s": ["topic a", "topic b"]}})
    CATALOG.replace(layout.catalog, catalog)
    assert known_catalog(layout)
    refuse_another_source(layout, "s", ["topic a", "topic b", "topic c"])
    refuse_another_source(layout, "t", ["topic d"])
    # nobody can tell which topics a pattern means
    refuse_another_source(layout, "s", [])
    # a start that failed before its first batch has no positions in anything
    refuse_another_source(layout, "s", ["topic d"])
    BINDING.put(layout.bindings("s")[0], BINDING.stamped({"version": 0}))
    refuse_another_source(layout, "s", ["topic a", "topic b", "topic c"])
    with pytest.raises(CheckpointError, match=r"stream s reads topic b, topic c; .* continues with topic a"):
        refuse_another_source(layout, "s", ["topic b", "topic c"])
