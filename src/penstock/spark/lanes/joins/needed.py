"""Which event times partners of what is new may have, and which of these may be kept no more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.operators.joins.changes import Due
from penstock.operators.joins.conditions import bounds_of
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

    for bound in plan.bounds:
        if (span := new.get(bound.left)) is not None:
            partners = Span(_clipped(span.oldest + bound.lower), _clipped(span.newest + bound.upper))
            _widen(found, {bound.right: partners})
        if (span := new.get(bound.right)) is not None:
            partners = Span(_clipped(span.oldest - bound.upper), _clipped(span.newest - bound.lower))
            _widen(found, {bound.left: partners})
    return found


def needed_without_partners(plan: JoinPlan, needed: Mapping[int, Span], due: Due) -> dict[int, Span]:
    """The same for an outer join with a stream: left rows that become due too, and all partners of these and of those that new
    tuples meet.

    Args:
        plan: the join.
        needed: what partners of new tuples need.
        due: which left rows the cut tells that have no partner.
    """
    found, anchor, right = dict(needed), plan.anchor, len(plan.inputs) - 1
    if due.after < due.until:
        own = Span(due.after + 1, due.until)
        _widen(found, {anchor: own, **needed_spans(plan, {anchor: own})})
    if anchor in found:
        _widen(found, {right: needed_spans(plan, {anchor: found[anchor]})[right]})
    return found


def needed_outer(plan: JoinPlan, new: Mapping[int, Span], dues: Sequence[Due]) -> dict[int, Span]:
    """What an outer join with a stream needs: partners of new tuples, see `needed_spans`, and what `needed_without_partners` adds.

    Args:
        plan: the join.
        new: event times of the new tuples, by input that has some.
        dues: which left rows the cut tells that have no partner; of a FULL OUTER JOIN those of the second input behind it.
    """
    needed = needed_spans(plan, new)
    found = needed_without_partners(plan, needed, dues[0])
    for due in dues[1:]:
        swapped = {1 - number: span for number, span in needed.items()}
        turned = needed_without_partners(plan.turned(), swapped, due)
        _widen(found, {1 - number: span for number, span in turned.items()})
    return found


def _widen(spans: dict[int, Span], others: Mapping[int, Span]) -> None:
    for number, each in others.items():
        known = spans.get(number, each)
        spans[number] = Span(min(known.oldest, each.oldest), max(known.newest, each.newest))


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


def untimed(plan: JoinPlan, new: Mapping[int, Sequence[RunSlice]]) -> int:
    """How many new tuples are in no row for lack of an event time alone: those joined with static tables need none.

    Args:
        plan: the join.
        new: by input its new tuples, as runs sorted by one key.
    """
    left = [number for number in new if number not in plan.optional]
    is_outer_pair = plan.has_optional_stream and len(plan.inputs) == 2
    if is_outer_pair or any(bound.left in left and bound.right in left for bound in plan.bounds):
        return 0
    found = 0
    for number in (each for each in left if not plan.inputs[each].is_untimed):
        for run in (each.run for each in new[number]):
            for part in (run.part(cell) for cell, known in run.parts.items() if known.loose):
                assert part is not None, "it is in the directory"
                found += part.tuples.column(plan.inputs[number].time).null_count
    return found


def _clipped(time: int) -> int:
    return max(BEFORE_ALL, min(AFTER_ALL, time))
