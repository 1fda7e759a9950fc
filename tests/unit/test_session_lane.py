"""The running lane with sessions, without Spark: its rows are the sessions of all tuples, whatever cuts and workers come and go."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow.compute as pc
import pytest

from penstock.monitor.problems import problem_lines
from penstock.operators.windows import pane
from penstock.spark.lanes.running import shard_task
from penstock.spark.sinks.delivery import upserts
from penstock.spark.sinks.feeds import MarkColumns
from penstock.spark.storage.layout import Layout
from plain_running import STREAM, answer, told
from plain_sessions import SessionStream, session_plan, sessions_now


@pytest.mark.parametrize("worker", ["same", "new", "turns"])
def test_rows_are_the_sessions_of_all_tuples(
    layout: Layout, worker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pane, "_PIECE_BYTES", 8_000)
    others: dict[tuple[str, int], object] = {}
    stream, rng = SessionStream(layout), np.random.default_rng(5)
    stream.views(session_plan())
    for number in range(12):
        for _ in range(int(rng.integers(1, 4))):
            stream.put_random(rng, int(rng.integers(1, 60)))
        if worker == "new":
            shard_task._held.clear()
        elif worker == "turns":
            # of two workers each has the shards after every other cut
            mine = dict(shard_task._held)
            shard_task._held.clear()
            shard_task._held.update(others)  # type: ignore[arg-type]
            others = mine  # type: ignore[assignment]
        answer(layout, entries=int(rng.integers(1, 4)))
        assert sessions_now(layout) == stream.sessions(), number
    final = sessions_now(layout, only_final=True)
    assert 0 < len(final) < len(stream.sessions())
    stream.put_random(rng, 5, ended=True)
    answer(layout)
    assert sessions_now(layout, only_final=True) == stream.sessions()
    rows = told(layout).select(["k", "w", "revision"]).to_pylist()
    assert max(Counter(map(str, rows)).values()) == 1, "a row is told once a cut"
    state = sum(path.stat().st_size for path in layout.window_states(f"{STREAM}.running.0").iterdir())
    assert state < 300_000, "replaced files are deleted, and sessions are stored once or twice"


@pytest.mark.parametrize("final_only", [False, True])
def test_a_sink_by_key_and_start_has_the_sessions_there_are(layout: Layout, final_only: bool) -> None:
    """A row that grew is withdrawn before the one that replaces it, in one delivery or in several."""
    stream, rng = SessionStream(layout), np.random.default_rng(7)
    stream.views(session_plan())
    for _ in range(10):
        stream.put_random(rng, 30)
        answer(layout)
    changes = told(layout)
    if final_only:
        changes = changes.filter(changes.column("is_final"))
    changes = changes.append_column("begun", pc.struct_field(changes.column("w"), "start"))
    marks = MarkColumns("op", all=("revision", "is_final", "op"))
    now = sessions_now(layout, only_final=final_only)
    for key in (("k", "begun"), ("k", "w")):
        rows = upserts(changes, marks, key).rows
        assert 0 < len(now) == rows.num_rows
        assert Counter(rows.column("n").to_pylist()) == Counter(said[0] for said in now.values())
    held: dict[tuple[int, object], int] = {}
    for revision in sorted(set(changes.column("revision").to_pylist())):
        delivery = changes.filter(pc.equal(changes.column("revision"), revision))
        found = upserts(delivery, marks, ("k", "begun"))
        for row in found.deleted.to_pylist():
            held.pop((row["k"], row["begun"]), None)
        held |= {(row["k"], row["begun"]): row["n"] for row in found.rows.to_pylist()}
    assert Counter(held.values()) == Counter(said[0] for said in now.values())


def test_having_judges_sessions_and_withdraws_those_it_kept(layout: Layout) -> None:
    stream, rng = SessionStream(layout, having="_a0 > 3"), np.random.default_rng(6)
    stream.views(session_plan())
    for _ in range(15):
        stream.put_random(rng, 20)
        answer(layout)
        assert sessions_now(layout) == {row: said for row, said in stream.sessions().items() if said[0] > 3}
    assert set(told(layout).column("op").to_pylist()) == {"upsert", "delete"}


def test_tuples_of_sessions_that_have_left_the_state_are_counted(layout: Layout) -> None:
    """The clock of an entry is its number: sessions stay for three entries."""
    stream = SessionStream(layout)
    stream.views(session_plan(history=3))
    for number in range(20):
        stream.put([1, 2], [number, number], [100 * number, 100 * number + 1], delays=[0])
    rows = answer(layout)["state_rows"]
    assert rows < 20
    before = sessions_now(layout)
    stream.put([1, 2, 1], [7, 7, 7], [100, 103, 1900], newest=1901, delays=[1801])
    assert answer(layout)["figures"]["views"]["v"]["left_out"] == 2
    now = sessions_now(layout)
    assert {row for row in now if now[row] != before[row]} == {(1, 1900, 1910)}
    (problem,) = problem_lines(
        {"state": "running", "streams": {}, "views": {"v": {"left_out": 2}}, "output": "x"}
    )
    assert (
        problem == "view v: 2 tuples left out, as their sessions were final for longer than history_seconds"
    )
