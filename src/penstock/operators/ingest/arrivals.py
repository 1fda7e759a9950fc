"""When the tuples of a batch arrived: by which moment the stream's event time had come how far.

Deadlines count from the arrival of the tuple that closed a window, which is earlier than the batch that brought it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

#: arrivals that a task and an entry hold at most
MOST = 32
Ints = npt.NDArray[np.int64]
#: by moment of arrival, microseconds since the epoch, the largest event time of its tuples, microseconds
Arrivals = Mapping[int, int]


#: what says when a tuple arrived: the moment its batch was planned, its file's time, its record's time in Kafka, its release by a replay;
#: and the clock, where no tuple but silence or the end created a window
PLANNED, FILE, RECORD, REPLAY, CLOCK = "batch", "file", "record", "replay", "clock"


@dataclass(frozen=True, slots=True)
class Arrival:
    """A moment at which tuples arrived.

    Attributes:
        moment: microseconds since the epoch.
        newest: largest event time of all tuples of the batch that had arrived by then, microseconds.
    """

    moment: int
    newest: int


@dataclass(frozen=True, slots=True)
class Arrived:
    """Arrivals of a batch.

    Attributes:
        moments: in order; none where no tuple has an event time that is believed.
        by: what says so: PLANNED, FILE, RECORD or REPLAY.
    """

    moments: tuple[Arrival, ...] = ()
    by: str = PLANNED


def arrivals_in(times: Ints, arrived: Ints | int) -> dict[int, int]:
    """Return the arrivals of some tuples.

    Args:
        times: int64[tuples], event times that are believed.
        arrived: int64[tuples], moments of arrival, or the one of all.

    >>> arrivals_in(np.array([3, 9, 5]), np.array([20, 30, 10]))
    {10: 5, 30: 9}
    """
    if not len(times):
        return {}
    if isinstance(arrived, int):
        return {arrived: int(times.max())}
    if not np.all(arrived[1:] >= arrived[:-1]):
        order = np.argsort(arrived, kind="stable")
        times, arrived = times[order], arrived[order]
    moments, newest = arrived, np.maximum.accumulate(times)
    rises = np.flatnonzero(np.diff(newest, prepend=newest[0] - 1) > 0)
    return _thinned(dict(zip(moments[rises].tolist(), newest[rises].tolist(), strict=True)))


def merged_arrivals(one: Arrivals, other: Arrivals) -> dict[int, int]:
    """Return the arrivals of two parts of a batch."""
    both = {moment: max(one[moment], other[moment]) for moment in one.keys() & other.keys()}
    return _thinned({**one, **other, **both})


def arrivals_told(found: Arrivals) -> tuple[Arrival, ...]:
    """Return what an entry says of arrivals: moments in order, each with a later event time than the one before.

    >>> arrivals_told({30: 9, 10: 5, 20: 3})
    (Arrival(moment=10, newest=5), Arrival(moment=30, newest=9))
    """
    return tuple(Arrival(moment, newest) for moment, newest in sorted(_thinned(found).items()))


def _thinned(found: Arrivals) -> dict[int, int]:
    """At most MOST arrivals that rise. Those that are merged count as the earliest: no tuple arrived before it is said to have."""
    rising: list[tuple[int, int]] = []
    for moment, newest in sorted(found.items()):
        if not rising or newest > rising[-1][1]:
            rising.append((moment, newest))
    if len(rising) <= MOST:
        return dict(rising)
    groups = np.array_split(np.arange(len(rising)), MOST)
    return {rising[own[0]][0]: rising[own[-1]][1] for own in groups}
