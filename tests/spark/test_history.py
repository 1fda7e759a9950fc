"""The history of windows over a log that is merged, and removed at its front, while they are answered."""

from __future__ import annotations

import time
from datetime import UTC
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from test_window_lane_over_logs import NOON, SHARDS, STREAM, Answering, bound, tuples, windows

from penstock.errors import StreamFailedError
from penstock.spark.log.segments import Segments
from penstock.spark.log.stream_log import FINAL, SEGMENT, LogReader
from penstock.spark.publication.kinds import results_of
from penstock.spark.results.window_rows import window_results
from penstock.spark.storage.formats import BACKFILL
from penstock.spark.storage.layout import Layout
from window_log import DEFINITION, LogWriter

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("own_commits")]

TEXT = (
    "SELECT origin, window(ts, '20 seconds') AS w, count(*) AS n, sum(i) AS s, count(DISTINCT i) AS d "
    "FROM t GROUP BY origin, w"
)
ENTRIES, EACH, LATE = 2 * SEGMENT + 12, 5, 60
#: of a window, microseconds
SIZE = 20_000_000


def late_stream() -> pa.Table:
    """A stream whose last tuples are from all of it."""
    table = tuples(ENTRIES * EACH, 7, apart=3)
    late = np.random.default_rng(8).permutation(np.arange(0, table.num_rows, 9))[:LATE]
    rest = np.setdiff1d(np.arange(table.num_rows), late)
    return table.take(pa.array(np.concatenate([rest, late])))


def groups(table: pa.Table) -> set[str]:
    return {repr(list(row.values())) for row in table.to_pylist()}


def answer(spark: SparkSession, table: pa.Table) -> pa.Table:
    spark.createDataFrame(table).createOrReplaceTempView("t")
    return spark.sql(TEXT).toArrow()


def wait(answering: Answering, number: int) -> None:
    while answering.done < number:
        assert answering.lane.active
        time.sleep(0.02)


@pytest.mark.long
@pytest.mark.parametrize("is_removed", [False, True], ids=["merged", "removed"])
def test_final_windows_are_corrected_as_far_as_the_history_goes(
    spark: SparkSession, layout: Layout, is_removed: bool
) -> None:
    table = late_stream()
    log = LogWriter(spark, layout, STREAM, SHARDS, table, horizon=0)
    log.views(0, {0: bound(spark, "v", TEXT, table)})
    reader = LogReader(layout.log(STREAM))
    # the clock of an entry is its number: the first segment is too old
    tidier = Segments(layout.log(STREAM), 0, 10**9, lambda: SEGMENT if is_removed else 0)
    answering = Answering(spark, layout, entries=24)
    while log.taken + EACH <= table.num_rows - LATE:
        last = log.put(EACH)
    last = log.put(table.num_rows - LATE - log.taken)
    wait(answering, last.number)
    for _ in range(3):
        tidier.tidy()
        log.kept_before = reader.kept().before
        for _ in range(40):
            last = log.put(0)
        wait(answering, last.number)
    tidier.tidy()
    assert layout.log(STREAM).segments.exists()
    for _ in range(4):
        log.put(LATE // 4)
    log.end()
    answering.finish()

    found, whole = (
        groups(window_results(spark, layout, STREAM, "v", DEFINITION).toArrow()),
        answer(spark, table),
    )
    told = windows(layout)
    assert sum(each["beyond"] for each in told) > (3 if is_removed else 10)
    kept = reader.kept()
    if not is_removed:
        assert kept.first == 0
        assert found == groups(whole)
        return
    assert kept.first == SEGMENT
    assert kept.before is not None
    assert sum(each["beyond_history"] for each in told) > 3
    assert found != groups(whole)
    assert found <= groups(whole) | groups(answer(spark, table.slice(0, table.num_rows - LATE)))
    kept_windows = [row for row in whole.to_pylist() if row["w"]["start"].timestamp() * 1e6 >= kept.before]
    assert len(kept_windows) > 10
    assert {repr(list(row.values())) for row in kept_windows} <= found


@pytest.mark.parametrize("is_never_whole", [pytest.param(False, marks=pytest.mark.long), True])
def test_what_is_told_to_be_final_waits_for_windows_that_may_become_whole(
    spark: SparkSession, layout: Layout, is_never_whole: bool
) -> None:
    table = tuples(ENTRIES * EACH, 10)
    began = int(NOON.replace(tzinfo=UTC).timestamp() * 1e6)
    log = LogWriter(spark, layout, STREAM, SHARDS, table, horizon=0)
    log.views(0, {0: bound(spark, "v", TEXT, table)}, since=began)
    if is_never_whole:
        BACKFILL.put(layout.backfilled(STREAM)[0], {"impossible": "Penstock reads such a source once"})
    while log.taken + EACH <= table.num_rows:
        last = log.put(EACH)
    answering = Answering(spark, layout, entries=24)
    answering.finish()
    told = LogReader(layout.log(STREAM)).readers()[results_of(STREAM)]
    assert told["number"] == last.number
    assert (told[FINAL] > began + SIZE) == is_never_whole


@pytest.mark.parametrize(
    "begins",
    [pytest.param(0, marks=pytest.mark.long), 80],
    ids=["from the first entry that is kept", "with the first views"],
)
def test_windows_join_a_log_whose_beginning_is_gone(spark: SparkSession, layout: Layout, begins: int) -> None:
    """Another reader had it before them; entries without window views are of no use to them."""
    table = tuples(150 * EACH, 9)
    log = LogWriter(spark, layout, STREAM, SHARDS, table)
    reader = LogReader(layout.log(STREAM))
    tidier = Segments(layout.log(STREAM), 0, 10**9, lambda: SEGMENT)
    if begins:
        log.views(0, {})
    for number in range(140):
        if number == begins:
            log.views(1, {0: bound(spark, "v", TEXT, table)})
        last = log.put(EACH)
        reader.put_mark("other", last.number)
        tidier.tidy()
        log.kept_before = reader.kept().before
    assert reader.first == SEGMENT
    first = max(begins, SEGMENT)
    for _ in range(2):
        Answering(spark, layout, entries=24).finish()
        log.put(EACH)
        log.put(EACH)
    log.end()
    Answering(spark, layout, entries=24).finish()
    told = windows(layout)[0]
    assert told["entry"] - told["entries"] == first - 1
    rows = table.slice(first * EACH, log.taken - first * EACH)
    assert groups(window_results(spark, layout, STREAM, "v", DEFINITION).toArrow()) == groups(
        answer(spark, rows)
    )


@pytest.mark.long
def test_windows_that_were_ended_as_they_joined_join_again(
    spark: SparkSession, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their own mark is there then, before entries that have no window views."""
    table = tuples(150 * EACH, 9)
    log = LogWriter(spark, layout, STREAM, SHARDS, table)
    reader = LogReader(layout.log(STREAM))
    tidier = Segments(layout.log(STREAM), 0, 10**9, lambda: SEGMENT)
    log.views(0, {})
    for number in range(140):
        if number == 80:
            log.views(1, {0: bound(spark, "v", TEXT, table)})
        last = log.put(EACH)
    reader.put_mark("other", last.number)
    join = LogReader.join

    def killed(self: LogReader, name: str, **said: Any) -> None:
        tidier.tidy()
        join(self, name, **said)
        raise ValueError("ended")

    with monkeypatch.context() as patched:
        patched.setattr(LogReader, "join", killed)
        with pytest.raises(StreamFailedError, match="ended"):
            Answering(spark, layout).finish()
    assert reader.first == SEGMENT
    assert reader.marks()[results_of(STREAM)] == SEGMENT - 1
    log.end()
    Answering(spark, layout).finish()
    first = windows(layout)[0]
    assert first["entry"] - first["entries"] == SEGMENT - 1
    rows = table.slice(80 * EACH, 60 * EACH)
    found = window_results(spark, layout, STREAM, "v", DEFINITION).toArrow()
    assert groups(found) == groups(answer(spark, rows))
