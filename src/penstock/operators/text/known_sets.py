"""Sets of patterns that values satisfy, numbered in the order in which they are first met."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

from penstock.kernels.text_tables import enter, number_sets

Array = TypeVar("Array", bound=np.ndarray)  # type: ignore[type-arg]


class KnownSets:
    """Numbered sets of numbers; the first, 0, is the empty one. They are kept as long as the object is."""

    def __init__(self) -> None:
        self._slots = np.full(64, -1, np.int32)
        self._hashes = np.zeros(32, np.uint64)
        self._starts = np.zeros(33, np.int64)
        self._pool = np.empty(256, np.int32)
        self._count = 1

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        """Bytes of the table."""
        return self._slots.nbytes + self._hashes.nbytes + self._starts.nbytes + self._pool.nbytes

    def members(self, number: int) -> npt.NDArray[np.int32]:
        """int32[], ascending: what a set holds."""
        return self._pool[self._starts[number] : self._starts[number + 1]]

    def number(
        self,
        members: npt.NDArray[np.int32],
        values: npt.NDArray[np.int32],
        signatures: npt.NDArray[np.uint32],
    ) -> None:
        """Writes signatures[value], the number of a value's set and 1, for each value that has members.

        Args:
            members: int32[], which follow each other where they are of one value.
            values: int32[], whose they are.
            signatures: uint32[values].
        """
        if not len(members):
            return
        new = 1 + int(np.count_nonzero(values[1:] != values[:-1]))
        self._make_room(self._count + new, int(self._starts[self._count]) + len(members))
        self._count = number_sets(
            members, values, self._slots, self._hashes, self._starts, self._pool, self._count, signatures
        )

    def _make_room(self, sets: int, members: int) -> None:
        """For so many sets, and members of all sets."""
        self._pool = _grown(self._pool, members)
        if sets > len(self._hashes):
            self._hashes = _grown(self._hashes, sets)
            self._starts = _grown(self._starts, len(self._hashes) + 1)
            self._slots = np.full(1 << (2 * len(self._hashes) - 1).bit_length(), -1, np.int32)
            enter(self._slots, self._hashes, self._count)


def _grown(array: Array, size: int) -> Array:
    """An array with room for so many, at least twice as long as before where it was too short."""
    if size <= len(array):
        return array
    grown = np.zeros(max(size, 2 * len(array)), array.dtype)
    grown[: len(array)] = array
    return grown  # type: ignore[return-value]
