"""Published rows that are read again soon: small files, by many followers, and row groups, by one that takes few rows at a time."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future

import pyarrow as pa

from penstock.spark.storage.columns import batches_of, metadata_of
from penstock.spark.storage.store_paths import StorePath

#: a file with more rows is read by each follower on its own, row group by row group
SMALL_ROWS = 20_000
#: a row group with more bytes is not kept
_MOST_GROUP_BYTES = 16 << 20
_MOST_BYTES = 64 << 20


#: a file, and the number of a row group or None
_Key = tuple[StorePath, int | None]


class SharedFiles:
    """Keeps the rows of the newest small files and row groups; any thread may read. Who reads one file holds up no reader of another."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[_Key, Future[Sequence[pa.RecordBatch]]] = OrderedDict()
        self._bytes = 0

    def read(self, path: StorePath, group: int | None = None) -> Sequence[pa.RecordBatch]:
        """All columns of the rows of a file, or of one of its row groups; no other file ever has its path.

        Raises:
            DamagedError: it is missing, or is not what was written.
        """
        key = path, group
        with self._lock:
            known = self._known.get(key)
            is_first = known is None
            if known is None:
                known = self._known[key] = Future()
        if is_first:
            self._fill(key, known)
        return known.result()

    def between(
        self, path: StorePath, rows: int, begin: int, end: int
    ) -> list[tuple[int, Sequence[pa.RecordBatch]]] | None:
        """The kept parts of a file that have the rows between two of its places, and the place of each; None where one is too large to
        be kept.

        Args:
            path: the file.
            rows: how many it has.
            begin, end: how many of its rows are before the first wanted row, and before the first one behind.

        Raises:
            DamagedError: see `read`.
        """
        if rows <= SMALL_ROWS:
            return [(0, self.read(path))]
        metadata, place, found = metadata_of(path), 0, []
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            if begin < place + group.num_rows and place < end:
                if group.total_byte_size > _MOST_GROUP_BYTES:
                    return None
                found.append((place, self.read(path, number)))
            place += group.num_rows
        return found

    def _fill(self, key: _Key, known: Future[Sequence[pa.RecordBatch]]) -> None:
        path, group = key
        try:
            rows = list(batches_of(path, row_groups=None if group is None else [group]))
        except BaseException as error:
            with self._lock:
                del self._known[key]
            known.set_exception(error)
            return
        known.set_result(rows)
        with self._lock:
            self._bytes += _bytes_of(rows)
            for other in [each for each, found in self._known.items() if found.done() and each != key]:
                if self._bytes <= _MOST_BYTES:
                    break
                self._bytes -= _bytes_of(self._known.pop(other).result())


def _bytes_of(batches: Sequence[pa.RecordBatch]) -> int:
    return sum(each.nbytes for each in batches)


SHARED = SharedFiles()
