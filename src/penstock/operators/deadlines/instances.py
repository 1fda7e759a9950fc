"""An instance of a window with aggregates of the user's: worked out from the last one that was, or afresh.

Source: Wu, Gu, Lyu, Yu: output(W_t) = output(W_{t-jH}) + output+(W_t - W_{t-jH}) + output-(W_{t-jH} - W_t), whatever was shed between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.operators.deadlines.aggregates import UserAggregate
from penstock.operators.hashing import canonical_columns
from penstock.operators.windows.grouping import shared_codes
from penstock.operators.windows.rows import OVERFLOWED
from penstock.plan.deadlines import WindowWork

Integers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


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

    def holds(self, tuples: Tuples) -> Mask:
        """Which of some tuples these are."""
        times = tuples.times
        return (times >= self.start) & (times < self.end) & (tuples.entries < self.entries)


@dataclass(frozen=True, slots=True, eq=False)
class Tuples:
    """Tuples of a view, in any order.

    Attributes:
        columns: keys and arguments, n rows.
        times: int64[n], microseconds.
        entries: int64[n], the entry of the log that each came with.
    """

    columns: pa.Table
    times: Integers
    entries: Integers


@dataclass(frozen=True, slots=True)
class CalledAggregate:
    """An aggregate of the user's that a view calls.

    Attributes:
        aggregate: which one.
        arguments: the columns it is given.
    """

    aggregate: UserAggregate
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Carried:
    """What the next instance can be worked out from.

    Attributes:
        extent: the last processed instance.
        tuples: how many it holds.
        keys: a row for each of its groups.
        counts: int64[groups], tuples of each.
        states: of each call of a class a state for each group.
    """

    extent: Extent
    tuples: int
    keys: pa.Table
    counts: Integers
    states: tuple[list[Any], ...]


@dataclass(frozen=True, slots=True, eq=False)
class WorkedOut:
    """An instance that was worked out, all groups of it.

    Attributes:
        rows: see `rows.window_rows`; of a group without tuples there is none.
        work: what it was worked out from.
        adding_seconds, removing_seconds: what its new and its expired tuples took.
        result_seconds: what the results took; where states were carried, functions too: these are given every tuple anyway.
        carried: the states after it; None where no class is called.
    """

    rows: pa.Table
    work: WindowWork
    adding_seconds: float
    removing_seconds: float
    result_seconds: float
    carried: Carried | None = None


def user_instance(
    calls: Sequence[CalledAggregate],
    keys: Sequence[str],
    extent: Extent,
    tuples: Tuples,
    carried: Carried | None,
    clock: Callable[[], float],
) -> WorkedOut:
    """Works out an instance with aggregates of the user's alone.

    Args:
        calls: the aggregates.
        keys: the grouping columns, at least one; NULL is a group, and so is NaN, and zero whatever its sign.
        extent: of the instance.
        tuples: at least those in it and, where they are there still, those in the last processed one.
        carried: from what; afresh where it is None, or where tuples it stands for are not given. Its states are used up:
            whatever becomes of the instance, they are not to be given again.
        clock: seconds.

    Raises:
        AggregateFailedError: the user's code raises, or returns what does not fit; names aggregate and cause.
    """
    present = extent.holds(tuples)
    base = np.zeros_like(present)
    if carried is not None:
        base = carried.extent.holds(tuples)
        if int(base.sum()) != carried.tuples:
            carried, base = None, np.zeros_like(present)
    added, removed = present & ~base, base & ~present
    has_functions = not all(call.aggregate.is_incremental for call in calls)
    used = present | removed if has_functions else added | removed
    groups = _Groups(keys, tuples.columns.filter(pa.array(used)), carried, added[used], removed[used])
    expired, new = groups.split(removed[used]), groups.split(added[used])
    whole = groups.split(present[used]) if has_functions and carried is not None else new

    states: list[list[Any]] = []
    values: dict[str, pa.Array] = {}
    spent = _Spent(clock)
    earlier = iter(() if carried is None else carried.states)
    for number, call in enumerate(calls):
        if call.aggregate.is_incremental:
            found, after = _called(call, groups, next(earlier, ()), expired, new, spent)
            states.append(after)
        else:
            own = spent if carried is None else _Spent(clock)
            found, _ = _called(call, groups, (), None, whole, own)
            if own is not spent:
                spent.result += own.adding + own.result
        values[f"_a{number}"] = pa.array(found, call.aggregate.type)
    rows = {name: groups.keys.column(name) for name in keys}
    return WorkedOut(
        pa.table({**rows, **values, OVERFLOWED: np.zeros(len(groups.numbers), np.bool_)}),
        WindowWork(int(added.sum()), int(removed.sum()), carried is not None),
        spent.adding,
        spent.removing,
        spent.result,
        Carried(extent, int(present.sum()), groups.keys, groups.counts, tuple(states)) if states else None,
    )


class _Groups:
    """The groups of an instance; those that had states come first, in their order.

    Args:
        keys: the grouping columns.
        used: tuples that states or functions are given.
        carried: the states.
        added, removed: which of the tuples are new, which have expired.
    """

    def __init__(
        self, keys: Sequence[str], used: pa.Table, carried: Carried | None, added: Mask, removed: Mask
    ) -> None:
        self._tuples = canonical_columns(used, keys)
        own = self._tuples.select(list(keys))
        known = own.slice(0, 0) if carried is None else carried.keys
        before, self._codes = shared_codes([known, own], keys)
        _, first = np.unique(np.concatenate([before, self._codes]), return_index=True)
        self._size = len(first)
        counts = np.bincount(self._codes[added], minlength=self._size)
        counts -= np.bincount(self._codes[removed], minlength=self._size)
        if carried is not None:
            counts[: len(carried.counts)] += carried.counts
        #: numbers of those that hold tuples
        self.numbers = np.flatnonzero(counts)
        #: their tuples
        self.counts = counts[self.numbers]
        #: their keys
        self.keys = pa.concat_tables([known, own]).take(pa.array(first[self.numbers])).combine_chunks()

    def split(self, mask: Mask) -> _Split:
        """Some of the tuples by group."""
        places = np.flatnonzero(mask)
        codes = self._codes[places]
        order = np.argsort(codes, kind="stable")
        bounds = np.searchsorted(codes[order], np.arange(self._size + 1))
        return _Split(self._tuples.take(pa.array(places[order])), bounds.tolist())


class _Split:
    """Tuples by group, those of a group together.

    Args:
        tuples: in order of groups.
        bounds: where the tuples of each group begin, and where those of the last one end.
    """

    def __init__(self, tuples: pa.Table, bounds: Sequence[int]) -> None:
        self._columns = {name: tuples.column(name).combine_chunks() for name in tuples.column_names}
        self._bounds = bounds

    def arrays(self, group: int, names: Sequence[str]) -> list[pa.Array]:
        """Columns of a group; none where it has no tuples."""
        start, end = self._bounds[group], self._bounds[group + 1]
        return [self._columns[name].slice(start, end - start) for name in names] if start < end else []


class _Spent:
    """Seconds that calls took: for new tuples, for expired ones, for results and what goes with them.

    Args:
        clock: seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.adding = self.removing = self.result = 0.0


def _called(
    call: CalledAggregate,
    groups: _Groups,
    states: Sequence[Any],
    expired: _Split | None,
    new: _Split,
    spent: _Spent,
) -> tuple[list[pa.Scalar], list[Any]]:
    """The values of an aggregate, and its states after them, by group.

    Args:
        call: the aggregate.
        groups: the groups.
        states: of the first ones; the others begin with none.
        expired, new: tuples to be removed and added.
        spent: is told what it took.
    """
    aggregate, arguments, clock = call.aggregate, call.arguments, spent.clock
    values, after = [], []
    for group in groups.numbers.tolist():
        removed = [] if expired is None else expired.arrays(group, arguments)
        added = new.arrays(group, arguments)
        began = clock()
        state = states[group] if group < len(states) else aggregate.begun()
        ready = clock()
        if removed:
            with aggregate.told("remove"):
                state.remove(*removed)
        without = clock()
        if added:
            with aggregate.told("add"):
                state.add(*added)
        complete = clock()
        values.append(aggregate.value(state))
        spent.removing += without - ready
        spent.adding += complete - without
        spent.result += clock() - complete + ready - began
        after.append(state)
    return values, after
