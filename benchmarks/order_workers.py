"""What `order_shares.py` measures on a cluster: workers of one processor each, and a window from its last file to its rows.

A worker may use one processor of this machine. Where only orders run it offers one task slot. Beside an ingest it offers two, as orders leave
one to it, so that Spark may give both shares to one worker now and then.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Row, SparkSession

from latency import moment
from penstock.spark.engine import Engine, Run
from penstock.spark.lanes.deadlines.register import DEADLINE_LANE
from penstock.spark.sessions.build import build_session
from penstock.spark.storage.formats import MANIFEST
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.store_paths import remove_folder
from penstock_lab.servers.cluster import StandaloneCluster

MEMORY = "2g"
CONF = {
    "spark.driver.memory": "2g",
    "spark.executor.memory": MEMORY,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
}
VIEW = "large"
TEXT = (
    "SELECT /*+ DEADLINE('2 minutes'), LOSS(1, 4) */ k, window(ts, '1 hour') AS w, count(*) AS n, sum(x) AS s, avg(x) AS a, "
    "max(x) AS m FROM tuples GROUP BY 1, 2"
)
HOUR = 3_600_000_000
FILES, FEW = 10, 100_000
STUCK_SECONDS = 600.0


class PinnedCluster(StandaloneCluster):
    """A cluster whose workers, and what they start, may use one processor each."""

    def start_worker(self, number: int) -> None:
        """Starts a worker on a processor of its own."""
        allowed = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {sorted(allowed)[number]})
        try:
            super().start_worker(number)
        finally:
            os.sched_setaffinity(0, allowed)


@contextmanager
def cluster_of(place: Path, slots: int) -> Iterator[StandaloneCluster]:
    """Two workers, each of which offers so many slots."""
    with PinnedCluster(place / "cluster", cores=slots, memory=MEMORY) as cluster:
        yield cluster


@contextmanager
def cluster_session(cluster: StandaloneCluster, workers: int, slots: int) -> Iterator[SparkSession]:
    """A session with an executor on so many workers of the cluster, each with all slots of its worker."""
    numbers = {"executor.cores": slots, "cores.max": slots * workers, "default.parallelism": workers}
    conf = CONF | {f"spark.{name}": str(number) for name, number in numbers.items()}
    spark = build_session(cluster.url, conf, "order_workers")
    try:
        yield spark
    finally:
        spark.stop()


def executors_of(spark: SparkSession, pool: str, tasks: int, after: int = -1) -> dict[int, list[str]]:
    """By stage of a pool that had so many tasks, and came after another one, the executors that ran them, each once."""
    store = spark._jsc.sc().statusStore()
    found = {}
    stages = store.stageList(
        None, False, False, spark.sparkContext._gateway.new_array(_double(spark), 0), None
    )
    for each in (stages.apply(at) for at in range(stages.size())):
        if each.stageId() > after and each.numTasks() == tasks and each.schedulingPool() == pool:
            ran = store.taskList(each.stageId(), each.attemptId(), tasks)
            found[each.stageId()] = sorted({ran.apply(at).executorId() for at in range(ran.size())})
    return found


def _double(spark: SparkSession) -> object:
    return spark._jvm.double


@dataclass(frozen=True, slots=True)
class Arrival:
    """What was seen of a window whose last file arrived.

    Attributes:
        seconds: from that file to its published rows.
        noticed: of these until the lane knew of it.
        order: of these that its order took.
        executors: that its order ran on.
        rows: its rows, by key.
    """

    seconds: float
    noticed: float
    order: float
    executors: int
    rows: list[Row]


def written_files(folder: Path, tuples: int, groups: int) -> list[Path]:
    """A few tuples of the first hour, all others in the second, and one in the third."""
    folder.mkdir()
    random, rows = np.random.default_rng(7), tuples // FILES
    times = [np.arange(FEW)]
    times += [
        HOUR + number * (HOUR // FILES) + np.sort(random.integers(0, HOUR // FILES, rows))
        for number in range(FILES)
    ]
    times += [np.array([2 * HOUR])]
    paths = []
    for number, each in enumerate(times):
        columns = {
            "ts": pa.array(each).cast(pa.timestamp("us", "UTC")),
            "x": pa.array(random.integers(-1000, 1000, len(each))),
            "k": pa.array(random.integers(0, groups, len(each))),
        }
        paths.append(folder / f"{number:03d}.parquet")
        pq.write_table(pa.table(columns), paths[-1])
    return paths


def arrived(spark: SparkSession, place: Path, files: list[Path], workers: int) -> Arrival:
    """Feeds an engine with all files but the last; that one once all others are in the log."""
    source = place / "in"
    source.mkdir(parents=True)
    # not compacted, so that each manifest is there
    engine = Engine(spark, compact_every_batches=0)
    options = f"path '{source}', event_time 'ts', max_files_per_trigger '1'"
    engine.execute(
        f"CREATE TABLE tuples (ts TIMESTAMP, x BIGINT, k BIGINT) USING parquet OPTIONS ({options})"
    )
    run = engine.view(VIEW, TEXT).start(place / "out")
    try:
        for each in files[:-1]:
            (source / each.name).hardlink_to(each)
        rows = sum(pq.read_metadata(each).num_rows for each in files[:-1])
        _until(
            run, lambda: sum(each["tuples"] for each in run.events("batch")) == rows and _released(run) == 1
        )
        before = max(executors_of(spark, DEADLINE_LANE, 1), default=-1)
        began = time.time()
        (source / files[-1].name).hardlink_to(files[-1])
        _until(run, lambda: _released(run) == 2)
        published = moment(run.events("cut")[-1])
        outcome = _outcome(place / "out")
        divided = [each for each in run.events("order_divided") if moment(each) > began]
        ran = next(iter(executors_of(spark, DEADLINE_LANE, workers, before).values()))
        assert len(divided) == (workers > 1), divided
        found = run.results(VIEW).where("hour(w.start) = 1").orderBy("k").collect()
    finally:
        run.stop()
        remove_folder(place)
    return Arrival(published - began, outcome["noticed"] - began, outcome["seconds"], len(ran), found)


def _outcome(output: Path) -> Mapping[str, Any]:
    """What the lane has published of the window of the second hour."""
    manifests, number = Layout.of(output, None).manifests(DEADLINE_LANE), 0
    while (document := MANIFEST.read(manifests[number])) is not None:
        for each in document["batches"][0]["outcomes"]:
            if each["end"] == 2 * HOUR:
                found: Mapping[str, Any] = each
                return found
        number += 1
    raise AssertionError("the window has no outcome")


def _released(run: Run) -> int:
    return sum(each["figures"]["views"].get(VIEW, {}).get("released", 0) for each in run.events("cut"))


def _until(run: Run, holds: Callable[[], bool]) -> None:
    limit = time.monotonic() + STUCK_SECONDS
    while not holds():
        assert run.active, "the run has ended"
        assert time.monotonic() < limit, "nothing becomes of the window"
        time.sleep(0.1)
