"""Levels of runs: those of segments are merged into ever larger ones as they age, as in an LSM tree.

Level 0 is the run of one segment, level n stands for 16 of level n - 1 that begin at a multiple of 16^n segments. A
run's name says level and place, so nothing lists them: of the runs that cover a segment the one of the highest level holds.
The merged run exists before the ledger names those it stands for, which are deleted later; a kill in between leaves both, which the next start mends. Runs that cannot be merged stay as they are. A run leaves with the last of its segments.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from penstock.errors import CheckpointError
from penstock.spark.log.runs import merge_run_files
from penstock.spark.publication.compaction import FAILURES
from penstock.spark.storage.failpoints import failpoint
from penstock.spark.storage.layout import TUPLES_FILES, tuples_kind
from penstock.spark.storage.ledger_documents import commit
from penstock.spark.storage.offsets import REMEDY
from penstock.spark.storage.replaced import ReplacedFiles
from penstock.spark.storage.store_paths import StorePath, name_below, put_written, size_of

#: runs of a level that become one of the next
FANOUT = 16
#: levels that a run is looked for in: more segments than a log will ever have
_LEVELS = 7
_NAME = re.compile(r"level-(\d+)-(\d+)\.arrow")


def run_name(level: int, place: int) -> str:
    """The name of a run: level 0 is a segment's."""
    return f"level-{level}-{place:010d}.arrow"


def segment_of(name: str) -> int | None:
    """The segment whose run an entry names; None where it names files of its own."""
    match = _NAME.fullmatch(name)
    return None if match is None or int(match[1]) else int(match[2])


def segments_of(name: str) -> range:
    """The segments whose tuples a run holds, but for what is in files that entries name themselves.

    Raises:
        ValueError: it is no name of a run.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        raise ValueError(f"{name} is not a run of segments")
    size, place = FANOUT ** int(match[1]), int(match[2])
    return range(size * place, size * (place + 1))


def run_path(folder: StorePath, segment: int) -> StorePath:
    """Where the tuples of a segment's run lie now, in a file that lives on for a while whatever is merged since.

    Raises:
        CheckpointError: they are gone.
    """
    # of a run and those that it stands for the latter go first
    for level in reversed(range(_LEVELS)):
        path = folder / run_name(level, segment // FANOUT**level)
        if path.is_file():
            return path
    raise CheckpointError(f"the tuples of segment {segment} in {folder} are missing; {REMEDY}")


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
        files: folder of the log's files; the runs of each demand have one of their own in it.
        most_bytes: no run is made that is larger.
        told: given what could not be merged.
        replaced: given the runs that a larger one stands for.
    """

    def __init__(
        self, files: StorePath, most_bytes: int, told: Callable[[Unmerged], None], replaced: ReplacedFiles
    ) -> None:
        self._files = files
        self._most_bytes = most_bytes
        self._told = told
        self._replaced = replaced

    def merge(self, segment: int) -> None:
        """Merges what is complete with a segment, the last one made; where that is done already, nothing changes."""
        level = 1
        while segment >= 0 and (segment + 1) % FANOUT**level == 0:
            for folder in self._demands():
                try:
                    self._merge(folder, level, segment // FANOUT**level)
                except FAILURES as error:
                    self._told(Unmerged(segment, f"{TUPLES_FILES}/{folder.name}", str(error)))
            level += 1

    def recover(self, segment: int) -> None:
        """Finishes what was left half done.

        Args:
            segment: the last one made; -1 where none is.
        """
        for folder in self._demands():
            for name in [path.name for path in folder.iterdir()]:
                match = _NAME.fullmatch(name)
                if match is not None and int(match[1]):
                    self._replace(folder, int(match[1]), int(match[2]))
        self.merge(segment)

    def remove(self, segment: int) -> None:
        """Removes the runs that a segment is the last one of; segments leave in order."""
        for folder in self._demands():
            for level in range(_LEVELS):
                if (segment + 1) % FANOUT**level == 0:
                    (folder / run_name(level, segment // FANOUT**level)).unlink(missing_ok=True)

    def demands(self) -> set[int]:
        """The demands that have a folder; in an object store those that have files."""
        return {int(folder.name) for folder in self._demands()}

    def empty(self) -> set[int]:
        """Those of them with nothing in it; an object store has no empty folders."""
        folders = [each for each in self._demands() if isinstance(each, Path)]
        return {int(folder.name) for folder in folders if not any(folder.iterdir())}

    def forget(self, demand: int) -> None:
        """Removes the empty folder of a demand that nothing is put for any more."""
        folder = self._files / tuples_kind(demand)
        if isinstance(folder, Path):
            folder.rmdir()

    def _demands(self) -> list[StorePath]:
        folder = self._files / TUPLES_FILES
        return sorted(folder.iterdir(), key=str) if folder.is_dir() else []

    def _merge(self, folder: StorePath, level: int, place: int) -> None:
        target = folder / run_name(level, place)
        members = list(self._members(folder, level, place))
        if target.is_file() or len(members) < 2 or sum(map(size_of, members)) > self._most_bytes:
            return
        write = partial(merge_run_files, [(0, path) for path in members])
        put_written(self._files, name_below(self._files, target), write)
        failpoint("runs_merged", place)
        self._replace(folder, level, place)

    def _replace(self, folder: StorePath, level: int, place: int) -> None:
        """Puts the names of the runs that a run stands for, to be deleted later."""
        members = [name_below(self._files, path) for path in self._members(folder, level, place)]
        known = self._replaced.listed()
        key = name_below(self._files, folder / run_name(level, place))
        gone = self._replaced.document(key, [name for name in members if name not in known])
        if gone:
            commit(gone)
            self._replaced.committed(gone)
        self._replaced.remove()

    def _members(self, folder: StorePath, level: int, place: int) -> Iterator[StorePath]:
        """The runs of lower levels that a run stands for, or is to stand for, in order."""
        segment, end = place * FANOUT**level, (place + 1) * FANOUT**level
        while segment < end:
            for below in range(level - 1, -1, -1):
                path = folder / run_name(below, segment // FANOUT**below)
                if segment % FANOUT**below == 0 and path.is_file():
                    yield path
                    segment += FANOUT**below
                    break
            else:
                segment += 1
