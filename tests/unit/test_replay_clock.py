"""The clock of a replay that cannot release a chunk says so, and goes on when it is asked to."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from penstock.spark.sources.parquet_source import ParquetSource
from penstock.spark.sources.replay import Pace, ReplaySource
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.layout import Layout


def _exhausted_within(source: ReplaySource, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not source.exhausted():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def test_a_clock_that_fails_is_told_and_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ParquetSource, "frame", lambda *_: None)
    schema = StructType().add("at", "timestamp_ntz")
    rows = pa.table({"at": pa.array(range(3), pa.timestamp("us"))})
    source = ReplaySource(schema, lambda: rows, "at", "at", Pace(2e-5, 1), False)
    nothing: Any = None
    layout = Layout(tmp_path / "out", tmp_path / "checkpoint")
    source.prepare(layout, "s", nothing)
    waiting = layout.replay("s") / "waiting" / "00000002.parquet"
    waiting.rename(tmp_path / "away")
    source.frame(nothing)
    with pytest.raises(FileNotFoundError, match="No such file"):
        _exhausted_within(source, 60)
    (tmp_path / "away").rename(waiting)
    source.frame(nothing)
    assert _exhausted_within(source, 60)
    source.close()


@pytest.mark.parametrize(
    ("speed", "most", "chunks"), [(2.0, 100, 11), (2.0, 8, 1), (2.0, 18, 2), (math.inf, 20, 1)]
)
def test_a_batch_takes_so_many_chunks_as_have_the_rows_that_it_may_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, speed: float, most: int, chunks: int
) -> None:
    """A second of playing time has eight rows, and its chunk nine at most: a batch that begins late catches up."""
    asked: list[dict[str, str]] = []
    opened = ParquetSource.__init__

    def noted(
        self: ParquetSource, schema: Any, time: Any, path: str, options: dict[str, str], scan: bool
    ) -> None:
        asked.append(options)
        opened(self, schema, time, path, options, scan)

    monkeypatch.setattr(ParquetSource, "__init__", noted)
    at = pa.array([250_000 * number for number in range(100)], pa.timestamp("us"))
    schema = StructType().add("at", "timestamp_ntz")
    layout = Layout(tmp_path / "out", tmp_path / "checkpoint")
    for _ in range(2):
        source = ReplaySource(schema, lambda: pa.table({"at": at}), "at", "at", Pace(speed, most), False)
        source.prepare(layout, "s", EventLog(tmp_path / "events"))
        assert asked[-1] == {"maxFilesPerTrigger": str(chunks)}
