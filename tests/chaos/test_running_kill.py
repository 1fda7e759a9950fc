"""`kill -9` of a running lane between any two of its steps: each tuple counts once, and nothing is left over."""

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
from plain_running import LANE, RunningStream, random_tuples, rows_now, running_plan, told

pytestmark = [pytest.mark.chaos, pytest.mark.usefixtures("own_commits")]


def test_a_running_lane_killed_at_every_place(tmp_path: Path) -> None:
    layout, log = Layout(tmp_path / "out", tmp_path / "checkpoint"), tmp_path / "victim.log"
    layout.open()
    stream, rng = RunningStream(layout, having="_a0 <> 3"), np.random.default_rng(8)
    stream.views(running_plan())
    for place in (*CUT_NAMES, *CUT_NAMES, ""):
        for _ in range(3):
            stream.put(*random_tuples(rng, 60, 40))
        failpoint = f"{place}:{read_published(layout, LANE).last + 2}" if place else ""
        layout.ledger.close()
        code = forked(running_victim.main, layout, failpoint=failpoint, log=log)
        assert code == (-signal.SIGKILL if place else 0), f"{failpoint}: {log.read_text()[-3000:]}"
    assert rows_now(layout) == {key: row for key, row in stream.wanted().items() if row[0] != 3}
    rows = Counter((row["k"], row["revision"]) for row in told(layout).to_pylist())
    assert max(rows.values()) == 1, "nothing is told twice"
    cuts = [each["batch"] for each in read_published(layout, LANE).batches]
    assert not layout.cuts(LANE).numbers()
    assert cuts[-1] == stream.number
