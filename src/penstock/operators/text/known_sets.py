"""Sets of what values or tuples satisfy, numbered in the order in which they are first met."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

from penstock.kernels.text_tables import enter, number_sets

Array = TypeVar("Array", bound=np.ndarray)


class KnownSets:
    """Numbered sets of numbers; the first, 0, is the empty one. They live as long as the object."""

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

    @property
    def table(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], int]:
        """int64[sets + 1] and int32[]: set s holds pool[starts[s]:starts[s + 1]]; all members are below the last number."""
        starts = self._starts[: self._count + 1]
        pool = self._pool[: starts[-1]]
        return starts, pool, int(pool.max(initial=-1)) + 1

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
        done = 0
        while done < len(members):
            self._count, done = number_sets(
                members,
                values,
                done,
                self._slots,
                self._hashes,
                self._starts,
                self._pool,
                self._count,
                signatures,
            )
            if done < len(members):
                self._make_room(int(np.argmax(values[done:] != values[done])) or len(members) - done)

    def _make_room(self, members: int) -> None:
        """For one more set of so many members, and for twice as many sets."""
        used = int(self._starts[self._count])
        if used + members > len(self._pool):
            self._pool = _longer(self._pool, max(2 * len(self._pool), used + members))
        if self._count == len(self._hashes):
            self._hashes = _longer(self._hashes, 2 * self._count)
            self._starts = _longer(self._starts, 2 * self._count + 1)
            self._slots = np.full(4 * self._count, -1, np.int32)
            enter(self._slots, self._hashes, self._count)


def _longer(array: Array, size: int) -> Array:
    """An array of some length that begins with another."""
    longer = np.zeros(size, array.dtype)
    longer[: len(array)] = array
    return longer  # type: ignore[return-value]
