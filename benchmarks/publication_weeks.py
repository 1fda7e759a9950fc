"""What a long run leaves behind it, and what that costs: batches published one after the other, without their tuples.

    python benchmarks/publication_weeks.py [BATCHES] [--folder DIR]

Every batch has a few rows of matches, every seventh some in the quarantine, and the windows' query publishes results of
two views in two shards beside it; each is told in the event log and merged as in a run. Ten times on the way it is measured what
a batch took and a compaction (the mean of the tenth, and the longest by the clock), what a new process takes to open the folder as a
start does (and its resident memory), what `penstock status` takes, and how many files and bytes there are. All but the
longest is processor time, so that what else the machine does counts little. Exit code 1
where the last tenth is dearer than the second by more than half.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from penstock.spark.publication.kinds import results_of
from penstock.spark.publication.publish import Publisher
from penstock.spark.publication.staged import WrittenFile
from penstock.spark.results.window_rows import MadeResults
from penstock.spark.storage.bindings import PlanLog
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.formats import CATALOG
from penstock.spark.storage.layout import Layout

STREAM, VIEWS, EVERY = "orders", ("hours", "days"), 64
START = """
import os, sys, time
from pathlib import Path
from penstock.settings import Settings
from penstock.spark.ingest.time_limit import TimeLimit
from penstock.spark.publication.kinds import results_of
from penstock.spark.publication.publish import Publisher
from penstock.spark.reporting.status_file import StatusFile
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.layout import Layout
resident = lambda: int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
before, began = resident(), time.process_time()
layout = Layout.of(sys.argv[1], None)
status = StatusFile(layout, dict, every_seconds=60)
events = EventLog(layout.events)
TimeLimit(layout, "orders", Settings(), events)
Publisher(layout, "orders")
Publisher(layout, results_of("orders"), (), owner="orders")
status.begin_stream("orders")
print(time.process_time() - began, resident() - before)
"""
STATUS = """
import sys, time
from pathlib import Path
from penstock.monitor.folder import folder_status
from penstock.monitor.report import status_lines
import pyarrow.parquet
began = time.process_time()
found = folder_status(Path(sys.argv[1]))
list(status_lines(found, verbose=True))
print(time.process_time() - began, found["streams"]["orders"]["batches"])
"""


class Weeks:
    """A results folder that grows batch by batch.

    Args:
        folder: an empty folder.
    """

    def __init__(self, folder: Path) -> None:
        self.layout = Layout.of(folder, None)
        self.layout.open()
        CATALOG.replace(self.layout.catalog, {"streams": {STREAM: {}}, "views": {}})
        self._ingest = Publisher(self.layout, STREAM)
        self._windows = Publisher(self.layout, results_of(STREAM), (), owner=STREAM)
        self._plans = PlanLog(self.layout, STREAM)
        self._plans.store(0, {})
        self._events = EventLog(self.layout.events, most_bytes=4 << 20)
        self._rows = self._content(pa.table({"id": range(4), "queries": [["a", "b"]] * 4}))
        record = {"record": [b"x"], "origin": ["1.csv"], "reason": ["malformed"]}
        self._aside = self._content(pa.table(record))

    def batch(self, batch: int) -> tuple[float, float]:
        """Publishes a batch; returns the seconds that merging took after it, of a processor and by the clock."""
        self._plans.bind(batch, 0)
        kinds = {"matches": self._rows, **({"quarantine": self._aside} if batch % 7 == 0 else {})}
        figures: dict[str, Any] = {
            "batch": batch,
            "plan": batch // 1_000,
            "offsets": "0" * 64,
            "tuples": 1_000,
            "matched": 4,
            "pairs": 8,
            "quarantined": {"malformed": 1} if batch % 7 == 0 else {},
            "rows_set_aside": 0,
            "errors": {},
            "null_event_times": 0,
            "future_event_times": 0,
            "timed_tuples": 1_000,
            "middle_event_time_us": batch * 1_000_000,
        }
        for which in ("oldest", "newest", "furthest"):
            figures[f"{which}_event_time_us"] = batch * 1_000_000
        files = self._ingest.begin(batch)
        written = [WrittenFile(kind, content, 4, 8) for kind, content in kinds.items()]
        made = [MadeResults(0, 0, files.put(0, 0, written))]
        self._ingest.publish(batch, made, figures)
        self._events.record(
            "batch", stream=STREAM, **figures, bind_seconds=0.1, run_seconds=0.5, publish_seconds=0.1
        )
        files = self._windows.begin(batch)
        made = [
            MadeResults(
                operator,
                shard,
                files.put(operator, shard, [WrittenFile(f"{operator}/{view}", self._rows, 4, 8)]),
            )
            for operator, view in enumerate(VIEWS)
            for shard in range(2)
        ]
        views = {view: {"early": 1, "corrected": 0, "final": 1, "rows": 8, "slack": 5} for view in VIEWS}
        told = {"batch": batch, "entry": batch, "answered": batch, "views": views, "beyond": [], "whole": []}
        self._windows.publish(batch, made, told)
        self._events.record("windows", stream=STREAM, **told, standing={})
        began = time.process_time(), time.perf_counter()
        if batch and batch % EVERY == 0:
            self._ingest.compact(batch - 1)
            self._windows.compact(batch - 1)
            self._plans.forget(batch, 100)
        return time.process_time() - began[0], time.perf_counter() - began[1]

    @staticmethod
    def _content(table: pa.Table) -> memoryview:
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink)
        return memoryview(sink.getvalue())


def _measured(program: str, folder: Path) -> list[float]:
    """What a program of its own prints, of the better of two runs."""
    command = [sys.executable, "-c", program, str(folder)]
    runs = [subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(2)]
    return min([float(each) for each in run.stdout.split()] for run in runs)


def main() -> int:
    """Publishes, measures and prints; 1 where the end is dearer than the beginning."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("batches", nargs="?", type=int, default=100_000)
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    folder = Path(given.folder or tempfile.mkdtemp(prefix="penstock-weeks-"))
    shutil.rmtree(folder, ignore_errors=True)
    weeks = Weeks(folder)
    heads = (
        "batches",
        "a batch, ms",
        "mean merge, ms",
        "longest, ms",
        "start, ms",
        "its MB",
        "status, ms",
        "files",
        "MB",
    )
    table = Table(*heads)
    rows = []
    for tenth in range(10):
        began = time.process_time()
        spent = [
            weeks.batch(batch)
            for batch in range(given.batches * tenth // 10, given.batches * (tenth + 1) // 10)
        ]
        seconds = (time.process_time() - began) / len(spent)
        merges = [each for each in spent if each[1] > 1e-4]
        start, status = _measured(START, folder), _measured(STATUS, folder)
        assert status[1] == given.batches * (tenth + 1) // 10, "the totals are right"
        files = [path for path in folder.rglob("*") if path.is_file()]
        size = sum(path.stat().st_size for path in files)
        merged = sum(processor for processor, _ in merges) / max(1, len(merges))
        longest = max((clock for _, clock in merges), default=0.0)
        rows.append((seconds, merged, start[0], start[1], status[0]))
        figures = (seconds * 1e3, merged * 1e3, longest * 1e3, start[0] * 1e3, start[1] / 1e6)
        shown = [f"{each:,.1f}" for each in (*figures, status[0] * 1e3)]
        table.add_row(
            f"{given.batches * (tenth + 1) // 10:,}", *shown, f"{len(files):,}", f"{size / 1e6:,.1f}"
        )
        print(*shown, len(files), size, file=sys.stderr, flush=True)
    Console(width=120).print(table)
    shutil.rmtree(folder, ignore_errors=True)
    return int(any(last > 1.5 * second + 1e-3 for second, last in zip(rows[1], rows[9], strict=True)))


if __name__ == "__main__":
    sys.exit(main())
