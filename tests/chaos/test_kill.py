"""`kill -9` at every named place and at random moments: the results equal an undisturbed run's.

`make chaos` (`PENSTOCK_CHAOS=full`) kills at every place and ten times at random, on files and on
Kafka; without it half of the places on each and one random moment.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from engine_cases import COLUMNS, folder_bag, orders, write_orders
from penstock.spark.failpoints import NAMES
from penstock.testing.kafka import KafkaBroker

pytestmark = [pytest.mark.spark, pytest.mark.chaos]

FILES, ROWS = 24, 5_000
FULL = os.environ.get("PENSTOCK_CHAOS") == "full"
RANDOM_KILLS = 10 if FULL else 1
FILE_PLACES = NAMES if FULL else ("bound", "half_published", "before_commit")
KAFKA_PLACES = NAMES if FULL else ("staged", "manifest_written")
CONDITIONS = {"large": "amount > 900", "north": "name LIKE 'nor%' AND amount < 300", "dear": "price > 97.5"}
CHANGED = {"large": "amount > 990", "dear": "price > 97.5", "south": "name = 'south' AND amount < 100"}
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
        self.output = folder / "out"
        self.write_views(CONDITIONS)

    def write_views(self, conditions: dict[str, str]) -> None:
        views = [
            f"CREATE VIEW {name} AS SELECT * FROM orders WHERE {text};" for name, text in conditions.items()
        ]
        self._script.write_text("\n".join([self._table, *views]))

    def start(self, failpoint: str = "") -> subprocess.Popen[bytes]:
        command = [
            sys.executable,
            str(Path(__file__).with_name("victim.py")),
            str(self._script),
            str(self.output),
        ]
        # each victim answers few batches: compiling only the kernels it needs is sooner done
        command += [
            f"spark.jars={','.join(map(str, CONNECTOR))}",
            "spark.python.daemon.module=pyspark.daemon",
        ]
        log = (self.output.parent / "victim.log").open("ab")
        environment = {**os.environ, "PENSTOCK_FAILPOINT": failpoint}
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)

    def run_to_end(self) -> None:
        assert self.start().wait(timeout=240) == 0, (self.output.parent / "victim.log").read_text()[-3000:]

    def kill_at(self, failpoint: str) -> None:
        process = self.start(failpoint)
        assert process.wait(timeout=240) == -signal.SIGKILL, "the failpoint was never reached"
        _reap(process)

    def kill_randomly(self, rng: random.Random) -> None:
        """Kills the process at a random moment of its batches."""
        process = self.start()
        began = self._wait_for_batches(process, self._published() + 1)
        time.sleep(rng.uniform(0.0, 0.7))
        assert began, "the run ended before it could be killed"
        assert process.poll() is None, "the run ended before it was killed"
        process.kill()
        process.wait()
        _reap(process)

    def bags(self) -> tuple[Bag, Bag]:
        """The matches by the manifests, and by the plain folder."""
        return folder_bag(self.output, "orders", True), folder_bag(self.output, "orders", False)

    def _published(self) -> int:
        return len(list((self.output / "_penstock/checkpoint/orders/spark/commits").glob("[0-9]*")))

    def _wait_for_batches(self, process: subprocess.Popen[bytes], wanted: int) -> bool:
        while process.poll() is None and self._published() < wanted:
            time.sleep(0.05)
        return process.poll() is None


def _reap(process: subprocess.Popen[bytes]) -> None:
    """Ends what the killed driver left behind: its JVM and Python workers."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    time.sleep(0.5)


def _oracle(tables: list[pa.Table], conditions: dict[str, str]) -> Bag:
    tuples = pa.concat_tables(tables)  # noqa: F841 - DuckDB reads it by name
    bag: Bag = Counter()
    for name, condition in conditions.items():
        found = duckdb.sql(f"SELECT id FROM tuples WHERE {condition}").fetchall()
        bag.update((key, name) for (key,) in found)
    return bag


def _tables() -> list[pa.Table]:
    return [orders(ROWS, 7 + number, number * ROWS) for number in range(FILES)]


@pytest.fixture
def files(tmp_path: Path) -> Victim:
    write_orders(tmp_path / "in", FILES, ROWS)
    for number, path in enumerate(sorted((tmp_path / "in").glob("*.parquet"))):
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
    options = f"path '{tmp_path / 'in'}', event_time 'seen', max_files_per_trigger '1'"
    return Victim(tmp_path, f"CREATE TABLE orders ({COLUMNS}) USING parquet OPTIONS ({options});")


def test_files_killed_at_failpoints(files: Victim) -> None:
    for batch, place in enumerate(FILE_PLACES, start=1):
        files.kill_at(f"{place}:{batch}")
    files.run_to_end()
    by_manifest, by_folder = files.bags()
    assert by_manifest == _oracle(_tables(), CONDITIONS)
    assert by_folder == by_manifest


def test_files_killed_and_restarted_with_other_views(files: Victim) -> None:
    """The batch bound before the kill keeps its views; later ones have the new."""
    files.kill_at("staged:3")
    files.write_views(CHANGED)
    files.run_to_end()
    by_manifest, by_folder = files.bags()
    tables = _tables()
    assert by_manifest == _oracle(tables[:4], CONDITIONS) + _oracle(tables[4:], CHANGED)
    assert by_folder == by_manifest


def test_files_killed_at_random_moments(files: Victim) -> None:
    rng = random.Random(20_130_101)
    for _ in range(RANDOM_KILLS):
        files.kill_randomly(rng)
    files.run_to_end()
    by_manifest, by_folder = files.bags()
    assert by_manifest == _oracle(_tables(), CONDITIONS)
    assert by_folder == by_manifest


@pytest.mark.kafka
@pytest.mark.parametrize("at_failpoints", [True, False], ids=["failpoints", "random"])
def test_kafka_killed(tmp_path: Path, kafka: KafkaBroker, at_failpoints: bool) -> None:
    """One run killed at failpoints in turn, and one at random moments."""
    topic = f"orders-{tmp_path.name}"
    kafka.create_topic(topic, partitions=2)
    tables = [_without_nan(table) for table in _tables()]
    for table in tables:
        _produce(kafka, topic, table)
    options = (
        f"kafka.bootstrap.servers '{kafka.address}', subscribe '{topic}', startingOffsets 'earliest', "
        f"maxOffsetsPerTrigger '{ROWS}', event_time 'seen'"
    )
    victim = Victim(tmp_path, f"CREATE TABLE orders ({COLUMNS}) USING kafka OPTIONS ({options});")
    rng = random.Random(1_989)
    if at_failpoints:
        for batch, place in enumerate(KAFKA_PLACES, start=1):
            victim.kill_at(f"{place}:{batch}")
    else:
        for _ in range(RANDOM_KILLS):
            victim.kill_randomly(rng)
    victim.run_to_end()
    by_manifest, by_folder = victim.bags()
    assert by_manifest == _oracle(tables, CONDITIONS)
    assert by_folder == by_manifest


def _without_nan(table: pa.Table) -> pa.Table:
    """JSON has no NaN."""
    price = table.column("price")
    return table.set_column(2, "price", pc.if_else(pc.is_nan(price), pa.scalar(None, pa.float64()), price))


def _produce(kafka: KafkaBroker, topic: str, table: pa.Table) -> None:
    seen = pc.strftime(table.column("seen"), "%Y-%m-%dT%H:%M:%SZ").to_pylist()
    rows = [
        {**row, "seen": time} for row, time in zip(table.drop_columns("seen").to_pylist(), seen, strict=True)
    ]
    values = [json.dumps({key: value for key, value in row.items() if value is not None}) for row in rows]
    for partition in range(2):
        kafka.produce(topic, values[partition::2], partition=partition)
