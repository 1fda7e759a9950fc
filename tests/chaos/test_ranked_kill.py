"""`kill -9` of a running lane with a ranking between any two of its steps: its rows are the first tuples, and nothing is told twice."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import running_victim

from killing import forked
from penstock.spark.publication.manifests import read_published
from penstock.spark.storage.failpoints import CUT_NAMES, ROW_NAMES
from penstock.spark.storage.layout import Layout
from plain_live import LIVE_LANE, first_of, live_now, live_told
from plain_rankings import RankedStream, ranked_now, ranked_plan
from plain_running import LANE, RunningStream, random_tuples, running_plan, told

pytestmark = [pytest.mark.chaos, pytest.mark.usefixtures("own_commits")]


@pytest.mark.parametrize("limit", [pytest.param(1, marks=pytest.mark.long), 4])
def test_a_ranking_killed_at_every_place(tmp_path: Path, limit: int) -> None:
    layout, log = Layout(tmp_path / "out", tmp_path / "checkpoint"), tmp_path / "victim.log"
    layout.open()
    stream, rng = RankedStream(layout), np.random.default_rng(limit)
    stream.views(ranked_plan(limit))
    for place in (*CUT_NAMES, *CUT_NAMES, ""):
        for _ in range(3):
            stream.put(*random_tuples(rng, 60, 40))
        failpoint = f"{place}:{read_published(layout, LANE).last + 2}" if place else ""
        layout.ledger.close()
        code = forked(running_victim.main, layout, failpoint=failpoint, log=log)
        assert code == (-signal.SIGKILL if place else 0), f"{failpoint}: {log.read_text()[-3000:]}"
    assert ranked_now(layout) == stream.first(limit)
    rows = Counter((row["k"], row["place"], row["revision"]) for row in told(layout).to_pylist())
    assert max(rows.values()) == 1, "nothing is told twice"
    assert not layout.cuts(LANE).numbers()
    assert read_published(layout, LANE).batches[-1]["batch"] == stream.number


@pytest.mark.parametrize("limit", [pytest.param(1, marks=pytest.mark.long), 3])
def test_a_ranking_over_a_running_view_killed_at_every_place(tmp_path: Path, limit: int) -> None:
    """In the lane beneath, at the log of its rows and in the lane of the ranking."""
    layout, log = Layout(tmp_path / "out", tmp_path / "checkpoint"), tmp_path / "victim.log"
    layout.open()
    stream, rng = RunningStream(layout), np.random.default_rng(limit)
    stream.views(running_plan())
    places = [f"{name}@{lane}" for lane in (LANE, LIVE_LANE) for name in CUT_NAMES]
    for place in (*places, *(f"{name}@{LANE}" for name in ROW_NAMES), ""):
        for _ in range(2):
            stream.put(*random_tuples(rng, 60, 40))
        layout.ledger.close()
        code = forked(running_victim.main_with_a_ranking, layout, limit, failpoint=place, log=log)
        assert code == (-signal.SIGKILL if place else 0), f"{place}: {log.read_text()[-3000:]}"
    assert live_now(layout) == first_of(stream.wanted(), limit)
    rows = Counter((row["different"], row["place"], row["revision"]) for row in live_told(layout).to_pylist())
    assert max(rows.values()) == 1, "nothing is told twice"
    assert not layout.cuts(LIVE_LANE).numbers()
