"""Which runs hold the tuples of some log entries, for those who read them while others merge and remove.

Where the runs lie is found once, by whoever knows the log, and opened by many: a file that was merged with others in between
is there for a while.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile

from penstock.errors import CheckpointError, DamagedError
from penstock.operators.runs.run import Run
from penstock.spark.log.entries import Entry
from penstock.spark.log.listed_runs import listed_runs
from penstock.spark.log.runs import open_run
from penstock.spark.log.stream_log import LogReader
from penstock.spark.storage.formats import LOG_ENTRY
from penstock.spark.storage.layout import tuples_kind
from penstock.spark.storage.offsets import REMEDY
from penstock.spark.storage.stored_log import StoredLog


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

    def open(self, after: int = -1) -> list[OpenRun]:
        """Maps the runs into memory; what is open stays readable.

        Args:
            after: only tuples of the entries behind this one are wanted.

        Raises:
            CheckpointError: a file is damaged, or missing: it was replaced, and its time was over before this call.
        """
        folder = LogReader(self.log).path(tuples_kind(self.demand), "")
        return [
            OpenRun(open_run(folder / each.name), max(each.after, after), each.until)
            for each in self.files
            if each.until > after
        ]

    @contextmanager
    def named(self) -> Iterator[None]:
        """Says of what cannot be read of open runs where it is from.

        Raises:
            CheckpointError: a file is damaged.
        """
        try:
            yield
        except ValueError as error:
            names = ", ".join(each.name for each in self.files)
            raise CheckpointError(
                f"the tuples in {self.log} cannot be read ({names}): {error}; {REMEDY}"
            ) from error


class RunFiles:
    """Finds the runs of a demand, time and again, in the ledger alone.

    Args:
        log: the stream's.
        demand: whose tuples.
    """

    def __init__(self, log: LogReader, demand: int) -> None:
        self._log = log
        self._demand = demand
        self._kind = tuples_kind(demand)

    def own(self, entry: Entry) -> FoundRuns:
        """What holds the tuples of an entry that was in no segment when it was read."""
        names = {entry.number: entry.files.get(self._kind, ())}
        before = entry.number - 1
        files = tuple(_own_files(names, before, entry.number))
        return FoundRuns(self._log.log, self._demand, before, entry.number, files)

    def find(self, after: int, until: int) -> FoundRuns:
        """Finds what holds the tuples of the entries behind one and up to another.

        It reads what is listed of them and the entries that are in no segment.

        Args:
            after: number of the first entry, which is left out; -1 for the beginning.
            until: number of the last one.

        Raises:
            CheckpointError: entries or their tuples are gone.
        """
        log = self._log
        # in this order: what is in a segment by then is listed
        made = log.segment_end(log.log.segments.last)
        alone = {each.number: each.files.get(self._kind, ()) for each in log.between(max(after, made), until)}
        found: list[RunFile] = []
        for run in takewhile(lambda run: run.first <= until, listed_runs(log.log, self._demand, after)):
            found += _own_files(run.own, after, until)
            if run.name is not None:
                found.append(RunFile(run.name, max(after, run.first - 1), min(until, run.last)))
            if run.last > made:
                # a segment was made meanwhile
                alone = {n: names for n, names in alone.items() if not run.first <= n <= run.last}
        if after < until and after + 1 < log.first:
            raise DamagedError(str(log.log.entries[after + 1]), f"({LOG_ENTRY.kind}) is missing")
        found += _own_files(alone, after, until)
        return FoundRuns(log.log, self._demand, after, until, tuple(found))


def _own_files(own: Mapping[int, tuple[str, ...]], after: int, until: int) -> list[RunFile]:
    """The files of the entries behind one and up to another that are of one entry each."""
    return [
        RunFile(name, number - 1, number)
        for number, names in own.items()
        if after < number <= until
        for name in names
    ]
