"""A backfill is given once, whatever fails or is killed behind it, and only where everything was read again."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from penstock.operators.ingest.map_stage import StageCounts
from penstock.operators.windows.aggregates import Parts
from penstock.operators.windows.shard import OperatorPlan, WindowProgram
from penstock.plan.windows import Aggregate, ErrorBound, WindowPlan, Windows
from penstock.settings import Settings
from penstock.spark.ingest import backfill
from penstock.spark.ingest.backfill import Backfill, never_whole
from penstock.spark.log.entries import Entry
from penstock.spark.log.ingest_log import IngestLog
from penstock.spark.log.programs import store_program
from penstock.spark.log.stream_log import LogReader, StreamLog
from penstock.spark.storage import formats
from penstock.spark.storage.bindings import (
    Beginning,
    PlanLog,
    RegisteredWindow,
    WindowDefinition,
    WindowRegister,
)
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.formats import BACKFILL, MANIFEST
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.past import CannotReadAgainError, portions
from penstock.spark.tasks.worker import SetAside, TaskReport
from publishing import put_batch

HOUR = 3_600_000_000
VIEW = WindowPlan(
    "v", "ts", Windows(HOUR, HOUR), (), (Aggregate("count", None, pa.int64()),), ErrorBound(0.1, 0.1)
)
#: the first batch of the operator
FIRST = 3


class Stream:
    """A stream of three batches on disk whose one operator begins behind them; Spark's jobs are told what to report.

    Args:
        tmp_path: for its folders.
        monkeypatch: puts aside the copy of the session.
    """

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.layout = Layout(tmp_path / "out", tmp_path / "checkpoint")
        self.layout.open()
        self.events = EventLog(tmp_path / "events.jsonl")
        self.again: Callable[..., Sequence[Any]] = lambda *_: [None]
        self.reports: list[TaskReport] = []
        self.floor = 15 * HOUR
        monkeypatch.setattr(backfill, "SparkSession", lambda *_: None)
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

    def backfill(self) -> Backfill:
        """What a start of the process makes."""
        settings = Settings(retry_attempts=2, retry_seconds=0.001)
        context = SimpleNamespace(
            broadcast=lambda _: SimpleNamespace(destroy=lambda: None), setJobGroup=lambda *_: None
        )
        spark: Any = SimpleNamespace(
            sparkContext=context, _jsparkSession=SimpleNamespace(cloneSession=lambda: None)
        )
        self.log = IngestLog(self.layout, "s", Settings(), self.events)
        ingest: Any = SimpleNamespace(
            stream="s",
            log=self.log,
            plans=SimpleNamespace(for_operators=lambda *_: (b"", ()), begin=lambda _: None),
            source=SimpleNamespace(
                again=lambda *given: self.again(*given), run=lambda *_: self.reports.copy()
            ),
        )
        return Backfill(spark, ingest, self.layout, self.events, settings)

    def runs(self) -> None:
        """A run that ends when everything is whole that can be."""
        made = self.backfill()
        if self.log.last is None:
            put_batch(self.log, FIRST, 0, 16 * HOUR, 16 * HOUR, 16 * HOUR, 16 * HOUR, {})
        made.start()
        made.finish()

    @property
    def given(self) -> list[int]:
        """The log's entries that give partials of the past."""
        log = LogReader(self.layout.log("s"))
        last = log.newest()
        return [each.number for each in log.between(-1, last.number if last else -1) if each.whole]

    @property
    def told(self) -> list[str]:
        return [event["kind"] for event in self.events.recent]

    @property
    def last_told(self) -> str:
        return str(self.events.recent[-1].get("reason") or self.events.recent[-1].get("told"))


@pytest.fixture
def stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stream]:
    made = Stream(tmp_path, monkeypatch)
    yield made
    made.log.close()


def test_a_mark_that_cannot_be_written_gives_nothing_twice(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, tried = formats.put_json_if_absent, []

    def full_once(*given: Any) -> bool:
        if "impossible" in given[1]:
            tried.append(given)
            if len(tried) == 1:
                raise OSError(errno.ENOSPC, "No space left on device")
        return real(*given)

    monkeypatch.setattr(formats, "put_json_if_absent", full_once)
    stream.runs()
    assert len(tried) == 2
    assert len(stream.given) == 1


def test_an_entry_that_seemed_to_fail_takes_no_backfill_s_place(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream.backfill()
    put_batch(stream.log, FIRST, 0, 16 * HOUR, 16 * HOUR, 16 * HOUR, 16 * HOUR, {})
    real = StreamLog.append

    def unsynced(log: StreamLog, entry: Entry) -> bool:
        real(log, entry)
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(StreamLog, "append", unsynced)
        with pytest.raises(OSError, match="Input"):
            stream.log.put_idle(17 * HOUR)
    stream.log.put_whole((0,), {"partials": ["a.parquet"]}, 16 * HOUR)
    assert stream.given == [2]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_kill_behind_the_entry_gives_nothing_twice(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    """The view began behind the last batch, as at the end of a run that no batch came for."""

    def killed(place: str, _: int) -> None:
        if place == "backfill_logged":
            raise SystemExit

    stream.backfill()
    stream.log.put_views(FIRST - 1, 0)
    with monkeypatch.context() as patched:
        patched.setattr(backfill, "failpoint", killed)
        stream.runs()
    assert len(stream.given) == 1
    assert not stream.told.count("backfill_done")
    assert stream.log.is_whole(0, FIRST)
    stream.runs()
    assert len(stream.given) == 1


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
    assert len(stream.told) == 2, "it is told once"


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
    assert stream.told == ["backfill_failed"]
    assert stream.events.recent[-1]["views"] == []


def test_marks_of_operators_that_are_gone_are_removed(stream: Stream) -> None:
    stream.runs()
    marks, staged = stream.layout.backfilled("s"), stream.layout.staged_backfill("s")
    assert marks[0].exists()
    (staged / "0").mkdir(parents=True)
    BACKFILL.replace(marks[9], {"impossible": None})
    stream.runs()
    assert marks.numbers() == [0]
    assert (staged / "0").is_dir(), "it is there still"
    PlanLog(stream.layout, "s").store(1, {}, WindowRegister((), 1))
    stream.log.store_program(WindowProgram(1, (), 1, 1))
    put_batch(stream.log, FIRST + 1, 1, 16 * HOUR, 16 * HOUR, 16 * HOUR, 16 * HOUR, {})
    stream.runs()
    assert not marks.exists()
    assert list(staged.iterdir()) == []


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
