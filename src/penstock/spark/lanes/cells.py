"""Stateless jobs over cells, in a pool of their own, so that they need not wait for the tasks of other queries."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Sequence
from typing import TypeVar

from pyspark import SparkContext
from pyspark.sql import SparkSession

from penstock.spark.recovery.messages import first_line

_log = logging.getLogger(__name__)

Cell = TypeVar("Cell")
Report = TypeVar("Report")


class CellJobs:
    """Runs the jobs of one lane; each thread has its jobs in the lane's pool, and any may cancel them.

    Args:
        spark: the session; with `spark.scheduler.mode` FAIR the lane's tasks take their share of the cores beside a
            busy ingest, otherwise they wait for the tasks before them.
        name: the lane's, for the pool and the jobs' description.
    """

    def __init__(self, spark: SparkSession, name: str) -> None:
        self._spark = spark
        self._name = name
        self._group = f"penstock-{name}-{uuid.uuid4().hex}"

    def run(self, function: Callable[[Cell], Report], cells: Sequence[Cell]) -> list[Report]:
        """Runs one job, a task a cell.

        Args:
            function: runs in a worker; it and what it returns can be pickled.
            cells: what it is given.

        Returns:
            What it returned, in the order of the cells.
        """
        if not cells:
            return []
        context = self.own()

        # an RDD of numbers: a DataFrame is analysed and planned for half of the time such a job takes
        numbers = context.parallelize(range(len(cells)), len(cells))
        return numbers.map(lambda number: function(cells[number])).collect()

    def own(self) -> SparkContext:
        """Gives the jobs that the calling thread begins from now on the lane's pool and description."""
        context = self._spark.sparkContext
        context.setLocalProperty("spark.scheduler.pool", self._name)
        context.setJobGroup(self._group, f"penstock {self._name}", True)
        return context

    def cancel(self) -> None:
        """Cancels what runs; that the session has ended before is no fault."""
        try:
            self._spark.sparkContext.cancelJobGroup(self._group)
        except Exception as error:
            _log.info("nothing to cancel, the session is gone: %s", first_line(error))
