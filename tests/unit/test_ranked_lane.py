"""The running lane with rankings, without Spark: its rows are the first of all tuples, whatever cuts and workers there are."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.operators.windows import pane
from penstock.plan.rankings import RANK
from penstock.spark.lanes.running import shard_task
from penstock.spark.storage.bindings import (
    FROM_THE_START,
    PlanLog,
    RegisteredWindow,
    RunningDefinition,
    WindowDefinition,
    WindowRegister,
)
from penstock.spark.storage.layout import Layout
from plain_rankings import RankedStream, ranked_now, ranked_plan
from plain_running import STREAM, answer, random_tuples, told


@pytest.mark.parametrize("limit", [1, 3])
def test_rows_are_the_first_of_all_tuples(
    layout: Layout, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pane, "_PIECE_BYTES", 8_000)
    stream, rng = RankedStream(layout), np.random.default_rng(limit)
    stream.views(ranked_plan(limit))
    for number in range(8):
        for _ in range(int(rng.integers(1, 4))):
            stream.put(*random_tuples(rng, int(rng.integers(0, 400)), 100))
        if number % 2:
            shard_task._held.clear()
        cut = answer(layout, entries=int(rng.integers(1, 4)))
        assert ranked_now(layout) == stream.first(limit)
    assert cut["state_rows"] <= 100 * limit + 600, (
        "no more than the first tuples, and small levels of each shard"
    )
    state = sum(path.stat().st_size for path in layout.window_states(f"{STREAM}.running.0").iterdir())
    assert state < 200_000


def test_only_places_that_change_are_published(layout: Layout) -> None:
    stream = RankedStream(layout)
    stream.views(ranked_plan(3))
    for values in ([9, 5, 7], [1, 2], [8], []):
        stream.put([1] * len(values), values)
    answer(layout)
    rows = [(row["revision"], row["place"], row["x"], row["op"]) for row in told(layout).to_pylist()]
    first, third = stream.number - 3, stream.number - 1
    assert sorted(rows) == [
        *[(first, place, x, "upsert") for place, x in ((1, 9), (2, 7), (3, 5))],
        *[(third, place, x, "upsert") for place, x in ((2, 8), (3, 7))],
    ]


def test_places_without_a_row_are_withdrawn(layout: Layout) -> None:
    stream = RankedStream(layout, having="_a1 <= 2")
    stream.views(ranked_plan(2, RANK))
    for values in ([5, 5, 5], [6], [7], [7]):
        stream.put([1] * len(values), values)
    answer(layout)
    assert ranked_now(layout) == [(1, 1, 7), (1, 1, 7)]
    ops = [row["op"] for row in told(layout).to_pylist()]
    assert ops.count("delete") == 2
    by_revision: dict[int, list[str]] = {}
    for row in told(layout).to_pylist():
        by_revision.setdefault(row["revision"], []).append(row["op"])
    assert all(each == sorted(each) for each in by_revision.values()), "withdrawn ones first"
    assert ["delete", "upsert"] in [sorted(set(each)) for each in by_revision.values()]


def test_the_columns_of_a_star_are_stored(layout: Layout) -> None:
    definitions = (
        WindowDefinition("w", "w:1", "SELECT 1", (("v", "SELECT 2"),)),
        RunningDefinition("r", "r:1", "SELECT 3"),
        RunningDefinition("s", "s:1", "SELECT 4", (), (("k", "BIGINT"), ("x", "INT"))),
    )
    windows = tuple(
        RegisteredWindow(each, number, beginning=FROM_THE_START) for number, each in enumerate(definitions)
    )
    log = PlanLog(layout, STREAM)
    log.store(0, {}, WindowRegister(windows, 3, running_operators=2))
    assert log.load_windows(0).windows == windows


def test_the_one_row_of_a_key_leaves_after_its_time(layout: Layout) -> None:
    stream = RankedStream(layout)
    stream.views(ranked_plan(1, ttl=100))
    stream.put([1, 2], [9, 9], [0, 0])
    # a smaller value keeps the key in the state
    stream.put([2], [3], [90])
    stream.put([3], [1], [120])
    stream.put([1, 2], [4, 4], [130, 130])
    answer(layout)
    assert ranked_now(layout) == [(1, 1, 4), (2, 1, 9), (3, 1, 1)]
    assert [row["k"] for row in told(layout).to_pylist() if row["is_final"]] == [1]


def test_all_rows_are_final_when_the_stream_has_ended(layout: Layout) -> None:
    stream = RankedStream(layout)
    stream.views(ranked_plan(2))
    stream.put([1, 1, 1], [5, 6, 7])
    stream.put([2], [6], ended=True)
    answer(layout)
    final = [(row["k"], row["x"]) for row in told(layout).to_pylist() if row["is_final"]]
    assert sorted(final) == [(1, 6), (1, 7), (2, 6)]
