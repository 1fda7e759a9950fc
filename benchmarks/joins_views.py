"""What cuts cost where several join views are over the same stream: a job of Spark for each, and one for all.

A stream gets a file of `ROWS` tuples, and the next one once all views have answered it; in turns their lanes run jobs of their
own and share them. Medians of the periods behind the first ones: from the file to the result of the last view, and the
processor time of all processes, with the batch of the ingest.

    python benchmarks/joins_views.py [--periods N]
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from penstock.spark.engine import Engine
from penstock.spark.lanes.cells import CellJobs
from penstock.spark.sessions.build import build_session
from processes import processor_seconds

CORES, ROWS, KEYS, WARM = 2, 200, 50, 10
VIEWS = (1, 4)
TEXT = "SELECT x.k, x.v AS v, y.v AS w FROM a x JOIN a y ON x.k = y.k AND y.ts BETWEEN x.ts - INTERVAL {0} SECONDS AND x.ts"


def _own_jobs(_: CellJobs) -> None:
    """Waits for nobody."""


KINDS = {"a job each": _own_jobs, "shared": CellJobs.expect}


def _rows(rng: np.random.Generator, period: int) -> pa.Table:
    moments = ((1_700_000_000 + period + rng.random(ROWS)) * 1e6).astype(np.int64)
    return pa.table(
        {
            "ts": pa.array(moments).cast(pa.timestamp("us", "UTC")),
            "k": rng.integers(0, KEYS, ROWS),
            "v": rng.random(ROWS),
        }
    )


def measured(
    spark: SparkSession, folder: Path, views: int, periods: int
) -> dict[str, list[tuple[float, float]]]:
    """By kind of each period the seconds until the last result, and those of processors."""
    rng = np.random.default_rng(3)
    (folder / "a").mkdir(parents=True)
    options = f"path '{folder / 'a'}', event_time 'ts'"
    engine = Engine(spark, shards=CORES, idle_seconds=0).execute(
        f"CREATE TABLE a (ts TIMESTAMP, k BIGINT, v DOUBLE) USING parquet OPTIONS ({options})"
    )
    engine.add_views({f"v{number}": TEXT.format(5 + number) for number in range(views)})
    run = engine.start(folder / "out")
    found: dict[str, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
    for period in range(WARM + 2 * periods):
        kind = list(KINDS)[period % 2]
        CellJobs.expect = KINDS[kind]  # type: ignore[method-assign]
        pq.write_table(_rows(rng, period), folder / "next")
        processor, began = processor_seconds(os.getpid()), time.perf_counter()
        (folder / "next").rename(folder / "a" / f"{period:04d}.parquet")
        while len(run.events("cut")) < views * (period + 1):
            time.sleep(0.01)
        took = time.perf_counter() - began
        # what follows the last result belongs to it
        time.sleep(0.2)
        if period >= WARM:
            found[kind].append((took, processor_seconds(os.getpid()) - processor))
    run.stop()
    return found


def main() -> int:
    """Measures and prints a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--periods", type=int, default=30)
    periods = parser.parse_args().periods
    spark = build_session(f"local[{CORES}]", {"spark.scheduler.mode": "FAIR"})
    table = Table("views", "jobs", "file to last result, ms", "fastest quarter, ms", "processor, ms")
    with tempfile.TemporaryDirectory(prefix="penstock-views-") as place:
        for views in VIEWS:
            for kind, told in measured(spark, Path(place) / str(views), views, periods).items():
                seconds = sorted(took for took, _ in told)
                processor = median(own for _, own in told)
                table.add_row(
                    str(views),
                    kind,
                    f"{median(seconds) * 1e3:.0f}",
                    f"{seconds[len(seconds) // 4] * 1e3:.0f}",
                    f"{processor * 1e3:.0f}",
                )
    Console().print(table)
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
