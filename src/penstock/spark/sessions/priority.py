"""Jobs of low priority: in workers of their own, and in no more tasks at once than they may have."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, cast

from pyspark import RDD, SparkContext

#: niceness of orders, corrections and backfills: where both want more than there is, the ingest gets four times the processor time that they get
LOW_PRIORITY = 6
#: variable of a worker's environment
_NICENESS = "PENSTOCK_NICENESS"


def give_way() -> None:
    """Lowers the priority of this worker to the one that its jobs ask for, if they ask for one."""
    wanted = int(os.environ.get(_NICENESS, 0))
    if os.getpriority(os.PRIO_PROCESS, 0) < wanted:
        os.setpriority(os.PRIO_PROCESS, 0, wanted)


class ApartContext:
    """A Spark context whose workers have an environment of their own: Spark keeps workers apart by it.

    A worker cannot get its priority back, so that those of the ingest must not be among them.

    Args:
        context: the session's.
        niceness: of the workers, see `give_way`.
        most_tasks: of a job; None: as many as are asked for. A task does what several would have done, one after the other.
    """

    def __init__(self, context: SparkContext, niceness: int, most_tasks: int | None = None) -> None:
        self.environment = {**context.environment, _NICENESS: str(niceness)}
        self.context = context
        self.most_tasks = most_tasks

    def parallelize(self, c: Sequence[Any], numSlices: int | None = None) -> RDD[Any]:  # noqa: N803, Spark's names
        """Divides values among tasks, see `SparkContext.parallelize`."""
        tasks = self.context.defaultParallelism if numSlices is None else numSlices
        rdd = self.context.parallelize(c, min(tasks, self.most_tasks or tasks))
        rdd.ctx = cast(SparkContext, self)
        return rdd

    def __getattr__(self, name: str) -> Any:
        return getattr(self.context, name)
