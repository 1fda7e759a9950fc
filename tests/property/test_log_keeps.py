"""The log alone, whatever is done to it in whatever order: what its readers need is there, what they do not is not."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from forms import ALL, examples
from log_places import log_at
from penstock.operators.routing.routers import HashRouter
from penstock.operators.runs.run import RunPlan
from penstock.operators.windows.shard import PARTIALS, VALUES, Envelope
from penstock.spark.log import run_levels, runs, segments, stream_log
from penstock.spark.log.entries import Entry
from penstock.spark.log.envelopes import EnvelopeReader, file_kind, write_envelopes
from penstock.spark.log.listed_runs import listed_runs
from penstock.spark.log.merging import mergings
from penstock.spark.log.run_files import RunFiles, tuples_kind
from penstock.spark.log.runs import write_run_file
from penstock.spark.log.segments import Segments
from penstock.spark.log.stream_log import SINCE, LogReader, StreamLog
from penstock.stores.sqlite_ledger import SqliteLedger

SEGMENT, SHARDS, FANOUT = 4, 2, 2
DEMAND = 7
PLAN = RunPlan(("k",), "ts", HashRouter(("k",), SHARDS))
READERS = ("slow", "quick", "joined later")


def tuples(number: int, times: Sequence[int]) -> pa.Table:
    """Tuples that say the number of their entry."""
    return pa.table(
        {
            "k": [time % 5 for time in times],
            "ts": pa.array(times, pa.timestamp("us")),
            "n": [number] * len(times),
        }
    )


def read(log: LogReader, after: int, until: int) -> Counter[tuple[int, int]]:
    """How often each (entry, time) is among the tuples of some entries."""
    found: Counter[tuple[int, int]] = Counter()
    for each in RunFiles(log, DEMAND).find(after, until).open():
        for number in each.run.parts:
            part = each.run.part(number)
            assert part is not None
            own = part.tuples
            rows = part.rows_of(each.after, each.until)
            if rows is not None:
                own = own.filter(pa.array(np.asarray(rows)))
            times = own.column("ts").cast(pa.int64()).to_pylist()
            found.update(zip(own.column("n").to_pylist(), times, strict=True))
    return found


class KilledError(Exception):
    """The process ends here."""


class KilledAfter:
    """A process that is killed as it tidies, before it changes the disk once more than so many times."""

    def __init__(self, changes: int, tidier: Segments) -> None:
        self._left = changes
        self._tidier = tidier
        self._patched = pytest.MonkeyPatch()

    def __enter__(self) -> None:
        for owner, name in (
            (Path, "unlink"),
            (SqliteLedger, "commit"),
            (run_levels, "merge_run_files"),
            (runs, "merge_runs"),
        ):
            self._patched.setattr(owner, name, self._counted(getattr(owner, name)))
        mergings = {
            kind: replace(each, merge=self._counted(each.merge))
            for kind, each in self._tidier._mergings.items()
        }
        self._patched.setattr(self._tidier, "_mergings", mergings)

    def __exit__(self, *_: object) -> None:
        self._patched.undo()

    def _counted(self, change: Any) -> Any:
        def counted(*given: Any, **named: Any) -> Any:
            if not self._left:
                raise KilledError
            self._left -= 1
            return change(*given, **named)

        return counted


class Log(RuleBasedStateMachine):
    """One writer, two readers, and what the log must hold."""

    @initialize(history=st.sampled_from([0, 30, 10**9]), size=st.sampled_from([0, 20_000, 10**9]))
    def open(self, history: int, size: int) -> None:
        self.patched = pytest.MonkeyPatch()
        self.patched.setattr(stream_log, "SEGMENT", SEGMENT)
        self.patched.setattr(segments, "SEGMENT", SEGMENT)
        # what a power cut loses is not looked at here
        self.patched.setattr(os, "fsync", lambda _: None)
        self.patched.setattr(run_levels, "FANOUT", FANOUT)
        self.patched.setattr(
            segments,
            "mergings",
            lambda run_bytes: {
                kind: replace(each, most_bytes=3_000) for kind, each in mergings(run_bytes).items()
            },
        )
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-log-"))
        self.history, self.size = history, size
        self.clock = self.time = 0
        self.entries: list[Entry] = []
        self.brought: list[dict[int, list[Envelope]]] = []
        self.tuples: list[list[int]] = []
        self.marks = dict.fromkeys(READERS[:2], -1)
        #: from where on the quick one reads tuples again
        self.since = 0
        self.final = 0
        self.start()
        for reader in self.marks:
            self.put_mark(reader)

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.patched.undo()
            shutil.rmtree(self.folder)

    @rule()
    def start(self) -> None:
        self.log = StreamLog(log_at(self.folder))
        self.tidier = Segments(log_at(self.folder), self.history / 1e6, self.size, lambda: self.clock)
        self.before = self.log.kept().before

    @rule(
        times=st.lists(st.integers(-20, 5), max_size=12),
        large=st.booleans(),
        further=st.integers(0, 6),
    )
    def append(self, times: list[int], large: bool, further: int) -> None:
        """A batch with a row a time, in some files, and entries without tuples behind it."""
        self.clock += 1
        number = len(self.entries)
        rows: dict[str, list[tuple[int, Envelope]]] = {}
        for place, time in enumerate(times):
            kind = PARTIALS if place % 3 else VALUES + "x"
            payload = f"{number} {time} ".encode() + bytes(range(256)) * (40 * large)
            envelope = Envelope(place % 2, kind, payload)
            rows.setdefault(f"{file_kind(kind)}/{place % 2}", []).append((place % SHARDS, envelope))
        files: dict[str, list[str]] = {}
        for name, own in rows.items():
            kind, _, part = name.partition("/")
            files.setdefault(kind, []).append(f"{number:010d}-{part}.parquet")
            path = self.log.path(kind, files[kind][-1])
            path.parent.mkdir(exist_ok=True, parents=True)
            write_envelopes(own, path)
        brought: list[int] = []
        for part in range(min(2, len(times))):
            # of some entries one file is too large to be merged
            own = times[part::2] * (300 if large and part else 1)
            brought += own
            files.setdefault(tuples_kind(DEMAND), []).append(f"{number:010d}-{part}.arrow")
            path = self.log.path(tuples_kind(DEMAND), files[tuples_kind(DEMAND)][-1])
            path.parent.mkdir(exist_ok=True, parents=True)
            write_run_file(path, tuples(number, own), PLAN)
        self.time += max([0, *times])
        known = self.entries[-1].furthest if self.entries else None
        own = [self.time + time for time in times]
        furthest = max([*own, *([] if known is None else [known])], default=None)
        named = {kind: tuple(names) for kind, names in files.items()}
        entry = Entry(
            number,
            number,
            0,
            self.clock,
            self.time,
            furthest,
            files=named,
            kept_before=self.before,
        )
        held = {
            shard: [each for own in rows.values() for s, each in own if s == shard] for shard in range(SHARDS)
        }
        self.put(entry, held, brought)
        for _ in range(further):
            self.clock += 1
            number = len(self.entries)
            self.put(Entry(number, entry.batch, 0, self.clock, self.time, furthest, kept_before=self.before))

    def put(
        self, entry: Entry, held: dict[int, list[Envelope]] | None = None, times: Sequence[int] = ()
    ) -> None:
        assert self.log.append(entry)
        self.entries.append(entry)
        self.brought.append(held or {})
        self.tuples.append(list(times))

    @rule(batches=st.integers(4, 8), large=st.booleans())
    def go_on(self, batches: int, large: bool) -> None:
        """Enough for runs of several levels."""
        for number in range(batches):
            self.append([-number, number % 3, 1], large=large and number % 5 == 0, further=number % 2)
        self.read_on(1.0, 1.0)

    @rule(slow=st.sampled_from([0.0, 0.5, 0.9, 1.0]), quick=st.sampled_from([0.5, 1.0]))
    def read_on(self, slow: float, quick: float) -> None:
        """The readers go on, so much of what they have not read."""
        last = LogReader(log_at(self.folder)).newest()
        assert (last.number if last else -1) == len(self.entries) - 1
        self.since = LogReader(log_at(self.folder)).kept().since
        for reader, part in zip(self.marks, (slow, quick, quick), strict=False):
            mark = self.marks[reader]
            self.marks[reader] = mark + round(part * (len(self.entries) - 1 - mark))
            self.put_mark(reader)

    @rule()
    def join(self) -> None:
        """One more reader begins with all that is kept."""
        if READERS[-1] not in self.marks:
            self.marks[READERS[-1]] = LogReader(log_at(self.folder)).first - 1
            self.put_mark(READERS[-1])

    def put_mark(self, reader: str) -> None:
        self.final = max(self.final, self.time - 10)
        again = {SINCE: self.since} if reader == "quick" else {}
        self.log.put_mark(reader, self.marks[reader], final=self.final, **again)

    @rule()
    def tidy(self) -> None:
        self.tidier.tidy()
        self.before = self.log.kept().before
        named = {
            (kind, name)
            for entry in LogReader(log_at(self.folder)).between(self.log.first - 1, len(self.entries) - 1)
            for kind, names in entry.files.items()
            for name in names
        }
        there = {(path.parent.name, path.name) for path in (self.folder / "files").glob("*/*.parquet")}
        assert there == {(kind, name) for kind, name in named if kind != tuples_kind(DEMAND)}
        self.check_tuples()
        self.check_runs({name for kind, name in named if kind == tuples_kind(DEMAND)})
        behind = min(self.marks.values())
        log = self.log.log
        alone = len(self.entries) - SEGMENT * (log.segments.last + 1)
        assert alone <= max(SEGMENT, len(self.entries) - 1 - behind + SEGMENT)

    def check_tuples(self) -> None:
        """Each tuple of the entries that are kept is read once."""
        log = LogReader(log_at(self.folder))
        first, last = log.first, len(self.entries) - 1
        for after, until in ((first - 1, last), (max(first, last - 9), last - 2)):
            expected = Counter(
                (number, time) for number in range(after + 1, until + 1) for time in self.tuples[number]
            )
            assert read(log, after, until) == expected

    def check_runs(self, named: set[str]) -> None:
        """The files of tuples are those that entries name and those that the ledger lists, which overlap nowhere."""
        folder = self.log.path(tuples_kind(DEMAND), "")
        there = {path.name for path in folder.iterdir()} if folder.exists() else set()
        listed = list(listed_runs(self.log.log, DEMAND))
        assert there == named | {run.name for run in listed if run.name is not None}
        for before, run in pairwise(listed):
            assert before.last < run.first <= run.last
        for run in listed:
            assert run.last >= self.log.first
            size = (run.last + 1 - run.first) // SEGMENT
            assert run.first % (size * SEGMENT) == 0
            assert size in (1, 2, 4, 8, 16, 32)

    @rule(changes=st.integers(0, 40), restart=st.booleans())
    @precondition(lambda self: len(self.entries) > SEGMENT)
    def tidy_and_die(self, changes: int, restart: bool) -> None:
        try:
            with KilledAfter(changes, self.tidier):
                self.tidier.tidy()
        except KilledError:
            self.check()
            self.check_tuples()
            if restart:
                self.append([3, -2], large=False, further=0)
            self.start()
        self.before = self.log.kept().before

    @rule(seconds=st.integers(1, 60))
    def wait(self, seconds: int) -> None:
        self.clock += seconds

    @invariant()
    def check(self) -> None:
        """Every entry that is kept brings what it brought; what a reader may read is kept, and it knows what lacks."""
        if not hasattr(self, "folder"):
            return
        log = LogReader(log_at(self.folder))
        first = log.first
        for shard in range(SHARDS):
            reader = EnvelopeReader(log, shard)
            for number in range(first, len(self.entries)):
                entry = log.entry(number)
                assert {**_plain(entry), "files": None} == {**_plain(self.entries[number]), "files": None}
                expected = self.brought[number].get(shard, [])
                assert sorted(map(repr, reader.of(entry))) == sorted(map(repr, expected))
        behind = min(self.marks.values())
        assert first <= behind + 1
        kept = log.kept()
        assert first <= self.since <= kept.since
        gone = [time for number in range(kept.since) for time in self.tuples[number]]
        assert max(gone, default=None) == (kept.lacks[DEMAND] - 1 if DEMAND in kept.lacks else None)
        lost = self.entries[first - 1].furthest if first else None
        # who joins later knows from the beginning what lacks
        behind = min(mark for reader, mark in self.marks.items() if reader != READERS[-1])
        for entry in self.entries[behind + 1 :]:
            assert lost is None or (entry.kept_before is not None and entry.kept_before > lost)


def _plain(entry: Entry) -> dict[str, Any]:
    return {name: getattr(entry, name) for name in entry.__slots__}


TestLog = Log.TestCase
TestLog.settings = settings(max_examples=examples(40), stateful_step_count=40 if ALL else 25)
