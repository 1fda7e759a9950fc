"""Final windows are corrected from as much of the log as may hold tuples of theirs, and no more is read."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.operators.windows.history import Beyond
from penstock.operators.windows.shard import LogRecord, Shard
from penstock.spark.lanes.history.correction_task import CorrectionCell, CorrectionTask, History
from penstock.spark.log.entries import Entry
from penstock.spark.log.envelopes import EnvelopeReader
from penstock.spark.log.segments import Segments
from penstock.spark.log.stream_log import SEGMENT, LogReader
from penstock.spark.results.window_schemas import FIRST_REVISION
from penstock.spark.storage.layout import Layout
from plain_windows import EACH, PROGRAM, SENT, SIZE, STREAM, PlainStream


class Stream(PlainStream):
    """Likewise, with the shard that takes it in."""

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout)
        self._layout = layout
        self.shard = Shard()
        self.history = History(LogReader(self.log.log))
        self._tidier = Segments(layout.log(STREAM), 1e9, 1 << 40, lambda: 0)

    def put(self, times: list[int]) -> Entry:  # type: ignore[override]
        entry = super().put(times)
        envelopes = EnvelopeReader(self.log, 0).of(entry)
        self.shard.process(
            LogRecord(PROGRAM, entry.newest, np.array(entry.delays, np.int64), False, envelopes, True)
        )
        return entry

    def tidy(self) -> None:
        self.log.put_mark("windows", self.number)
        self._tidier.tidy()

    def entries(self, first: int, last: int) -> list[Entry]:
        """Those that may hold tuples of windows that begin between two moments."""
        return list(self.history.entries(first, last + SIZE, self.number))

    def corrected(self, entry: Entry) -> dict[int, int]:
        """What each window has that the entry brought a tuple for after it was final, by its start."""
        beyond = self.shard.take_beyond()
        starts = [start for _, _, start in beyond]
        task = CorrectionTask(
            layout=self._layout,
            stream=STREAM,
            entries=self.entries(min(starts), max(starts)),
            program=SENT,
            revision=FIRST_REVISION + entry.batch,
            scratch=self._layout.checkpoint / "scratch",
        )
        windows = [Beyond(*window, entry.number) for window in beyond]
        found = {}
        for staged in task(CorrectionCell(0, windows, {"v": entry.newest})):
            rows = pq.read_table(staged.left[0].path).filter(pa.compute.field("op") == "upsert")
            for row in rows.select(["w", "n"]).to_pylist():
                found[int(row["w"]["start"].timestamp() * 1e6)] = row["n"]
        return found


@pytest.fixture
def stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stream:
    # what a power cut loses is not looked at here
    monkeypatch.setattr(os, "fsync", lambda _: None)
    layout = Layout(tmp_path / "out", tmp_path / "checkpoint")
    layout.open()
    return Stream(layout)


def test_windows_of_any_age_are_corrected_exactly(stream: Stream) -> None:
    """Of a log that is merged but for its end, by late tuples of several entries one after another."""
    rng = np.random.default_rng(3)
    for number in range(2 * SEGMENT + 7):
        late = rng.integers(0, 100) * (rng.random() < 0.1)
        stream.put([EACH * number, max(0, EACH * number - int(late))])
        stream.shard.take_beyond()
    stream.tidy()
    for _ in range(12):
        times = rng.integers(0, 2 * SEGMENT * EACH - 200, 2).tolist()
        entry = stream.put(times)
        windows = {time // SIZE * SIZE for time in times}
        assert stream.corrected(entry) == {start: stream.tuples[start] for start in windows}


def test_no_more_is_read_than_may_hold_tuples(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    segments = 24
    for number in range(segments * SEGMENT + 2):
        stream.put([EACH * number])
    stream.tidy()
    read: list[int] = []
    between = LogReader.between

    def counted(self: LogReader, after: int, until: int) -> list[Entry]:
        found = between(self, after, until)
        read.append(len(found))
        return found

    monkeypatch.setattr(LogReader, "between", counted)
    late = 20 * SEGMENT * EACH
    first = stream.put([late])
    start = late // SIZE * SIZE
    assert stream.corrected(first) == {start: stream.tuples[start]}
    # the search looks at a few entries, then all are read from the first that may hold some
    assert sum(read) <= 5 * SEGMENT + 20
    read.clear()
    assert stream.corrected(stream.put([late])) == {start: stream.tuples[start]}
    assert sum(read) <= 2 * SEGMENT + 20, "segments of later tuples alone are known"
    assert len(stream.entries(start, start)) <= 2 * SIZE // EACH + 2, "others are of later tuples alone"
