"""What of a log need not be kept, and what is to be known of it before it goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.spark.log.stream_log import Kept


@dataclass(frozen=True, slots=True)
class Removed:
    """What retention removed.

    Attributes:
        first: the first entry that is kept now.
        entries, bytes: how much went.
        before: windows that begin before it, microseconds, may lack tuples from now on.
        reason: `age` or `size`.
        plan: the plan version of the last entry that went.
    """

    first: int
    entries: int
    bytes: int
    before: int | None
    reason: str
    plan: int


@dataclass(frozen=True, slots=True)
class Leaving:
    """A segment that need not be kept.

    Attributes:
        number: which.
        end: the first entry behind it.
        before: windows that begin before it, microseconds, may lack tuples without it; None: none does.
        lacks: by demand: of its tuples, those with an event time before this may lack without it, microseconds.
        bytes: its size.
        reason: see `Removed`.
        plan: the plan version of its last entry.
    """

    number: int
    end: int
    before: int | None
    lacks: Mapping[int, int]
    bytes: int
    reason: str
    plan: int


def announced(kept: Kept, leaving: Sequence[Leaving]) -> Kept:
    """What is to be known before segments go."""
    before = [each.before for each in leaving if each.before is not None]
    lacks = dict(kept.lacks)
    for each in leaving:
        for demand, moment in each.lacks.items():
            lacks[demand] = max(moment, lacks.get(demand, moment))
    known = [] if kept.before is None else [kept.before]
    return replace(
        kept,
        before=max([*before, *known], default=None),
        since=max(kept.since, leaving[-1].end),
        lacks=lacks,
    )
