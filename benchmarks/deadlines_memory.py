"""Memory over tens of thousands of windows with a deadline: fifty views, each window worked out or given up.

Event time is set by the feeder: each file of the stream is a second further and holds 200 tuples, and the next one is put once something has become of
every window that the last one closed. Fifty views have windows of 2 s that slide by 1 s, so a file closes fifty of them: every other view
counts by a built-in aggregate, the others carry a state of the user's from window to window; every fifth allows half a second, too little
for most of its windows, the others a minute. The process is looked at 200 times, each time after a collection: what is alive in the JVM's
heap, proportional set sizes of driver, JVM and workers, files and bytes by kind; and the processor time a window.

Expected, or the exit code is 1: the last tenth has no more than `MEMORY_LIMIT` times the memory of the sixth, `PROCESSOR_LIMIT` times its processor time
a window, `FILES_LIMIT` times its files and bytes. The sixth is the first one in which all that is bounded is full: the 10,000 events in memory are
of as many windows. Every window has one outcome, the log has lost its beginning, no event tells of a failure. A run of fewer than `LEAST_WINDOWS` is
told and not judged by tenths.

    python benchmarks/deadlines_memory.py [--windows 24000] [--minutes 60]
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from joins_state import (
    FILES_LIMIT,
    HEAP,
    LOOKS,
    MEGA,
    MEMORY_LIMIT,
    PROCESSOR,
    PROCESSOR_LIMIT,
    TENTHS,
    Look,
    by_tenth,
    look,
)
from latency import event_times, put_file
from penstock.spark.engine import Engine
from penstock.spark.lanes.deadlines.ledger import OUTCOMES
from penstock.spark.log.stream_log import LogReader
from penstock.spark.sessions.build import build_session
from penstock.spark.storage.layout import Layout
from soak_measures import BOUNDED, PARTS

STREAM, COLUMNS = "readings", "ts TIMESTAMP, k BIGINT, x BIGINT"
VIEWS, DEMANDS, HASTY_EVERY, HASTY_SECONDS, CALM_SECONDS = 50, 10, 5, 0.5, 60
ROWS, GROUPS, BEGIN = 200, 4, 1_700_000_000
HISTORY_SECONDS = 15.0
LEAST_WINDOWS = 20_000
#: something becomes of the windows of a file sooner than that
STUCK_SECONDS = 150.0


def carried_total() -> type:
    """A sum that is carried from window to window."""

    class Total:
        def __init__(self) -> None:
            self.total = 0

        def add(self, x: pa.Array) -> None:
            self.total += sum(x.to_pylist())

        def remove(self, x: pa.Array) -> None:
            self.total -= sum(x.to_pylist())

        def result(self) -> int:
            return self.total

    return Total


def text(number: int) -> str:
    """A view."""
    seconds = CALM_SECONDS if number % HASTY_EVERY else HASTY_SECONDS
    value = "total(x)" if number % 2 else "count(x)"
    return (
        f"SELECT /*+ DEADLINE('{seconds} seconds'), LOSS(1, 4) */ k, window(ts, '2 seconds', '1 second') AS w, {value} AS v "
        f"FROM {STREAM} WHERE x % {DEMANDS} <> {number % DEMANDS} GROUP BY k, w"
    )


@dataclass(frozen=True, slots=True)
class Ended:
    """How the process ended.

    Attributes:
        counts: what became of windows.
        created: that there were, by the stream.
        first: entry of the log that is kept.
        failures: kinds of events that tell of one.
    """

    counts: Counter[str]
    created: int
    first: int
    failures: tuple[str, ...]


class Windows:
    """Runs the views in a process of its own, which leads a session so that those it starts can be told.

    Args:
        place: a folder for the stream and the results.
        told: where looks go, and in the end how it ended.
    """

    def __init__(self, place: Path, told: Connection) -> None:
        os.setsid()
        self._told = told
        self._input = place / "in"
        self._input.mkdir()
        self._layout = Layout.of(place / "out", None)
        conf = {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"}
        self._spark = build_session("local[2]", conf, "windows")
        engine = Engine(self._spark, history_seconds=HISTORY_SECONDS, events_bytes=MEGA, events_files=3)
        options = f"path '{self._input}', event_time 'ts'"
        engine.execute(f"CREATE TABLE {STREAM} ({COLUMNS}) USING parquet OPTIONS ({options})")
        engine.aggregate("total", carried_total(), "BIGINT")
        self._run = engine.add_views({f"v{number}": text(number) for number in range(VIEWS)}).start(
            place / "out"
        )
        self._began = time.monotonic()
        self._rng = np.random.default_rng(1)
        self._newest, self._counts, self._failures = -1, Counter[str](), set[str]()

    def go(self, windows: int, seconds: float) -> None:
        """Puts files and looks so often that `LOOKS` come to all windows, until there are as many or the time is over."""
        files = due = created = 0
        self._put(files)
        while created < windows and time.monotonic() < self._began + seconds:
            files += 1
            self._put(files)
            created = VIEWS * files
            self._settle(created)
            if created >= due:
                due += windows // LOOKS
                self._told.send(look(self._spark, self._layout.output, created, self._began))
        self._run.stop()
        self._take()
        first = LogReader(self._layout.log(STREAM)).first
        self._told.send(Ended(self._counts, created, first, tuple(sorted(self._failures))))
        self._spark.stop()

    def _put(self, number: int) -> None:
        times = BEGIN + number + np.sort(self._rng.random(ROWS))
        keys, values = (self._rng.integers(0, most, ROWS) for most in (GROUPS, 1_000))
        put_file(self._input, number, pa.table({"ts": event_times(times), "k": keys, "x": values}))

    def _settle(self, created: int) -> None:
        """Waits until something has become of so many windows."""
        limit = time.monotonic() + STUCK_SECONDS
        while self._counts["created"] < created:
            if not self._run.active:
                self._run.await_termination()
            if time.monotonic() > limit:
                raise TimeoutError(f"of {created} windows something became of {self._counts['created']}")
            time.sleep(0.2)
            self._take()

    def _take(self) -> None:
        for event in self._run.events():
            if event["kind"].endswith(("_failed", "_failing")):
                self._failures.add(event["kind"])
            if event["kind"] == "cut" and event["cut"] > self._newest:
                self._newest = event["cut"]
                for counts in event["figures"]["views"].values():
                    self._counts.update(counts)


def _inside(place: Path, told: Connection, windows: int, seconds: float) -> None:
    Windows(place, told).go(windows, seconds)


def main() -> int:
    """Runs, prints by tenth; 1 where something did not hold."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--windows", type=int, default=24_000)
    parser.add_argument("--minutes", type=float, default=60.0)
    given = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="penstock-windows-") as place:
        here, there = context.Pipe(duplex=False)
        process = context.Process(
            target=_inside, args=(Path(place), there, given.windows, given.minutes * 60)
        )
        process.start()
        there.close()
        looks: list[Look] = []
        while isinstance(told := here.recv(), Look):
            looks.append(told)
            if len(looks) % 10 == 0:
                print(
                    f"{told.cuts:,} windows in {told.seconds / 60:.1f} minutes", file=sys.stderr, flush=True
                )
        process.join()
    console = Console(width=170)
    rows = by_tenth(looks)
    table = Table("tenth of the windows", *map(str, range(1, TENTHS + 1)), "10 / 6")
    for name, values in rows.items():
        digits = 0 if values[5] >= 100 or name.endswith("files") else 1
        ratio = values[9] / values[5] if values[5] else float("nan")
        table.add_row(
            name.replace("a cut", "a window"), *(f"{value:,.{digits}f}" for value in values), f"{ratio:.2f}"
        )
    outcomes = ", ".join(f"{told.counts[each]:,} {each}" for each in OUTCOMES)
    table.caption = (
        f"{looks[-1].cuts:,} windows of {VIEWS} views in {looks[-1].seconds / 60:.1f} minutes: {outcomes}"
    )
    console.print(table)
    ended = sum(told.counts[each] for each in OUTCOMES)
    judged = [
        (told.created >= given.windows, f"{told.created:,} windows of {given.windows:,} in the time allowed"),
        (not told.failures, f"events that tell of a failure: {', '.join(told.failures) or 'none'}"),
        (ended == told.created, f"{ended:,} windows have an outcome, {told.created:,} were closed"),
        (bool(told.counts["released"] and told.counts["shed"]), "some were released, and some were given up"),
        (told.first > 0, f"the log begins with entry {told.first}"),
    ]
    limits = {PROCESSOR: PROCESSOR_LIMIT, HEAP: MEMORY_LIMIT}
    limits |= {f"{part}, MB": MEMORY_LIMIT for part in PARTS}
    limits |= {f"{kind}, {what}": FILES_LIMIT for kind in BOUNDED for what in ("files", "MB")}
    for name, limit in limits.items() if looks[-1].cuts >= LEAST_WINDOWS else ():
        sixth, last = rows[name][5], rows[name][9]
        judged.append(
            (
                last <= limit * sixth,
                f"{name.replace('a cut', 'a window')}: {last:.4g} after {sixth:.4g}, {last / sixth:.2f} times, allowed {limit}",
            )
        )
    for holds, line in judged:
        console.print(f"{'held    ' if holds else 'NOT HELD'} {line}", highlight=False)
    return 0 if all(holds for holds, _ in judged) else 1


if __name__ == "__main__":
    sys.exit(main())
