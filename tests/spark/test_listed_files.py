"""Spark looks at the files of a batch without a job."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.spark.sessions.build import LISTED

pytestmark = pytest.mark.spark


def test_a_batch_of_forty_files_is_listed_without_a_job(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(40):
        (tmp_path / f"{number}.bin").write_bytes(b"x")
    files = sorted(map(str, tmp_path.iterdir()))
    own = spark.newSession()

    def jobs(group: str) -> int:
        own.sparkContext.setJobGroup(group, group)
        own.read.format("binaryFile").load(files)
        return len(own.sparkContext.statusTracker().getJobIdsForGroup(group))

    try:
        assert jobs("as sessions are built") == 0
        own.conf.set(LISTED, "32")
        assert jobs("as Spark does by itself") == 1
    finally:
        own.sparkContext.setLocalProperty("spark.jobGroup.id", None)
        own.sparkContext.setLocalProperty("spark.job.description", None)
