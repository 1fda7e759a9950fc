"""Final windows are corrected from as much of the log as may hold tuples of theirs, and no more is read."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from log_places import log_at
from penstock.operators.windows.aggregates import Parts
from penstock.operators.windows.panes import PANE
from penstock.operators.windows.shard import PARTIALS, Envelope, KeyedProgram, LogRecord, OperatorPlan, Shard
from penstock.plan.times import BEFORE_ALL
from penstock.plan.windows import Aggregate, ErrorBound, WindowPlan, Windows
from penstock.spark.lanes.windows.history import History
from penstock.spark.log.entries import Entry
from penstock.spark.log.envelopes import EnvelopeReader, write_envelopes
from penstock.spark.log.segments import Segments
from penstock.spark.log.stream_log import SEGMENT, LogReader, StreamLog
from window_cases import stream_of

SIZE, EACH = 20, 10
VIEW = WindowPlan(
    "v", "t", Windows(SIZE, SIZE), (), (Aggregate("count", None, pa.int64()),), ErrorBound(0.1, 0.1)
)
PARTS = Parts.of(VIEW.aggregates)
PROGRAM = KeyedProgram(0, (OperatorPlan(0, (VIEW,), PARTS, SIZE, BEFORE_ALL, ()),), 0, 0)


class Stream:
    """A stream whose windows are final at once, and the shard that takes it in."""

    def __init__(self, folder: Path) -> None:
        self.log = StreamLog(log_at(folder))
        self.log.path("partials", "").mkdir(parents=True)
        self.shard = Shard()
        self.tuples: Counter[int] = Counter()
        self._tidier = Segments(log_at(folder), 1e9, 1 << 40, lambda: 0)
        self._newest: int | None = None
        self._number = -1

    def put(self, times: list[int]) -> Entry:
        """Puts an entry of tuples with these event times, which the shard takes in."""
        self.tuples.update(time // SIZE * SIZE for time in times)
        self._number += 1
        before = times[0] if self._newest is None else self._newest
        self._newest = max(before, *times)
        delays = (max(0, before - min(times)),)
        name = f"{self._number}.parquet"
        panes = pa.table({PANE: np.array(times) // SIZE * SIZE})
        envelope = Envelope(0, PARTIALS, stream_of(PARTS.lift(panes, [PANE])))
        write_envelopes([(0, envelope)], self.log.path("partials", name))
        files = {"partials": (name,)}
        entry = Entry(
            self._number, self._number, 0, self._number, self._newest, self._newest, delays, files, True
        )
        assert self.log.append(entry)
        envelopes = EnvelopeReader(self.log, 0).of(entry)
        self.shard.process(
            LogRecord(PROGRAM, self._newest, np.array(delays, np.int64), False, envelopes, True)
        )
        return entry

    def tidy(self) -> None:
        self.log.put_mark("windows", self._number)
        self._tidier.tidy()

    def corrected(self, history: History, entry: Entry) -> dict[int, int]:
        """What each window has that the entry brought a tuple for after it was final, by its start."""
        beyond = self.shard.take_beyond()
        answers = history.corrected(self.shard, entry, beyond)
        return {
            answer.end - SIZE: answer.rows["_a0"].to_pylist()[0]
            for _, answer in answers
            if len(answer.rows["_a0"])
        }


@pytest.fixture
def stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stream:
    # what a power cut loses is not looked at here
    monkeypatch.setattr(os, "fsync", lambda _: None)
    return Stream(tmp_path / "log")


def test_windows_of_any_age_are_corrected_exactly(stream: Stream) -> None:
    """Of a log that is merged but for its end, by late tuples of several entries one after another."""
    rng = np.random.default_rng(3)
    for number in range(2 * SEGMENT + 7):
        late = rng.integers(0, 100) * (rng.random() < 0.1)
        stream.put([EACH * number, max(0, EACH * number - int(late))])
        stream.shard.take_beyond()
    stream.tidy()
    history = History(LogReader(stream.log.log), 0)
    for _ in range(12):
        times = rng.integers(0, 2 * SEGMENT * EACH - 200, 2).tolist()
        entry = stream.put(times)
        windows = {time // SIZE * SIZE for time in times}
        assert stream.corrected(history, entry) == {start: stream.tuples[start] for start in windows}


def test_of_what_was_read_once_no_more_is_read_than_may_hold_tuples(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    segments = 24
    for number in range(segments * SEGMENT + 2):
        stream.put([EACH * number])
    stream.tidy()
    read: list[int] = []
    segment = LogReader.segment

    def counted(self: LogReader, number: int) -> tuple[Entry, ...] | None:
        if self._segment[0] != number:
            read.append(number)
        return segment(self, number)

    monkeypatch.setattr(LogReader, "segment", counted)
    history = History(LogReader(stream.log.log), 0)
    late = 2 * SEGMENT * EACH
    first = stream.put([late])
    assert stream.corrected(history, first) == {late: stream.tuples[late]}
    # the search reads a few, then each is read from the first that may hold some
    assert len(read) <= segments + 8
    read.clear()
    second = stream.put([late + 1])
    assert stream.corrected(history, second) == {late: stream.tuples[late]}
    assert len(set(read)) <= 10, "others are known to be of later tuples alone"
