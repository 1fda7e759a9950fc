"""A run with a join view that gets killed: `python join_victim.py FOLDER` answers what is in its tables."""

from __future__ import annotations

import sys
from pathlib import Path

from penstock.spark.engine import Engine
from penstock.spark.sessions.build import build_session

#: every cut with new flights has rows
VIEW = (
    "SELECT a.k, a.ts AS first, b.ts AS later, c.name FROM flights a JOIN flights b ON a.k = b.k AND "
    "b.ts BETWEEN a.ts AND a.ts + INTERVAL 30 SECONDS JOIN airports c ON a.n = c.n"
)


def main(folder: str) -> None:
    inputs = Path(folder) / "in"
    spark = build_session("local[2]", {"spark.python.daemon.module": "pyspark.daemon"}, "victim", "brief")
    engine = Engine(spark)
    for name, kind in (
        ("flights", "event_time 'ts', max_files_per_trigger '1'"),
        ("airports", "static 'true'"),
    ):
        engine.execute(f"CREATE TABLE {name} USING parquet OPTIONS (path '{inputs / name}', {kind})")
    run = engine.view("pairs", VIEW).start(Path(folder) / "out", available_now=True)
    run.await_termination()
    run.stop()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
