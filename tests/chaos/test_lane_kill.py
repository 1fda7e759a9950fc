"""`kill -9` of a lane between any two of its steps and at random moments: each cut is answered once, exactly."""

from __future__ import annotations

import random
import signal
import time
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import lane_victim
import numpy as np
import pytest

from forms import ALL
from killing import ended, forked, forking, started
from lane_cases import Feed, published, wanted
from lane_runs import NAME as RUN_LANE
from lane_runs import Tables
from penstock.spark.log.stream_log import LogReader
from penstock.spark.publication.manifests import read_published
from penstock.spark.storage.failpoints import CUT_NAMES
from penstock.spark.storage.layout import Layout

pytestmark = [pytest.mark.chaos, pytest.mark.usefixtures("own_commits")]

NAME = "killed.pairs"
RANDOM_KILLS = 20 if ALL else 4


class Victim:
    """Starts the process over two logs, which grow before each start."""

    def __init__(self, folder: Path) -> None:
        self.layout = Layout(folder / "out", folder / "checkpoint")
        self.layout.open()
        self.feeds = [Feed(self.layout, name, np.random.default_rng(seed)) for seed, name in enumerate("ab")]
        self._told = folder / "victim.log"

    def run(self, failpoint: str = "") -> int:
        self.layout.ledger.close()
        return forked(lane_victim.main, self.layout, 0.0, *"ab", failpoint=failpoint, log=self._told)

    def start(self, seconds: float) -> ForkServerProcess:
        self.layout.ledger.close()
        return forking(lane_victim.main, self.layout, seconds, *"ab", log=self._told)

    def more(self) -> None:
        self.feeds[0].put(3)
        self.feeds[1].put(5)

    def kill_at(self, place: str, cut: int) -> None:
        code = self.run(f"{place}:{cut}")
        assert code == -signal.SIGKILL, f"{place}:{cut} was never reached; {self._told.read_text()[-3000:]}"

    def kill_randomly(self, rng: random.Random) -> bool:
        """Kills the process at a random moment after its first cut; False where it had ended before."""
        before = len(self.cuts())
        process = self.start(seconds=0.1)
        while process.is_alive() and len(self.cuts()) == before:
            time.sleep(0.01)
        time.sleep(rng.uniform(0.0, 0.2))
        process.kill()
        process.join()
        assert process.exitcode in (0, -signal.SIGKILL), self._told.read_text()[-3000:]
        return process.exitcode != 0

    def run_to_end(self) -> None:
        assert self.run() == 0, self._told.read_text()[-3000:]

    def cuts(self) -> list[int]:
        return [each["batch"] for each in read_published(self.layout, NAME).batches]

    def check(self) -> None:
        """Every tuple is in one cut, and nothing is left over."""
        assert published(self.layout, NAME) == wanted(*self.feeds)
        cuts = self.cuts()
        assert cuts == list(range(len(cuts)))
        assert not self.layout.cuts(NAME).numbers()
        for feed in self.feeds:
            assert LogReader(self.layout.log(feed.stream)).marks() == {NAME: feed.entries - 1}


def test_a_lane_killed_at_every_place(tmp_path: Path) -> None:
    victim = Victim(tmp_path)
    for place in CUT_NAMES:
        victim.more()
        victim.kill_at(place, len(victim.cuts()))
        victim.more()
        victim.kill_at(place, len(victim.cuts()) + 1)
    victim.run_to_end()
    victim.check()


def test_a_lane_killed_at_random_moments(tmp_path: Path) -> None:
    rng = random.Random(20_130_101)
    victim = Victim(tmp_path)
    kills = 0
    while kills < RANDOM_KILLS:
        victim.more()
        kills += victim.kill_randomly(rng)
    victim.run_to_end()
    victim.check()


@pytest.mark.long
def test_a_run_with_a_lane_killed(tmp_path: Path) -> None:
    """The lane's cuts are answered by jobs beside the ingest of its streams, whose process is killed with it."""
    tables = Tables(tmp_path)
    layout = Layout.of(tmp_path / "out", None)
    for place in CUT_NAMES:
        tables.feed(2)
        cut = read_published(layout, RUN_LANE).last + 1
        assert _run(tmp_path, f"{place}:{cut}") == -signal.SIGKILL, f"{place}:{cut} was never reached"
    tables.feed(1)
    assert _run(tmp_path) == 0, (tmp_path / "victim.log").read_text()[-3000:]
    assert published(layout, RUN_LANE) == tables.pairs()
    assert not layout.cuts(RUN_LANE).numbers()


def _run(folder: Path, failpoint: str = "") -> int:
    return ended(started("lane_run_victim.py", folder, log=folder / "victim.log", failpoint=failpoint))
