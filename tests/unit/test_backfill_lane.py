"""A backfill is given once, whatever fails or is killed behind it, and only where everything was read again."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from lane_cases import lane_context
from penstock.errors import CheckpointError
from penstock.operators.ingest.stage_counts import StageCounts
from penstock.operators.windows.aggregates import Parts
from penstock.operators.windows.shard import OperatorPlan, WindowProgram
from penstock.plan.windows import Aggregate, ErrorBound, WindowPlan, Windows
from penstock.settings import Settings
from penstock.spark.ingest.log_keeper import LogKeeper
from penstock.spark.lanes.history import backfill
from penstock.spark.lanes.history.backfill import BackfillLane
from penstock.spark.log.entries import Entry
from penstock.spark.log.ingest_log import IngestLog
from penstock.spark.log.programs import store_program
from penstock.spark.log.stream_log import LogReader, StreamLog
from penstock.spark.log.wholeness import never_whole
from penstock.spark.storage.bindings import (
    Beginning,
    PlanLog,
    RegisteredWindow,
    WindowDefinition,
    WindowRegister,
)
from penstock.spark.storage.formats import BACKFILL, MANIFEST
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.past import CannotReadAgainError, portions
from penstock.spark.tasks.worker import SetAside, TaskReport
from penstock.trigger import Trigger
from plain_windows import no_spark
from publishing import put_batch

HOUR = 3_600_000_000
VIEW = WindowPlan(
    "v", "ts", Windows(HOUR, HOUR), (), (Aggregate("count", None, pa.int64()),), ErrorBound(0.1, 0.1)
)
#: the first batch of the operator
FIRST = 3


class _Frame:
    """What a source gives; how many tasks read it is no matter here."""

    def __init__(self, _: object) -> None: ...

    def coalesce(self, _: int) -> _Frame:
        return self


class Stream:
    """A stream of three batches on disk whose one operator begins behind them; Spark's jobs are told what to report.

    Args:
        tmp_path: for its folders.
    """

    def __init__(self, tmp_path: Path) -> None:
        self.layout = Layout(tmp_path / "out", tmp_path / "checkpoint")
        self.layout.open()
        self.again: Callable[..., Sequence[Any]] = lambda *_: [None]
        self.reports: list[TaskReport] = []
        self.floor = 15 * HOUR
        self.binds()

    def binds(self) -> None:
        since = 16 * HOUR
        plan = OperatorPlan(0, (VIEW,), Parts.of(VIEW.aggregates), HOUR, since, (("v", self.floor),))
        StreamLog(self.layout.log("s"))
        store_program(self.layout, "s", WindowProgram(0, (plan,), 0, 0))
        where = Beginning(FIRST, since, self.floor, '{"logOffset":2}')
        window = RegisteredWindow(WindowDefinition("v", "v:1", "SELECT 1"), 0, beginning=where)
        PlanLog(self.layout, "s").store(0, {}, WindowRegister((window,), 1))

    def published(self, *batches: dict[str, Any]) -> None:
        for number, figures in enumerate(batches):
            whole = {
                "tuples": 1,
                "quarantined": {},
                "rows_set_aside": 0,
                "newest_event_time_us": 15 * HOUR,
                "furthest_event_time_us": 15 * HOUR,
            }
            document = {"first": number, "last": number, "files": []}
            document["batches"] = [{"batch": number, **whole, **figures}]
            MANIFEST.replace(self.layout.manifests("s")[number], document)

    def lane(self) -> tuple[LogKeeper, BackfillLane]:
        """What a start of the process makes."""
        context = lane_context(
            self.layout, no_spark(), trigger=Trigger.available_now(), retry_attempts=2, retry_seconds=0.001
        )
        self.events = context.events
        self.log = IngestLog(self.layout, "s", Settings(), self.events)
        self.log.on_put = context.appended.tell
        ingest: Any = SimpleNamespace(
            stream="s",
            log=self.log,
            plans=SimpleNamespace(for_operators=lambda *_: (b"", ()), begin=lambda _: None),
            source=SimpleNamespace(
                again=lambda *given: map(_Frame, self.again(*given)), run=lambda *_: self.reports.copy()
            ),
            active=False,
            ends_within=lambda _: True,
            ended_well=True,
            has_ended=False,
            interval_seconds=0,
        )
        keeper = LogKeeper(ingest, self.layout, self.events, context.settings, context.trigger)
        lane = BackfillLane(context, keeper)
        lane.jobs.session = lambda: lane.context.spark  # type: ignore[method-assign]
        return keeper, lane

    def runs(self) -> None:
        """A run that ends when everything is whole that can be."""
        keeper, lane = self.lane()
        if self.log.last is None:
            put_batch(self.log, FIRST, 0, 16 * HOUR, 16 * HOUR, 16 * HOUR, 16 * HOUR, {})
        keeper.start()
        lane.start()
        assert keeper.await_termination(60)
        assert lane.join(60)
        assert keeper.is_complete

    @property
    def given(self) -> list[int]:
        """The log's entries that give partials of the past."""
        log = LogReader(self.layout.log("s"))
        last = log.newest()
        return [each.number for each in log.between(-1, last.number if last else -1) if each.whole]

    @property
    def marked(self) -> set[int]:
        """The operators that are settled."""
        return set(self.layout.backfilled("s").numbers())

    @property
    def told(self) -> list[str]:
        return [event["kind"] for event in self.events.recent if event["kind"].startswith("backfill")]

    @property
    def last_told(self) -> str:
        return str(self.events.recent[-1].get("reason") or self.events.recent[-1].get("told"))


@pytest.fixture
def stream(tmp_path: Path) -> Iterator[Stream]:
    made = Stream(tmp_path)
    yield made
    made.log.close()


@pytest.mark.parametrize("is_put", [False, True], ids=["nothing is put", "all of it is"])
def test_a_commit_that_fails_gives_nothing_twice(
    stream: Stream, monkeypatch: pytest.MonkeyPatch, is_put: bool
) -> None:
    real, tried = StreamLog.append, []

    def fails_once(log: StreamLog, entry: Entry, **given: Any) -> bool:
        if not entry.whole or tried:
            return real(log, entry, **given)
        tried.append(entry)
        if is_put:
            real(log, entry, **given)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(StreamLog, "append", fails_once)
    stream.runs()
    assert len(stream.given) == 1
    assert stream.marked == {0}
    told = ["backfill_started", "backfill_retried"]
    assert stream.told == (told if is_put else [*told, "backfill_started", "backfill_done"])


@pytest.mark.parametrize(("is_put", "left"), [(False, {"new"}), (True, {"named", "new"})])
def test_files_of_an_attempt_go_unless_a_commit_may_name_them(
    stream: Stream, monkeypatch: pytest.MonkeyPatch, is_put: bool, left: set[str]
) -> None:
    """Those that a killed process has left go in any case."""
    folder = stream.layout.log_files("s", "partials")
    folder.mkdir(parents=True)
    names = iter(("named", "new"))
    real = StreamLog.append

    def again(*_: object) -> list[None]:
        (folder / f"backfill-000000-0-00000-{next(names)}.parquet").write_text("")
        if not is_put and len(list(folder.iterdir())) == 1 and "backfill_retried" not in stream.told:
            raise OSError(errno.EIO, "Input/output error")
        return [None]

    def fails(log: StreamLog, entry: Entry, **given: Any) -> bool:
        if entry.whole and is_put and "backfill_retried" not in stream.told:
            raise OSError(errno.EIO, "Input/output error")
        return real(log, entry, **given)

    (folder / "backfill-000000-0-00000-killed.parquet").write_text("")
    stream.again = again
    monkeypatch.setattr(StreamLog, "append", fails)
    stream.runs()
    assert stream.told[-1] == "backfill_done"
    assert {path.stem.rpartition("-")[2] for path in folder.iterdir()} == left


def test_an_entry_that_seemed_to_fail_takes_no_backfill_s_place(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream.lane()
    put_batch(stream.log, FIRST, 0, 16 * HOUR, 16 * HOUR, 16 * HOUR, 16 * HOUR, {})
    real = StreamLog.append

    def unsynced(log: StreamLog, entry: Entry, **given: Any) -> bool:
        real(log, entry, **given)
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(StreamLog, "append", unsynced)
        with pytest.raises(OSError, match="Input"):
            stream.log.put_idle(17 * HOUR)
    stream.log.put_whole((0,), {"partials": ["a.parquet"]}, 16 * HOUR)
    assert stream.given == [2]


@pytest.mark.parametrize(("place", "is_whole"), [("backfill_staged", False), ("backfill_logged", True)])
def test_a_kill_leaves_entry_and_mark_or_neither(
    stream: Stream, monkeypatch: pytest.MonkeyPatch, place: str, is_whole: bool
) -> None:
    """The view began behind the last batch, as at the end of a run that no batch came for."""

    def killed(reached: str, _: int) -> None:
        if reached == place:
            raise SystemExit

    stream.lane()
    stream.log.put_views(FIRST - 1, 0)
    with monkeypatch.context() as patched:
        patched.setattr(backfill, "failpoint", killed)
        stream.runs()
    assert len(stream.given) == is_whole
    assert stream.marked == ({0} if is_whole else set())
    assert stream.told == ["backfill_started"]
    stream.runs()
    assert len(stream.given) == 1
    assert stream.marked == {0}
    assert stream.told == ([] if is_whole else ["backfill_started", "backfill_done"])


def test_what_another_run_has_settled_is_given_by_no_entry(stream: Stream) -> None:
    stream.lane()
    put_batch(stream.log, FIRST, 0, 16 * HOUR, 16 * HOUR, 16 * HOUR, 16 * HOUR, {})
    BACKFILL.put(stream.layout.backfilled("s")[0], {"impossible": None})
    with pytest.raises(CheckpointError, match="only one run may use a checkpoint"):
        stream.log.put_whole((0,), {}, 16 * HOUR)
    assert stream.given == []


def test_batches_whose_wanted_tuples_were_ahead_of_the_clock_are_read(stream: Stream) -> None:
    needed: dict[int, bool] = {}

    def again(_: object, past: Any) -> list[None]:
        needed.update({number: past.is_needed(number) for number in range(FIRST)})
        return []

    stream.again = again
    stream.published(
        {"newest_event_time_us": 12 * HOUR, "furthest_event_time_us": 13 * HOUR},
        {"newest_event_time_us": 12 * HOUR, "furthest_event_time_us": 16 * HOUR},
        {"newest_event_time_us": 15 * HOUR, "furthest_event_time_us": 15 * HOUR},
    )
    stream.runs()
    assert needed == {0: False, 1: True, 2: True}


def test_a_batch_that_does_not_say_its_times_is_read(stream: Stream) -> None:
    needed: list[bool] = []
    stream.again = lambda _, past: needed.append(past.is_needed(0)) or []
    stream.published({"newest_event_time_us": None, "furthest_event_time_us": None}, {}, {})
    stream.runs()
    assert needed == [True]


def report(tuples: int, *aside: SetAside, **quarantined: int) -> TaskReport:
    told = {**quarantined, **{each.reason: 1 for each in aside}}
    return TaskReport(0, 0, [], StageCounts(tuples=tuples), None, told, [], list(aside))


@pytest.mark.parametrize(
    ("read", "told"),
    [
        (
            report(20, SetAside("file:///d/0.parquet", None, None, "Permission denied")),
            "d/0.parquet cannot be",
        ),
        (report(30, malformed=4), "cannot be read now: malformed"),
        (report(29, malformed=3), "29 of 30 tuples"),
        (report(30, malformed=3), None),
        (report(30, SetAside("file:///d/0.parquet", 1, 5, "a page"), malformed=2), None),
        (report(31), None),
    ],
)
def test_what_could_not_be_read_again_is_told_and_nothing_is_whole(
    stream: Stream, read: TaskReport, told: str | None
) -> None:
    stream.published({"tuples": 10, "quarantined": {"malformed": 3}}, {"tuples": 10}, {"tuples": 10})
    stream.reports = [read]
    stream.runs()
    assert stream.told == ["backfill_started", "backfill_impossible" if told else "backfill_done"]
    assert len(stream.given) == (0 if told else 1)
    if told:
        assert told in stream.last_told
    stream.runs()
    assert stream.told == [], "it is told once"


def test_what_can_pass_is_tried_again(stream: Stream) -> None:
    fails = [OSError(errno.ENOSPC, "No space left on device"), OSError(errno.EIO, "Input/output error")]

    def again(*_: object) -> list[None]:
        if fails:
            raise fails.pop()
        return [None]

    stream.again = again
    stream.runs()
    assert stream.told == [*["backfill_started", "backfill_retried"] * 2, "backfill_started", "backfill_done"]
    assert len(stream.given) == 1


@pytest.mark.parametrize(
    ("error", "retries"), [(OSError(errno.EIO, "Input/output error"), 2), (ValueError("x is 3"), 0)]
)
def test_what_does_not_pass_is_told_and_begun_anew_at_the_next_start(
    stream: Stream, error: Exception, retries: int
) -> None:
    def again(*_: object) -> list[None]:
        raise error

    stream.again = again
    stream.runs()
    assert stream.told.count("backfill_retried") == retries
    assert stream.told[-1] == "backfill_failed"
    assert stream.events.recent[-1]["views"] == ["v"]
    assert str(error.args[-1]) in stream.last_told
    assert never_whole(stream.layout, "s") == set(), "the next start may make it whole"
    stream.again = lambda *_: [None]
    stream.runs()
    assert stream.told[-1] == "backfill_done"
    assert never_whole(stream.layout, "s") == set()
    assert len(stream.given) == 1


def test_a_source_that_is_read_once_is_not_asked_again(stream: Stream) -> None:
    def again(*_: object) -> list[None]:
        raise CannotReadAgainError("file /d/1 is gone") from FileNotFoundError("No such file or directory")

    stream.again = again
    stream.runs()
    assert stream.told == ["backfill_started", "backfill_impossible"]
    assert never_whole(stream.layout, "s") == {0}


def test_a_failure_before_it_is_known_what_is_missing_is_told(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(*_: object) -> None:
        raise ValueError("not JSON")

    monkeypatch.setattr(PlanLog, "load_windows", unreadable)
    stream.runs()
    assert stream.events.recent[-1]["kind"] == "lane_failed"
    assert stream.events.recent[-1]["part"] == "backfills"


def test_marks_of_operators_that_are_gone_are_removed(stream: Stream) -> None:
    stream.runs()
    BACKFILL.replace(stream.layout.backfilled("s")[9], {"impossible": None})
    stream.runs()
    assert stream.marked == {0}
    PlanLog(stream.layout, "s").store(1, {}, WindowRegister((), 1))
    stream.log.store_program(WindowProgram(1, (), 1, 1))
    put_batch(stream.log, FIRST + 1, 1, 16 * HOUR, 16 * HOUR, 16 * HOUR, 16 * HOUR, {})
    stream.runs()
    assert stream.marked == set()


def test_offsets_are_divided_so_that_nothing_is_read_twice_or_left_out() -> None:
    first, until = {"a": {"0": 5, "1": 7}, "b": {"0": 0}}, {"a": {"0": 1_005, "1": 7}, "b": {"0": 3}}
    found = list(portions(first, until, 300))
    assert [begin for begin, _ in found] == [first, *(end for _, end in found[:-1])]
    assert found[-1][1] == until
    read = [
        sum(end[topic][each] - begin[topic][each] for topic in begin for each in begin[topic])
        for begin, end in found
    ]
    assert len(read) == 4
    assert max(read) <= 300 + 2
    assert list(portions(until, until, 300)) == [(until, until)]
