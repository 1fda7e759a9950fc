"""The rows of a view among the stored rows of its files, read from any place on in either order. Needs no JVM."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.spark.storage.columns import metadata_of, rows_of
from penstock.spark.storage.store_paths import StorePath

Ints = npt.NDArray[np.int64]
#: of some stored rows: which are rows of the view, by their places, and these rows
Pick = Callable[[pa.RecordBatch], tuple[Ints, pa.RecordBatch]]


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Successive stored rows, and those of a view among them.

    Attributes:
        rows: the rows of the view, in the order of reading.
        numbers: int64[rows], which stored rows they are; 0 is the oldest.
        end: how many stored rows are older than the place where the part ends, in the order of reading.
    """

    rows: pa.RecordBatch
    numbers: Ints
    end: int


@dataclass(frozen=True, slots=True, eq=False)
class StoredRows:
    """The rows of a view, and the files that have them beside rows of other views.

    Attributes:
        schema: the columns of the view.
        files: the files in order of batch, each with its number of rows.
        stored: the columns that are read of them.
        pick: finds the rows of the view.
    """

    schema: pa.Schema
    files: Sequence[tuple[StorePath, int]]
    stored: pa.Schema
    pick: Pick

    @property
    def count(self) -> int:
        """How many rows are stored, those of other views too."""
        return sum(rows for _, rows in self.files)

    def parts(self, begin: int = 0, *, newest_first: bool = False) -> Iterator[Part]:
        """Yield the rows of the view behind a place; row groups before it are not read.

        Args:
            begin: how many stored rows are older than the place.
            newest_first: whether the rows before the place are read, the newest first.

        Raises:
            DamagedError: a file cannot be read.
        """
        ends = accumulate(rows for _, rows in self.files)
        files = [(path, end - rows, end) for (path, rows), end in zip(self.files, ends, strict=True)]
        if newest_first:
            for path, start, _ in (each for each in reversed(files) if each[1] < begin):
                yield from self._backwards(path, start, begin)
        else:
            for path, start, _ in (each for each in files if each[2] > begin):
                yield from self._forwards(path, start, begin)

    def _forwards(self, path: StorePath, first: int, begin: int) -> Iterator[Part]:
        for group, start, end in _groups(path, first):
            if end <= begin:
                continue
            for place, batch in self._read(path, group, start):
                left = max(0, begin - place)
                if left < batch.num_rows:
                    numbers, rows = self.pick(batch.slice(left))
                    yield Part(rows, numbers + place + left, place + batch.num_rows)

    def _backwards(self, path: StorePath, first: int, begin: int) -> Iterator[Part]:
        for group, start, _ in reversed(_groups(path, first)):
            if start >= begin:
                continue
            # of a row group only the rows of the view are kept
            found = []
            for place, batch in self._read(path, group, start):
                if place >= begin:
                    break
                found.append((place, *self.pick(batch.slice(0, begin - place))))
            for place, numbers, rows in reversed(found):
                order = pa.array(np.arange(rows.num_rows)[::-1])
                yield Part(rows.take(order), numbers[::-1] + place, place)

    def _read(self, path: StorePath, group: int, place: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The rows of a row group with the columns that are read; a column that the file lacks is NULL."""
        for batch in rows_of(path, self.stored, [group]):
            yield place, batch
            place += batch.num_rows


def _groups(path: StorePath, place: int) -> list[tuple[int, int, int]]:
    """The row groups of a file: number, place of the first row, and of the row behind the last."""
    metadata = metadata_of(path)
    found = []
    for group in range(metadata.num_row_groups):
        rows = metadata.row_group(group).num_rows
        found.append((group, place, place + rows))
        place += rows
    return found
