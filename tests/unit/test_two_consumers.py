"""Two consumers of one log, one of them an hour behind: both are exact, and the log keeps what the slower one needs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from lane_cases import TALLIES, Feed, PairLane, end, lane_context, published, wanted
from penstock.spark.lanes.cuts import Cut, Cuts, Reach, Since
from penstock.spark.log.segments import Segments
from penstock.spark.log.stream_log import SEGMENT, SINCE, LogReader
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
    files = {path.name for path in (layout.log("a").files / TALLIES).iterdir()}
    assert files == {f"{number}.parquet" for number in range(reader.first, feed.entries)}
    end(keeper)
    for lane in (fast, slow):
        assert lane.await_termination(300)
        assert published(layout, lane.name) == wanted(feed)


def test_what_a_lane_reads_again_stays_until_its_cut_is_done(tmp_path: Path) -> None:
    """Retention goes on while a cut is answered, and the lane falls far behind: it joins all that its cuts say they may take."""
    history = 200.0
    layout = Layout(tmp_path / "out", tmp_path / "checkpoint")
    layout.open()
    feeds = [Feed(layout, name, np.random.default_rng(seed)) for seed, name in enumerate("ab")]
    keepers = [feed.keeper() for feed in feeds]
    readers = [LogReader(layout.log(feed.stream)) for feed in feeds]
    tidiers = [Segments(layout.log(feed.stream), history, 1 << 40, feed.clock) for feed in feeds]
    context = lane_context(layout)
    lane = PairLane("pairs", context, keepers, entries_per_cut=11)
    lane.start()

    def play(steps: int, *, waits: bool) -> None:
        for _ in range(steps):
            for feed in feeds:
                feed.put(8, size=3, seconds=EVERY_SECONDS)
            context.appended.tell()
            if waits:
                _caught_up(readers[0], lane, feeds[0])
            for tidier in tidiers:
                tidier.tidy()

    play(32, waits=True)
    assert min(reader.first for reader in readers) > 2 * SEGMENT, "what no cut takes any more goes"
    lane.goes_on.clear()
    firsts = [reader.first for reader in readers]
    play(20, waits=False)
    behind = readers[0].marks()["pairs"]
    assert [reader.first for reader in readers] == firsts, "a cut is being answered"
    lane.goes_on.set()
    play(10, waits=True)
    assert min(reader.first for reader in readers) > behind
    end(*keepers)
    assert lane.await_termination(60)
    assert published(layout, lane.name) == _as_said(feeds, lane.answered)
    assert any(cut.since["a"].entry > 0 for cut in lane.answered)
    for cut in lane.answered:
        for stream, since in cut.since.items():
            kept = (cut.before[stream].entry + 1 - since.entry) * EVERY_SECONDS
            assert since.entry == 0 or kept >= history, (
                "it has the whole history, as old as it is to the lane"
            )


def test_a_cut_takes_again_what_it_took_before_its_end(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "out", tmp_path / "checkpoint")
    layout.open()
    feeds = [Feed(layout, name, np.random.default_rng(seed)) for seed, name in enumerate("ab")]
    for feed in feeds:
        feed.put(2 * SEGMENT, size=2, seconds=EVERY_SECONDS)
    keepers = [feed.keeper() for feed in feeds]
    first = PairLane("pairs", lane_context(layout), keepers, entries_per_cut=100)
    first.start()
    while len(first.answered) < 2:
        time.sleep(0.005)
    first.stop()
    cut = Cuts(layout.cuts("pairs"))
    reader = LogReader(layout.log("a"))
    since = {name: Since(40, {3: 7}) for name in "ab"}
    ahead = {
        feed.stream: Reach.at(LogReader(layout.log(feed.stream)).entry(2 * SEGMENT - 1)) for feed in feeds
    }
    for feed in feeds:
        feed.put(1)
    until = {feed.stream: Reach.at(LogReader(layout.log(feed.stream)).entry(2 * SEGMENT)) for feed in feeds}
    cut.put(Cut(len(first.answered), ahead, until, {}, since))
    again = PairLane("pairs", lane_context(layout), keepers)
    end(*keepers)
    again.start()
    assert again.await_termination(30)
    assert again.answered[0].since == since
    assert reader.readers()["pairs"][SINCE] == 40
    assert published(layout, "pairs") == _as_said(feeds, [*first.answered, *again.answered])


def _as_said(feeds: Sequence[Feed], cuts: Sequence[Cut]) -> dict[tuple[int, str], int]:
    """The pairs of each cut's new tuples with all that it may take."""
    sums: Counter[tuple[int, str]] = Counter()
    a, b = feeds
    for cut in cuts:
        whole, old = (
            [
                feed.of(cut.since[feed.stream].entry, reach[feed.stream].entry)
                for feed, reach in ((a, reach), (b, reach))
            ]
            for reach in (cut.until, cut.before)
        )
        sums.update(_pairs(*whole))
        sums.subtract(_pairs(*old))
    return {place: count for place, count in sums.items() if count}


def _pairs(one: pa.Table, other: pa.Table) -> Counter[tuple[int, str]]:
    first, second = (
        Counter(zip(table.column("slot").to_pylist(), table.column("key").to_pylist(), strict=True))
        for table in (one, other)
    )
    return Counter({place: count * second[place] for place, count in first.items()})


def _caught_up(reader: LogReader, lane: PairLane, feed: Feed) -> None:
    deadline = time.monotonic() + 300
    while reader.marks().get(lane.name) != feed.entries - 1:
        assert time.monotonic() < deadline
        time.sleep(0.005)
