"""A view with `LOSS(k, m, 'approximate')`: what would miss is sampled, released with bounds, and corrected exactly."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from joined_inputs import wait
from penstock.control.policies.deadlines.queries import QueryState
from penstock.errors import UnsupportedError
from penstock.monitor.folder import folder_status
from penstock.plan.deadlines import WindowSpan, WindowWork, fresh_work
from penstock.spark.engine import Engine
from penstock.spark.results.misses import missed_windows
from penstock.spark.storage.layout import Layout

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

BEGIN, SIZE, ROWS, WINDOWS = 1_700_000_000, 10, 6_000, 3
TABLE = (
    "CREATE TABLE rides (ts TIMESTAMP, k BIGINT, x DOUBLE) USING parquet OPTIONS (path '{}', event_time 'ts')"
)
TEXT = (
    "SELECT {} k, window(ts, '10 seconds') AS w, count(*) AS n, sum(x) AS s, avg(x) AS a, median(x) AS m "
    "FROM {} GROUP BY k, w"
)
HINTS = "/*+ DEADLINE('10 minutes'), LOSS(1, 4, 'approximate') */"


def _put(folder: Path, name: str, first: float, last: float, rows: int) -> None:
    random = np.random.default_rng(len(name))
    moments = (np.linspace(first, last, rows) * 1e6).astype(np.int64)
    table = pa.table(
        {
            "ts": pa.array(moments, pa.timestamp("us", "UTC")),
            "k": random.integers(0, 3, rows),
            "x": random.exponential(5, rows),
        }
    )
    pq.write_table(table, folder / f".{name}")
    (folder / f".{name}").rename(folder / f"{name}.parquet")


def _for_ever(_: QueryState, span: WindowSpan, __: WindowSpan | None) -> tuple[float, WindowWork]:
    """Every exact answer is predicted to miss its deadline."""
    return 1e6, fresh_work(span)


def test_windows_that_would_miss_are_sampled_with_bounds_and_corrected(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(QueryState, "predict", _for_ever)
    folder, out = tmp_path / "rides", tmp_path / "out"
    folder.mkdir()
    engine = Engine(spark, shards=2, deadline_policy="paper").execute(TABLE.format(folder))
    engine.view("v", TEXT.format(HINTS, "rides"))
    assert "answered from a sample, with error bounds" in engine.explain()
    run = engine.start(out)

    def count(outcome: str) -> int:
        return int(folder_status(out)["views"].get("v", {}).get(outcome) or 0)

    try:
        for number in range(WINDOWS):
            start = BEGIN + number * SIZE
            _put(folder, f"whole{number}", start + 1, start + SIZE - 1, ROWS)
            _put(folder, f"next{number}", start + SIZE, start + SIZE + 0.5, 3)
            wait(lambda number=number: count("created") > number, run)  # type: ignore[misc]
        wait(lambda: count("owed") == 0 and count("late") == count("created") - count("released"), run)
        revisions = run.changes("v").where("revision = 0").collect()
        rows = run.results("v").collect()
        missed = missed_windows(Layout.of(out, out), "v").to_pylist()
    finally:
        run.stop()
    approximated = count("approximated")
    assert approximated == WINDOWS, [each["reason"] for each in missed]
    # silence may close the window of the last three tuples, too few for a sample
    assert count("shed") == count("created") - WINDOWS <= 1
    told = [each for each in missed if each["outcome"] == "approximated"]
    assert len(told) == approximated
    assert all("tuples sampled" in each["reason"] and each["answered"] is not None for each in told)
    spark.read.parquet(str(folder)).createOrReplaceTempView("all_rides")
    exact = {(row.k, row.w.end): row for row in spark.sql(TEXT.format("", "all_rides")).collect()}
    for row in rows:
        own = exact[row.k, row.w.end]
        assert (row.n, row.a, row.m) == (own.n, pytest.approx(own.a), own.m)
        assert (row.n_bound, row.s_bound, row.a_bound, row.m_bound) == (0, 0, 0, 0)
    estimated = [row for row in revisions if row.n_bound > 0]
    assert len(estimated) == 3 * approximated
    for row in estimated:
        own = exact[row.k, row.w.end]
        for value, bound, truth in (
            (row.n, row.n_bound, own.n),
            (row.s, row.s_bound, own.s),
            (row.a, row.a_bound, own.a),
            (row.m, row.m_bound, own.m),
        ):
            assert 0 < bound < 0.2 * truth
            # of a few draws: twice the bound
            assert abs(value - truth) <= 2 * bound
    assert run.status().views["v"].deadline.approximated == approximated


@pytest.mark.parametrize(
    ("select", "message", "place"),
    [
        ("max(x) AS v", "The error of this aggregate has no bound when tuples are sampled", "max(x)"),
        ("count(DISTINCT x) AS v", "The error of this aggregate has no bound", "count(DISTINCT x)"),
        ("sum(x) / count(*) AS v", "computed from aggregates has no bound", "sum(x) / count(*) AS v"),
        ("median(x) AS v, stddev(x) AS d", "has no bound when tuples are sampled", "stddev(x)"),
    ],
)
def test_what_has_no_bound_is_refused_by_name(
    spark: SparkSession, tmp_path: Path, select: str, message: str, place: str
) -> None:
    engine = Engine(spark, shards=2).execute(TABLE.format(tmp_path))
    text = f"SELECT {HINTS} k, window(ts, '10 seconds') AS w, {select} FROM rides GROUP BY k, w"
    with pytest.raises(UnsupportedError, match=message) as refused:
        engine.view("v", text)
    assert text[refused.value.start : refused.value.end] == place


def test_conditions_on_groups_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    engine = Engine(spark, shards=2).execute(TABLE.format(tmp_path))
    text = TEXT.format(HINTS, "rides") + " HAVING count(*) > 3"
    with pytest.raises(UnsupportedError, match="allows no condition on groups"):
        engine.view("v", text)


def test_a_column_of_a_bound_gives_way_to_one_of_the_view(spark: SparkSession, tmp_path: Path) -> None:
    engine = Engine(spark, shards=2).execute(TABLE.format(tmp_path))
    engine.view(
        "v",
        f"SELECT {HINTS} k, window(ts, '10 seconds') AS w, count(*) AS n, sum(x) AS n_bound FROM rides GROUP BY k, w",
    )
