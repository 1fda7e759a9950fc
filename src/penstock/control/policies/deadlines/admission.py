"""What views with a deadline ask of the processors, and which LOSS promises cannot be kept whatever the policy does.

What is said is necessary, not sufficient: promises that are not named here can be broken by bursts, by an ingest that is behind or by orders that
block each other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True, slots=True)
class ViewLoad:
    """What a view asks for.

    Attributes:
        k, m: at most k of m consecutive windows may be lost.
        asked: share of a processor that working all of its windows out takes.
        least: likewise if as many are lost as LOSS lets.
        seconds: a window takes.
        available: from when a window is noticed to its deadline, seconds; negative where it is noticed later than that.
        lag: from the arrival of a window's last tuple to when the window is noticed, seconds.
    """

    k: int
    m: int
    asked: float
    least: float
    seconds: float
    available: float
    lag: float = 0.0

    @property
    def is_hopeless(self) -> bool:
        """Whether its promise cannot be kept even if it has all processors: its windows are worked out one after the other."""
        return self.k < self.m and (self.seconds > self.available or self.least > 1)


@dataclass(frozen=True, slots=True)
class Admission:
    """Whether processors can do what views ask for.

    Attributes:
        processors: that orders may take.
        asked: processors that all windows take.
        least: processors that they take if each view loses as many as its LOSS lets.
        hopeless: views whose promise cannot be kept.
        others: views of which not all can keep theirs, those that ask for most first; empty if they can.
        broken: promises of these that are broken at least.
    """

    processors: int
    asked: float
    least: float
    hopeless: tuple[str, ...]
    others: tuple[str, ...]
    broken: int


def admission(loads: Iterable[tuple[str, ViewLoad]], processors: int) -> Admission:
    """Judge what views ask for.

    A view whose promise is broken may lose all of its windows, so the fewest broken promises are those of the views that ask for most.

    Args:
        loads: by view.
        processors: that orders may take.
    """
    known = list(loads)
    hopeless = tuple(name for name, load in known if load.is_hopeless)
    rest = sorted(
        ((load.least, name) for name, load in known if load.k < load.m and not load.is_hopeless), reverse=True
    )
    needed = [0.0, *accumulate(least for least, _ in reversed(rest))]
    kept = max(count for count, least in enumerate(needed) if least <= processors)
    broken = len(rest) - kept
    return Admission(
        processors,
        sum(load.asked for _, load in known),
        sum(load.least for _, load in known),
        hopeless,
        tuple(name for _, name in rest) if broken else (),
        broken,
    )
