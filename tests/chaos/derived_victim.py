"""A run with window views over a window view that gets killed: `python derived_victim.py FOLDER [--ended]`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from derived_cases import derived_engine
from penstock.spark.sessions.build import build_session
from penstock.trigger import Trigger


def main(folder: str, *ended: str) -> None:
    # each victim answers few batches: compiling only the kernels it needs is sooner done
    spark = build_session("local[2]", {"spark.python.daemon.module": "pyspark.daemon"}, "victim")
    run = derived_engine(spark, Path(folder)).start(
        Path(folder) / "out", trigger=Trigger.available_now(ended=bool(ended))
    )
    run.await_termination()
    run.stop()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
