"""A run that gets killed: `python victim.py SCRIPT OUTPUT [--ended|--open] [KEY=VALUE ...]` runs a script once.

It processes what is there; with `--open` it waits for more until it is killed, so it never answers windows for which more may come.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from penstock.spark.engine import Engine
from penstock.spark.sessions.build import build_session
from penstock.trigger import Trigger


def main(script: str, output: str, *conf: str) -> None:
    settings = dict(pair.split("=", 1) for pair in conf if "=" in pair)
    spark = build_session(settings.pop("spark.master", "local[2]"), settings, "victim", "brief")
    answer(spark, script, output, *conf)
    spark.stop()


def answer(spark: SparkSession, script: str, output: str, *conf: str) -> None:
    """The same on a session that there is, which does not end."""
    # Spark gives a Python process 10 s to start: on a loaded machine that fails again and again
    # and what is owed over all kills is more than a run's own
    engine = Engine(
        spark,
        compact_every_batches=2,
        events_bytes=4_096,
        retry_attempts=40,
        late_windows=10_000,
        idle_seconds=0,
    )
    engine.execute(Path(script).read_text())
    trigger = Trigger() if "--open" in conf else Trigger.available_now(ended="--ended" in conf)
    run = engine.start(output, trigger=trigger)
    run.await_termination()
    run.stop()


def main_with(environment: Mapping[str, str], *arguments: str) -> None:
    """The same with variables of the environment."""
    os.environ.update(environment)
    main(*arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
