"""Which runs hold the tuples of some log entries, for those who read them while others merge and remove.

Where the runs lie is found once, by whoever knows the log, and opened by many: a file that was merged with others in between
is there for a while.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from penstock.operators.runs.run import Run
from penstock.spark.log.run_levels import run_path, segment_of, segments_of
from penstock.spark.log.runs import open_run
from penstock.spark.log.stream_log import LogReader
from penstock.spark.storage.layout import tuples_kind
from penstock.spark.storage.stored_log import StoredLog

#: segments of which it is remembered what they name: 12 days of entries at one a second
_KEPT_SEGMENTS = 1 << 14


@dataclass(frozen=True, slots=True, eq=False)
class OpenRun:
    """A mapped run and the entries whose tuples are to be taken from it; it may hold those of others.

    Attributes:
        run: the run.
        after, until: the entries behind one and up to another: arguments of `Part.rows_of`.
    """

    run: Run
    after: int
    until: int


@dataclass(frozen=True, slots=True)
class RunFile:
    """A file that held the tuples of some entries when it was looked for.

    Attributes:
        name: in the folder of its demand.
        after, until: as of `OpenRun`.
    """

    name: str
    after: int
    until: int


@dataclass(frozen=True, slots=True)
class FoundRuns:
    """Where the tuples of the entries behind one and up to another lay.

    Attributes:
        log: the folder of the stream's log.
        demand: whose tuples.
        after: number of the first entry, which is left out; -1 for the beginning.
        until: number of the last one.
        files: each tuple is in one of them.
    """

    log: StoredLog
    demand: int
    after: int
    until: int
    files: tuple[RunFile, ...]

    def open(self) -> list[OpenRun]:
        """Maps the runs into memory; what is open stays readable.

        Raises:
            CheckpointError: a file is damaged, or missing: it was replaced, and its time was over before this call.
        """
        folder = LogReader(self.log).path(tuples_kind(self.demand), "")
        return [OpenRun(open_run(folder / each.name), each.after, each.until) for each in self.files]


@dataclass(frozen=True, slots=True)
class _Named:
    """What the entries of a segment name, which is for ever.

    Attributes:
        last: number of its last entry.
        own: names of files that are no segment's, by entry.
        has_run: whether some of the tuples are in the segment's run.
    """

    last: int
    own: Mapping[int, tuple[str, ...]]
    has_run: bool


class RunFiles:
    """Finds the runs of a demand, time and again; remembers what segments name. One thread has it.

    Args:
        log: the stream's.
        demand: whose tuples.
    """

    def __init__(self, log: LogReader, demand: int) -> None:
        self._log = log
        self._demand = demand
        self._kind = tuples_kind(demand)
        self._folder = log.path(self._kind, "")
        self._segments: dict[int, _Named] = {}

    def find(self, after: int, until: int) -> FoundRuns:
        """Finds what holds the tuples of the entries behind one and up to another.

        It takes a look at each segment and one at each entry that is in none, and none at what a run stands for.

        Args:
            after: number of the first entry, which is left out; -1 for the beginning.
            until: number of the last one.

        Raises:
            CheckpointError: entries or their tuples are gone.
        """
        found: list[RunFile] = []
        #: place in `found` of the run that was taken from last, and the segments it stands for
        place, covered = 0, range(0)
        number = after + 1
        while number <= until:
            segment = self._log.segment_number(number)
            named = self._named(segment)
            if named is None:
                names = self._log.entry(number).files.get(self._kind, ())
                if all(segment_of(name) is None for name in names):
                    found += [RunFile(name, number - 1, number) for name in names]
                    number += 1
                # otherwise its segment has been made meanwhile
                continue
            last = min(until, named.last)
            for each, names in named.own.items():
                if number <= each <= last:
                    found += [RunFile(name, each - 1, each) for name in names]
            if named.has_run and segment in covered:
                found[place] = replace(found[place], until=last)
            elif named.has_run:
                name = run_path(self._folder, segment).name
                place, covered = len(found), segments_of(name)
                found.append(RunFile(name, number - 1, last))
            number = last + 1
        return FoundRuns(self._log.log, self._demand, after, until, tuple(found))

    def _named(self, segment: int) -> _Named | None:
        """What a segment names; None where it is not made."""
        if segment not in self._segments:
            if not self._log.log.segments[segment].exists():
                return None
            entries = self._log.segment(segment)
            if len(self._segments) >= _KEPT_SEGMENTS:
                self._segments.clear()
            own: dict[int, tuple[str, ...]] = {}
            has_run = False
            for entry in entries:
                names = entry.files.get(self._kind, ())
                each = tuple(name for name in names if segment_of(name) is None)
                has_run |= len(each) < len(names)
                if each:
                    own[entry.number] = each
            self._segments[segment] = _Named(entries[-1].number, own, has_run)
        return self._segments[segment]
