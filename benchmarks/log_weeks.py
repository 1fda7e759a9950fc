"""What a stream's log costs after very many entries: put by `IngestLog`, followed by two readers, without Spark.

    python benchmarks/log_weeks.py [ENTRIES] [--folder DIR]

Every entry names a file of pane partials and a run of twenty tuples. One reader takes in each entry's partials as it comes
and says with its mark how far windows are final; the other reads the tuples of 64 entries together and stays 512 entries
behind, so that retention waits for it. Segments, merges of runs in levels and retention (`--megabytes` of history, so that what is
kept does not depend on the machine's speed) go on beside them, as in a run. Both readers check that they get each row once.

By tenth of the entries: processor time an entry, of the thread that puts and reads and of the whole process with merging and
removing; the longest put by the clock; what a new process takes to open the log as a start does; entries, files and bytes that are
kept. Exit code 1 where the last tenth has more than 1.1 times the processor time of the second, 1.25 times its files or bytes, or
where a start (a few milliseconds) takes more than 1.5 times as long.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from penstock.operators.routing.routers import HashRouter
from penstock.operators.runs.run import RunPlan
from penstock.operators.windows.shard import PARTIALS, Envelope, WindowProgram
from penstock.settings import Settings
from penstock.spark.log.envelopes import EnvelopeReader, write_envelopes
from penstock.spark.log.ingest_log import IngestLog
from penstock.spark.log.run_files import RunFiles
from penstock.spark.log.runs import write_run_file
from penstock.spark.log.stream_log import FINAL, PLAN, SEGMENT, LogReader
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.layout import PARTIALS_FILES, Layout, tuples_kind
from penstock.spark.storage.ledger_documents import commit

STREAM, SHARDS, ROWS, BEHIND = "orders", 2, 20, 8 * SEGMENT
TIME = pa.timestamp("us", "UTC")
RUN = RunPlan(("k",), "ts", HashRouter(("k",), SHARDS))
START = """
import sys, time
from penstock.settings import Settings
from penstock.spark.log.ingest_log import IngestLog
from penstock.spark.log.stream_log import LogReader
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.ledger_documents import commit
from penstock.spark.storage.layout import Layout
layout = Layout.of(sys.argv[1], None)
events = EventLog(layout.events)
began = time.process_time()
layout.ledger.open()
log = IngestLog(layout, "orders", Settings(), events)
log.too_late_before(0)
reader = LogReader(layout.log("orders"))
reader.newest()
reader.marks()
print(time.process_time() - began)
"""


class Weeks:
    """A log that grows entry by entry, and its two readers.

    Args:
        folder: an empty folder.
        history_bytes: the setting of that name.
    """

    def __init__(self, folder: Path, history_bytes: int) -> None:
        self.layout = Layout.of(folder, None)
        self.layout.open()
        # replaced files would wait ten minutes, which is all of the benchmark
        settings = Settings(history_bytes=history_bytes, history_seconds=1e9, replaced_seconds=60.0)
        self.log = IngestLog(self.layout, STREAM, settings, EventLog(self.layout.events, most_bytes=1 << 20))
        self.log.store_program(WindowProgram(0, (), 0, 0), is_read=True)
        self.reader = LogReader(self.layout.log(STREAM))
        for name in ("windows", "join"):
            self.reader.put_mark(name, -1)
        for kind in (PARTIALS_FILES, tuples_kind(0)):
            self.reader.path(kind, "").mkdir(parents=True)
        self._joined = -1
        #: the longest put since it was set to 0, seconds
        self.longest = 0.0

    def entry(self, number: int) -> None:
        """Puts an entry and lets the readers follow."""
        payload = b"%d" % number * 40
        write_envelopes(
            [(shard, Envelope(0, PARTIALS, payload)) for shard in range(SHARDS)],
            self.reader.path(PARTIALS_FILES, f"{number}.parquet"),
        )
        times = pa.array([number] * ROWS, TIME)
        tuples = pa.table({"k": list(range(ROWS)), "ts": times, "n": [number] * ROWS})
        write_run_file(self.reader.path(tuples_kind(0), f"{number}.arrow"), tuples, RUN)
        files = {PARTIALS_FILES: [f"{number}.parquet"], tuples_kind(0): [f"{number}.arrow"]}
        began = time.perf_counter()
        with self.log.batch_entry(number, 0, number, number, number, number, files) as put:
            commit(put, expect=dict.fromkeys(put))
        self.longest = max(self.longest, time.perf_counter() - began)
        entry = self.reader.entry(number)
        for shard in range(SHARDS):
            (envelope,) = EnvelopeReader(self.reader, shard).of(entry)
            assert envelope.payload == payload, "each entry brings its own"
        if number % SEGMENT == 0:
            self.reader.put_mark("windows", number - 1, **{FINAL: number - 1_000, PLAN: 0})
            self._join(number - BEHIND)

    def _join(self, until: int) -> None:
        if until <= self._joined:
            return
        found = 0
        for each in RunFiles(self.reader, 0).find(self._joined, until).open():
            for cell in range(SHARDS):
                part = each.run.part(cell)
                if part is not None:
                    own = part.rows_of(each.after, each.until)
                    found += part.summary.rows if own is None else int(own.sum())
        assert found == ROWS * (until - self._joined), "each tuple is read once"
        self.reader.put_mark("join", until)
        self._joined = until


def _start(folder: Path) -> float:
    command = [sys.executable, "-c", START, str(folder)]
    found = min(
        float(subprocess.run(command, capture_output=True, text=True, check=True).stdout) for _ in range(3)
    )
    # the starts have taken the ledger over
    Layout.of(folder, None).ledger.open()
    return found


def main() -> int:
    """Puts, reads, measures and prints; 1 where the end is dearer than the beginning."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("entries", nargs="?", type=int, default=100_000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--megabytes", type=float, default=4.0)
    given = parser.parse_args()
    folder = Path(given.folder or tempfile.mkdtemp(prefix="penstock-log-weeks-"))
    shutil.rmtree(folder, ignore_errors=True)
    weeks = Weeks(folder, int(given.megabytes * 2**20))
    table = Table(
        "entries", "own thread, ms", "process, ms", "longest put, ms", "start, ms", "kept", "files", "MB"
    )
    rows = []
    for tenth in range(10):
        weeks.longest = 0.0
        numbers = range(given.entries * tenth // 10, given.entries * (tenth + 1) // 10)
        began = time.thread_time(), time.process_time()
        for number in numbers:
            weeks.entry(number)
        own, whole = (
            (now - then) / len(numbers)
            for now, then in zip((time.thread_time(), time.process_time()), began, strict=True)
        )
        sizes = _sizes(weeks.layout.output)
        kept = numbers.stop - weeks.reader.first
        rows.append((own, whole, float(len(sizes)), float(sum(sizes)), _start(folder)))
        shown = (own * 1e3, whole * 1e3, weeks.longest * 1e3, rows[-1][4] * 1e3)
        cells = [f"{numbers.stop:,}", *(f"{each:,.2f}" for each in shown), f"{kept:,}", f"{len(sizes):,}"]
        cells.append(f"{sum(sizes) / 2**20:,.1f}")
        table.add_row(*cells)
        print(*cells, file=sys.stderr, flush=True)
    weeks.log.close()
    Console(width=120).print(table)
    shutil.rmtree(folder, ignore_errors=True)
    limits = (1.1, 1.1, 1.25, 1.25, 1.5)
    return int(
        any(last > limit * second for second, last, limit in zip(rows[1], rows[9], limits, strict=True))
    )


def _sizes(folder: Path) -> list[int]:
    """The bytes of each file below a folder; those that go meanwhile are left out."""
    found = []
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            if path.is_file():
                found.append(path.stat().st_size)
    return found


if __name__ == "__main__":
    sys.exit(main())
