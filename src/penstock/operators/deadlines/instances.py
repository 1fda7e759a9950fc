"""Instances of a window, each worked out from the last one that was, or afresh.

Source: Wu, Gu, Lyu, Yu: output(W_t) = output(W_{t-jH}) + output+(W_t - W_{t-jH}) + output-(W_{t-jH} - W_t), whatever was shed between.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import AggregateFailedError
from penstock.operators.deadlines.aggregates import UserAggregate
from penstock.plan.deadlines import WindowWork

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Extent:
    """Which tuples an instance holds.

    Attributes:
        start, end: times in [start, end), microseconds: event times, or those of arrival.
        entries: of those that came with an entry of the log below this number: a late tuple belongs to later instances only.
    """

    start: int
    end: int
    entries: int

    def holds(self, tuples: Tuples) -> npt.NDArray[np.bool_]:
        """Which of some tuples these are."""
        times = tuples.times
        return (times >= self.start) & (times < self.end) & (tuples.entries < self.entries)


@dataclass(frozen=True, slots=True, eq=False)
class Tuples:
    """Tuples of a group, in any order.

    Attributes:
        times: int64[n], microseconds.
        entries: int64[n], the entry of the log that each came with.
        arguments: the aggregate's arguments, n values each.
    """

    times: Integers
    entries: Integers
    arguments: Sequence[pa.Array]

    def arrays(self, mask: npt.NDArray[np.bool_]) -> list[pa.Array]:
        """The arguments of some tuples."""
        chosen = pa.array(mask)
        return [each.filter(chosen) for each in self.arguments]


@dataclass(frozen=True, slots=True)
class Processed:
    """An instance of a group that was worked out.

    Attributes:
        value: of the aggregate's type.
        work: what it was worked out from.
        adding_seconds, removing_seconds: what its new and its expired tuples took.
        result_seconds: what the result took.
    """

    value: pa.Scalar
    work: WindowWork
    adding_seconds: float
    removing_seconds: float
    result_seconds: float


@dataclass(slots=True)
class _Carried:
    """The state after an instance: which tuples are in it, and how many these are."""

    state: Any
    extent: Extent
    tuples: int


class AggregateInstances:
    """Works out an aggregate of the user's, instance by instance, and carries the state of each group.

    A state is put away only when its instance is done: where the user's code raises or is abandoned it is lost, and the next
    instance of that group is worked out afresh.

    Args:
        aggregate: of the user's.
        clock: seconds.
    """

    def __init__(self, aggregate: UserAggregate, clock: Callable[[], float] = time.perf_counter) -> None:
        self._aggregate = aggregate
        self._clock = clock
        self._carried: dict[Hashable, _Carried] = {}

    @property
    def bases(self) -> frozenset[Extent]:
        """The instances that states are of: their tuples are to be given beside those of the next instance."""
        return frozenset(each.extent for each in self._carried.values())

    def process(
        self, window: str, group: Hashable, extent: Extent, tuples: Tuples, *, carry: bool = True
    ) -> Processed | None:
        """Works out an instance of one group.

        Args:
            window: for messages.
            group: the values of its keys.
            extent: of the instance.
            tuples: at least the group's in this instance, and, where they are there still, those in its base.
            carry: from the group's state, where it has one and all tuples of its base are given; else afresh.

        Returns:
            None: no tuple of the group is in the instance; its state is forgotten.

        Raises:
            AggregateFailedError: the user's code raises, or returns what does not fit; names aggregate, window and cause.
        """
        last = self._carried.pop(group, None)
        present = extent.holds(tuples)
        count = int(present.sum())
        if not count:
            return None
        added, removed = present, np.zeros_like(present)
        if last is not None and carry:
            base = last.extent.holds(tuples)
            if base.sum() == last.tuples:
                added, removed = present & ~base, base & ~present
            else:
                last = None
        else:
            last = None
        try:
            return self._worked_out(
                group, last, (extent, count), tuples.arrays(added), tuples.arrays(removed)
            )
        except AggregateFailedError as error:
            raise AggregateFailedError(f"window {window}: {error}") from error.__cause__

    def _worked_out(
        self,
        group: Hashable,
        last: _Carried | None,
        instance: tuple[Extent, int],
        added: Sequence[pa.Array],
        removed: Sequence[pa.Array],
    ) -> Processed:
        aggregate = self._aggregate
        began = self._clock()
        state = aggregate.begun() if last is None else last.state
        ready = self._clock()
        if len(removed[0]):
            with aggregate.told("remove"):
                state.remove(*removed)
        without = self._clock()
        if len(added[0]):
            with aggregate.told("add"):
                state.add(*added)
        complete = self._clock()
        value = aggregate.value(state)
        ended = self._clock()
        if aggregate.is_incremental:
            self._carried[group] = _Carried(state, *instance)
        work = WindowWork(len(added[0]), len(removed[0]), last is not None)
        return Processed(value, work, complete - without, without - ready, ended - complete + ready - began)
