"""A run with a join-like lane that gets killed: `python lane_run_victim.py FOLDER` answers what is in its tables."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from pyspark import cloudpickle

import lane_cases
from lane_runs import lane_engine, lane_plan
from penstock.spark.sessions.build import build_session
from penstock.trigger import Trigger


def main(folder: str) -> None:
    cloudpickle.register_pickle_by_value(lane_cases)
    # each victim answers few batches: compiling only the kernels it needs is sooner done
    spark = build_session("local[2]", {"spark.python.daemon.module": "pyspark.daemon"}, "victim")
    run = lane_engine(spark, Path(folder)).start(Path(folder) / "out", trigger=Trigger.available_now())
    run._execution.lanes.add(lane_plan([]))
    run.await_termination()
    run.stop()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
