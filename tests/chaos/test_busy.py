"""200 selections whose sequence is swapped all the time, on a machine that is busy: no stop, exact answers.

One run; `PENSTOCK_BUSY_RUNS=20` for as many, one after the other in one session.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from pyspark.sql import SparkSession

from engine_cases import folder_bag, script, write_orders
from penstock.spark.engine import Engine

pytestmark = [pytest.mark.spark, pytest.mark.chaos, pytest.mark.timeout(3_600)]

RUNS = int(os.environ.get("PENSTOCK_BUSY_RUNS", "1"))
FILES, ROWS, BUSY = 12, 4_000, 2
CONDITIONS = {
    **{f"amount_{n}": f"amount BETWEEN {5 * n} AND {5 * n + 3} AND price < 20" for n in range(100)},
    **{f"price_{n}": f"price >= {n / 2} AND price < {n / 2 + 0.25} AND amount > 700" for n in range(70)},
    **{f"name_{n}": f"name = 'north' AND amount = {n} OR id = {n * 1_000}" for n in range(30)},
}
#: a sequence is looked for after every few samples, and taken whatever it gains
RESTLESS = {
    "recomputation_period_tuples": 1,
    "monitoring_period_tuples": 200,
    "rearrangement_threshold": 0.0,
    "sample_tuples": 2_000,
    "compact_every_batches": 5,
}


@pytest.fixture
def busy_machine() -> Iterator[None]:
    # the end of its standard input ends a process, however this one ends
    busy = "import os, threading; threading.Thread(target=lambda: (os.read(0, 1), os._exit(0))).start()\nwhile True: pass"
    processes = [subprocess.Popen([sys.executable, "-c", busy], stdin=subprocess.PIPE) for _ in range(BUSY)]
    yield
    for process in processes:
        process.kill()
        process.wait()


@pytest.mark.usefixtures("busy_machine")
def test_swaps_beside_batches_on_a_busy_machine(spark: SparkSession, tmp_path: Path) -> None:
    write_orders(tmp_path / "in", FILES, ROWS)
    views = {name: f"SELECT * FROM orders WHERE {condition}" for name, condition in CONDITIONS.items()}
    text = script(tmp_path / "in", views, options=", max_files_per_trigger '1'")
    tuples = f"read_parquet('{tmp_path / 'in'}/*.parquet')"
    wanted = {
        (key, name)
        for name, condition in CONDITIONS.items()
        for (key,) in duckdb.sql(f"SELECT id FROM {tuples} WHERE {condition}").fetchall()
    }
    swaps = 0
    for number in range(RUNS):
        run = Engine(spark, **RESTLESS).execute(text).start(tmp_path / f"out-{number}", available_now=True)
        run.await_termination()
        run.stop()
        bag = folder_bag(tmp_path / f"out-{number}", "orders", by_manifest=True)
        assert set(bag) == wanted, f"run {number}"
        assert max(bag.values()) == 1, f"run {number}"
        assert not run.events("controller_failed")
        found = sum(event["action"] == "SwapSequence" for event in run.events("decision"))
        print(f"run {number}: {len(run.events('batch'))} batches, {found} swaps", flush=True)
        swaps += found
    assert swaps >= RUNS
