"""Small published files that many followers read at about the same time: read once."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future

import pyarrow as pa

from penstock.spark.storage.columns import batches_of
from penstock.spark.storage.store_paths import StorePath

#: a file with more rows is read by each follower on its own, row group by row group
SMALL_ROWS = 20_000
_MOST_BYTES = 64 << 20


class SharedFiles:
    """Keeps the rows of the newest small files; any thread may read. Who reads one file holds up no reader of another."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[StorePath, Future[Sequence[pa.RecordBatch]]] = OrderedDict()
        self._bytes = 0

    def read(self, path: StorePath) -> Sequence[pa.RecordBatch]:
        """All rows and columns of a file; no other file ever has its path.

        Raises:
            DamagedError: it is missing, or is not what was written.
        """
        with self._lock:
            known = self._known.get(path)
            is_first = known is None
            if known is None:
                known = self._known[path] = Future()
        if is_first:
            self._fill(path, known)
        return known.result()

    def _fill(self, path: StorePath, known: Future[Sequence[pa.RecordBatch]]) -> None:
        try:
            rows = list(batches_of(path))
        except BaseException as error:
            with self._lock:
                del self._known[path]
            known.set_exception(error)
            return
        known.set_result(rows)
        with self._lock:
            self._bytes += _bytes_of(rows)
            for other in [each for each, found in self._known.items() if found.done() and each != path]:
                if self._bytes <= _MOST_BYTES:
                    break
                self._bytes -= _bytes_of(self._known.pop(other).result())


def _bytes_of(batches: Sequence[pa.RecordBatch]) -> int:
    return sum(each.nbytes for each in batches)


SHARED = SharedFiles()
