"""Where the rows of a group are in a table that does not change: its hashes in order, searched by bisection."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.operators.hashing import key_hashes

Hashes = npt.NDArray[np.uint64]


class GroupIndex:
    """An index of a table by the hashes of its keys. Building takes O(n log n), a search O(m log n), both in vectors.

    Args:
        table: with the keys.
        keys: the grouping columns.
    """

    def __init__(self, table: pa.Table, keys: Sequence[str]) -> None:
        hashes = key_hashes(table, keys)
        self._order = np.argsort(hashes, kind="stable")
        self._hashes = hashes[self._order]

    def find(self, hashes: Hashes) -> npt.NDArray[np.int64]:
        """int64[found]: the places of the rows whose keys have one of some hashes, which ascend and differ."""
        first = np.searchsorted(self._hashes, hashes, "left")
        counts = np.searchsorted(self._hashes, hashes, "right") - first
        first, counts = first[counts > 0], counts[counts > 0]
        # 0, 1, ... within each stretch of equal hashes
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        places: npt.NDArray[np.int64] = self._order[np.repeat(first, counts) + within]
        return places
