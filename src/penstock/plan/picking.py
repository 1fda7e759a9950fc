"""Entries of a list by their numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TypeVar

import numpy as np
import numpy.typing as npt

Entry = TypeVar("Entry")


def stretches(numbers: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yield the stretches of consecutive numbers that make up some numbers, each by its first number and the one behind its last."""
    breaks = np.flatnonzero(np.diff(numbers) != 1) + 1
    for begin, end in pairwise([0, *breaks.tolist(), len(numbers)]):
        if begin < end:
            first = int(numbers[begin])
            yield first, first + end - begin


def picked(entries: Sequence[Entry], numbers: npt.NDArray[np.int64]) -> list[Entry]:
    """Return the entries with some numbers, in their order; quick where most numbers follow each other.

    >>> picked(["a", "b", "c", "d"], np.array([1, 2, 0]))
    ['b', 'c', 'a']
    """
    found: list[Entry] = []
    for first, end in stretches(numbers):
        found += entries[first:end]
    return found
