"""What a match of each compiled query means: a view's answer, a tuple for windows, or one lost to an error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from penstock.operators.windows.satisfied import Satisfied


class Kind(IntEnum):
    """What satisfying a query says of a tuple."""

    #: it satisfies a selection view
    VIEW = 0
    #: it satisfies a condition of window views
    CONDITION = 1
    #: an expression raised that decides whether it satisfies a selection view
    VIEW_ERROR = 2
    #: likewise of a condition of window views
    CONDITION_ERROR = 3


@dataclass(frozen=True, slots=True, eq=False)
class ToldApart:
    """The matches of a batch by what they mean.

    Attributes:
        offsets, queries: those of views: row i satisfies the views queries[offsets[i]:offsets[i + 1]].
        satisfied: the conditions of window views that the rows satisfy.
        view_errors, condition_errors: rows lost to an expression that raised, int64[views] and int64[conditions];
            None where there are none.
    """

    offsets: npt.NDArray[np.int64]
    queries: npt.NDArray[np.int32]
    satisfied: Satisfied
    view_errors: npt.NDArray[np.int64] | None = None
    condition_errors: npt.NDArray[np.int64] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Outcomes:
    """The outcome of each query of a program. Views' come first, in order: a match of one is its number.

    Attributes:
        kinds: uint8[queries], values of `Kind`.
        numbers: int32[queries].
        views, conditions: how many there are.
    """

    kinds: npt.NDArray[np.uint8]
    numbers: npt.NDArray[np.int32]
    views: int
    conditions: int

    @classmethod
    def numbered(
        cls, views: int, conditions: int = 0, errors: Sequence[int] | npt.NDArray[np.int64] = ()
    ) -> Outcomes:
        """The outcomes of the queries of views, of conditions, and of those that find what is lost to errors.

        Args:
            views, conditions: how many there are.
            errors: the number, among views and conditions, of each query by which an error query loses tuples.
        """
        lost = np.asarray(errors, np.int32)
        of_views = lost < views
        error_kinds = np.where(of_views, Kind.VIEW_ERROR, Kind.CONDITION_ERROR)
        return cls(
            np.concatenate([np.repeat([Kind.VIEW, Kind.CONDITION], [views, conditions]), error_kinds]).astype(
                np.uint8
            ),
            np.concatenate(
                [np.arange(views), np.arange(conditions), np.where(of_views, lost, lost - views)]
            ).astype(np.int32),
            views,
            conditions,
        )

    def tell_apart(
        self, offsets: npt.NDArray[np.int64], queries: npt.NDArray[np.int32], rows: int
    ) -> ToldApart:
        """Sorts the matches of a batch by what they mean.

        Args:
            offsets, queries: row i satisfies queries[offsets[i]:offsets[i + 1]].
            rows: number of rows.
        """
        if self.views == len(self.kinds):
            return ToldApart(offsets, queries, Satisfied.none(rows))
        others = queries >= self.views
        if not others.any():
            return ToldApart(offsets, queries, Satisfied.none(rows))
        found = queries[others]
        kinds, numbers = self.kinds[found], self.numbers[found]
        holds = others.copy()
        holds[others] = kinds == Kind.CONDITION
        satisfied = Satisfied.by_row(_offsets(holds, offsets), self.numbers[queries[holds]], self.conditions)
        return ToldApart(
            _offsets(~others, offsets),
            queries[~others],
            satisfied,
            _counted(numbers[kinds == Kind.VIEW_ERROR], self.views),
            _counted(numbers[kinds == Kind.CONDITION_ERROR], self.conditions),
        )


def _offsets(chosen: npt.NDArray[np.bool_], offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Where the rows of the chosen matches begin."""
    count = int(np.count_nonzero(chosen))
    if count == len(chosen):
        return offsets
    if not count:
        return np.zeros_like(offsets)
    return np.concatenate(([0], np.cumsum(chosen)))[offsets]


def _counted(numbers: npt.NDArray[np.int32], most: int) -> npt.NDArray[np.int64] | None:
    return np.bincount(numbers, minlength=most) if len(numbers) else None
