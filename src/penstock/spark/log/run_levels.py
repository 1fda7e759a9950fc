"""Levels of runs: those of segments are merged into ever larger ones as they age, as in an LSM tree.

Level 0 is the run of one segment, level n stands for 16 of level n - 1 that begin at a multiple of 16^n segments. The ledger lists
the runs (`listed_runs`): one commit lists a merged run in place of those it stands for, and puts the names of these, which are deleted
later. Runs that cannot be merged stay as they are. A run leaves with the last of its segments.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import takewhile

from penstock.spark.log.listed_runs import ListedRun, listed_runs
from penstock.spark.log.runs import merge_run_files
from penstock.spark.log.stream_log import LogReader
from penstock.spark.publication.compaction import FAILURES
from penstock.spark.storage.failpoints import failpoint
from penstock.spark.storage.layout import TUPLES_FILES, tuples_kind
from penstock.spark.storage.ledger_documents import commit
from penstock.spark.storage.replaced import ReplacedFiles
from penstock.spark.storage.store_paths import name_below, put_written, size_of

#: runs of a level that become one of the next
FANOUT = 16


def run_name(level: int, place: int) -> str:
    """The name of a run: level 0 is a segment's."""
    return f"level-{level}-{place:010d}.arrow"


@dataclass(frozen=True, slots=True)
class Unmerged:
    """Files of a log that could not be merged; they stay as they are.

    Attributes:
        segment: the one that names them, or the last one of those whose runs they are.
        files: their kind.
        error: why.
    """

    segment: int
    files: str
    error: str


class RunLevels:
    """Merges the runs of a log; one thread at a time, the one that makes and removes segments.

    Args:
        log: the log.
        most_bytes: no run is made that is larger.
        told: given what could not be merged.
        replaced: given the runs that a larger one stands for.
    """

    def __init__(
        self, log: LogReader, most_bytes: int, told: Callable[[Unmerged], None], replaced: ReplacedFiles
    ) -> None:
        self._log = log
        self._most_bytes = most_bytes
        self._told = told
        self._replaced = replaced

    def merge(self, segment: int) -> None:
        """Merges what is complete with a segment, the last one made; where that is done already, nothing changes."""
        level = 1
        while segment >= 0 and (segment + 1) % FANOUT**level == 0:
            for demand in self._log.log.demands():
                try:
                    self._merge(demand, level, segment // FANOUT**level)
                except FAILURES as error:
                    self._told(Unmerged(segment, tuples_kind(demand), str(error)))
            level += 1

    def recover(self, segment: int) -> None:
        """Deletes merged runs that were not listed before a crash, and merges what was to be merged.

        Args:
            segment: the last one made; -1 where none is.
        """
        log = self._log.log
        runs = (run for demand in log.demands() for run in listed_runs(log, demand))
        listed = {run.path for run in runs} | self._replaced.listed()
        for path in (log.files / TUPLES_FILES).glob("*/level-*.arrow"):
            if name_below(log.files, path) not in listed:
                path.unlink(missing_ok=True)
        self.merge(segment)

    def before(self, entry: int) -> list[ListedRun]:
        """What is listed of the tuples of earlier entries alone."""
        runs = (listed_runs(self._log.log, demand) for demand in self._log.log.demands())
        return [run for each in runs for run in takewhile(lambda run: run.last < entry, each)]

    def _merge(self, demand: int, level: int, place: int) -> None:
        log, size = self._log.log, FANOUT**level
        before, last = (self._log.segment_end(size * each - 1) for each in (place, place + 1))
        members = list(takewhile(lambda run: run.last <= last, listed_runs(log, demand, before)))
        merged = [run.path for run in members if run.path is not None]
        if len(merged) < 2 or sum(run.bytes for run in members) > self._most_bytes:
            return
        name = run_name(level, place)
        path = f"{tuples_kind(demand)}/{name}"
        put_written(log.files, path, partial(merge_run_files, [(0, log.files / each) for each in merged]))
        own = {number: names for run in members for number, names in run.own.items()}
        target = ListedRun(demand, before + 1, last, name, size_of(log.files / path), own)
        failpoint("runs_merged", place)
        gone, runs = self._replaced.document(path, merged), log.runs(demand)
        commit({runs[last]: target.document(), **gone}, [runs[run.last] for run in members])
        self._replaced.committed(gone)
        self._replaced.remove()
