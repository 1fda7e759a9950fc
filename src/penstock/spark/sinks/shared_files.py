"""Small published files that many followers read at about the same time: read once."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

import pyarrow as pa

from penstock.spark.storage.columns import batches_of
from penstock.spark.storage.store_paths import StorePath

#: a file with more rows is read by each follower on its own, row group by row group
SMALL_ROWS = 20_000
_MOST_BYTES = 64 << 20


class SharedFiles:
    """Keeps the rows of the newest small files; any thread may read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[StorePath, Sequence[pa.RecordBatch]] = OrderedDict()
        self._bytes = 0

    def read(self, path: StorePath) -> Sequence[pa.RecordBatch]:
        """All rows and columns of a file; no other file ever has its path.

        Raises:
            DamagedError: it is missing, or is not what was written.
        """
        with self._lock:
            known = self._known.get(path)
            if known is None:
                known = self._known[path] = list(batches_of(path))
                self._bytes += _bytes_of(known)
                while self._bytes > _MOST_BYTES and len(self._known) > 1:
                    self._bytes -= _bytes_of(self._known.popitem(last=False)[1])
            return known


def _bytes_of(batches: Sequence[pa.RecordBatch]) -> int:
    return sum(each.nbytes for each in batches)


SHARED = SharedFiles()
