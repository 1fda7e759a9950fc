"""Which conditions the tuples of a batch satisfy, seen by tuple and by condition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.kernels.spreading import rows_by_query

Rows = npt.NDArray[np.int64]
Ints = npt.NDArray[np.int32]


@dataclass(slots=True, eq=False)
class Part:
    """Some conditions, and which of them each class of tuples satisfies.

    Attributes:
        offsets, conditions: class c satisfies conditions[offsets[c]:offsets[c + 1]]; int64[classes + 1] and int32[pairs].
        classes: int32[rows], the class of each row; None: each row is the class of its number.
    """

    offsets: Rows
    conditions: Ints
    classes: Ints | None = None
    _by_condition: tuple[Rows, Rows] | None = None

    def pairs(self, places: Ints) -> tuple[Ints, Ints]:
        """The classes of the rows, ascending, once for each condition that has a place, and these places.

        Args:
            places: int32[conditions], -1 where a condition has none.
        """
        degrees = np.diff(self.offsets)
        if self.classes is not None:
            occurring = np.bincount(self.classes, minlength=len(degrees)) > 0
            if not occurring.all():
                chosen = np.repeat(occurring, degrees)
                classes = np.repeat(np.arange(len(degrees), dtype=np.int32), np.where(occurring, degrees, 0))
                return _placed(classes, places[self.conditions[chosen]])
        return _placed(np.repeat(np.arange(len(degrees), dtype=np.int32), degrees), places[self.conditions])

    def of_rows(self, of_classes: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
        """For each row what its class has."""
        return of_classes if self.classes is None else of_classes[self.classes]

    def rows_of(self, condition: int) -> Rows:
        """The rows that satisfy a condition, ascending."""
        if self._by_condition is None:
            count = int(self.conditions.max(initial=-1)) + 1
            self._by_condition = rows_by_query(self.offsets, self.conditions, count)
        starts, classes = self._by_condition
        own = (
            classes[starts[condition] : starts[condition + 1]] if condition < len(starts) - 1 else classes[:0]
        )
        if self.classes is None:
            return own
        holds = np.zeros(len(self.offsets) - 1, np.bool_)
        holds[own] = True
        return np.flatnonzero(holds[self.classes])


def _placed(classes: Ints, places: Ints) -> tuple[Ints, Ints]:
    has_one = places >= 0
    return (classes, places) if has_one.all() else (classes[has_one], places[has_one])


@dataclass(frozen=True, slots=True, eq=False)
class Satisfied:
    """The conditions that each row of a batch satisfies.

    Attributes:
        rows: number of rows.
        parts: each condition is in one part.
        count: conditions are below it.
    """

    rows: int
    parts: Sequence[Part]
    count: int

    @classmethod
    def by_row(cls, offsets: Rows, conditions: Ints, count: int) -> Satisfied:
        """Row i satisfies conditions[offsets[i]:offsets[i + 1]]."""
        return cls(len(offsets) - 1, [Part(offsets, conditions)], count)

    @classmethod
    def none(cls, rows: int) -> Satisfied:
        """No row satisfies any."""
        return cls(rows, [], 0)

    def rows_of(self, condition: int | None) -> Rows:
        """The rows that satisfy a condition, ascending."""
        for part in self.parts if condition is not None else ():
            found = part.rows_of(condition or 0)
            if len(found):
                return found
        return np.zeros(0, np.int64)

    def places(self, conditions: Sequence[int | None]) -> Ints:
        """int32[conditions]: the place of each condition among some of them, -1 where it has none."""
        found = np.full(self.count, -1, np.int32)
        for place, condition in enumerate(conditions):
            if condition is not None and condition < self.count:
                found[condition] = place
        return found
