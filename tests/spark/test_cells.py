"""Stateless jobs over cells: in order, in a pool of their own, and cancelled at once."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession

from penstock.spark.lanes.cells import CellJobs

pytestmark = pytest.mark.spark


@pytest.mark.long
def test_each_cell_is_a_task_and_reports_come_in_order(spark: SparkSession) -> None:
    def task(cell: str) -> tuple[str, int, str | None]:
        context = TaskContext.get()
        assert context is not None
        return cell * 2, context.partitionId(), context.getLocalProperty("spark.scheduler.pool")

    jobs = CellJobs(spark, "pairs")
    found = jobs.run(task, ["a", "b", "c"])
    assert found == [("aa", 0, "pairs"), ("bb", 1, "pairs"), ("cc", 2, "pairs")]
    assert jobs.run(task, []) == []


def test_what_a_task_raises_is_raised(spark: SparkSession) -> None:
    def task(cell: int) -> float:
        return 1 / cell

    with pytest.raises(Exception, match="ZeroDivisionError"):
        CellJobs(spark, "pairs").run(task, [1, 0])


def test_jobs_are_cancelled_by_another_thread_and_others_go_on(spark: SparkSession, tmp_path: Path) -> None:
    begun = tmp_path / "begun"

    def task(cell: int) -> int:
        if cell:
            begun.touch()
            time.sleep(300)
        return cell

    jobs = CellJobs(spark, "pairs")
    failed: list[BaseException] = []

    def run() -> None:
        try:
            jobs.run(task, [1])
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    while not begun.exists():
        time.sleep(0.02)
    jobs.cancel()
    thread.join(120)
    assert not thread.is_alive()
    assert "cancel" in str(failed[0]).lower()
    assert CellJobs(spark, "pairs").run(task, [0]) == [0]
