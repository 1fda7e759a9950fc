"""Orders whose job fails: the log's damage is no window's matter, a worker that is lost is, and what is owed is tried again."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from engine_cases import put_file
from joined_inputs import wait
from penstock.monitor.folder import folder_status
from penstock.spark.engine import Engine
from penstock.spark.lanes.deadlines.register import DEADLINE_LANE
from penstock.spark.storage.layout import Layout
from whole_runs import run_to_end

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

SECONDS, BEGIN = 60, 1_700_000_000
TABLE = "CREATE TABLE rides (ts TIMESTAMP, x BIGINT) USING parquet OPTIONS (path '{}', event_time 'ts', max_files_per_trigger '1')"
WINDOW = "window(ts, '40 seconds') AS w"
IN_TIME = "DEADLINE('1 hour')"
#: no order meets it
HASTY = "DEADLINE('1 millisecond'), LOSS(1, 4, 'late')"


def _engine(spark: SparkSession, folder: Path, **aggregates: Callable[[pa.Array], int]) -> Engine:
    (folder / "rides").mkdir()
    engine = Engine(spark, shards=2, idle_seconds=0)
    for name, each in aggregates.items():
        engine.aggregate(name, each, "BIGINT")
    return engine.execute(TABLE.format(folder / "rides"))


def _put(folder: Path, number: int) -> None:
    """A minute of rides, one a second."""
    seconds = np.arange(number * SECONDS, (number + 1) * SECONDS)
    moments = pa.array((BEGIN + seconds) * 1_000_000).cast(pa.timestamp("us", "UTC"))
    table = pa.table({"ts": moments, "x": seconds})
    put_file(folder / "rides" / f"{number}.parquet", partial(pq.write_table, table))


def _count(out: Path, view: str, name: str) -> int:
    return int(folder_status(out)["views"][view].get(name, 0))


def _cut_short(content: bytes) -> bytes:
    return content[: len(content) // 2]


def _garbled(content: bytes) -> bytes:
    """The directory is whole, the first part is not: its message is behind the schema's."""
    place = 16 + int.from_bytes(content[12:16], "little")
    return content[: place + 8] + b"\xff" * 32 + content[place + 40 :]


@pytest.mark.parametrize(
    ("hints", "damaged"),
    [
        (IN_TIME, _cut_short),
        (HASTY, _garbled),
        pytest.param(IN_TIME, _garbled, marks=pytest.mark.long),
        pytest.param(HASTY, _cut_short, marks=pytest.mark.long),
    ],
    ids=["in time", "late", "in time, garbled", "late, cut short"],
)
def test_a_damaged_log_keeps_the_lane_waiting_and_costs_no_window(
    spark: SparkSession, tmp_path: Path, hints: str, damaged: Callable[[bytes], bytes]
) -> None:
    out, answered = tmp_path / "out", "late" if hints == HASTY else "released"
    engine = _engine(spark, tmp_path)
    engine.view("v", f"SELECT /*+ {hints} */ {WINDOW}, count(*) AS n FROM rides GROUP BY 1")
    run = engine.start(out)
    _put(tmp_path, 0)
    wait(lambda: _count(out, "v", answered) == 1, run)
    # no worker keeps what an earlier run has read
    run.stop()
    run = engine.start(out)
    files = Layout.of(out, None).log("rides").files.rglob("tuples/*/*")
    whole = {path: path.read_bytes() for path in files}
    assert whole
    for path, content in whole.items():
        # what has been mapped stays as it is
        put_file(path, partial(_write, damaged(content)))
    _put(tmp_path, 1)
    wait(lambda: run.events("lane_retried"), run)
    (told, *_) = run.events("lane_retried")
    assert (told["lane"], told["views"]) == (DEADLINE_LANE, ["v"])
    fault = "does not end with a checksum" if damaged is _cut_short else "cannot be read"
    assert re.search(rf"tuples .*{fault}", told["told"])
    assert not run.await_termination(0.1)
    run.stop()
    assert not run.events("stream_retried")
    assert not run.events("run_failed")
    assert not run.events("late_abandoned")
    assert _count(out, "v", "failed") == 0
    for path, content in whole.items():
        put_file(path, partial(_write, content))
    run = run_to_end(engine, out)
    assert _count(out, "v", answered) == 3
    assert [row.n for row in run.results("v").collect()] == [40, 40, 40]


def _write(content: bytes, path: Path | str) -> None:
    Path(path).write_bytes(content)


def test_a_worker_that_is_lost_costs_no_late_answer(spark: SparkSession, tmp_path: Path) -> None:
    died = tmp_path / "died"

    def leaving(x: pa.Array) -> int:
        if not died.exists():
            died.mkdir()
            os._exit(3)
        return len(x)

    engine = _engine(spark, tmp_path, leaving=leaving)
    engine.view("v", f"SELECT /*+ {HASTY} */ {WINDOW}, leaving(x) AS n FROM rides GROUP BY 1")
    _put(tmp_path, 0)
    run = run_to_end(engine, tmp_path / "out")
    assert died.exists()
    assert [row.n for row in run.results("v").orderBy("w").collect()] == [40, 20]
    assert not run.events("late_abandoned")


@pytest.mark.long
def test_a_worker_that_is_lost_every_time_is_the_matter_of_its_window(
    spark: SparkSession, tmp_path: Path
) -> None:
    def leaving(x: pa.Array) -> int:
        if 7 in x.to_pylist():
            os._exit(3)
        return len(x)

    engine = _engine(spark, tmp_path, leaving=leaving)
    for name, hints in (("prompt", IN_TIME), ("owed", HASTY)):
        engine.view(name, f"SELECT /*+ {hints} */ {WINDOW}, leaving(x) AS n FROM rides GROUP BY 1")
    _put(tmp_path, 0)
    out = tmp_path / "out"
    run = run_to_end(engine, out)
    for name in ("prompt", "owed"):
        assert [row.n for row in run.results(name).collect()] == [20]
    (failed,) = run.misses("prompt").collect()
    assert failed.outcome == "failed"
    assert failed.reason.startswith("a Python worker process ended unexpectedly")
    (abandoned,) = run.events("late_abandoned")
    assert abandoned["windows"] == [[BEGIN * 1_000_000, (BEGIN + 40) * 1_000_000]]
    assert abandoned["reason"].endswith("; tried 5 times")
    assert not run.events("lane_retried")
