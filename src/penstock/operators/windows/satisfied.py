"""Which conditions the tuples of a batch satisfy, seen by tuple and by condition."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from penstock.kernels.spreading import rows_by_query

Rows = npt.NDArray[np.int64]


class Satisfied:
    """The conditions that each row of a batch satisfies.

    Args:
        offsets, conditions: row i satisfies conditions[offsets[i]:offsets[i + 1]]; int64[rows + 1] and int32[pairs].
        count: conditions are below it.
    """

    def __init__(self, offsets: Rows, conditions: npt.NDArray[np.int32], count: int) -> None:
        self._offsets, self._conditions, self._count = offsets, conditions, count

    @classmethod
    def none(cls, rows: int) -> Satisfied:
        """No row satisfies any."""
        return cls(np.zeros(rows + 1, np.int64), np.zeros(0, np.int32), 0)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self._offsets) - 1

    def rows_of(self, condition: int | None) -> Rows:
        """The rows that satisfy a condition, ascending."""
        if condition is None or condition >= self._count:
            return np.zeros(0, np.int64)
        starts, rows = self._by_condition
        return rows[starts[condition] : starts[condition + 1]]

    def of(self, conditions: Sequence[int | None]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """The rows that satisfy some conditions, ascending, once for each, and the places of these among the given ones."""
        places = np.full(self._count, -1, np.int32)
        for place, condition in enumerate(conditions):
            if condition is not None and condition < self._count:
                places[condition] = place
        own = places[self._conditions]
        rows = np.repeat(np.arange(self.rows, dtype=np.int32), np.diff(self._offsets))
        is_one = own >= 0
        return (rows, own) if is_one.all() else (rows[is_one], own[is_one])

    @cached_property
    def _by_condition(self) -> tuple[Rows, Rows]:
        return rows_by_query(self._offsets, self._conditions, self._count)
