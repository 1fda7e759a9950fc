"""Checkpoints of every layout there was: one of the present layout goes on, older ones are refused in words."""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from checkpoint_sample import COLUMNS, FOLDER, ROWS, table, unpack, write
from joined_inputs import multiset
from penstock.errors import CheckpointError
from penstock.spark.engine import Engine
from penstock.spark.storage.layout import LAYOUT_VERSION
from penstock.trigger import Trigger

pytestmark = pytest.mark.spark

ARCHIVES = {int(path.name.removesuffix(".tar.xz")): path for path in FOLDER.glob("*.tar.xz")}


def all_of(spark: SparkSession, folder: Path, files: int) -> DataFrame:
    """The tuples of the first files."""
    paths = sorted(folder.glob("*.parquet"))[:files]
    return spark.read.schema(COLUMNS).parquet(*map(str, paths))


def assert_same(found: DataFrame, expected: DataFrame) -> None:
    assert found.schema.simpleString() == expected.schema.simpleString()
    wanted = multiset(expected)
    assert wanted, "something is compared"
    assert multiset(found) == wanted


def test_there_is_a_sample_of_this_layout() -> None:
    assert LAYOUT_VERSION in ARCHIVES, "make checkpoint-sample"
    assert max(ARCHIVES) == LAYOUT_VERSION


def test_a_checkpoint_of_this_layout_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    kept = unpack(ARCHIVES[LAYOUT_VERSION], tmp_path / "kept")
    read = pq.read_table(kept.input)
    for number in range(kept.files, kept.files + 2):
        write(kept.input, number)
    engine = Engine(spark, compact_every_batches=3).execute(table(kept.input)).add_views(kept.views)
    run = engine.start(kept.out, trigger=Trigger.available_now(ended=True))
    try:
        assert run.await_termination(300)
        assert run.status().streams["tuples"].tuples == 2 * ROWS, "nothing is read again"
        first = all_of(spark, kept.input, kept.files // 2)
        # the second start began behind the files of the first one
        begun = pc.max(pq.read_table(sorted(kept.input.glob("*"))[: kept.files // 2])["ts"]).as_py()
        assert begun < pc.max(read["ts"]).as_py()
        all_of(spark, kept.input, kept.files + 2).createOrReplaceTempView("tuples")
        for name, text in kept.views.items():
            expected = spark.sql(text)
            if name in kept.later:
                expected = expected.where(F.col("w.end") > F.lit(begun))
            assert_same(run.results(name), expected)
        first.createOrReplaceTempView("tuples")
        for name, text in kept.dropped.items():
            assert_same(run.results(name), spark.sql(text))
    finally:
        run.stop()


@pytest.mark.parametrize("layout", sorted(ARCHIVES.keys() - {LAYOUT_VERSION}))
def test_a_checkpoint_of_an_older_layout_is_refused(spark: SparkSession, tmp_path: Path, layout: int) -> None:
    kept = unpack(ARCHIVES[layout], tmp_path / "kept")
    before = {path: path.stat().st_mtime_ns for path in kept.folder.rglob("*")}
    engine = Engine(spark).execute(table(kept.input)).add_views(kept.views)
    said = (
        rf"^the checkpoint {kept.out}/_penstock/checkpoint was written by an older version of Penstock: it has layout "
        rf"{layout}, this version reads layout {LAYOUT_VERSION}; continue with the version of Penstock that wrote it, or "
        "start with a new checkpoint and a new output folder$"
    )
    with pytest.raises(CheckpointError, match=said):
        engine.start(kept.out, trigger=Trigger.available_now())
    assert {path: path.stat().st_mtime_ns for path in kept.folder.rglob("*")} == before, "nothing is changed"
