"""Which event times partners of what is new may have, and which of these may be kept no more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.operators.joins.changes import Due
from penstock.operators.joins.conditions import bounds_of
from penstock.operators.joins.outer import LEFT, RIGHT
from penstock.operators.joins.tuples import RunSlice
from penstock.plan.joins import JoinPlan
from penstock.plan.times import AFTER_ALL, BEFORE_ALL


@dataclass(frozen=True, slots=True)
class Span:
    """Event times, microseconds, both inclusive."""

    oldest: int
    newest: int


def span_of(runs: Sequence[RunSlice]) -> Span | None:
    """The event times of runs, by their directories; None where no tuple has one."""
    parts = [part for each in runs for part in each.run.parts.values()]
    oldest = min((part.oldest for part in parts if part.oldest is not None), default=None)
    newest = max((part.newest for part in parts if part.newest is not None), default=None)
    return None if oldest is None or newest is None else Span(oldest, newest)


def needed_spans(plan: JoinPlan, new: Mapping[int, Span]) -> dict[int, Span]:
    """The event times that partners of new tuples can have, by input that is a stream; none: it needs no tuples.

    Args:
        plan: the join.
        new: event times of the new tuples, by input that has some.
    """
    found: dict[int, Span] = {}

    def widen(number: int, oldest: int, newest: int) -> None:
        known = found.get(number, Span(oldest, newest))
        found[number] = Span(min(known.oldest, oldest), max(known.newest, newest))

    for bound in plan.bounds:
        if (span := new.get(bound.left)) is not None:
            widen(bound.right, _clipped(span.oldest + bound.lower), _clipped(span.newest + bound.upper))
        if (span := new.get(bound.right)) is not None:
            widen(bound.left, _clipped(span.oldest - bound.upper), _clipped(span.newest - bound.lower))
    return found


def needed_without_partners(plan: JoinPlan, needed: Mapping[int, Span], due: Due) -> dict[int, Span]:
    """The same for a LEFT JOIN of two streams: of left tuples those that become due too, and of right ones all partners of these
    and of those that new ones meet.

    Args:
        plan: the join.
        needed: what partners of new tuples need.
        due: what the cut tells.
    """
    (bound,) = plan.bounds
    left = [needed[LEFT]] if LEFT in needed else []
    left += [Span(due.after + 1, due.until)] if due.after < due.until else []
    if not left:
        return dict(needed)
    whole = Span(min(each.oldest for each in left), max(each.newest for each in left))
    partners = [Span(_clipped(whole.oldest + bound.lower), _clipped(whole.newest + bound.upper))]
    partners += [needed[RIGHT]] if RIGHT in needed else []
    right = Span(min(each.oldest for each in partners), max(each.newest for each in partners))
    return {LEFT: whole, RIGHT: right}


def reaching_beyond(plan: JoinPlan, number: int, new: Sequence[RunSlice], lacks: Mapping[int, int]) -> int:
    """How many new tuples of an input might have met some that are kept no more.

    Args:
        plan: the join.
        number: the input's.
        new: its new tuples, as runs sorted by one key.
        lacks: by input: of its tuples those with an event time before this, microseconds, may lack.
    """
    bounds = ((other, bounds_of(plan, other, (number,))) for other in lacks if other != number)
    times = [lacks[other] - bound[0].lower for other, bound in bounds if bound]
    if not times:
        return 0
    moment, found = max(times), 0
    for each in new:
        for part in (each.run.part(known) for known, summary in each.run.parts.items() if summary.rows):
            assert part is not None, "it is in the directory"
            reaching = part.times < moment
            meant = None if each.is_whole else part.rows_of(each.after, each.until)
            found += int(np.count_nonzero(reaching if meant is None else reaching & meant[: len(reaching)]))
    return found


def _clipped(time: int) -> int:
    return max(BEFORE_ALL, min(AFTER_ALL, time))
