"""Lanes that are driven from this side: numbered cuts, put before any work, each answered once."""

from __future__ import annotations

import errno
import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lane_cases import Feed, PairLane, end, lane_context, published, wanted
from penstock.errors import StreamFailedError
from penstock.spark.lanes import cut_lane
from penstock.spark.lanes.cuts import Cut, Cuts, Reach
from penstock.spark.lanes.lane import Lane
from penstock.spark.log.appended import Appended
from penstock.spark.log.segments import Segments
from penstock.spark.log.stream_log import SEGMENT, Kept, LogReader
from penstock.spark.publication.manifests import read_published
from penstock.spark.publication.staged import BatchFiles
from penstock.spark.storage.formats import LOG_KEPT
from penstock.spark.storage.layout import Layout
from penstock.trigger import Trigger

NAME = "test.pairs"
#: what takes longer never happens
MOST_SECONDS = 60.0
#: lanes of a run that goes on are tried again whatever fails
ENDING = Trigger.available_now()


@pytest.fixture
def feeds(layout: Layout) -> list[Feed]:
    return [Feed(layout, stream, np.random.default_rng(seed)) for seed, stream in enumerate("ab")]


@pytest.fixture
def begin() -> Iterator[Callable[[Lane], Any]]:
    """Starts lanes; they are stopped at the end."""
    begun: list[Lane] = []

    def start(lane: Any) -> Any:
        begun.append(lane)
        lane.start()
        return lane

    yield start
    for lane in begun:
        lane.stop()


def wait(is_so: Callable[[], bool], seconds: float = MOST_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def cuts_of(layout: Layout, name: str = NAME) -> list[int]:
    """The numbers of the published cuts, in order."""
    return [each["batch"] for each in read_published(layout, name).batches]


def test_a_lane_answers_all_that_comes_and_ends_with_its_logs(
    layout: Layout, feeds: list[Feed], begin: Callable[[Lane], PairLane]
) -> None:
    keepers = [feed.keeper() for feed in feeds]
    feeds[0].put(30)
    lane = begin(PairLane(NAME, lane_context(layout), keepers, entries_per_cut=4))
    for _ in range(10):
        answered = len(lane.answered)
        feeds[1].put(2)
        feeds[0].put(1)
        wait(lambda answered=answered: len(lane.answered) > answered)  # type: ignore[misc]
    end(keepers[0])
    for _ in range(2):
        feeds[1].put(1)
        wait(lambda: LogReader(layout.log("b")).marks() == {NAME: feeds[1].entries - 1})
    assert lane.active, "one of its logs goes on"
    feeds[1].put(3)
    end(keepers[1])
    assert lane.await_termination(MOST_SECONDS)
    assert published(layout, NAME) == wanted(*feeds)
    assert cuts_of(layout) == list(range(len(lane.answered)))
    assert all(cut.entries <= 2 * 4 for cut in lane.answered)
    assert sum(cut.entries for cut in lane.answered) == sum(feed.entries for feed in feeds)
    assert not layout.cuts(NAME).numbers()
    for feed in feeds:
        assert LogReader(layout.log(feed.stream)).marks() == {NAME: feed.entries - 1}
    told = [event for event in lane.context.events.recent if event["kind"] == "cut"]
    assert [event["cut"] for event in told] == cuts_of(layout)
    assert told[-1]["streams"] == {feed.stream: feed.entries - 1 for feed in feeds}
    assert lane.status()["lanes"][NAME]["cut"] == told[-1]["cut"]


def test_two_lanes_read_one_log_each_at_its_own_pace(
    layout: Layout, feeds: list[Feed], begin: Callable[[Lane], PairLane]
) -> None:
    feed = feeds[0]
    keeper = feed.keeper()
    context = lane_context(layout)
    fast, slow = (begin(PairLane(name, context, [keeper])) for name in ("fast.pairs", "slow.pairs"))
    slow.goes_on.clear()
    feed.put(5)
    context.appended.tell()
    wait(lambda: sum(cut.entries for cut in fast.answered) == 5)
    assert cuts_of(layout, "slow.pairs") == []
    wait(lambda: LogReader(layout.log("a")).marks() == {"fast.pairs": 4, "slow.pairs": -1})
    slow.goes_on.set()
    end(keeper)
    assert all(lane.await_termination(MOST_SECONDS) for lane in (fast, slow))
    assert published(layout, "slow.pairs") == published(layout, "fast.pairs") == wanted(feed)


def test_what_is_put_in_this_process_wakes_a_lane_at_once(
    layout: Layout, feeds: list[Feed], begin: Callable[[Lane], PairLane], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cut_lane, "_LOOK_SECONDS", 3_600.0)
    lane = begin(PairLane(NAME, lane_context(layout), [feeds[0].keeper()]))
    for number in range(3):
        feeds[0].put(1)
        lane.context.appended.tell()
        wait(lambda number=number: len(lane.answered) == number + 1)  # type: ignore[misc]
    began = time.monotonic()
    lane.stop()
    assert time.monotonic() - began < MOST_SECONDS


class Watched(Appended):
    """Has what the last who waited had seen."""

    seen = -1

    def wait(self, seen: int, timeout_seconds: float) -> None:
        self.seen = seen
        super().wait(seen, timeout_seconds)


class RowsOf:
    """What stands for the rows of a lane, to one that reads them: they end with it."""

    def __init__(self, lane: Lane, stream: str) -> None:
        self._lane = lane
        self.stream = stream
        self.ingest: Any = SimpleNamespace(stream=stream)

    @property
    def active(self) -> bool:
        return self._lane.active

    @property
    def is_complete(self) -> bool:
        return self._lane.is_complete


def test_the_end_of_a_lane_wakes_those_that_read_its_rows(
    layout: Layout, feeds: list[Feed], begin: Callable[[Lane], PairLane], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cut_lane, "_LOOK_SECONDS", 3_600.0)
    appended = Watched()
    context = replace(lane_context(layout), appended=appended)
    keeper = feeds[0].keeper()
    feeds[0].put(1)
    end(keeper)
    below = PairLane("below.pairs", context, [keeper])
    below.goes_on.clear()
    begin(below)
    above = begin(PairLane(NAME, context, [RowsOf(below, "b")]))
    # the other one answers what it has, and waits for nothing
    wait(lambda: appended.seen == appended.count)
    below.goes_on.set()
    assert above.await_termination(MOST_SECONDS)
    assert above.is_complete


def test_what_another_process_puts_is_found_by_looking(
    layout: Layout, feeds: list[Feed], begin: Callable[[Lane], PairLane]
) -> None:
    lane = begin(PairLane(NAME, lane_context(layout), [feeds[0].keeper()]))
    feeds[0].put(1)
    wait(lambda: cuts_of(layout) == [0])
    assert lane.active


def test_finish_ends_a_lane_whose_streams_go_on(
    layout: Layout, feeds: list[Feed], begin: Callable[[Lane], PairLane]
) -> None:
    feeds[0].put(50)
    lane = begin(PairLane(NAME, lane_context(layout), [feeds[0].keeper()], entries_per_cut=7))
    lane.finish()
    assert lane.await_termination(MOST_SECONDS)
    assert published(layout, NAME) == wanted(feeds[0])


def test_a_lane_goes_on_where_it_stopped(
    layout: Layout, feeds: list[Feed], begin: Callable[[Lane], PairLane]
) -> None:
    keepers = [feed.keeper() for feed in feeds]
    answered: list[Cut] = []
    for _ in range(3):
        lane = begin(PairLane(NAME, lane_context(layout), keepers, entries_per_cut=2))
        feeds[0].put(6)
        feeds[1].put(3)
        wait(lambda lane=lane: len(lane.answered) > 1)  # type: ignore[misc]
        lane.stop()
        answered += lane.answered
    last = begin(PairLane(NAME, lane_context(layout), keepers))
    end(*keepers)
    assert last.await_termination(MOST_SECONDS)
    assert [cut.number for cut in (*answered, *last.answered)] == cuts_of(layout), "none is answered twice"
    assert published(layout, NAME) == wanted(*feeds)


def test_a_lane_that_leaves_is_waited_for_no_more_and_begins_anew_when_it_comes_again(
    layout: Layout, feeds: list[Feed], begin: Callable[[Lane], PairLane]
) -> None:
    """Nor is a cut answered that it had put: what that is about may be gone."""
    feed, keeper = feeds[0], feeds[0].keeper()
    reader = LogReader(layout.log("a"))
    tidier = Segments(layout.log("a"), 0, 1 << 40, feed.clock)
    feed.put(5)
    lane = begin(PairLane(NAME, lane_context(layout), [keeper]))
    wait(lambda: reader.marks() == {NAME: 4})
    lane.stop()
    feed.put(SEGMENT)
    Cuts(layout.cuts(NAME)).put(Cut(1, {"a": Reach(4)}, {"a": Reach(9)}))
    lane.leave()
    assert reader.marks() == {}
    assert not layout.cuts(NAME).numbers()
    feed.put(SEGMENT, seconds=1.0)
    reader.put_mark("another", feed.entries - 1)
    tidier.tidy()
    tidier.tidy()
    assert reader.first == 2 * SEGMENT
    again = begin(PairLane(NAME, lane_context(layout), [keeper]))
    end(keeper)
    assert again.await_termination(10)
    assert again.answered[0].number == 1
    assert again.answered[0].before == {"a": Reach(2 * SEGMENT - 1)}
    assert reader.marks() == {NAME: feed.entries - 1, "another": feed.entries - 1}


def test_what_a_lane_holds_stays_however_old_it_is(
    layout: Layout, feeds: list[Feed], begin: Callable[[Lane], PairLane]
) -> None:
    held = SEGMENT + 5

    class HoldingLane(PairLane):
        def held_from(self, stream: str, before: Reach) -> int:
            return held if stream == "a" else super().held_from(stream, before)

    logs = [LogReader(layout.log(name)) for name in "ab"]
    tidiers = [Segments(layout.log(name), 0, 1 << 40, feeds[0].clock) for name in "ab"]
    lane = begin(HoldingLane(NAME, lane_context(layout), [feed.keeper() for feed in feeds]))

    def pass_segments(count: int) -> None:
        for _ in range(count):
            for feed in feeds:
                feed.put(SEGMENT, seconds=1.0)
            wait(lambda: [log.marks().get(NAME) for log in logs] == [feed.entries - 1 for feed in feeds])
            for tidier in tidiers:
                tidier.tidy()
                tidier.tidy()

    pass_segments(4)
    assert logs[0].first == SEGMENT
    assert logs[1].first > SEGMENT
    assert lane.answered[-1].since["a"].entry == held
    held = 4 * SEGMENT
    pass_segments(2)
    assert logs[0].first > SEGMENT


def test_a_lane_that_came_again_and_was_ended_before_its_first_cut_begins_where_it_joined(
    layout: Layout, feeds: list[Feed], begin: Callable[[Lane], PairLane]
) -> None:
    """Its own mark is there then, and the entries between that and how far it once came are gone."""
    feed, keeper = feeds[0], feeds[0].keeper()
    reader = LogReader(layout.log("a"))
    tidier = Segments(layout.log("a"), 0, 1 << 40, feed.clock)
    feed.put(5)
    lane = begin(PairLane(NAME, lane_context(layout), [keeper]))
    wait(lambda: reader.marks() == {NAME: 4})
    lane.stop()
    lane.leave()
    feed.put(2 * SEGMENT, seconds=1.0)
    reader.put_mark("another", feed.entries - 1)
    tidier.tidy()
    tidier.tidy()
    assert reader.first == 2 * SEGMENT

    ended = PairLane(NAME, lane_context(layout, trigger=ENDING), [keeper])

    def orders(_: Any) -> Any:
        raise ValueError("not now")

    ended.orders = orders  # type: ignore[method-assign]
    begin(ended)
    with pytest.raises(StreamFailedError, match="not now"):
        ended.await_termination(MOST_SECONDS)
    assert reader.marks()[NAME] == 2 * SEGMENT - 1

    again = begin(PairLane(NAME, lane_context(layout), [keeper]))
    end(keeper)
    assert again.await_termination(MOST_SECONDS)
    assert [(cut.number, cut.before, cut.until["a"].entry) for cut in again.answered] == [
        (1, {"a": Reach(2 * SEGMENT - 1)}, feed.entries - 1)
    ]


def test_a_lane_joins_where_the_log_begins_that_went_on_meanwhile(
    layout: Layout, feeds: list[Feed], begin: Callable[[Lane], PairLane]
) -> None:
    """What it had seen to be kept left before its mark was stored."""
    feed, keeper = feeds[0], feeds[0].keeper()
    reader = LogReader(layout.log("a"))
    tidier = Segments(layout.log("a"), 0, 1 << 40, feed.clock)
    feed.put(5)
    lane = begin(PairLane(NAME, lane_context(layout), [keeper]))
    wait(lambda: reader.marks() == {NAME: 4})
    lane.stop()
    lane.leave()
    feed.put(2 * SEGMENT, seconds=1.0)
    reader.put_mark("another", feed.entries - 1)

    class LateReader(LogReader):
        def kept(self) -> Kept:
            found = super().kept()
            tidier.tidy()
            tidier.tidy()
            return found

    assert LateReader(layout.log("a")).join(NAME) == 2 * SEGMENT - 1
    assert reader.marks()[NAME] == reader.first - 1 == 2 * SEGMENT - 1

    again = begin(PairLane(NAME, lane_context(layout), [keeper]))
    end(keeper)
    assert again.await_termination(MOST_SECONDS)
    assert again.answered[0].before == {"a": Reach(2 * SEGMENT - 1)}
    assert reader.readers()[NAME] == {"number": feed.entries - 1}


def test_a_cut_that_was_put_has_its_orders_whatever_they_are_now(
    layout: Layout, feeds: list[Feed], begin: Callable[[Lane], PairLane]
) -> None:
    feeds[0].put(3)
    reader = LogReader(layout.log("a"))
    cut = Cut(0, {"a": Reach(-1)}, {"a": Reach.at(reader.entry(1))}, {"order": "as then"})
    Cuts(layout.cuts(NAME)).put(cut)
    keeper = feeds[0].keeper()
    lane = begin(PairLane(NAME, lane_context(layout), [keeper]))
    end(keeper)
    assert lane.await_termination(MOST_SECONDS)
    assert lane.answered[0] == cut
    assert lane.answered[1].before == cut.until
    assert published(layout, NAME) == wanted(feeds[0])


def test_what_can_pass_is_tried_again_and_what_cannot_is_told(
    layout: Layout, feeds: list[Feed], begin: Callable[[Lane], PairLane]
) -> None:
    feeds[0].put(2)
    keeper = feeds[0].keeper()
    lane = PairLane(NAME, lane_context(layout, trigger=ENDING), [keeper])
    answer, raised = lane.answer, iter([OSError(errno.EIO, "Input/output error"), ValueError("never")])

    def fails(cut: Cut, store: BatchFiles) -> Any:
        error = next(raised, None)
        if error is not None:
            answer(cut, store)
            raise error
        return answer(cut, store)

    lane.answer = fails  # type: ignore[method-assign]
    begin(lane)
    with pytest.raises(StreamFailedError, match=r"the lane of stream a stopped: ValueError: never"):
        lane.await_termination(MOST_SECONDS)
    assert [event["kind"] for event in lane.context.events.recent] == ["lane_retried", "lane_failed"]
    assert cuts_of(layout) == []
    again = begin(PairLane(NAME, lane_context(layout), [keeper]))
    end(keeper)
    assert again.await_termination(MOST_SECONDS)
    assert published(layout, NAME) == wanted(feeds[0])


def test_a_lane_joins_a_log_where_it_begins(
    layout: Layout, feeds: list[Feed], begin: Callable[[Lane], PairLane]
) -> None:
    feeds[0].put(10)
    before = feeds[0].tuples
    LOG_KEPT.replace(layout.log("a").kept, Kept(10).document())
    keeper = feeds[0].keeper()
    lane = begin(PairLane(NAME, lane_context(layout), [keeper]))
    wait(lambda: LogReader(layout.log("a")).marks() == {NAME: 9})
    feeds[0].put(5)
    end(keeper)
    assert lane.await_termination(MOST_SECONDS)
    feeds[0].tuples = feeds[0].tuples.slice(before.num_rows)
    assert published(layout, NAME) == wanted(feeds[0])


def test_a_lane_whose_place_in_a_log_is_older_than_the_log_is_refused(
    layout: Layout, feeds: list[Feed], begin: Callable[[Lane], PairLane]
) -> None:
    """The mark of the copy is among the readers again, what lies behind it is gone."""
    feed, keeper = feeds[0], feeds[0].keeper()
    reader = LogReader(layout.log("a"))
    feed.put(5)
    lane = begin(PairLane(NAME, lane_context(layout), [keeper]))
    wait(lambda: reader.marks() == {NAME: 4})
    lane.stop()
    lane.leave()
    feed.put(SEGMENT)
    reader.put_mark("another", feed.entries - 1)
    Segments(layout.log("a"), 0, 1 << 40, feed.clock).tidy()
    assert reader.first == SEGMENT
    reader.put_mark(NAME, 4)
    again = begin(PairLane(NAME, lane_context(layout, trigger=ENDING), [keeper]))
    told = f"reader {NAME} of stream a continues with entry 5 of the log, .* starts at entry {SEGMENT}"
    with pytest.raises(StreamFailedError, match=f"{told}.*Restore the newest copy"):
        again.await_termination(MOST_SECONDS)
    assert again.context.events.recent[-1]["cause"] == "checkpoint_refused"


def test_cuts_are_merged_and_gone_on_from(
    layout: Layout, feeds: list[Feed], begin: Callable[[Lane], PairLane]
) -> None:
    keeper = feeds[0].keeper()
    for end_it in (False, True):
        feeds[0].put(11)
        context = lane_context(layout, compact_every_batches=4)
        lane = begin(PairLane(NAME, context, [keeper], entries_per_cut=1))
        wait(lambda lane=lane: len(lane.answered) == 11)  # type: ignore[misc]
        if end_it:
            end(keeper)
            assert lane.await_termination(MOST_SECONDS)
        lane.stop()
        assert len(list(layout.manifests(NAME))) < 8
    assert cuts_of(layout) == list(range(22))
    assert published(layout, NAME) == wanted(feeds[0])


def _set_back(layout: Layout) -> str:
    """The log is another one from some entry on."""
    log = layout.log("a")
    for documents in (log.entries, log.readers, log.segments):
        for document in documents:
            document.remove()
    log.kept.remove()
    shutil.rmtree(log.files)
    other = Feed(layout, "a", np.random.default_rng(9))
    other.put(5)
    return "lane test.pairs has answered the log of stream a up to entry 2, but"


def _cut_off(layout: Layout) -> str:
    layout.log("a").entries.remove([1, 2])
    return "entry/a/2 in .* is missing or another"


def _without_results(layout: Layout) -> str:
    reach = Reach.at(LogReader(layout.log("a")).entry(2))
    Cuts(layout.cuts(NAME)).put(Cut(1, {"a": reach}, {"a": reach}))
    layout.manifests(NAME)[0].remove()
    return "cut 1 exists, but the results folder ends before cut 0"


def _of_another_format(layout: Layout) -> str:
    layout.cuts(NAME)[1].replace(json.dumps({"format": 99}).encode())
    return r"1 in .*, a cut of a lane, was written by a newer version of Penstock"


@pytest.mark.parametrize("spoil", [_set_back, _cut_off, _without_results, _of_another_format])
def test_folders_that_do_not_fit_are_refused(
    layout: Layout,
    feeds: list[Feed],
    begin: Callable[[Lane], PairLane],
    spoil: Callable[[Layout], str],
) -> None:
    feeds[0].put(3)
    keeper = feeds[0].keeper()
    lane = begin(PairLane(NAME, lane_context(layout), [keeper]))
    lane.finish()
    assert lane.await_termination(MOST_SECONDS)
    match = spoil(layout)
    lane = begin(PairLane(NAME, lane_context(layout, trigger=ENDING), [keeper]))
    with pytest.raises(StreamFailedError, match=match):
        lane.await_termination(MOST_SECONDS)


def test_a_job_begun_as_the_lane_is_stopped_is_broken_off_too(layout: Layout, feeds: list[Feed]) -> None:
    """The word to break off comes before the job it is meant for."""
    feeds[0].put(1)
    lane = PairLane(NAME, lane_context(layout), [feeds[0].keeper()])
    answers, begun, cancelled = threading.Event(), threading.Event(), threading.Event()

    def cancel() -> None:
        if begun.is_set():
            cancelled.set()
        begun.set()

    def answer(cut: Cut, store: BatchFiles) -> Any:  # noqa: ARG001
        answers.set()
        assert begun.wait(MOST_SECONDS)
        assert cancelled.wait(MOST_SECONDS)
        raise OSError(errno.EIO, "cancelled")

    jobs: Any = SimpleNamespace(cancel=cancel, expect=lambda: None, release=lambda: None)
    lane.jobs, lane.answer = jobs, answer  # type: ignore[method-assign]
    lane.start()
    assert answers.wait(MOST_SECONDS)
    lane.stop()
    assert cancelled.is_set()
    assert cuts_of(layout) == []
    assert layout.cuts(NAME).numbers() == [0]


def test_a_stopped_lane_leaves_no_thread(layout: Layout, feeds: list[Feed]) -> None:
    lane = PairLane(NAME, lane_context(layout), [feeds[0].keeper()])
    lane.start()
    lane.stop()
    assert not lane.active
    assert not any(NAME in thread.name for thread in threading.enumerate())
