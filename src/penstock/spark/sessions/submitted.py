"""What spark-submit was told, where it started this process."""

from __future__ import annotations

import os

#: spark-submit sets it for the Python program that it starts
_GATEWAY = "PYSPARK_GATEWAY_PORT"


def submitted_conf() -> dict[str, str]:
    """The Spark settings that spark-submit was given, the master among them; {} where it did not start this process."""
    if _GATEWAY not in os.environ:
        return {}
    # a script with a mistake is refused before it loads
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    return dict(SparkConf(_jvm=SparkContext._jvm).getAll())
