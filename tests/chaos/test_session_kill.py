"""`kill -9` of a running lane with sessions between any two of its steps: each tuple is in one session, and nothing is told twice."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import running_victim

from killing import forked
from penstock.spark.publication.manifests import read_published
from penstock.spark.storage.failpoints import CUT_NAMES
from penstock.spark.storage.layout import Layout
from plain_running import LANE, told
from plain_sessions import SessionStream, session_plan, sessions_now

pytestmark = [pytest.mark.chaos, pytest.mark.usefixtures("own_commits")]


def test_a_lane_with_sessions_killed_at_every_place(tmp_path: Path) -> None:
    layout, log = Layout(tmp_path / "out", tmp_path / "checkpoint"), tmp_path / "victim.log"
    layout.open()
    stream, rng = SessionStream(layout, having="_a0 <> 3"), np.random.default_rng(8)
    stream.views(session_plan())
    for place in (*CUT_NAMES, *CUT_NAMES, ""):
        for number in range(3):
            stream.put_random(rng, 40, ended=not place and number == 2)
        failpoint = f"{place}:{read_published(layout, LANE).last + 2}" if place else ""
        layout.ledger.close()
        code = forked(running_victim.main, layout, failpoint=failpoint, log=log)
        assert code == (-signal.SIGKILL if place else 0), f"{failpoint}: {log.read_text()[-3000:]}"
    wanted = {row: said for row, said in stream.sessions().items() if said[0] != 3}
    assert sessions_now(layout) == wanted
    assert sessions_now(layout, only_final=True) == wanted
    rows = Counter((row["k"], str(row["w"]), row["revision"]) for row in told(layout).to_pylist())
    assert max(rows.values()) == 1, "nothing is told twice"
    assert not layout.cuts(LANE).numbers()
    assert [each["batch"] for each in read_published(layout, LANE).batches][-1] == stream.number
