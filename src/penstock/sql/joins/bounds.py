"""Difference bounds: what conditions on the event times of several streams say of every two of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from penstock.plan.joins import TimeBound


class DifferenceBounds:
    """Upper bounds on differences of event times, closed under addition (shortest paths).

    Args:
        streams: numbers of the inputs that are streams.
    """

    def __init__(self, streams: Sequence[int]) -> None:
        self._streams = tuple(sorted(streams))
        #: by (earlier, later): the most that the later's event time may be after the earlier's, microseconds
        self._most: dict[tuple[int, int], int] = {}

    def has(self, stream: int) -> bool:
        """Whether it is one of the streams."""
        return stream in self._streams

    def add(self, earlier: int, later: int, most: int) -> None:
        """Notes that (event time of `later`) - (event time of `earlier`) <= `most` microseconds."""
        for first in self._streams:
            for last in self._streams:
                before = 0 if first == earlier else self._most.get((first, earlier))
                after = 0 if later == last else self._most.get((later, last))
                if before is not None and after is not None:
                    path = before + most + after
                    self._most[first, last] = min(path, self._most.get((first, last), path))

    def most(self, earlier: int, later: int) -> int | None:
        """The bound on a difference, None where there is none."""
        return self._most.get((earlier, later))

    @property
    def is_contradictory(self) -> bool:
        """Whether no event times satisfy all of them."""
        return any(self._most.get((stream, stream), 0) < 0 for stream in self._streams)

    def bounds(self) -> tuple[TimeBound, ...]:
        """The bound of every two streams that have one on both sides."""
        found = []
        for left, right in combinations(self._streams, 2):
            lower, upper = self.most(right, left), self.most(left, right)
            if lower is not None and upper is not None:
                found.append(TimeBound(left, right, -lower, upper))
        return tuple(found)
