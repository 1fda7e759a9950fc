"""Windows that lack tuples for good are answered and never final; the log of their stream does not wait for them."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from penstock.operators.windows.aggregates import Parts
from penstock.operators.windows.answers import Answer
from penstock.operators.windows.panes import PANE
from penstock.operators.windows.shard import PARTIALS, Envelope, LogRecord, OperatorPlan, Shard, WindowProgram
from penstock.plan.times import AFTER_ALL, BEFORE_ALL
from penstock.plan.windows import Aggregate, ErrorBound, WindowPlan, Windows
from penstock.settings import Settings
from penstock.spark.lanes.windows.standing import final_of
from penstock.spark.log.entries import Entry
from penstock.spark.log.envelopes import EnvelopeReader, write_envelopes
from penstock.spark.log.ingest_log import IngestLog
from penstock.spark.log.programs import store_program
from penstock.spark.log.segments import Segments
from penstock.spark.log.stream_log import FINAL, PLAN, SEGMENT, StreamLog
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.layout import Layout
from window_cases import stream_of

pytestmark = pytest.mark.usefixtures("own_commits")

SIZE, EACH, SINCE, FAR_BACK = 20, 10, 10_000, 2_000
VIEW = WindowPlan(
    "v", "t", Windows(SIZE, SIZE), (), (Aggregate("count", None, pa.int64()),), ErrorBound(0.1, 0.1)
)
PARTS = Parts.of(VIEW.aggregates)
#: the view was there before, and left off long before it came back
PROGRAM = WindowProgram(0, (OperatorPlan(0, (VIEW,), PARTS, SIZE, SINCE, (("v", 1_000),)),), 0, 0, 100)


class Stream:
    """A stream whose view comes back behind SINCE, its shard, and the log of both; an entry's clock is its number."""

    def __init__(self, tmp_path: Path) -> None:
        self.layout = Layout(tmp_path / "out", tmp_path / "checkpoint")
        self.log = StreamLog(self.layout.log("s"))
        self.log.path("partials", "").mkdir(parents=True)
        self.shard = Shard()
        self.answers: list[Answer] = []
        self._tidier = Segments(self.log.log, 0, 1 << 40, lambda: self._number)
        self._newest = SINCE
        self._number = -1

    def put(self, times: list[int], whole: tuple[int, ...] = ()) -> None:
        """Puts an entry of tuples with these event times, which the shard takes in."""
        self._number += 1
        delays = () if whole else (max(0, self._newest - min(times)),)
        self._newest = max(self._newest, *times)
        name = f"{self._number}.parquet"
        rows = PARTS.lift(pa.table({PANE: np.array(times) // SIZE * SIZE}), [PANE])
        write_envelopes([(0, Envelope(0, PARTIALS, stream_of(rows)))], self.log.path("partials", name))
        entry = Entry(
            self._number,
            self._number,
            0,
            self._number,
            self._newest,
            self._newest,
            delays,
            {"partials": (name,)},
            whole=whole,
            kept_before=self.log.kept().before,
        )
        assert self.log.append(entry)
        envelopes = EnvelopeReader(self.log, 0).of(entry)
        record = LogRecord(PROGRAM, self._newest, np.array(delays, np.int64), False, envelopes, True, whole)
        self.answers += self.shard.process(record)

    def goes_on(self, never_whole: Collection[int]) -> None:
        """So many entries come that the beginning of the log may go, and the reader says each time how far it is."""
        for _ in range(3):
            for _ in range(SEGMENT):
                self.put([self._newest + EACH])
            final = final_of([self.shard.standing()], PROGRAM, never_whole)
            self.log.put_mark("windows", self._number, **{FINAL: final, PLAN: 0})
            self._tidier.tidy()

    def final(self) -> dict[int, int]:
        """The tuples of the final windows, by their start."""
        return {each.start: each.rows["_a0"][0].as_py() for each in self.answers if each.final}

    def too_late_before(self, tmp_path: Path) -> int:
        """From where on tuples are taken in, for the next batch."""
        store_program(self.layout, "s", PROGRAM)
        log = IngestLog(self.layout, "s", Settings(), EventLog(tmp_path / "events.jsonl"))
        return log.too_late_before(0)


@pytest.fixture
def stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stream:
    # what a power cut loses is not looked at here
    monkeypatch.setattr(os, "fsync", lambda _: None)
    return Stream(tmp_path)


def test_the_log_does_not_wait_for_a_window_far_back_that_is_never_whole(
    stream: Stream, tmp_path: Path
) -> None:
    stream.put([SINCE + EACH])
    stream.put([SINCE + EACH, FAR_BACK])
    stream.goes_on(never_whole={0})
    (far_back,) = (each for each in stream.answers if each.start == FAR_BACK)
    assert (far_back.final, far_back.coverage, far_back.rows["_a0"].to_pylist()) == (False, None, [1])
    assert min(stream.final()) == SINCE + SIZE, "windows that begin behind the others are final"
    assert stream.log.first >= SEGMENT
    assert stream.too_late_before(tmp_path) > SINCE + SIZE, (
        "no tuple comes to windows that lack some any more"
    )


def test_the_log_waits_for_a_window_far_back_that_may_become_whole(stream: Stream, tmp_path: Path) -> None:
    stream.put([SINCE + EACH])
    stream.put([SINCE + EACH, FAR_BACK])
    stream.goes_on(never_whole=())
    assert stream.log.first == 0
    assert stream.too_late_before(tmp_path) == BEFORE_ALL
    stream.put([FAR_BACK, FAR_BACK + 1, SINCE], whole=(0,))
    stream.goes_on(never_whole=())
    assert stream.final()[FAR_BACK] == 3
    assert stream.final()[SINCE] == 3
    assert stream.log.first >= SEGMENT
    assert stream.too_late_before(tmp_path) > SINCE


def test_nothing_is_final_before_a_second_batch(stream: Stream) -> None:
    stream.put([SINCE + EACH, SINCE + 100 * EACH])
    assert final_of([stream.shard.standing()], PROGRAM, {0}) < BEFORE_ALL
    stream.put([SINCE + 200 * EACH])
    assert final_of([stream.shard.standing()], PROGRAM, {0}) > SINCE


def test_the_shard_that_is_behind_says_what_is_final(stream: Stream) -> None:
    stream.put([SINCE + EACH])
    stream.put([SINCE + 100 * EACH])
    behind = stream.shard.standing()
    stream.put([SINCE + 200 * EACH])
    both = [stream.shard.standing(), behind]
    assert final_of(both, PROGRAM, {0}) == final_of([behind], PROGRAM, {0}) < final_of(both[:1], PROGRAM, {0})
    assert final_of(both, WindowProgram(1, (), 0, 0), ()) == AFTER_ALL, "of no view all windows are final"
