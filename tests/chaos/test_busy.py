"""A machine that is busy: no stop, exact answers, nothing of Spark's on the screen.

200 selections whose sequence is swapped all the time, in one session; and beside window views, a join view and a view with a deadline, as
`penstock run` answers them. One run of each; 20 with `PENSTOCK_CHAOS=full`, or as many as `PENSTOCK_BUSY_RUNS` says.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from engine_cases import folder_bag, put_file, script, write_orders
from penstock.spark.engine import Engine
from penstock.spark.results.read_plain import plain_rows
from penstock.spark.storage.layout import Layout
from penstock.trigger import Trigger

pytestmark = [pytest.mark.spark, pytest.mark.chaos, pytest.mark.timeout(36_000)]

FULL = os.environ.get("PENSTOCK_CHAOS") == "full"
RUNS = int(os.environ.get("PENSTOCK_BUSY_RUNS", "20" if FULL else "1"))
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


#: `penstock run` beside them: files of each stream, rows of each, busy processes
COMMAND_FILES, COMMAND_ROWS, COMMAND_BUSY = (4, 500, 8) if FULL else (2, 500, 2)
VISITS = "CREATE TABLE visits (id BIGINT, order_id BIGINT, came TIMESTAMP, x INT)"
#: name -> (query, the same for DuckDB over the tables orders and visits)
BESIDE = {
    "by_name": (
        "SELECT name, window.start AS begun, count(*) AS n, sum(amount) AS much FROM orders "
        "GROUP BY name, window(seen, '2 minutes')",
        "SELECT name, time_bucket(INTERVAL '2 minutes', seen) AS begun, count(*) AS n, sum(amount) AS much FROM orders "
        "GROUP BY ALL",
    ),
    "dear": (
        "SELECT window.start AS begun, count(*) AS n FROM orders WHERE price > 50 AND NOT isnan(price) "
        "GROUP BY window(seen, '1 minute') HAVING count(*) > 10",
        "SELECT time_bucket(INTERVAL '1 minute', seen) AS begun, count(*) AS n FROM orders "
        "WHERE price > 50 AND NOT isnan(price) GROUP BY ALL HAVING count(*) > 10",
    ),
    "visited": (
        "SELECT o.id AS id, v.id AS visit FROM orders o JOIN visits v ON o.id = v.order_id "
        "AND v.came >= o.seen AND v.came <= o.seen + INTERVAL 5 MINUTES WHERE v.x > 10",
        "SELECT o.id AS id, v.id AS visit FROM orders o JOIN visits v ON o.id = v.order_id "
        "AND v.came >= o.seen AND v.came <= o.seen + INTERVAL 5 MINUTES WHERE v.x > 10",
    ),
    "in_time": (
        "SELECT /*+ DEADLINE('5 seconds'), LOSS(1, 4, 'late') */ window.start AS begun, count(*) AS n, max(x) AS most "
        "FROM visits GROUP BY window(came, '1 minute')",
        "SELECT time_bucket(INTERVAL '1 minute', came) AS begun, count(*) AS n, max(x) AS most FROM visits GROUP BY ALL",
    ),
}


@pytest.fixture
def busy_machine(request: pytest.FixtureRequest) -> Iterator[None]:
    # the end of its standard input ends a process, however this one ends
    busy = "import os, threading; threading.Thread(target=lambda: (os.read(0, 1), os._exit(0))).start()\nwhile True: pass"
    processes = [
        subprocess.Popen([sys.executable, "-c", busy], stdin=subprocess.PIPE) for _ in range(request.param)
    ]
    yield
    for process in processes:
        process.kill()
        process.wait()


@pytest.mark.parametrize("busy_machine", [BUSY], indirect=True)
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
        run = (
            Engine(spark, **RESTLESS)
            .execute(text)
            .start(tmp_path / f"out-{number}", trigger=Trigger.available_now())
        )
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


@pytest.mark.parametrize("busy_machine", [COMMAND_BUSY], indirect=True)
@pytest.mark.usefixtures("busy_machine")
def test_a_command_on_a_busy_machine_answers_all_and_says_nothing_of_spark(tmp_path: Path) -> None:
    write_orders(tmp_path / "orders", COMMAND_FILES, COMMAND_ROWS)
    _write_visits(tmp_path / "visits")
    selections = {name: f"SELECT * FROM orders WHERE {condition}" for name, condition in CONDITIONS.items()}
    text = script(
        tmp_path / "orders",
        {**selections, **{name: query for name, (query, _) in BESIDE.items() if "visits" not in query}},
        options=", max_files_per_trigger '1'",
    )
    visits = f"{VISITS} USING parquet OPTIONS (path '{tmp_path / 'visits'}', event_time 'came', max_files_per_trigger '1');"
    beside = [f"CREATE VIEW {name} AS {query};" for name, (query, _) in BESIDE.items() if "visits" in query]
    (tmp_path / "script.sql").write_text("\n".join([text, visits, *beside]))
    with duckdb.connect() as oracle:
        oracle.sql("SET TimeZone = 'UTC'")
        for name in ("orders", "visits"):
            oracle.sql(f"CREATE VIEW {name} AS FROM read_parquet('{tmp_path / name}/*.parquet')")
        matched = {
            (key, name)
            for name, condition in CONDITIONS.items()
            for (key,) in oracle.sql(f"SELECT id FROM orders WHERE {condition}").fetchall()
        }
        wanted = {name: _bag(oracle.sql(sql).to_arrow_table()) for name, (_, sql) in BESIDE.items()}
    assert matched
    assert all(wanted.values())
    for number in range(RUNS):
        began = time.monotonic()
        out = tmp_path / f"out-{number}"
        command = [sys.executable, "-m", "penstock.cli.main", "run", "script.sql", "--output", str(out)]
        ended = subprocess.run(
            [
                *command,
                "--available-now",
                "--ended",
                "--master",
                "local[2]",
                "--conf",
                "spark.sql.session.timeZone=UTC",
            ],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=1_800,
        )
        printed = ended.stdout + ended.stderr
        assert ended.returncode == 0, f"run {number}: {printed[-3_000:]}"
        assert "Traceback" not in printed, f"run {number}"
        assert "at org.apache" not in printed, f"run {number}"
        assert ended.stderr == "", f"run {number}"
        bag = folder_bag(out, "orders", by_manifest=True)
        assert set(bag) == matched, f"run {number}"
        assert max(bag.values()) == 1, f"run {number}"
        layout = Layout.of(out, None)
        for name, rows in wanted.items():
            found = plain_rows(layout, name, 0)
            assert found is not None
            assert _bag(found.rows) == rows, f"run {number}, view {name}"
        kinds = Counter(json.loads(line)["kind"] for line in (out / "events.jsonl").open())
        assert not {kind for kind in kinds if kind.endswith("_failed")}, f"run {number}: {kinds}"
        retried = kinds["lane_retried"] + kinds["stream_retried"]
        print(f"run {number}: {time.monotonic() - began:.0f} s, tried again {retried} times", flush=True)


def _write_visits(folder: Path) -> None:
    """Visits some minutes after orders, in order of their times."""
    folder.mkdir()
    rng = np.random.default_rng(5)
    first = np.datetime64("2026-01-01T00:00:00", "us")
    for number in range(COMMAND_FILES):
        keys = np.arange(number * COMMAND_ROWS, (number + 1) * COMMAND_ROWS)
        table = pa.table(
            {
                "id": keys,
                "order_id": rng.integers(0, COMMAND_FILES * COMMAND_ROWS, COMMAND_ROWS),
                "came": pa.array(first + keys * np.timedelta64(1, "s"), pa.timestamp("us", "UTC")),
                "x": rng.integers(0, 50, COMMAND_ROWS).astype(np.int32),
            }
        )
        put_file(folder / f"{number}.parquet", partial(pq.write_table, table))


def _bag(table: pa.Table) -> Counter[tuple[object, ...]]:
    """The rows of a table, whatever the order of its columns and the width of its integers."""
    return Counter(tuple(row[name] for name in sorted(row)) for row in table.to_pylist())
