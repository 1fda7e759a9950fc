"""What an answer of Java's and a job of Python tasks take, with and without acknowledging at once what Java sends (docs/decisions/0143).

Two processes with a session each, one after the other, twice: one as `penstock run` makes it, one with Spark's own daemon and py4j as it is. Medians of the calls.
Limit: a round trip of py4j is 0.1 ms.

Expected, or the exit code is 1: an answer of 9,000 characters takes less than half of the time without, and a job of two empty tasks less than without.

    python benchmarks/acknowledged.py
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
from pyspark.sql import SparkSession

from penstock.spark.sessions.acknowledged import acknowledge_answers

SIZES, CALLS, JOBS, ROUNDS = (8_000, 9_000, 50_000), 30, 20, 2
SIDES = ("Spark's own", "at once")


def measured(side: str) -> dict[str, float]:
    """Milliseconds of each call, in a session of this process."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    if side == "at once":
        builder = builder.config("spark.python.daemon.module", "penstock.spark.sessions.daemon")
    spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
    if side == "at once":
        acknowledge_answers()
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    found = {}
    for size in SIZES:
        text = jvm.java.lang.StringBuilder("x" * size)
        found[f"an answer of {size:,} characters"] = _median(text.toString, CALLS)
    empty = spark.sparkContext.parallelize(range(2), 2).map(lambda each: each)
    found["a job of two empty tasks"] = _median(empty.collect, JOBS)
    spark.stop()
    return found


def _median(call: Callable[[], object], times: int) -> float:
    for _ in range(3):
        call()
    seconds = []
    for _ in range(times):
        began = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - began)
    return float(np.median(seconds)) * 1e3


def main() -> int:
    """Measures both sides."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    side = parser.parse_args().side
    if side is not None:
        print(json.dumps(measured(side)))
        return 0
    rounds: dict[str, list[dict[str, float]]] = {each: [] for each in SIDES}
    for _ in range(ROUNDS):
        for each in SIDES:
            said = subprocess.run(
                [sys.executable, __file__, "--side", each], capture_output=True, text=True, check=True
            ).stdout
            rounds[each].append(json.loads(said.splitlines()[-1]))
    without, at_once = (
        {what: float(np.median([each[what] for each in rounds[side]])) for what in rounds[side][0]}
        for side in SIDES
    )
    for what, milliseconds in without.items():
        print(f"{what}: {milliseconds:.2f} ms, at once {at_once[what]:.2f} ms")
    long, job = "an answer of 9,000 characters", "a job of two empty tasks"
    return 0 if at_once[long] < without[long] / 2 and at_once[job] < without[job] else 1


if __name__ == "__main__":
    sys.exit(main())
