"""Which files are merged, in levels as in a log-structured merge tree, and how."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, groupby
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.spark.publication.manifests import ListedFile
from penstock.spark.storage.columns import batches_of, conform, schema_of
from penstock.spark.storage.store_paths import StorePath

#: a row group of a merged file
_GROUP_ROWS, _GROUP_BYTES = 1_000_000, 32 << 20


@dataclass(frozen=True, slots=True)
class Run:
    """Files of one kind that hold the rows of batches that follow each other: one file, or several to be merged.

    Attributes:
        level: how often they were merged, this time included.
        files: in order of batch.
    """

    level: int
    files: tuple[ListedFile, ...]

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(file.size for file in self.files)


def runs_of(files: Sequence[ListedFile]) -> list[Run]:
    """Files of one kind, in order of batch, as runs: what holds rows of the same batches belongs together."""
    grouped = groupby(files, lambda file: (file.first, file.last, file.level))
    return [Run(level, tuple(members)) for (_, _, level), members in grouped]


@dataclass(frozen=True, slots=True)
class Levels:
    """How far files are merged.

    Attributes:
        fan_in: runs of a level before the oldest of them become one of the next.
        most_bytes: no files are merged to a larger one.
    """

    fan_in: int = 16
    most_bytes: int = 128 << 20

    def arranged(self, runs: Sequence[Run], part: Callable[[Run], int] | None = None) -> list[Run]:
        """Which files are to be merged.

        New runs, of level 0, become as few of level 1 as their sizes allow. Where a level has `fan_in` runs, the oldest
        of them become one of the next, as many as fit. So there are about as many files as levels times `fan_in`, plus
        one for each `most_bytes`, and a row is written once a level.

        Where rows leave after a time, runs of different parts of it are not merged, and those of a part that is over become one.

        Args:
            runs: those of one kind in order of batch.
            part: of a run the number of the part of time that it is of, ascending; None: rows never leave.

        Returns:
            The runs from now on; one of several files is to be merged if `fits`.
        """
        if part is None:
            return self._levelled(runs)
        *over, newest = [list(own) for _, own in groupby(runs, part)] or [[]]
        return [*chain.from_iterable(map(self._gathered, over)), *self._levelled(newest)]

    def _gathered(self, runs: list[Run]) -> Iterator[Run]:
        """Runs as few as their sizes allow."""
        while runs:
            first, before = runs[0], len(runs)
            taken = self._taken(runs, before)
            yield taken if before - len(runs) > 1 or first.level == 0 else first

    def _levelled(self, runs: Sequence[Run]) -> list[Run]:
        # those of a part of time that was over once may have fewer levels than later ones
        least = [*accumulate((run.level for run in reversed(runs)), max)][::-1]
        by_level: dict[int, list[Run]] = {}
        for run, level in zip(runs, least, strict=True):
            by_level.setdefault(level, []).append(run if run.level == level else replace(run, level=level))
        new = by_level.pop(0, [])
        while new:
            by_level.setdefault(1, []).append(self._taken(new, len(new)))
        level = 1
        while level <= max(by_level, default=0):
            members = by_level.get(level, [])
            while len(members) >= self.fan_in:
                by_level.setdefault(level + 1, []).append(self._taken(members, self.fan_in))
            level += 1
        return [run for level in sorted(by_level, reverse=True) for run in by_level[level]]

    def fits(self, run: Run) -> bool:
        """Whether the files of a run make one that is not too large; those of one batch may be more."""
        return run.size <= self.most_bytes

    def _taken(self, runs: list[Run], most: int) -> Run:
        """Takes the first runs away, as many as fit one file, and at least one; gives them as a run of the next level."""
        number, size = 1, runs[0].size
        while number < min(most, len(runs)) and size + runs[number].size <= self.most_bytes:
            size += runs[number].size
            number += 1
        taken = runs[:number]
        del runs[:number]
        return Run(taken[0].level + 1, tuple(file for run in taken for file in run.files))


LEVELS = Levels()


def merge(sources: Sequence[StorePath], target: Path) -> None:
    """Writes the rows of several Parquet files to one; columns that some lack are NULL there.

    Args:
        sources: in the order of the rows.
        target: the file to write.

    Raises:
        OSError: a file cannot be written.
        DamagedError: a source cannot be read.
    """
    schema = pa.unify_schemas(sorted(map(schema_of, sources), key=len, reverse=True))
    held: list[pa.RecordBatch] = []
    rows = size = 0
    with pq.ParquetWriter(
        target, schema, compression="zstd", compression_level=1, write_page_checksum=True
    ) as writer:
        for source in sources:
            for batch in batches_of(source):
                held.append(conform(batch, schema))
                rows, size = rows + batch.num_rows, size + batch.nbytes
                if rows >= _GROUP_ROWS or size >= _GROUP_BYTES:
                    writer.write_table(pa.Table.from_batches(held))
                    held, rows, size = [], 0, 0
        if held:
            writer.write_table(pa.Table.from_batches(held))
