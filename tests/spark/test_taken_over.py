"""Two runs on one checkpoint: one is refused or fenced, and every row is there once."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from engine_cases import expected, folder_bag, put_file, rows, script, write_orders
from forms import SOON_OVER
from penstock.spark.engine import Engine
from penstock.spark.publication.manifests import read_published
from penstock.spark.storage.events import newest_events
from penstock.spark.storage.layout import Layout
from penstock.trigger import Trigger

pytestmark = pytest.mark.spark

VIEWS = {
    "large": "SELECT * FROM orders WHERE amount > 900",
    "north": "SELECT id, upper(name) AS shouted FROM orders WHERE name LIKE 'nor%' AND amount BETWEEN 100 AND 500",
}
#: the command, which stops itself with all its children at a failpoint
STOPS = """
import os, signal, sys
from penstock.cli.main import main
from penstock.spark.ingest import answering, query

def stop(name, batch):
    if (name, batch) == ({where!r}, 1):
        os.killpg(0, signal.SIGSTOP)

answering.failpoint = query.failpoint = stop
sys.argv = ["penstock", "run", "script.sql", "--output", "out", "--master", "local[2]"]
main()
"""


def _state(process: int) -> str:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.long
@pytest.mark.parametrize(
    "where",
    [
        "staged",
        *(
            pytest.param(place, marks=pytest.mark.long)
            for place in ("manifest_written", "before_commit", "never")
        ),
    ],
)
def test_a_run_that_was_taken_over_ends_with_one_message_and_nothing_is_doubled(
    spark: SparkSession, tmp_path: Path, where: str
) -> None:
    write_orders(tmp_path / "in", 3, 300)
    write_orders(tmp_path / "more", 1, 100, seed=99)
    text = script(tmp_path / "in", VIEWS, options=", maxFilesPerTrigger '1'")
    (tmp_path / "script.sql").write_text(text)
    layout = Layout.of(tmp_path / "out", None)
    first = subprocess.Popen(
        [sys.executable, "-c", STOPS.format(where=where)],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **SOON_OVER},
        start_new_session=True,
    )
    try:
        _await(lambda: _has_begun(first, layout, where))
        with closing(sqlite3.connect(layout.ledger.path)) as database, database:
            database.execute("UPDATE writer SET host = 'elsewhere'")
        second = Engine(spark).execute(text).start(layout.output, trigger=Trigger.every("0 seconds"))
        with second:
            _await(lambda: read_published(layout, "orders").last >= 2)
            os.killpg(first.pid, signal.SIGCONT)
            put_file(
                tmp_path / "in" / "later.parquet",
                lambda path: (tmp_path / "more" / "000.parquet").replace(path),
            )
            said, told = first.communicate(timeout=120)
            _await(lambda: read_published(layout, "orders").last >= 3)
            assert second.state == "running"
    finally:
        if first.poll() is None:
            os.killpg(first.pid, signal.SIGKILL)
    assert first.returncode == 1, said + told
    assert f"process {os.getpid()} of host" in told
    assert "has taken over" in told
    assert told.count("penstock:") == 1
    assert "Traceback" not in said + told
    events = [event["kind"] for event in newest_events(layout.events)]
    assert events.count("run_started") == 2
    assert "run_failed" not in events
    wanted = expected(spark, spark.read.parquet(str(tmp_path / "in")), VIEWS)
    for view, bag in wanted.items():
        assert rows(second.results(view).select(spark.sql(VIEWS[view]).columns)) == bag
    assert folder_bag(layout.output, "orders", True) == folder_bag(layout.output, "orders", False)


def _has_begun(first: subprocess.Popen[str], layout: Layout, where: str) -> bool:
    """Whether it has stopped itself, or answered all files."""
    assert first.poll() is None, first.communicate()
    if where == "never":
        return read_published(layout, "orders").last >= 2
    return _state(first.pid) == "T"


def _await(is_done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not is_done():
        assert time.monotonic() < deadline
        time.sleep(0.2)
