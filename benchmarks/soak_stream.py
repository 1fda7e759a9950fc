"""The stream and the views of the soak, and the process that runs them until it is told to end, or killed.

    python benchmarks/soak_stream.py OUTPUT SERIES PACE...

SIGTERM ends it, SIGUSR1 ends the run and begins the next one in the same session, SIGUSR2 prints where each thread is. What it has seen goes line by line to
SERIES: `start` (when the first batch was answered, seconds since the epoch, and the processor seconds of all processes
up to then), `batch` and `windows` (seconds of each), `failed` (an event that says so), `heap` (bytes of the JVM's heap that are alive, once a minute).
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from pyspark.sql import SparkSession

from penstock.spark.engine import Engine
from penstock.spark.run import Run
from penstock.spark.sessions.build import build_session
from penstock.spark.sessions.jvm import Purpose
from soak_measures import spent

STREAM = "readings"
#: tuples of a batch
ROWS = 200
#: event time of the first tuple, microseconds
BEGIN = 1_700_000_000_000_000
#: lateness of a tuple, microseconds, by a hash that Spark and DuckDB compute alike: 1 % up to five minutes, one in 10,007
#: two hours
VERY_LATE = "value * 7919 % 10007 = 0"
LATENESS = (
    f"CASE WHEN {VERY_LATE} THEN 7200000000 "
    "WHEN value * 104729 % 9973 < 100 THEN (value * 31 % 300) * 1000000 ELSE 0 END"
)
SELECTIONS = {
    f"band_{n}": f"SELECT * FROM {STREAM} WHERE amount = {n * 19} AND device < 3" for n in range(50)
}
WINDOWS = {
    "by_minute": "SELECT device, window(ts, '1 minute') AS w, count(*) AS n, sum(amount) AS v "
    f"FROM {STREAM} GROUP BY device, w",
    "sliding": "SELECT window(ts, '10 minutes', '2 minutes') AS w, count(*) AS n, max(amount) AS v "
    f"FROM {STREAM} GROUP BY w",
}
#: these come and go
PASSING = {
    "passing_band": f"SELECT * FROM {STREAM} WHERE amount < 3",
    "passing_window": "SELECT window(ts, '1 minute') AS w, count(*) AS n, sum(amount) AS v "
    f"FROM {STREAM} WHERE device = 1 GROUP BY w",
}
#: what ages a run, turned up; the rest is as it comes
TUNE: dict[str, Any] = {
    "events_bytes": 1 << 20,
    "events_files": 3,
    "max_delay_seconds": 600.0,
    "retained_plans": 10,
}
_HEAP_SECONDS = 60.0
#: time between two looks at the events, before the first batch and after it
_FIRST_LOOK_SECONDS, _LOOK_SECONDS = 0.1, 1.0


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a run ages.

    Attributes:
        step: event time between two tuples, microseconds.
        history_seconds: the setting of that name.
        views_every: batches between two changes of the views.
        is_brief: whether the processes end soon.
    """

    step: int
    history_seconds: float
    views_every: int
    is_brief: bool = False

    def words(self) -> list[str]:
        """As arguments of this program."""
        return [str(float(each)) for each in astuple(self)]

    @classmethod
    def of(cls, words: Sequence[str]) -> Pace:
        """What gave these words."""
        step, history_seconds, views_every, is_brief = map(float, words)
        return cls(int(step), history_seconds, int(views_every), bool(is_brief))


def columns(step: int) -> dict[str, str]:
    """By column of the stream how it is computed from the number of a tuple, `value`.

    Args:
        step: event time between two tuples, microseconds.
    """
    return {
        "id": "value",
        "ts": f"timestamp_micros({BEGIN} + value * {step} - {LATENESS})",
        "device": "CAST(value * 2654435761 % 10 AS INT)",
        "amount": "CAST(value * 48271 % 1000 AS INT)",
    }


class Process:
    """A session and the runs in it, one after the other.

    Args:
        output: the results folder.
        series: where lines go.
        pace: how fast they age.
    """

    def __init__(self, output: Path, series: IO[str], pace: Pace) -> None:
        self._output = output
        self._pace = pace
        self._series = series
        conf = {
            "spark.driver.memory": "1g",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "2",
        }
        purpose: Purpose = "brief" if pace.is_brief else "run"
        self.spark: SparkSession = build_session("local[2]", conf, "soak", purpose)
        source = self.spark.readStream.format("rate-micro-batch")
        frame = source.option("rowsPerBatch", ROWS).option("numPartitions", 1).load()
        frame = frame.selectExpr(*(f"{text} AS {name}" for name, text in columns(pace.step).items()))
        self._engine = Engine(self.spark, shards=1, history_seconds=pace.history_seconds, **TUNE)
        self._engine.stream(STREAM, frame, event_time="ts").add_views({**SELECTIONS, **WINDOWS})
        self._passes = False
        self._newest = {"batch": -1, "windows": -1}
        self._failed: set[str] = set()
        self._changed = 0
        self._heap_at = time.monotonic() + _HEAP_SECONDS

    def run(self, ends: threading.Event, begins_again: threading.Event) -> None:
        """Runs until it is told to end, or to begin again."""
        run = self._engine.start(self._output)
        while not ends.wait(self._look_seconds) and not begins_again.is_set() and run.active:
            self._tell(run)
            if self._newest["batch"] - self._changed >= self._pace.views_every:
                self._change_views()
            if time.monotonic() >= self._heap_at:
                self._heap_at = time.monotonic() + _HEAP_SECONDS
                self._write(kind="heap", bytes=self._heap())
        if not run.active:
            run.await_termination()
        run.stop()

    @property
    def _look_seconds(self) -> float:
        return _FIRST_LOOK_SECONDS if self._newest["batch"] < 0 else _LOOK_SECONDS

    def _tell(self, run: Run) -> None:
        for event in run.events():
            kind = event["kind"]
            if kind.endswith("_failed") and (what := json.dumps(event)) not in self._failed:
                self._failed.add(what)
                self._write(kind="failed", event=event)
            if kind not in self._newest or event["batch"] <= self._newest[kind]:
                continue
            if kind == "batch" and self._newest["batch"] < 0:
                self._changed = event["batch"]
                processor = sum(spent(os.getpid(), with_memory=False).processor.values())
                at = datetime.fromisoformat(event["time"]).timestamp()
                self._write(kind="start", batch=event["batch"], at=at, processor=processor)
            self._newest[kind] = event["batch"]
            parts = ("bind", "run", "publish") if kind == "batch" else ("run", "make", "publish")
            seconds = sum(event[f"{part}_seconds"] for part in parts)
            self._write(kind=kind, batch=event["batch"], seconds=round(seconds, 4))

    def _change_views(self) -> None:
        self._changed, self._passes = self._newest["batch"], not self._passes
        if self._passes:
            self._engine.add_views(PASSING)
        else:
            self._engine.drop(*PASSING)

    def _heap(self) -> int:
        """Bytes of the JVM's heap that are alive."""
        java: Any = self.spark._jvm
        java.java.lang.System.gc()
        runtime = java.java.lang.Runtime.getRuntime()
        return int(runtime.totalMemory() - runtime.freeMemory())

    def _write(self, **line: Any) -> None:
        self._series.write(json.dumps(line) + "\n")


def main(output: str, series: str, *pace: str) -> None:
    """Runs until SIGTERM."""
    ends, begins_again = threading.Event(), threading.Event()
    faulthandler.register(signal.SIGUSR2)
    signal.signal(signal.SIGTERM, lambda *_: ends.set())
    signal.signal(signal.SIGUSR1, lambda *_: begins_again.set())
    with Path(series).open("a", buffering=1) as lines:
        process = Process(Path(output), lines, Pace.of(pace))
        while not ends.is_set():
            begins_again.clear()
            process.run(ends, begins_again)
        process.spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
