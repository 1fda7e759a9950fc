"""The running lane without Spark: its rows are what a count of all tuples says, whatever cuts, workers and views come and go."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from penstock.errors import StreamFailedError
from penstock.operators.windows import pane
from penstock.spark.lanes.running import shard_task
from penstock.spark.lanes.windows.shard_state import StateFile, StateFiles
from penstock.spark.storage.formats import WINDOW_STATE
from penstock.spark.storage.layout import Layout
from plain_running import (
    STREAM,
    RunningStream,
    answer,
    random_tuples,
    rows_now,
    running_lane,
    running_plan,
    told,
)
from plain_windows import JobsHere


@pytest.mark.parametrize("worker", ["same", "new", "turns"])
def test_rows_are_those_of_all_tuples(layout: Layout, worker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pane, "_PIECE_BYTES", 8_000)
    others: dict[tuple[str, int], object] = {}
    stream, rng = RunningStream(layout), np.random.default_rng(5)
    stream.views(running_plan())
    for _ in range(12):
        for _ in range(int(rng.integers(1, 4))):
            stream.put(*random_tuples(rng, int(rng.integers(0, 400)), 300))
        if worker == "new":
            shard_task._held.clear()
        elif worker == "turns":
            # of two workers each has the shards after every other cut
            mine = dict(shard_task._held)
            shard_task._held.clear()
            shard_task._held.update(others)  # type: ignore[arg-type]
            others = mine  # type: ignore[assignment]
        answer(layout, entries=int(rng.integers(1, 4)))
        assert rows_now(layout) == stream.wanted()
    rows = told(layout).select(["k", "revision"]).to_pylist()
    assert max(Counter((row["k"], row["revision"]) for row in rows).values()) == 1
    state = sum(path.stat().st_size for path in layout.window_states(f"{STREAM}.running.0").iterdir())
    assert state < 300_000, "replaced files are deleted, and groups are stored once or twice"


def test_only_rows_that_differ_are_published(layout: Layout) -> None:
    stream = RunningStream(layout)
    stream.views(running_plan())
    stream.put([1, 2, 3], [5, 6, 7])
    stream.put([2], [6])
    stream.put([], [])
    answer(layout)
    assert Counter(told(layout).column("k").to_pylist()) == {1: 1, 2: 2, 3: 1}


def test_having_that_stops_holding_deletes(layout: Layout) -> None:
    stream = RunningStream(layout, having="_a0 < 3")
    stream.views(running_plan())
    for keys in ([1, 2], [2, 2], [1], [1, 3]):
        stream.put(keys, [4] * len(keys))
    answer(layout)
    assert rows_now(layout) == {3: (1, 4, 4, 1)}
    ops = [(row["k"], row["op"], row["n"]) for row in told(layout).to_pylist()]
    assert sorted(ops) == [
        *[(1, "delete", 2), (1, "upsert", 1), (1, "upsert", 2)],
        *[(2, "delete", 1), (2, "upsert", 1), (3, "upsert", 1)],
    ]


def test_all_rows_are_final_when_the_stream_has_ended(layout: Layout) -> None:
    stream = RunningStream(layout)
    stream.views(running_plan())
    stream.put([1, 2], [5, 6])
    stream.put([2], [6], ended=True)
    answer(layout)
    final = {row["k"]: row["n"] for row in told(layout).to_pylist() if row["is_final"]}
    assert final == {1: 1, 2: 2}
    assert set(told(layout).filter(told(layout).column("is_final")).column("coverage").to_pylist()) == {1.0}
    # a later run goes on with the stream: what changes is not final any more, and counts
    stream.put([2], [9])
    answer(layout)
    assert rows_now(layout) == stream.wanted()


@pytest.mark.parametrize("entries", [1, 64])
def test_groups_that_are_not_touched_leave_and_start_anew(layout: Layout, entries: int) -> None:
    stream = RunningStream(layout)
    stream.views(running_plan(ttl=100))
    stream.put([1, 2, 3], [5, 6, 7], [0, 0, 90])
    stream.put([1], [5], [95])
    stream.put([4], [1], [150])
    answer(layout, entries)
    final = [(row["k"], row["n"]) for row in told(layout).to_pylist() if row["is_final"]]
    assert final == [(2, 1)], "nothing has come of it for so long"
    stream.put([2, 1], [6, 5], [160, 160])
    answer(layout, entries)
    assert {key: row[0] for key, row in rows_now(layout).items()} == {1: 3, 2: 1, 3: 1, 4: 1}
    stream.put([4], [1], [10_000])
    assert answer(layout, entries)["state_rows"] == 1
    final = [(row["k"], row["n"]) for row in told(layout).to_pylist() if row["is_final"]]
    assert sorted(final) == [(1, 3), (2, 1), (2, 1), (3, 1)]


def test_views_come_and_go(layout: Layout) -> None:
    stream = RunningStream(layout)
    stream.views(running_plan())
    stream.put([1, 2], [5, 6])
    answer(layout)
    stream.views()
    stream.put([1, 2], [5, 6])
    answer(layout)
    stream.views(running_plan(1), running_plan(2, name="other"))
    stream.put([1], [5])
    answer(layout)
    assert rows_now(layout, 1) == {1: (1, 5, 5, 1)}
    assert {key: row[0] for key, row in rows_now(layout, 0).items()} == {1: 1, 2: 1}
    assert told(layout, 2, "other").num_rows == 1


def test_a_view_that_goes_while_no_worker_has_its_groups_leaves_nothing_in_the_state(layout: Layout) -> None:
    stream = RunningStream(layout)
    stream.views(running_plan(), running_plan(1, name="other"))
    stream.put([1, 2], [5, 6])
    answer(layout)
    assert stored_operators(layout) == {0, 1}
    stream.views(running_plan(1, name="other"))
    stream.put([1, 2], [5, 6])
    shard_task._held.clear()
    answer(layout)
    assert stored_operators(layout) == {1}


def stored_operators(layout: Layout) -> set[int]:
    """The operators that have groups in the newest state."""
    place = f"{STREAM}.running.0"
    states = StateFiles(layout.log_store, layout.checkpoint, layout.window_states(place))
    document = WINDOW_STATE.read(layout.window_state(place))
    assert document is not None
    shards = [[StateFile(*file) for file in own] for own in document["shards"]]
    return {operator for own in shards for operator, _ in states.panes(own, states.places(own))}


def test_a_cut_that_failed_is_answered_once(layout: Layout) -> None:
    stream = RunningStream(layout)
    stream.views(running_plan())
    stream.put([1, 2], [5, 6])
    stream.put([2], [6])
    lane = running_lane(layout, JobsHere([None, StreamFailedError("Python worker exited unexpectedly")]))
    lane.start()
    while not lane.await_termination(1.0):
        pass
    assert rows_now(layout) == stream.wanted()
