"""The least time an order takes on a session as it is."""

from __future__ import annotations

import time
from statistics import median

from pyspark.sql import SparkSession

from penstock.spark.sessions.numbered_tasks import run_numbered

#: of jobs that do nothing: the first ones warm up
_WARMING, _JOBS = 2, 3
#: an order takes so much longer than a job that does nothing (docs/decisions/0030), seconds
_BEYOND_A_JOB = 0.05


def order_floor(spark: SparkSession) -> float:
    """Seconds that an order takes at least, whatever it computes, see `job_floor`."""
    return job_floor(spark) + _BEYOND_A_JOB


def job_floor(spark: SparkSession) -> float:
    """Seconds that a job takes that does nothing.

    Args:
        spark: the session; what runs on it beside these counts.
    """
    taken = []
    for _ in range(_WARMING + _JOBS):
        began = time.perf_counter()
        run_numbered(spark.sparkContext, int, 1)
        taken.append(time.perf_counter() - began)
    return median(taken[_WARMING:])
