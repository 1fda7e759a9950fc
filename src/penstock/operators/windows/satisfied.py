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
        family: parts of equal families have the same classes, later ones more of them; None: those of this part alone.
    """

    offsets: Rows
    conditions: Ints
    classes: Ints | None = None
    family: object = None
    _by_condition: tuple[Rows, Rows] | None = None

    def occurring(self) -> npt.NDArray[np.bool_]:
        """bool[classes]: whether some row is of the class."""
        count = len(self.offsets) - 1
        return (
            np.ones(count, np.bool_)
            if self.classes is None
            else np.bincount(self.classes, minlength=count) > 0
        )

    def pairs(self, chosen: npt.NDArray[np.bool_], places: Ints) -> tuple[Ints, Ints]:
        """Chosen classes, ascending, once for each condition that has a place, and these places.

        Args:
            chosen: bool[classes].
            places: int32[conditions], -1 where a condition has none.
        """
        degrees = np.diff(self.offsets)
        classes = np.repeat(np.arange(len(degrees), dtype=np.int32), np.where(chosen, degrees, 0))
        own = places[self.conditions if chosen.all() else self.conditions[np.repeat(chosen, degrees)]]
        has_one = own >= 0
        return (classes, own) if has_one.all() else (classes[has_one], own[has_one])

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

    def places(self, conditions: Ints) -> Ints:
        """int32[conditions]: the place of each condition among some of them, -1 where it has none.

        Args:
            conditions: int32[], -1 for none.
        """
        found = np.full(self.count, -1, np.int32)
        known = np.flatnonzero((conditions >= 0) & (conditions < self.count))
        found[conditions[known]] = known
        return found
