"""Two consumers of one log, one of them an hour behind: both are exact, and the log keeps what the slower one needs."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from lane_cases import TALLIES, Feed, PairLane, end, lane_context, published, wanted
from penstock.spark.log.segments import Segments
from penstock.spark.log.stream_log import SEGMENT, LogReader
from penstock.spark.storage.layout import Layout

HISTORY_SECONDS = 600.0
EVERY_SECONDS = 10.0
AN_HOUR = int(3_600 / EVERY_SECONDS)


def test_retention_waits_for_the_slower_consumer(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "out", tmp_path / "checkpoint")
    layout.open()
    feed = Feed(layout, "a", np.random.default_rng(0))
    keeper = feed.keeper()
    reader = LogReader(layout.log("a"))
    segments = Segments(layout.log("a"), HISTORY_SECONDS, 1 << 40, feed.clock)
    context = lane_context(layout)
    fast, slow = (PairLane(name, context, [keeper]) for name in ("fast.pairs", "slow.pairs"))
    for lane in (fast, slow):
        lane.start()

    def play(entries: int) -> None:
        for _ in range(0, entries, 24):
            feed.put(24, size=5, seconds=EVERY_SECONDS)
            context.appended.tell()
            _caught_up(reader, fast, feed)
            segments.tidy()

    play(AN_HOUR)
    _caught_up(reader, slow, feed)
    play(120)
    _caught_up(reader, slow, feed)
    segments.tidy()
    before = reader.first
    assert before > 0, "what both have left behind goes"
    slow.goes_on.clear()
    play(24)
    behind = reader.marks()[slow.name]
    play(AN_HOUR)
    assert reader.marks()[slow.name] == behind
    assert feed.clock() / 1e6 - reader.entry(behind + 1).clock / 1e6 > 3_600
    assert reader.first <= behind + 1
    assert reader.first - before < 2 * SEGMENT, "what the slower one has not read stays, however old"
    assert reader.between(behind, feed.entries - 1)[0].number == behind + 1
    slow.goes_on.set()
    _caught_up(reader, slow, feed)
    segments.tidy()
    kept = (feed.entries - reader.first) * EVERY_SECONDS
    assert kept < HISTORY_SECONDS + 2 * SEGMENT * EVERY_SECONDS, "what it had held back has gone"
    files = {path.name for path in (layout.log("a") / "files" / TALLIES).iterdir()}
    assert files == {f"{number}.parquet" for number in range(reader.first, feed.entries)}
    end(keeper)
    for lane in (fast, slow):
        assert lane.await_termination(300)
        assert published(layout, lane.name) == wanted(feed)


def _caught_up(reader: LogReader, lane: PairLane, feed: Feed) -> None:
    deadline = time.monotonic() + 300
    while reader.marks().get(lane.name) != feed.entries - 1:
        assert time.monotonic() < deadline
        time.sleep(0.005)
