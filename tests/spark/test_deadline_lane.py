"""Views with a deadline, end to end: what is released equals Spark's answer, and every window is accounted for once."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from engine_cases import put_file
from joined_inputs import multiset, wait
from penstock.monitor.folder import folder_status
from penstock.spark.engine import Engine
from penstock.spark.run import Run

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

SECONDS, ROWS = 60, 3_000
TABLE = (
    "CREATE TABLE rides (ts TIMESTAMP, k STRING, x BIGINT) USING parquet OPTIONS (path '{}', event_time 'ts')"
)
SLIDING = "window(ts, '10 seconds', '5 seconds')"


def _users() -> dict[str, Any]:
    """Aggregates as a user's module has them: defined in a function they go to the workers as they are."""

    class Total:
        """The sum, carried from window to window."""

        def __init__(self) -> None:
            self._total = 0

        def add(self, x: pa.Array) -> None:
            self._total += pc.sum(x).as_py() or 0

        def remove(self, x: pa.Array) -> None:
            self._total -= pc.sum(x).as_py() or 0

        def result(self) -> int:
            return self._total

    def spread(x: pa.Array) -> int | None:
        values = x.drop_null().to_numpy()
        return int(values.max() - values.min()) if len(values) else None

    def slowly(x: pa.Array) -> int:
        until = time.monotonic() + 0.4
        while time.monotonic() < until:
            sum(range(1000))
        return len(x)

    def refusing(x: pa.Array) -> int:
        if 7 in x.to_pylist():
            raise ValueError("seven")
        return len(x)

    return {each.__name__.lower(): each for each in (Total, spread, slowly, refusing)}


def _engine(spark: SparkSession, folder: Path, **tune: object) -> Engine:
    place = folder / "rides"
    place.mkdir(exist_ok=True)
    engine = Engine(spark, shards=2, retry_attempts=40, retry_seconds=0.2, **tune)
    for name, each in _users().items():
        engine.aggregate(name, each, "BIGINT")
    return engine.execute(TABLE.format(place))


def _put(folder: Path, number: int, parts: int = 1) -> pa.Table:
    """A part of the rides, in order of time but within it."""
    rng = np.random.default_rng(number)
    rows = ROWS // parts
    moments = 1_700_000_000 + (number + rng.random(rows)) * SECONDS / parts
    table = pa.table(
        {
            "ts": pa.array((moments * 1e6).astype(np.int64)).cast(pa.timestamp("us", "UTC")),
            "k": pa.array(rng.choice(["a", "b", None], rows).tolist(), pa.string()),
            "x": pa.array(rng.integers(-50, 50, rows), mask=rng.random(rows) < 0.1),
        }
    )
    put_file(folder / "rides" / f"{number}.parquet", partial(pq.write_table, table))
    return table


def _answered(engine: Engine, out: Path) -> Run:
    run = engine.start(out, available_now=True)
    assert run.await_termination(300)
    run.stop()
    return run


def _counts(run: Run, view: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for cut in run.events("cut"):
        found.update(cut["figures"]["views"].get(view, {}))
    return found


@pytest.mark.parametrize(
    "text",
    [
        f"k, {SLIDING} AS w, count(*) AS n, sum(x) AS s, count(DISTINCT x) AS d FROM rides GROUP BY k, {SLIDING}",
        "window(ts, '7 seconds') AS w, avg(x) + 1 AS a, max(x) AS m FROM rides WHERE x > -40 GROUP BY 1 HAVING max(x) > 47",
        f"k, {SLIDING} AS w, total(x) AS t FROM rides GROUP BY k, {SLIDING}",
        f"{SLIDING} AS w, spread(x) AS d, total(x * 2) AS t FROM rides WHERE k IS NOT NULL GROUP BY {SLIDING}",
    ],
    ids=["built in", "computed", "carried", "both forms"],
)
def test_what_is_released_is_what_spark_says(spark: SparkSession, tmp_path: Path, text: str) -> None:
    engine = _engine(spark, tmp_path)
    tables = [_put(tmp_path, number) for number in range(3)]
    run = _answered(engine.view("v", f"SELECT /*+ DEADLINE('60 seconds') */ {text}"), tmp_path / "out")
    pq.write_table(pa.concat_tables(tables), tmp_path / "all.parquet")
    spark.read.parquet(str(tmp_path / "all.parquet")).createOrReplaceTempView("rides")
    wanted = spark.sql(f"SELECT {text}")
    assert wanted.count()
    assert multiset(run.results("v")) == multiset(wanted)
    counts = _counts(run, "v")
    assert counts["released"] == counts["created"] > 0
    assert run.misses("v").count() == 0


def test_every_window_is_accounted_for_once_over_restarts_and_overload(
    spark: SparkSession, tmp_path: Path
) -> None:
    engine = _engine(spark, tmp_path)
    view = "SELECT /*+ DEADLINE('1 second'), LOSS(1, 4) */ window(ts, '2 seconds', '1 second') AS w, slowly(x) AS n FROM rides GROUP BY 1"
    engine.view("v", view)
    created = 0
    told: Counter[str] = Counter()
    for number in range(2):
        _put(tmp_path, number)
        run = _answered(engine, tmp_path / "out")
        told += _counts(run, "v")
    created = told["created"]
    # windows that were answered with what was there at the end of the first run are not told again
    assert created == 2 * SECONDS + 1
    assert told["released"] + told["shed"] + told["missed"] + told["failed"] == created
    assert 0 < told["released"] < created
    released = run.results("v").collect()
    missed = run.misses("v").collect()
    assert len(released) == told["released"]
    assert len(missed) == created - told["released"]
    starts = [row.w.start for row in released] + [row.window.start for row in missed]
    assert len(set(starts)) == created
    assert {row.outcome for row in missed} <= {"shed", "missed"}
    assert all(row.reason for row in missed)
    view_status = folder_status(tmp_path / "out")["views"]["v"]
    assert {name: view_status[name] for name in told if name != "rows"} == {
        name: count for name, count in told.items() if name != "rows"
    }


def test_a_window_that_the_users_code_refuses_is_told_and_the_stream_goes_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    engine = _engine(spark, tmp_path)
    engine.view(
        "v",
        "SELECT /*+ DEADLINE('60 seconds') */ k, window(ts, '1 second') AS w, refusing(x) AS n FROM rides GROUP BY 1, 2",
    )
    table = _put(tmp_path, 0)
    run = _answered(engine, tmp_path / "out")
    hit = pc.floor_temporal(table.filter(pc.equal(table["x"], 7))["ts"], unit="second")
    failed = run.misses("v").collect()
    assert {row.outcome for row in failed} == {"failed"}
    assert len(failed) == len(pc.unique(hit)) > 0
    assert all("aggregate refusing raised: ValueError: seven" in row.reason for row in failed)
    assert run.results("v").select("w").distinct().count() == SECONDS - len(failed)


def test_a_deadline_that_no_order_meets_is_warned_of_and_explained(
    spark: SparkSession, tmp_path: Path
) -> None:
    engine = _engine(spark, tmp_path)
    text = "window(ts, '5 seconds') AS w, total(x) AS t FROM rides GROUP BY 1"
    engine.view("hasty", f"SELECT /*+ DEADLINE('1 millisecond'), LOSS(1, 4) */ {text}")
    engine.view("calm", f"SELECT /*+ DEADLINE('1 minute') */ {text}")
    (warning,) = engine.warnings
    assert warning.startswith("hasty: its deadline of 0.001 s is below what an order takes here")
    told = engine.explain()
    assert "view hasty on rides with a deadline: windows are answered within 0.001 s" in told
    assert "at most 1 of 4 lost; carried from the last one that was" in told


def test_views_come_and_go_while_running(spark: SparkSession, tmp_path: Path) -> None:
    engine = _engine(spark, tmp_path, idle_seconds=0)
    engine.view(
        "first",
        "SELECT /*+ DEADLINE('60 seconds') */ window(ts, '5 seconds') AS w, count(*) AS n FROM rides GROUP BY 1",
    )
    run = engine.start(tmp_path / "out")
    tables = [_put(tmp_path, 0)]
    wait(lambda: _counts(run, "first")["released"] == 11, run)
    engine.view(
        "second",
        "SELECT /*+ DEADLINE('60 seconds') */ window(ts, '6 seconds') AS w, count(*) AS n FROM rides GROUP BY 1",
    )
    tables.append(_put(tmp_path, 1))
    wait(lambda: _counts(run, "first")["released"] == 23 and _counts(run, "second")["released"] > 0, run)
    engine.drop("first")
    tables.append(_put(tmp_path, 2))
    wait(lambda: _counts(run, "second")["released"] == 19, run)
    engine.drop("second")
    wait(lambda: not any("deadlines" in name for name in run.status()["rides"]["lanes"]), run)
    engine.view(
        "third",
        "SELECT /*+ DEADLINE('60 seconds') */ window(ts, '5 seconds') AS w, count(*) AS n FROM rides GROUP BY 1",
    )
    tables.append(_put(tmp_path, 3))
    wait(lambda: _counts(run, "third")["released"] == 11, run)
    run.stop()
    _same(spark, tmp_path, run, tables, "first", "5 seconds", (0, 2 * SECONDS))
    _same(spark, tmp_path, run, tables, "second", "6 seconds", (SECONDS, 3 * SECONDS))
    _same(spark, tmp_path, run, tables, "third", "5 seconds", (3 * SECONDS, 4 * SECONDS))


def test_a_view_over_a_stream_that_has_run_without_a_log(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing was kept of the tuples before: windows that may have some are not answered."""
    engine = _engine(spark, tmp_path, idle_seconds=0)
    engine.view("all", "SELECT * FROM rides WHERE x > 0")
    run = engine.start(tmp_path / "out")
    tables = [_put(tmp_path, number, 2) for number in range(1)]
    wait(lambda: bool(run.events("batch")), run)
    engine.view(
        "late",
        "SELECT /*+ DEADLINE('60 seconds') */ window(ts, '20 seconds') AS w, count(*) AS n FROM rides GROUP BY 1",
    )
    tables += [_put(tmp_path, 1, 2)]
    wait(lambda: len(run.events("batch")) == 2, run)
    tables += [_put(tmp_path, number, 2) for number in (2, 3)]
    wait(lambda: _counts(run, "late")["released"] > 0, run)
    run.stop()
    rows = run.results("late").collect()
    whole = pa.concat_tables(tables)["ts"].cast(pa.int64()).to_numpy()
    for row in rows:
        start = int(row.w.start.replace(tzinfo=UTC).timestamp() * 1e6)
        assert row.n == int(((whole >= start) & (whole < start + 20_000_000)).sum())


def _same(
    spark: SparkSession,
    folder: Path,
    run: Run,
    tables: Sequence[pa.Table],
    view: str,
    size: str,
    seconds: tuple[int, int],
) -> None:
    """Compares a view's windows with Spark's, of those that lie in some seconds all but the last."""
    pq.write_table(pa.concat_tables(tables), folder / "all.parquet")
    spark.read.parquet(str(folder / "all.parquet")).createOrReplaceTempView("rides")
    first, last = (f"timestamp_seconds({1_700_000_000 + each})" for each in seconds)
    wanted = spark.sql(
        f"SELECT window(ts, '{size}') AS w, count(*) AS n FROM rides GROUP BY 1 HAVING w.start >= {first} AND w.end < {last}"
    )
    found = run.results(view).where(f"w.start < {last} AND w.end < {last}")
    assert multiset(found) == multiset(wanted)
    assert wanted.count()
