"""Readers beside merging: what was begun to be read is there until its time is over, for frames that are evaluated later too."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from engine_cases import VIEWS, folder_bag, put_file, script, write_orders
from forms import ALL
from penstock.spark.engine import Engine
from penstock.spark.publication import compaction
from penstock.spark.publication.manifests import published_paths
from penstock.spark.storage.layout import Layout
from penstock.trigger import Trigger

pytestmark = pytest.mark.spark

#: the long form has more than 200 merges
ROWS, FILES, SECONDS = 100, 450 if ALL else 15, 2_400 if ALL else 120


def _put(folder: Path, number: int) -> None:
    moments = pa.array([number * 10_000_000 + row for row in range(ROWS)], pa.timestamp("us", "UTC"))
    rows = pa.table({"x": pa.array(range(ROWS), pa.int64()), "at": moments})
    put_file(folder / f"{number}.parquet", lambda path: pq.write_table(rows, path))


@pytest.mark.long
def test_a_frame_outlives_merges_and_nobody_fails_beside_them(spark: SparkSession, tmp_path: Path) -> None:
    source, output = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    _put(source, 0)
    run = (
        Engine(spark, compact_every_batches=2, replaced_seconds=SECONDS)
        .execute(
            f"CREATE TABLE s (x BIGINT, at TIMESTAMP) USING parquet "
            f"OPTIONS (path '{source}', max_files_per_trigger '1', event_time 'at');"
            "CREATE VIEW v AS SELECT * FROM s WHERE x >= 50;"
            "CREATE VIEW w AS SELECT window(at, '10 seconds') AS w, count(*) AS n FROM s GROUP BY w;"
        )
        .start(output)
    )
    try:
        until = time.monotonic() + SECONDS

        def wait_for(files: int) -> None:
            while run.status().streams["s"].tuples < ROWS * files:
                assert time.monotonic() < until, "the batch does not come"
                time.sleep(0.05)

        wait_for(1)
        held = [run.results("v"), run.matches("s")]
        # its rows are fetched at the end, one by one
        opened = duckdb.connect().execute(f"SELECT x FROM '{output}/matches/s/*.parquet'")
        for number in range(1, FILES):
            _put(source, number)
            assert run.results("v").count() % (ROWS // 2) == 0
            if number == FILES // 2:
                held.append(run.results("v"))
                windows = run.results("w")
                rows = windows.count()
            wait_for(number + 1)
        merges = len(list(run.events("compacted")))
        assert merges > FILES // 3, f"{merges} merges"
        assert len(opened.fetchall()) == ROWS // 2
        assert held[0].count() == held[1].count() == ROWS // 2
        assert held[2].count() >= ROWS // 2 * (FILES // 2)
        assert windows.count() == rows
    finally:
        run.stop()
    layout = Layout.of(output, None)
    published = set(published_paths(layout, "s"))
    assert published < set(layout.matches("s").iterdir()), "replaced files are there for a while"
    assert sum(pq.read_metadata(path).num_rows for path in published) == ROWS // 2 * FILES


def test_a_run_that_has_ended_lists_what_it_was_merging(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    merge = compaction.merge

    def slow(*arguments: Any) -> None:
        time.sleep(1.0)
        merge(*arguments)

    monkeypatch.setattr(compaction, "merge", slow)
    write_orders(tmp_path / "in", files=3, rows=300)
    text = script(tmp_path / "in", VIEWS, options=", max_files_per_trigger '1'")
    run = (
        Engine(spark, compact_every_batches=2)
        .execute(text)
        .start(tmp_path / "out", trigger=Trigger.available_now())
    )
    run.await_termination()
    by_manifest, by_folder = (folder_bag(tmp_path / "out", "orders", each) for each in (True, False))
    assert len(list((tmp_path / "out/matches/orders").glob("*-to-*.parquet"))) == 1
    assert by_folder == by_manifest
    run.stop()
