"""Which entries of a log may hold partners of what is new."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.operators.joins.tuples import RunSlice
from penstock.plan.joins import JoinPlan
from penstock.plan.times import AFTER_ALL, BEFORE_ALL
from penstock.spark.log.stream_log import LogReader


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


def first_needed(log: LogReader, after: int, until: int, oldest: int) -> int:
    """The first entry that may hold tuples that are not older than a time.

    Entries know the largest event time of all tuples up to them, which only grows: that is searched for.

    Args:
        log: the stream's.
        after: entries up to here are not looked at.
        until: nor those behind it.
        oldest: microseconds.

    Returns:
        Its number; until + 1 where there is none.
    """
    low, high = after + 1, until + 1
    while low < high:
        middle = (low + high) // 2
        furthest = log.entry(middle).furthest
        if furthest is None or furthest < oldest:
            low = middle + 1
        else:
            high = middle
    return low


def _clipped(time: int) -> int:
    return max(BEFORE_ALL, min(AFTER_ALL, time))
