"""A small results folder with views of every kind, and every way to damage a file of it."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from engine_cases import put_file
from penstock.spark.engine import Engine
from penstock.spark.run import Run
from penstock.trigger import Trigger

ROWS, FILES = 60, 9
#: selections, a window view, a window view over it, a join view, windows with a deadline
VIEWS = {
    "large": "SELECT id, k, x FROM s WHERE x >= 50",
    "all_rows": "SELECT * FROM s WHERE id >= 0",
    "sums": "SELECT k, window(at, '10 seconds') AS w, count(*) AS n, sum(x) AS total FROM s GROUP BY k, w",
    "of_sums": "SELECT window(w.start, '30 seconds') AS half, sum(total) AS all_of_it, count(*) AS groups FROM sums GROUP BY half",
    "pairs": "SELECT a.id AS left_id, b.id AS right_id FROM s a JOIN s b ON a.k = b.k AND abs(a.x - b.x) < 10 AND a.id < b.id "
    "AND b.at BETWEEN a.at - INTERVAL 2 SECONDS AND a.at + INTERVAL 2 SECONDS",
    "in_time": "SELECT /*+ DEADLINE('60 seconds') */ window(at, '10 seconds') AS w, count(*) AS n FROM s GROUP BY w",
}
SETTINGS = {
    "compact_every_batches": 3,
    "shards": 1,
    "watch_seconds": 0.0,
    "retry_attempts": 20,
    "retry_seconds": 0.1,
}


def put(folder: Path, number: int) -> None:
    """A file of the stream: ten seconds of it, some tuples late."""
    chance = np.random.default_rng(number)
    at = 1_700_000_000.0 + 10 * number + np.arange(ROWS) * 10 / ROWS - (chance.random(ROWS) < 0.05) * 12
    rows = {
        "at": pa.array((at * 1e6).astype(np.int64)).cast(pa.timestamp("us", "UTC")),
        "id": pa.array(number * ROWS + np.arange(ROWS)),
        "k": pa.array(chance.integers(0, 4, ROWS).astype(np.int32)),
        "x": pa.array(chance.integers(0, 100, ROWS).astype(float)),
    }
    folder.mkdir(parents=True, exist_ok=True)
    put_file(folder / f"{number:03d}.parquet", partial(pq.write_table, pa.table(rows)))


def start(spark: SparkSession, root: Path, output: Path | str, *, ended: bool = False) -> Run:
    """Answers what is in `root/in`; whatever is damaged is told by an exception."""
    table = (
        "CREATE TABLE s (at TIMESTAMP, id BIGINT, k INT, x DOUBLE) USING parquet "
        f"OPTIONS (path '{root / 'in'}', event_time 'at', max_files_per_trigger '1')"
    )
    engine = Engine(spark, **SETTINGS).execute(table).add_views(VIEWS)
    run = engine.start(output, trigger=Trigger.available_now(ended=ended))
    try:
        run.await_termination(240)
    finally:
        run.stop()
    return run


def rows_of(run: Run) -> dict[str, Counter[str]]:
    """The rows of each view but for the one by the clock."""
    return {name: Counter(map(repr, run.results(name).collect())) for name in VIEWS if name != "in_time"}


def _gone(path: Path) -> None:
    path.unlink()


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x10
    path.write_bytes(content)


DAMAGES: dict[str, Callable[[Path], None]] = {
    "gone": _gone,
    "empty": _empty,
    "cut": _cut,
    "flipped": _flipped,
}


#: of what SQLite makes anew beside a ledger that somebody reads
SQLITE_ENDINGS = ("-shm", "-wal")


def stored_files(output: Path) -> Iterator[str]:
    """The files of a results folder, relative to it, but for what nothing is computed from: locks, events, checksums of Spark's.

    What SQLite has beside a ledger that is closed has nothing of it.
    """
    for path in sorted(output.rglob("*")):
        name = path.name
        is_other = name.startswith((".", "events")) or name == "lock" or name.endswith(SQLITE_ENDINGS)
        if path.is_file() and not is_other:
            yield str(path.relative_to(output))


def copied(source: Path, target: Path) -> Path:
    """A copy of a results folder, files with two names as such."""
    shutil.rmtree(target, ignore_errors=True)
    names: dict[int, Path] = {}

    def copy(one: str, other: str) -> None:
        place = Path(one).stat().st_ino
        if place in names:
            os.link(names[place], other)
            return
        shutil.copy2(one, other)
        names[place] = Path(other)

    shutil.copytree(source, target, copy_function=copy)
    return target
