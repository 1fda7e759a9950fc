"""Which left rows of an outer join are due in a cut, and which older tuples must be kept until then.

A left row is due once the right stream has come beyond all event times that partners of its anchor may have, and beyond that by
its slack: the largest delay of a tuple in its newest entries. That is taken from the logs when a cut is put, and said in it.
Of a FULL OUTER JOIN the tuples of the second input are due in the same way, by the first stream.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.operators.joins.changes import Due
from penstock.operators.joins.conditions import bounds_of
from penstock.plan.joins import JoinPlan, OptionalJoin
from penstock.plan.times import BEFORE_ALL
from penstock.spark.lanes.cuts import Reach
from penstock.spark.log.entries import Entry
from penstock.spark.log.stream_log import LogReader

#: in how many of the right stream's newest entries delays are looked at
_ENTRIES = 64


class OuterDueTimes:
    """Finds what is due on each side of which rows without a partner are told; one thread has it.

    Args:
        plan: the outer join with a stream.
        logs: by stream.
        most_delay: a larger delay says nothing of others, microseconds.
    """

    def __init__(self, plan: JoinPlan, logs: Mapping[str, LogReader], most_delay: int) -> None:
        plans = [plan, plan.turned()] if plan.kind is OptionalJoin.FULL else [plan]
        self._sides = [DueTimes(each, logs, most_delay) for each in plans]

    def due(self, after: Sequence[int], until: Mapping[str, Reach]) -> list[Due]:
        """What is due in a cut, by side, see `DueTimes.due`; nothing was before where `after` is empty."""
        before = after or [BEFORE_ALL] * len(self._sides)
        return [side.due(each, until) for side, each in zip(self._sides, before, strict=True)]

    def are_waiting(self, dues: Sequence[Due], until: Mapping[str, Reach]) -> bool:
        """Whether there may be older rows that are due now."""
        return any(side.are_waiting(due, until) for side, due in zip(self._sides, dues, strict=True))

    def needed(self, after: Sequence[int]) -> dict[str, int]:
        """By stream what is needed for what is not due yet, see `DueTimes.needed`."""
        before = after or [BEFORE_ALL] * len(self._sides)
        found: dict[str, int] = {}
        for side, each in zip(self._sides, before, strict=True):
            for stream, oldest in side.needed(each).items():
                found[stream] = min(oldest, found.get(stream, oldest))
        return found


class DueTimes:
    """Finds what is due of one side; one thread has it.

    Args:
        plan: the LEFT JOIN with a stream.
        logs: by stream.
        most_delay: a larger delay says nothing of others, microseconds.
    """

    def __init__(self, plan: JoinPlan, logs: Mapping[str, LogReader], most_delay: int) -> None:
        self._plan, self._most_delay = plan, most_delay
        self._left_name, self._right_name = (plan.inputs[each].relation for each in (plan.anchor, -1))
        self._left, self._right = logs[self._left_name], logs[self._right_name]
        right = len(plan.inputs) - 1
        (self._partners,) = bounds_of(plan, right, (plan.anchor,))
        self._delays: deque[int] = deque(maxlen=_ENTRIES)
        self._looked = -1

    def due(self, after: int, until: Mapping[str, Reach]) -> Due:
        """What is due in a cut.

        Args:
            after: what was due before, see `Due`.
            until: how far the cut reaches.
        """
        right = _entry(self._right, until[self._right_name])
        if right is None:
            return Due(after, after)
        if right.ended:
            return _all(after, self._furthest_left(until))
        # behind what is all there is nothing follows in its run: of a later one it says nothing
        if right.answer_all and not self._right.has(right.number + 1):
            return _all(after, self._newest_left(until))
        self._look(right)
        reached = right.reached_or_newest
        if reached is None:
            return Due(after, after)
        limit = reached - max(self._delays, default=0) - self._partners.upper - 1
        return Due(after, max(after, limit))

    def are_waiting(self, due: Due, until: Mapping[str, Reach]) -> bool:
        """Whether there may be older left rows that are due now."""
        furthest = self._furthest_left(until)
        return due.after < due.until and furthest is not None and furthest > due.after

    def needed(self, after: int) -> dict[str, int]:
        """By stream: tuples with an event time not before this are needed for what is not due yet, microseconds; bases of versions,
        see `VersionBases`, are left out."""
        anchor = self._plan.anchor
        needed = {self._left_name: after + 1}
        for number, each in enumerate(self._plan.inputs):
            is_in_bases = self._plan.keeps_newest and number in self._plan.optional
            for bound in () if is_in_bases else bounds_of(self._plan, number, (anchor,)):
                oldest = max(BEFORE_ALL, after + 1 + bound.lower)
                needed[each.relation] = min(oldest, needed.get(each.relation, oldest))
        return needed

    def _newest_left(self, until: Mapping[str, Reach]) -> int | None:
        """The newest event time that is believed: one too far ahead would leave later tuples no time to meet partners."""
        left = _entry(self._left, until[self._left_name])
        return None if left is None else left.furthest if left.newest is None else left.newest

    def _furthest_left(self, until: Mapping[str, Reach]) -> int | None:
        left = _entry(self._left, until[self._left_name])
        return None if left is None else left.furthest

    def _look(self, right: Entry) -> None:
        """Takes in the delays of entries that have come."""
        after = max(self._looked, right.number - _ENTRIES, -1)
        for entry in self._right.kept_between(after, right.number):
            self._delays.append(max((each for each in entry.delays if each <= self._most_delay), default=0))
        self._looked = right.number


def due_document(dues: Sequence[Due]) -> list[Any]:
    """What is due, by side, as a cut's orders say it."""
    found = [[due.after, due.until] for due in dues]
    return found if len(found) > 1 else found[0]


def dues_of(document: Any) -> list[Due]:
    """What is due, by side, of a cut's orders."""
    sides = document if isinstance(document[0], list) else [document]
    return [Due(*each) for each in sides]


def _all(after: int, newest: int | None) -> Due:
    return Due(after, after if newest is None else max(after, newest))


def _entry(log: LogReader, reach: Reach) -> Entry | None:
    return next(iter(log.kept_between(reach.entry - 1, reach.entry)), None)
