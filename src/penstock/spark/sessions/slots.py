"""Task slots: how many tasks run at once, and which of them orders leave to the ingest."""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: a container's share of processor time: microseconds it may use of a period, and that period
_QUOTA = Path("/sys/fs/cgroup/cpu.max")
_LOCAL = re.compile(r"local\[\*\]")
#: Spark is asked no more often, seconds: executors come and go more rarely
_ASKED_SECONDS = 1.0


def with_ingest_slot(master: str | None) -> dict[str, str] | None:
    """Return Spark's settings for a local session with a task slot more than processors, for views with a deadline.

    Orders take as many slots as there are processors, so the ingest finds one and the operating system shares the processors.

    Args:
        master: a Spark master URL; None is `local[*]`.

    Returns:
        `spark.master` and the number of tasks that jobs are split into; None where the master says how many slots it has.
    """
    if master is not None and not _LOCAL.fullmatch(master):
        return None
    cores = processors()
    return {"spark.master": f"local[{cores + 1}]", "spark.default.parallelism": str(cores)}


def order_slots(spark: SparkSession) -> int:
    """Return how many orders may run at once: as many as processors, and one less than slots, which is left to the ingest.

    A session with one slot leaves none.

    Args:
        spark: the session.
    """
    return max(1, min(spark.sparkContext.defaultParallelism, task_slots(spark) - 1))


class OrderSlots:
    """How many orders may run at once, as executors of a cluster register and leave; one thread owns it.

    Args:
        spark: the session.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._found = order_slots(spark)
        self._asked = time.monotonic()

    def now(self) -> int:
        """Return `order_slots`, a second old at most; of a session that has ended the last one."""
        if time.monotonic() >= self._asked + _ASKED_SECONDS:
            # jobs say that the session has ended
            with suppress(Exception):
                self._found = order_slots(self._spark)
            self._asked = time.monotonic()
        return self._found


def task_slots(spark: SparkSession) -> int:
    """Return how many tasks the session runs at once now; as many as its parallelism where no executor has registered yet."""
    context = spark.sparkContext._jsc.sc()
    profile = context.resourceProfileManager().defaultResourceProfile()
    return int(context.maxNumConcurrentTasks(profile)) or spark.sparkContext.defaultParallelism


def processors() -> int:
    """Return how many processors this process may use, with the limits of its container."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        used, period = _QUOTA.read_text().split()
    except (OSError, ValueError):
        return allowed
    return allowed if used == "max" else max(1, min(allowed, round(int(used) / int(period))))
