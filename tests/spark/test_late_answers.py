"""Lost windows of views with `LOSS(k, m, 'late')`: their exact answers come later, once, and each loss is accounted for."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from engine_cases import put_rides
from forms import ALL
from joined_inputs import multiset, wait
from penstock.monitor.folder import folder_status
from penstock.spark.engine import Engine
from penstock.spark.log.stream_log import LogReader
from penstock.spark.results.misses import missed_windows
from penstock.spark.storage.layout import Layout
from read_results import bag, published
from whole_runs import run_to_end

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

ROWS, SECONDS, BEGIN = 300, 30, 1_700_000_000
TABLE = "CREATE TABLE rides (ts TIMESTAMP, k STRING, x BIGINT) USING parquet OPTIONS (path '{}', event_time 'ts', max_files_per_trigger '1')"
WINDOW = "window(ts, '4 seconds', '2 seconds')"
#: no order meets it
HASTY = "DEADLINE('1 millisecond'), LOSS(1, 4, 'late')"


def _users(folder: Path) -> dict[str, Callable[..., Any]]:
    """Aggregates as a user's module has them: defined in a function they go to the workers as they are."""
    gate, begun = str(folder / "gate"), str(folder / "begun")

    def gated(x: pa.Array) -> int:
        with Path(begun).open("a") as file:
            file.write(".")
        while not Path(gate).exists():
            time.sleep(0.01)
        return len(x)

    def slowly(x: pa.Array) -> int:
        until = time.monotonic() + 0.3
        while time.monotonic() < until:
            sum(range(1000))
        return len(x)

    def refusing(x: pa.Array) -> int:
        if 7 in x.to_pylist():
            raise ValueError("seven")
        return len(x)

    return {"gated": gated, "slowly": slowly, "refusing": refusing}


def _engine(spark: SparkSession, folder: Path, **tune: object) -> Engine:
    (folder / "rides").mkdir()
    engine = Engine(spark, shards=2, retry_attempts=40, retry_seconds=0.2, **tune)
    for name, each in _users(folder).items():
        engine.aggregate(name, each, "BIGINT")
    return engine.execute(TABLE.format(folder / "rides"))


def _put(folder: Path, name: int, number: int) -> pa.Table:
    """Some seconds of rides, as one file more."""
    return put_rides(folder, name, ROWS, BEGIN + number * SECONDS, SECONDS)


def _counts(out: Path, view: str) -> dict[str, int]:
    told = folder_status(out)["views"][view]
    losses = ("created", "released", "shed", "missed", "failed", "late", "owed", "abandoned")
    counts = {name: told.get(name, 0) for name in losses}
    lost = counts["shed"] + counts["missed"]
    assert counts["released"] + lost + counts["failed"] == counts["created"]
    assert counts["late"] + counts["owed"] + counts["abandoned"] == lost
    return counts


def _of_all(spark: SparkSession, folder: Path, tables: list[pa.Table], text: str) -> DataFrame:
    pq.write_table(pa.concat_tables(tables), folder / "all.parquet")
    spark.read.parquet(str(folder / "all.parquet")).createOrReplaceTempView("rides")
    return spark.sql(f"SELECT {text}")


def test_late_answers_are_what_spark_says(spark: SparkSession, tmp_path: Path) -> None:
    texts = {
        "built_in": f"k, {WINDOW} AS w, count(*) AS n, sum(x) AS s, count(DISTINCT x) AS d FROM rides GROUP BY k, {WINDOW}",
        "computed": f"{WINDOW} AS w, avg(x) + 1 AS a, max(x) AS m FROM rides WHERE x > -40 GROUP BY 1 HAVING max(x) > 46",
        "of_the_user": f"k, {WINDOW} AS w, refusing(abs(x) + 8) AS n FROM rides WHERE k IS NOT NULL GROUP BY k, {WINDOW}",
    }
    engine = _engine(spark, tmp_path)
    tables = [_put(tmp_path, number, number) for number in range(2 if ALL else 1)]
    engine.add_views({name: f"SELECT /*+ {HASTY} */ {text}" for name, text in texts.items()})
    run = run_to_end(engine, tmp_path / "out")
    for name, text in texts.items():
        wanted = multiset(_of_all(spark, tmp_path, tables, text))
        assert wanted
        assert bag(published(run, name)) == wanted, name
        changes = run.changes(name).collect()
        assert len(changes) == wanted.total(), "nothing is answered twice"
        assert {(row.revision, row.is_final, row.op) for row in changes} == {(1, False, "upsert")}
        counts = _counts(tmp_path / "out", name)
        assert counts["late"] == counts["created"] > 0
        told = run.misses(name).collect()
        assert len(told) == counts["created"]
        assert all(row.outcome in ("shed", "missed") and row.answered > row.deadline for row in told)
        plain = missed_windows(Layout.of(tmp_path / "out", None), name)
        assert plain.num_rows == len(told)
        assert plain.column("answered").null_count == 0


@pytest.mark.long
def test_in_an_overload_every_window_is_answered_once_in_time_or_late(
    spark: SparkSession, tmp_path: Path
) -> None:
    engine = _engine(spark, tmp_path)
    text = f"{WINDOW} AS w, slowly(x) AS n FROM rides GROUP BY 1"
    engine.view("v", f"SELECT /*+ DEADLINE('1 second'), LOSS(1, 4, 'late') */ {text}")
    tables = []
    for number in range(2):
        tables.append(_put(tmp_path, number, number))
        run = run_to_end(engine, tmp_path / "out")
    counts = _counts(tmp_path / "out", "v")
    assert counts["late"] > 0
    assert counts["owed"] == counts["abandoned"] == 0
    changes = run.changes("v").collect()
    starts = [row.w.start for row in changes]
    assert len(set(starts)) == len(starts) == counts["created"]
    by_revision = Counter(row.revision for row in changes)
    assert by_revision == Counter({0: counts["released"], 1: counts["late"]})
    missed = run.misses("v").collect()
    late = {row.w.start for row in changes if row.revision == 1}
    assert {row.window.start for row in missed if row.answered is not None} == late
    # the windows that both runs brought tuples to were answered by the first
    counted = f"{WINDOW} AS w, count(*) AS n FROM rides GROUP BY 1"

    def of(some: list[pa.Table]) -> dict[Any, int]:
        return {row.w.start: row.n for row in _of_all(spark, tmp_path, some, counted).collect()}

    assert {row.w.start: row.n for row in changes} == of(tables) | of(tables[:1])


@pytest.mark.long
def test_a_stopped_run_leaves_windows_owed_and_their_answers_hold_what_came_since(
    spark: SparkSession, tmp_path: Path
) -> None:
    engine = _engine(spark, tmp_path, idle_seconds=0)
    text = "window(ts, '10 seconds') AS w, gated(x) AS n FROM rides GROUP BY 1"
    engine.view("v", f"SELECT /*+ {HASTY} */ {text}")
    tables = [_put(tmp_path, 0, 0), _put(tmp_path, 1, 1)]
    run = engine.start(tmp_path / "out")
    wait((tmp_path / "begun").exists, run)
    wait(lambda: _counts(tmp_path / "out", "v")["owed"] == 5, run)
    tables.append(_put(tmp_path, 2, 0))
    wait(lambda: len(run.events("batch")) == 3, run)
    run.stop()
    layout = Layout.of(tmp_path / "out", None)
    mark = LogReader(layout.log("rides")).readers()["deadlines.0.results"]
    assert (mark["number"], mark["followed"]) == (-1, 0), "what is owed is kept, and not followed again"
    assert _counts(tmp_path / "out", "v")["late"] == 0
    assert all(row.answered is None for row in run.misses("v").collect())
    (tmp_path / "gate").touch()
    run = run_to_end(engine, tmp_path / "out")
    assert bag(published(run, "v")) == multiset(_of_all(spark, tmp_path, tables, text))
    assert _counts(tmp_path / "out", "v")["late"] == 6
    # beyond the first window the stream had come half a minute
    assert max(row.slack for row in run.changes("v").collect()) > SECONDS
    mark = LogReader(layout.log("rides")).readers()["deadlines.0.results"]
    assert mark["number"] == mark["followed"] == 0, "no more than what open windows may need"


@pytest.mark.long
def test_what_is_owed_gives_way_to_what_is_due(spark: SparkSession, tmp_path: Path) -> None:
    """The late order never ends by itself, and the views in time need all processors at once."""
    engine = _engine(spark, tmp_path, idle_seconds=0)
    size = "window(ts, '10 seconds') AS w"
    engine.view("v", f"SELECT /*+ {HASTY} */ {size}, gated(x) AS n FROM rides GROUP BY 1")
    names = ("one", "two", "three")
    for name in names:
        text = f"SELECT /*+ DEADLINE('1 hour') */ {size}, slowly(x) AS n FROM rides GROUP BY 1"
        engine.view(name, text)
    run = engine.start(tmp_path / "out")
    calls = tmp_path / "begun"
    tables = [_put(tmp_path, 0, 0)]
    wait(calls.exists, run)
    tables += [_put(tmp_path, 1, 1), _put(tmp_path, 2, 2)]
    for name in names:
        wait(lambda name=name: _counts(tmp_path / "out", name)["released"] == 8, run)
    wait(lambda: len(calls.read_text()) > 1, run)
    assert _counts(tmp_path / "out", "v")["late"] == 0
    (tmp_path / "gate").touch()
    wait(lambda: _counts(tmp_path / "out", "v")["late"] == 8, run)
    run.stop()
    assert _counts(tmp_path / "out", "v")["owed"] == 0
    text = f"{size}, count(*) AS n FROM rides GROUP BY 1"
    late = f"(SELECT {text}) WHERE w.end < timestamp_seconds({BEGIN + 3 * SECONDS})"
    assert bag(published(run, "v")) == multiset(_of_all(spark, tmp_path, tables, f"* FROM {late}"))


def test_of_many_owed_windows_the_oldest_are_given_up(spark: SparkSession, tmp_path: Path) -> None:
    engine = _engine(spark, tmp_path, late_windows=3, idle_seconds=0)
    size = "window(ts, '1 second') AS w"
    engine.view("v", f"SELECT /*+ {HASTY} */ {size}, gated(x) AS n FROM rides GROUP BY 1")
    run = engine.start(tmp_path / "out")
    _put(tmp_path, 0, 0)
    wait(lambda: _counts(tmp_path / "out", "v")["created"] == SECONDS - 1, run)
    assert _counts(tmp_path / "out", "v")["owed"] == 3
    told = run.events("late_abandoned")
    assert {event["reason"] for event in told} == {
        "more than 3 windows of the view waited for a late answer (setting late_windows)"
    }
    ends = [end for event in told for _, end in event["windows"]]
    assert sorted(ends) == [(BEGIN + second) * 1_000_000 for second in range(1, SECONDS - 3)]
    # the view goes with what it is owed
    engine.drop("v")
    engine.view("v", f"SELECT /*+ DEADLINE('1 hour') */ {size}, count(*) AS n FROM rides GROUP BY 1")
    wait(lambda: _counts(tmp_path / "out", "v")["owed"] == 0, run)
    run.stop()
    assert _counts(tmp_path / "out", "v")["abandoned"] == SECONDS - 1


def test_a_window_that_fails_late_is_given_up(spark: SparkSession, tmp_path: Path) -> None:
    engine = _engine(spark, tmp_path)
    text = f"SELECT /*+ {HASTY} */ window(ts, '1 second') AS w, refusing(x) AS n FROM rides GROUP BY 1"
    table = _put(tmp_path, 0, 0)
    run = run_to_end(engine.view("v", text), tmp_path / "out")
    hit = pc.unique(pc.floor_temporal(table.filter(pc.equal(table["x"], 7))["ts"], unit="second"))
    counts = _counts(tmp_path / "out", "v")
    assert counts["abandoned"] == len(hit) > 0
    assert counts["late"] == counts["created"] - len(hit)
    told = run.events("late_abandoned")
    assert all(event["reason"].endswith(": ValueError: seven") for event in told)
    starts = {start for event in told for start, _ in event["windows"]}
    assert starts == set(hit.cast(pa.int64()).to_pylist())
