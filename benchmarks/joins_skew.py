"""The balance of a join's tasks where one key has most of the tuples: one task a cell, and as many as its work is worth.

Two streams of `ROWS` tuples a batch, of which a share have one key and the others one of `KEYS`; as many cells as cores. A run
of each kind over the same files, in turns; of each cut but the first two, by whose costs the others are divided: the
processor time of the longest task by the mean of what the cores have to do, and the time of its answer, which is that of a
cut of its own size. The exit code is 1 where the longest task has more than 1.5 times what a core has to do.

    python benchmarks/joins_skew.py [--runs N]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from penstock.spark.engine import Engine
from penstock.spark.lanes.joins import balance
from penstock.spark.sessions.build import build_session
from penstock.trigger import Trigger

CORES, ROWS, KEYS, BATCHES, SECONDS = 2, 25_000, 25_000, 14, 100
SHARES = (0.3, 0.6)
TEXT = "SELECT a.k, a.v AS v, b.v AS w FROM a JOIN b ON a.k = b.k AND b.ts BETWEEN a.ts - INTERVAL 10 SECONDS AND a.ts"


def write(folder: Path, share: float) -> None:
    """The files of both streams."""
    rng = np.random.default_rng(3)
    for name in "ab":
        (folder / name).mkdir(parents=True)
        for batch in range(BATCHES):
            moments = ((1_700_000_000 + (batch + rng.random(ROWS)) * SECONDS) * 1e6).astype(np.int64)
            keys = np.where(rng.random(ROWS) < share, 7, rng.integers(0, KEYS, ROWS))
            rows = {"ts": pa.array(moments).cast(pa.timestamp("us", "UTC")), "k": keys, "v": rng.random(ROWS)}
            pq.write_table(pa.table(rows), folder / name / f"{batch}.parquet")


def cuts(spark: SparkSession, folder: Path, output: Path) -> list[dict[str, Any]]:
    """The cuts of a run that have tasks, but for the first two."""
    engine = Engine(spark, shards=CORES)
    for name in "ab":
        options = f"path '{folder / name}', event_time 'ts', max_files_per_trigger '1'"
        engine.execute(f"CREATE TABLE {name} USING parquet OPTIONS ({options})")
    run = engine.view("joined", TEXT).start(output, trigger=Trigger.available_now())
    run.await_termination()
    found = [cut for cut in run.events("cut") if cut["figures"]["tasks"]["count"]]
    run.stop()
    return found[2:]


def measured(told: list[dict[str, Any]]) -> tuple[float, float, float, float]:
    """Tasks a cut, the longest by what a core has to do, processor seconds and seconds of an answer: medians."""
    tasks = [cut["figures"]["tasks"] for cut in told]
    return (
        median(each["count"] for each in tasks),
        median(each["longest_seconds"] / (each["seconds"] / CORES) for each in tasks),
        median(each["seconds"] for each in tasks),
        median(cut["answer_seconds"] for cut in told),
    )


def main() -> int:
    """Measures, prints a table; 1 where work stays unbalanced."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=2)
    runs = parser.parse_args().runs
    spark = build_session(f"local[{CORES}]", {"spark.scheduler.mode": "FAIR"})
    table = Table(
        "share of the hot key", "tasks of", "tasks", "longest / what a core has", "processor s", "answer s"
    )
    missed = False
    kinds = {"a cell": 1e9, "its work": balance._HEAVY}
    with tempfile.TemporaryDirectory(prefix="penstock-skew-") as place:
        for share in SHARES:
            folder = Path(place) / str(share)
            write(folder, share)
            told: dict[str, list[dict[str, Any]]] = {kind: [] for kind in kinds}
            for number in range(runs):
                for kind, balance._HEAVY in kinds.items():
                    told[kind] += cuts(spark, folder, folder / f"{kind}-{number}")
            for kind, own in told.items():
                tasks, longest, processor, answer = measured(own)
                table.add_row(
                    f"{share:.0%}",
                    kind,
                    f"{tasks:.0f}",
                    f"{longest:.2f}",
                    f"{processor:.2f}",
                    f"{answer:.2f}",
                )
                missed |= kind == "its work" and longest > kinds[kind]
    Console().print(table)
    spark.stop()
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
