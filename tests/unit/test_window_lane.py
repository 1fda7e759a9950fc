"""The window lane without Spark: what fails in it, and its corrections, which a thread of its own computes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lane_cases import lane_context
from penstock.errors import StreamFailedError
from penstock.monitor.book import StatusBook
from penstock.monitor.troubles import open_troubles
from penstock.spark.lanes.cuts import Cut
from penstock.spark.lanes.history import corrections
from penstock.spark.lanes.windows.lane import WindowLane
from penstock.spark.log.stream_log import LogReader
from penstock.spark.publication.kinds import view_kind
from penstock.spark.publication.manifests import published_paths
from penstock.spark.publication.staged import BatchFiles
from penstock.spark.recovery import retries
from penstock.spark.storage.layout import Layout
from penstock.trigger import Trigger
from plain_windows import EACH, STREAM, JobsHere, PlainStream, no_spark

#: what takes longer never happens
MOST_SECONDS = 60.0
NAME = "s.results"


@pytest.fixture
def stream(layout: Layout) -> PlainStream:
    return PlainStream(layout)


Begin = Callable[..., WindowLane]


@pytest.fixture
def made(layout: Layout) -> Iterator[Begin]:
    """Makes lanes; they are stopped at the end."""
    lanes: list[WindowLane] = []

    def make(
        failures: Sequence[Exception | None] = (),
        of_corrections: Sequence[Exception | None] = (),
        is_bounded: bool = True,
        entries: int = 64,
    ) -> WindowLane:
        trigger = Trigger.available_now() if is_bounded else Trigger()
        context = lane_context(layout, no_spark(), trigger=trigger, retry_attempts=4, retry_seconds=0.001)
        ingest = SimpleNamespace(stream=STREAM, plans=SimpleNamespace(windows={"v": None}))
        keeper: Any = SimpleNamespace(
            stream=STREAM, ingest=ingest, active=not is_bounded, is_complete=is_bounded
        )
        lane = WindowLane(context, keeper)
        lane._entries_per_cut = entries
        lane.jobs = JobsHere(failures)  # type: ignore[assignment]
        lane._corrections.jobs = JobsHere(of_corrections)  # type: ignore[assignment]
        lanes.append(lane)
        return lane

    yield make
    for lane in lanes:
        lane.stop()


def counts(layout: Layout) -> dict[int, int]:
    """What the newest revision of each window says, by the beginning of the window, microseconds."""
    found: dict[int, tuple[int, int]] = {}
    for path in published_paths(layout, NAME, view_kind(0, "v")):
        rows = pq.read_table(path).filter(pa.compute.field("op") == "upsert")
        starts = rows.column("w").combine_chunks().field("start").cast(pa.int64())
        for start, *said in zip(
            starts.to_pylist(), *(rows.column(name).to_pylist() for name in ("revision", "n")), strict=True
        ):
            found[start] = max(found.get(start, (-1, 0)), (said[0], said[1]))
    return {start: count for start, (_, count) in found.items()}


def told(lane: WindowLane, kind: str = "windows") -> list[dict[str, Any]]:
    return [event for event in lane.context.events.recent if event["kind"] == kind]


def wait(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + MOST_SECONDS
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def lost() -> StreamFailedError:
    return StreamFailedError("Python worker exited unexpectedly")


def slow() -> StreamFailedError:
    return StreamFailedError("Python worker failed to connect back.")


@pytest.mark.parametrize(
    "failure",
    [lost, lambda: ValueError("a function of the user's raised"), lambda: OSError("Permission denied")],
)
def test_a_lane_of_a_run_that_goes_on_is_tried_again_whatever_fails(
    stream: PlainStream, made: Begin, failure: Callable[[], Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "_SELDOM_SECONDS", 0.002)
    monkeypatch.setattr(retries, "_MOST_SECONDS", 0.002)
    stream.put([1, 2])
    lane = made([failure() for _ in range(20)], is_bounded=False)
    lane.start()
    wait(lambda: len(told(lane)) == 1)
    wait(lambda: bool(told(lane, "lane_back")))
    events = [event for event in lane.context.events.recent if event["kind"] != "windows"]
    assert [event["kind"] for event in events] == [*["lane_retried"] * 20, "lane_back"]
    assert {(each["part"], each["lane"], tuple(each["views"])) for each in events[:-1]} == {
        ("windows", NAME, ("v",))
    }
    book = StatusBook()
    for event in events[:-1]:
        book.note(event)
    ((name, trouble),) = open_troubles(book.document()["lanes"])
    assert (name, trouble["state"], trouble["attempt"]) == (NAME, "retrying", 20)
    book.note(events[-1])
    assert not list(open_troubles(book.document()["lanes"]))
    assert lane.active
    assert lane.failed is None


def test_a_process_that_begins_slowly_is_waited_for_however_often(
    layout: Layout, stream: PlainStream, made: Begin
) -> None:
    stream.put([1, 2, 45])
    lane = made([slow() for _ in range(9)])
    lane.start()
    assert lane.await_termination(MOST_SECONDS)
    assert [(event["cause"], event["attempt"]) for event in told(lane, "lane_retried")] == [
        ("slow_start", attempt) for attempt in range(1, 10)
    ]
    assert counts(layout)[0] == 2


def test_what_fails_too_often_is_told(stream: PlainStream, made: Begin) -> None:
    stream.put([1])
    lane = made([lost() for _ in range(5)])
    lane.start()
    with pytest.raises(
        StreamFailedError,
        match=r"windows of stream s stopped: .*a Python worker process ended unexpectedly.*retried 4 times",
    ):
        lane.await_termination(MOST_SECONDS)
    assert lane.context.events.recent[-1]["kind"] == "lane_failed"


def test_a_lane_that_was_never_started_can_be_stopped(stream: PlainStream, made: Begin) -> None:
    stream.put([1])
    lane = made()
    lane.stop()
    assert not lane.active


def late_stream(stream: PlainStream) -> int:
    """Tuples in order, and four entries of late ones; the number of windows that are corrected."""
    for number in range(30):
        stream.put([EACH * number, EACH * number + 1])
    for late in ([3], [25, 4], [5], [105]):
        stream.put(late)
    return 3


def is_whole(layout: Layout, stream: PlainStream) -> bool:
    """Whether every window but the newest, which is not told yet, says how many tuples it has."""
    newest = max(stream.tuples)
    found = counts(layout)
    return all(found[start] == count for start, count in stream.tuples.items() if start != newest)


@pytest.mark.parametrize("entries", [1, 3, 64])
def test_final_windows_are_corrected_before_the_lane_ends(
    layout: Layout, stream: PlainStream, made: Begin, entries: int
) -> None:
    windows = late_stream(stream)
    lane = made(entries=entries)
    lane.start()
    assert lane.await_termination(MOST_SECONDS)
    assert is_whole(layout, stream)
    events = told(lane)
    assert [event["batch"] for event in events] == list(range(len(events)))
    assert sum(event["entries"] for event in events) == stream.number + 1
    corrected = sum(event["views"].get("v", {}).get("final_corrected", 0) for event in events)
    assert windows <= corrected <= 5
    assert not layout.corrections(STREAM).exists()
    assert set(LogReader(layout.log(STREAM)).marks()) == {NAME}, "the entries that they read may go"


@pytest.mark.parametrize("entries", [1, 64])
def test_windows_of_a_view_that_was_redefined_are_left_as_they_are(
    layout: Layout, stream: PlainStream, made: Begin, entries: int
) -> None:
    """Whether a cut meets them after the change, or met them before it."""
    late_stream(stream)
    stream.redefine()
    stream.put([EACH * 31])
    lane = made(of_corrections=[lost() for _ in range(3)], entries=entries)
    lane.start()
    assert lane.await_termination(MOST_SECONDS)
    assert not layout.corrections(STREAM).exists()
    assert set(LogReader(layout.log(STREAM)).marks()) == {NAME}


def test_the_lane_goes_on_while_corrections_fail(layout: Layout, stream: PlainStream, made: Begin) -> None:
    late_stream(stream)
    lane = made(of_corrections=[lost() for _ in range(3)], is_bounded=False)
    lane.start()
    wait(lambda: sum(event["entries"] for event in told(lane)) == stream.number + 1)
    for number in range(30, 34):
        stream.put([EACH * number])
    wait(lambda: sum(event["entries"] for event in told(lane)) == stream.number + 1)
    wait(lambda: not layout.corrections(STREAM).exists())
    lane.finish()
    assert lane.await_termination(MOST_SECONDS)
    assert is_whole(layout, stream)
    assert {(each["part"], each["lane"]) for each in told(lane, "lane_retried")} == {
        ("corrections", f"{NAME}.corrections")
    }


def test_corrections_leave_most_of_the_time_to_early_answers(
    layout: Layout, stream: PlainStream, made: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job waits after the one before, and its answers for the next entries; neither waits any longer where nothing else is left."""
    monkeypatch.setattr(corrections, "_REST_SHARE", 1e9)
    monkeypatch.setattr(corrections, "_REST_SECONDS", 10 * MOST_SECONDS)
    monkeypatch.setattr(corrections, "_RIDE_SECONDS", 10 * MOST_SECONDS)
    lane = made(is_bounded=False)
    lane.start()
    late_stream(stream)
    wait(lambda: bool(lane._corrections.ready))
    assert not [event for event in told(lane) if not event["entries"]]
    stream.put([EACH * 40])
    wait(lambda: any(event["views"].get("v", {}).get("final_corrected") for event in told(lane)))
    assert all(event["entries"] for event in told(lane)), "corrections rode with entries"
    stream.put([6])
    wait(lambda: sum(event["entries"] for event in told(lane)) == stream.number + 1)
    assert lane._corrections.jobs.begun == 1  # type: ignore[attr-defined]
    assert not is_whole(layout, stream)
    lane.finish()
    assert lane.await_termination(MOST_SECONDS)
    assert is_whole(layout, stream)


def test_a_job_of_corrections_begins_behind_early_answers(
    made: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After its rest it waits for a cut with early answers, and for no other one."""
    corrections = made(is_bounded=False)._corrections
    waits: list[list[bool]] = []

    def wait_for(is_over: Callable[[], bool], timeout: float) -> bool:
        found = [is_over()]
        for is_early in (False, True):
            corrections._committed({}, False, is_early)
            found.append(is_over())
        waits.append(found)
        assert timeout == 9.0, "at most as long again"
        return found[-1]

    monkeypatch.setattr(corrections._changed, "wait_for", wait_for)
    corrections._rest(1.0)
    assert waits == [[False, False, False], [False, False, True]]


def test_corrections_that_fail_too_often_end_a_run_that_is_to_end(stream: PlainStream, made: Begin) -> None:
    late_stream(stream)
    lane = made(of_corrections=[lost() for _ in range(100)])
    lane.start()
    with pytest.raises(StreamFailedError, match="a Python worker process ended unexpectedly"):
        lane.await_termination(MOST_SECONDS)


def test_corrections_of_a_cut_that_is_repeated_are_computed_again(
    layout: Layout, stream: PlainStream, made: Begin
) -> None:
    """Whether the lane failed before it had published them, or another process goes on."""
    late_stream(stream)
    first = made(entries=3)
    answer, repeated = first.answer, set()

    def fails(cut: Cut, store: BatchFiles) -> Any:
        found = answer(cut, store)
        if cut.orders["corrects"]:
            repeated.add(cut.number)
            raise lost()
        return found

    first.answer = fails  # type: ignore[method-assign]
    first.start()
    with pytest.raises(StreamFailedError, match="ended unexpectedly"):
        first.await_termination(MOST_SECONDS)
    assert len(repeated) == 1
    assert first._corrections.jobs.begun > 1  # type: ignore[attr-defined]
    again = made(entries=3)
    again.start()
    assert again.await_termination(MOST_SECONDS)
    assert is_whole(layout, stream)
    assert not layout.corrections(STREAM).exists()
