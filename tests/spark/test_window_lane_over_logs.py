"""The window lane over envelope logs: its results are those of `spark.sql` over the same tuples."""

from __future__ import annotations

import json
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lane_cases import lane_context
from penstock.spark.analysis.expressions import SparkExpressionHost
from penstock.spark.lanes.windows.lane import WindowLane
from penstock.spark.log.stream_log import LogReader
from penstock.spark.publication.kinds import results_of
from penstock.spark.publication.manifests import published_paths
from penstock.spark.results.window_rows import window_changes, window_results
from penstock.spark.storage.formats import WINDOW_STATE
from penstock.spark.storage.layout import Layout
from penstock.sql.script.queries import parse_query
from penstock.sql.script.views import flatten
from penstock.sql.windows.bind import BoundWindow, bind_window
from penstock.sql.windows.query import WindowQuery
from penstock.trigger import Trigger
from window_log import DEFINITION, LogWriter, forget

pytestmark = pytest.mark.spark

STREAM, SHARDS = "t", 2
NOON = datetime(2024, 3, 1, 12)

VIEWS = [
    "SELECT origin, window(ts, '20 seconds') AS w, count(*) AS n, sum(i) AS s, avg(x), min(x) AS low, max(day) "
    "FROM t GROUP BY origin, w",
    "SELECT window.start, window.end, stddev(x) AS d, var_pop(i), sum(money), avg(money), min(origin), count(i) "
    "FROM t WHERE i > 0 GROUP BY window(ts, '40 seconds', '10 seconds', '3 seconds')",
    "SELECT i, day, money, window(ntz, '30 seconds', '15 seconds') AS w, count(DISTINCT origin) AS o, median(x) AS m, "
    "percentile(i, 0.25) FROM t GROUP BY i, day, money, w",
    "SELECT late, x, window.end AS e, count(*) FILTER (WHERE i > 10) AS c, sum(ratio) FROM t "
    "GROUP BY late, x, window(ts, '2 minutes')",
]
#: what only Spark makes of the groups
MADE = {
    "few": "SELECT origin, window(ts, '20 seconds') AS w, count(*) AS n, max(i) AS most FROM t "
    "GROUP BY origin, w HAVING count(*) < 9",
    "named": "SELECT coalesce(origin, '?') || '!' AS o, date_format(window.start, 'mm:ss') AS at, round(avg(x), 3) AS m, "
    "sum(i) + count(*) AS s FROM t GROUP BY origin, window(ts, '30 seconds', '10 seconds')",
    "raising": "SELECT window.start AS s, 100 / (count(*) - 40) AS q FROM t GROUP BY window(ts, '20 seconds')",
}


def tuples(rows: int, seed: int, apart: float = 0.5) -> pa.Table:
    """A stream in order of arrival, so many seconds apart, later on many tuples up to 100 seconds late."""
    rng = np.random.default_rng(seed)
    disordered = (np.arange(rows) > rows / 3) & (rng.random(rows) < 0.4)
    late = np.where(disordered, rng.uniform(20, 100, rows), rng.uniform(0, 2, rows))
    times = [NOON + timedelta(seconds=round(row * apart - late[row], 3)) for row in range(rows)]
    some = rng.random(rows)
    return pa.table(
        {
            "ts": pa.array(
                [None if some[k] < 0.02 else times[k] for k in range(rows)], pa.timestamp("us", "UTC")
            ),
            "ntz": pa.array(times, pa.timestamp("us")),
            "day": pa.array([date(2024, 3, k) for k in rng.integers(1, 3, rows)]),
            "origin": pa.array([("JFK", "LGA", None, "EWR")[k] for k in rng.integers(0, 4, rows)]),
            "late": pa.array(rng.random(rows) < 0.3, mask=rng.random(rows) < 0.1),
            "i": pa.array(rng.integers(-5, 50, rows), pa.int32(), mask=rng.random(rows) < 0.1),
            "x": pa.array(rng.choice([0.5, 1.25, 7.0, float("nan"), 1e3], rows), mask=rng.random(rows) < 0.1),
            "ratio": pa.array(rng.normal(10, 3, rows), mask=rng.random(rows) < 0.1),
            "money": pa.array([Decimal(int(k)) / 4 for k in rng.integers(-2, 9, rows)], pa.decimal128(10, 2)),
        }
    )


def bound(spark: SparkSession, name: str, text: str, table: pa.Table) -> BoundWindow:
    query = flatten(parse_query(text), {})
    assert isinstance(query, WindowQuery)
    host = SparkExpressionHost(spark, spark.createDataFrame(table.slice(0, 0)).schema)
    return bind_window(query, name, table.schema, host)


class Answering:
    """A window lane over a log, from its start to its end.

    Args:
        spark, layout: the lane's.
        entries: most entries of a cut.
        compact, shards: its settings.
    """

    def __init__(
        self, spark: SparkSession, layout: Layout, entries: int = 64, compact: int = 64, shards: int = SHARDS
    ) -> None:
        context = lane_context(
            layout, spark, trigger=Trigger.available_now(), shards=shards, compact_every_batches=compact
        )
        ingest = SimpleNamespace(stream=STREAM, plans=SimpleNamespace(windows={}))
        keeper: Any = SimpleNamespace(stream=STREAM, ingest=ingest, active=True, is_complete=False)
        self.lane = WindowLane(context, keeper)
        self.lane._entries_per_cut = entries
        self._reader = LogReader(layout.log(STREAM))
        self.lane.start()

    @property
    def done(self) -> int:
        """The last entry that is answered; -1: none."""
        return self._reader.marks().get(self.lane.name, -1)

    def finish(self) -> None:
        """Ends the lane once it has answered what is in the log now."""
        self.lane.finish()
        assert self.lane.await_termination(600)


def rows(table: pa.Table) -> list[str]:
    return sorted(
        repr([float(f"{value:.9g}") if isinstance(value, float) else value for value in row.values()])
        for row in table.to_pylist()
    )


def check(spark: SparkSession, layout: Layout, view: str, text: str, table: pa.Table) -> None:
    """The view's results are those of its text over the table."""
    spark.createDataFrame(table).createOrReplaceTempView("t")
    expected = spark.sql(text)
    found = window_results(spark, layout, STREAM, view, DEFINITION)
    assert found.dtypes == expected.dtypes
    assert rows(found.toArrow()) == rows(expected.toArrow()), view


def windows(layout: Layout) -> list[dict[str, Any]]:
    """What the events tell of each batch."""
    events = map(json.loads, layout.events.read_text().splitlines())
    return [event for event in events if event["kind"] == "windows"]


@pytest.mark.long
def test_final_results_are_those_of_the_text_whatever_the_batches(
    spark: SparkSession, layout: Layout
) -> None:
    table = tuples(700, 1)
    texts = {**{f"v{number}": text for number, text in enumerate(VIEWS)}, **MADE}
    log = LogWriter(spark, layout, STREAM, SHARDS, table)
    log.views(0, {n: bound(spark, name, text, table) for n, (name, text) in enumerate(texts.items())})
    cuts = [0, *sorted(np.random.default_rng(2).integers(1, 700, 20).tolist()), 700]
    sizes = [last - first for first, last in pairwise(cuts)]
    first = [log.put(size) for size in sizes[:14]][-1]
    before = Answering(spark, layout, entries=3)
    before.finish()
    assert before.done == first.number
    for size in sizes[14:]:
        log.put(size)
    end = log.end()
    after = Answering(spark, layout, entries=3)
    after.finish()
    assert after.done == end.number
    assert sum(each["entries"] for each in windows(layout)) == end.number + 1

    oracle = {
        **texts,
        "raising": texts["raising"].replace("100 / (count(*) - 40)", "try_divide(100, count(*) - 40)"),
    }
    for view, text in oracle.items():
        check(spark, layout, view, text, table)
    told = window_changes(spark, layout, STREAM, "v0", DEFINITION).toArrow()
    assert told.schema.names[-5:] == ["revision", "coverage", "slack", "is_final", "op"]
    assert set(told.column("revision").to_pylist()) > {0, 1}
    finals = told.filter(told.column("is_final"))
    assert finals.num_rows == window_results(spark, layout, STREAM, "v0", DEFINITION).count()
    withdrawn = window_changes(spark, layout, STREAM, "few", DEFINITION).where("op = 'delete'").toArrow()
    assert withdrawn.num_rows
    assert max(withdrawn.column("n").to_pylist()) < 9


def test_views_come_and_go_between_entries(spark: SparkSession, layout: Layout) -> None:
    table = tuples(600, 3)
    old = "SELECT origin, window(ts, '20 seconds') AS w, count(*) AS n FROM t GROUP BY origin, w"
    new = "SELECT late, window(ts, '1 minute') AS w, max(i) AS m FROM t GROUP BY late, w"
    log = LogWriter(spark, layout, STREAM, SHARDS, table)
    programs = {
        0: {0: bound(spark, "a", old, table)},
        2: {0: bound(spark, "a", old, table), 1: bound(spark, "b", old, table)},
        4: {1: bound(spark, "b", old, table), 2: bound(spark, "a", new, table)},
    }
    for number in range(6):
        if number in programs:
            log.views(number, programs[number])
        log.put(100)
    log.end()
    answering = Answering(spark, layout, entries=1, compact=3)
    answering.finish()
    check(spark, layout, "b", old, table.slice(200))
    check(spark, layout, "a", new, table.slice(400))
    # what is being written still is listed; a machine that is busy takes longer than a batch waits for it
    answering.lane.publisher.compact(0)
    assert len(list(published_paths(layout, results_of(STREAM), "1/b"))) < 5


def test_the_state_is_in_few_files_that_another_process_reads_back(
    spark: SparkSession, layout: Layout
) -> None:
    """What a cut before has left unlisted is removed, and nothing else is in the folder."""
    table = tuples(160, 4)
    text = "SELECT window(ts, '1 day') AS w, count(*) AS n, sum(i) AS s FROM t GROUP BY w"
    log = LogWriter(spark, layout, STREAM, 1, table)
    log.views(0, {0: bound(spark, "v", text, table)})
    for _ in range(35):
        log.put(4)
    Answering(spark, layout, entries=1, shards=1).finish()
    assert len(windows(layout)) == 35
    document = WINDOW_STATE.read(layout.window_state(STREAM))
    assert document is not None
    assert document["cut"] == 34
    (files,) = document["shards"]
    folder = layout.window_states(STREAM)
    assert isinstance(folder, Path)
    assert len(files) <= 4
    assert {(path.name, path.stat().st_size) for path in folder.iterdir()} == {tuple(each) for each in files}

    (folder / "0000000035-00000-left.state").write_bytes(b"of an attempt that was killed")
    log.put(20)
    log.end()
    forget(spark)
    Answering(spark, layout, shards=1).finish()
    told = windows(layout)
    panes = told[-1]["panes_restored"]
    assert 0 < panes <= 2
    check(spark, layout, "v", text, table)
    assert not list(folder.glob("*-left.state"))
