"""`kill -9` at every named place and at random moments: the results equal an undisturbed run's.

One run on files and one on Kafka, of selection views and window views; tuples come before each start, and the
selection views change after the first kill. `test_every_lane_killed.py` is the short form.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from engine_cases import COLUMNS, folder_bag, names, orders
from killing import ended, killed, started
from penstock.spark.log.stream_log import LogReader
from penstock.spark.publication.kinds import results_of, view_kind
from penstock.spark.publication.manifests import published_paths
from penstock.spark.results.read import changes, results
from penstock.spark.storage.failpoints import BACKFILL_NAMES, COMPACTION_NAMES, CUT_NAMES, NAMES
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.spark_files import numbered
from penstock_lab.servers.kafka import KafkaBroker
from publishing import shown

pytestmark = [pytest.mark.spark, pytest.mark.chaos, pytest.mark.long, pytest.mark.timeout(3_600)]

ROWS = 5_000
TABLES_A_START = 2
RANDOM_KILLS = 10
PLACES = (
    *NAMES,
    *CUT_NAMES,
    *BACKFILL_NAMES,
    *COMPACTION_NAMES,
    *(f"cut_{name}" for name in COMPACTION_NAMES),
)
CONDITIONS = {"large": "amount > 900", "north": "name LIKE 'nor%' AND amount < 300", "dear": "price > 97.5"}
CHANGED = {"large": "amount > 990", "dear": "price > 97.5", "south": "name = 'south' AND amount < 100"}
WINDOWS = {
    "by_name": "SELECT name, window(seen, '10 minutes') AS w, count(*) AS n, sum(amount) AS s FROM orders "
    "GROUP BY name, w",
    "busy": "SELECT window(seen, '20 minutes', '10 minutes') AS w, count(*) + 1 AS n, max(id) AS newest FROM orders "
    "WHERE amount > 500 GROUP BY window(seen, '20 minutes', '10 minutes') HAVING count(*) > 500",
}
#: declared before the first kill in a backfill; its operator follows those of WINDOWS
PAST = {"past": WINDOWS["by_name"].replace("SELECT", "SELECT /*+ BACKFILL */", 1)}
CONNECTOR = sorted((Path(__file__).parents[2] / ".cache" / "kafka-connector").glob("*.jar"))

Bag = Counter[tuple[object, ...]]


class Victim:
    """A driver process over one output folder, killed and started again.

    Args:
        folder: keeps the script and the results.
        table: the CREATE TABLE statement.
    """

    def __init__(self, folder: Path, table: str) -> None:
        self._script = folder / "script.sql"
        self._table = table
        self._told = folder / "victim.log"
        self.output = folder / "out"
        self.write_views(CONDITIONS)

    def write_views(self, conditions: dict[str, str], windows: dict[str, str] = WINDOWS) -> None:
        self.windows = windows
        views = [
            f"CREATE VIEW {name} AS SELECT * FROM orders WHERE {text};" for name, text in conditions.items()
        ]
        views += [f"CREATE VIEW {name} AS {text};" for name, text in windows.items()]
        self._script.write_text("\n".join([self._table, *views]))

    def start(self, failpoint: str = "") -> subprocess.Popen[bytes]:
        # each victim answers few batches: compiling only the kernels it needs is sooner done
        conf = f"spark.jars={','.join(map(str, CONNECTOR))}", "spark.python.daemon.module=pyspark.daemon"
        return started("victim.py", self._script, self.output, *conf, log=self._told, failpoint=failpoint)

    def run_to_end(self) -> None:
        assert ended(self.start()) == 0, self._told.read_text()[-3000:]

    def kill_at(self, place: str) -> None:
        """Kills the process where the first batch reaches a place.

        Which one that is is a matter of speed: how much of the log a cut takes in, with it which of them has
        answers to publish, and how far the ingest has come when the process is killed elsewhere.
        """
        code = ended(self.start(place))
        assert code == -signal.SIGKILL, f"{place} was never reached; {self._told.read_text()[-3000:]}"

    def kill_randomly(self, rng: random.Random, most_seconds: float) -> bool:
        """Kills the process at a random moment after its first batch; False where it had ended before."""
        commits = self.output / "_penstock/checkpoint/orders/spark/commits"
        before = numbered(commits, "")
        process = self.start()
        while process.poll() is None and numbered(commits, "") == before:
            time.sleep(0.05)
        time.sleep(rng.uniform(0.0, most_seconds))
        code = killed(process)
        assert code in (0, -signal.SIGKILL), self._told.read_text()[-3000:]
        return code != 0

    def made_whole(self) -> tuple[set[int], set[int]]:
        """The operators that entries of the log make whole, each once, and those that are marked so."""
        layout = Layout(self.output, self.output / "_penstock/checkpoint")
        reader = LogReader(layout.log("orders"))
        given = [each for entry in reader.between(reader.first - 1, reader.last) for each in entry.whole]
        assert len(given) == len(set(given))
        return set(given), set(layout.backfilled("orders").numbers())

    def bags(self) -> tuple[Bag, Bag]:
        """The matches by the manifests, and by the plain folder."""
        return folder_bag(self.output, "orders", True), folder_bag(self.output, "orders", False)


def _oracle(tables: list[pa.Table], conditions: dict[str, str]) -> Bag:
    tuples = pa.concat_tables(tables)  # noqa: F841 - DuckDB reads it by name
    bag: Bag = Counter()
    for name, condition in conditions.items():
        found = duckdb.sql(f"SELECT id FROM tuples WHERE {condition}").fetchall()
        bag.update((key, name) for (key,) in found)
    return bag


def _table(number: int) -> pa.Table:
    """Orders without NaN, which JSON does not have; one in fifty is late, by some windows or by all so far."""
    table = orders(ROWS, 7 + number, number * ROWS)
    price = table.column("price")
    table = table.set_column(2, "price", pc.if_else(pc.is_nan(price), pa.scalar(None, pa.float64()), price))
    rng = np.random.default_rng(number)
    late = (rng.random(ROWS) < 0.02) * np.minimum(rng.pareto(0.7, ROWS) * 600, number * ROWS / 2)
    seen = table.column("seen").cast(pa.int64()).to_numpy() - late.astype(np.int64) * 1_000_000
    return table.set_column(4, "seen", pa.array(seen).cast(table.schema.field("seen").type))


def _disturbed(victim: Victim, feed: Callable[[pa.Table, int], None]) -> list[pa.Table]:
    """Runs to the end, killed at all places and at random moments; the tables it was fed, one a batch."""
    rng = random.Random(20_130_101)
    fed: list[pa.Table] = []

    def more() -> None:
        for _ in range(TABLES_A_START):
            fed.append(_table(len(fed)))
            feed(fed[-1], len(fed))

    for number, place in enumerate(PLACES):
        more()
        if place in BACKFILL_NAMES:
            victim.write_views(CHANGED, WINDOWS | PAST)
        victim.kill_at(place)
        if place in BACKFILL_NAMES:
            wanted = {len(WINDOWS)} if place == "backfill_logged" else set()
            assert victim.made_whole() == (wanted, wanted), "entry and mark are one commit"
        if number == 0:
            victim.write_views(CHANGED)
    kills, most_seconds = 0, 4.0
    while kills < RANDOM_KILLS:
        more()
        if victim.kill_randomly(rng, most_seconds):
            kills += 1
        else:
            # on this machine a run is over sooner
            most_seconds /= 2
    more()
    victim.run_to_end()
    return fed


def _check(spark: SparkSession, victim: Victim, tables: list[pa.Table]) -> None:
    """The batch bound before the first kill keeps its views; later ones have the new."""
    by_manifest, by_folder = victim.bags()
    assert by_manifest == _oracle(tables[:1], CONDITIONS) + _oracle(tables[1:], CHANGED)
    assert by_folder == by_manifest
    _check_windows(spark, victim, tables)


def _check_windows(spark: SparkSession, victim: Victim, tables: list[pa.Table]) -> None:
    """The results of the window views equal `spark.sql` over all tuples, by manifest and by the plain folder."""
    spark.createDataFrame(pa.concat_tables(tables)).createOrReplaceTempView("orders")
    revisions: set[int] = set()
    layout = Layout(victim.output, victim.output / "_penstock/checkpoint")
    for number, (view, text) in enumerate(victim.windows.items()):
        found, wanted = results(spark, layout, view), spark.sql(text)
        assert not wanted.isEmpty()
        assert found.exceptAll(wanted).isEmpty()
        assert wanted.exceptAll(found).isEmpty()
        listed = set(published_paths(layout, results_of("orders"), view_kind(number, view)))
        assert names(shown(layout, results_of("orders"), layout.results(view))) == names(listed)
        told = changes(spark, layout, view)
        assert told.count() == told.distinct().count()
        revisions |= {row.revision for row in told.select("revision").distinct().collect()}
    assert {0, 1, 2} <= revisions, "late tuples corrected what had been told"


def test_files_killed(tmp_path: Path, spark: SparkSession) -> None:
    incoming = tmp_path / "in"
    incoming.mkdir()

    def feed(table: pa.Table, number: int) -> None:
        path = incoming / f"{number:03d}.parquet"
        pq.write_table(table, path, row_group_size=ROWS // 3)
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))

    options = f"path '{incoming}', event_time 'seen', max_files_per_trigger '1'"
    victim = Victim(tmp_path, f"CREATE TABLE orders ({COLUMNS}) USING parquet OPTIONS ({options});")
    _check(spark, victim, _disturbed(victim, feed))


@pytest.mark.kafka
def test_kafka_killed(tmp_path: Path, spark: SparkSession, kafka: KafkaBroker) -> None:
    topic = f"orders-{tmp_path.name}"
    kafka.create_topic(topic, partitions=2)

    def feed(table: pa.Table, _: int) -> None:
        seen = pc.strftime(table.column("seen"), "%Y-%m-%dT%H:%M:%SZ").to_pylist()
        rows = table.drop_columns("seen").to_pylist()
        values = [
            json.dumps({key: value for key, value in {**row, "seen": time}.items() if value is not None})
            for row, time in zip(rows, seen, strict=True)
        ]
        for partition in range(2):
            kafka.produce(topic, values[partition::2], partition=partition)

    options = (
        f"kafka.bootstrap.servers '{kafka.address}', subscribe '{topic}', startingOffsets 'earliest', "
        f"maxOffsetsPerTrigger '{ROWS}', event_time 'seen'"
    )
    victim = Victim(tmp_path, f"CREATE TABLE orders ({COLUMNS}) USING kafka OPTIONS ({options});")
    _check(spark, victim, _disturbed(victim, feed))
