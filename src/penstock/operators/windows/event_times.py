"""The event times of a batch: which of them are believed, and which count in windows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.plan.times import BEFORE_ALL, EARLIEST, LATEST

Rows = npt.NDArray[np.int64]

#: a wall clock without time zone is at most this far ahead of UTC, in microseconds
_FARTHEST_ZONE = 14 * 3_600_000_000
#: stands for NULL
_NULL = -(2**63)
#: stands for all times before EARLIEST: too late for any window
_TOO_EARLY = BEFORE_ALL - 1
#: about so many event times give a batch's median
_SAMPLE = 512


@dataclass(frozen=True, slots=True, eq=False)
class EventTimes:
    """The event times of a batch.

    Attributes:
        values: int64, microseconds since the epoch; anything where it is NULL, a time before BEFORE_ALL where it is
            before EARLIEST.
        usable: where it is neither NULL nor beyond what is kept ahead, nor after LATEST; None: everywhere.
        nulls: number of those that are NULL.
        ahead: number of those that are too far ahead to be believed, and kept all the same.
        future: number of those that are beyond what is kept.
        oldest, newest: of those that are believed, None where there is none.
        furthest: the largest of the usable ones, None where there is none.
        believed: where it is believed; None: everywhere.
        has_early: whether some are before EARLIEST: those are usable and too late for any window, but not believed.
    """

    values: Rows
    usable: npt.NDArray[np.bool_] | None
    nulls: int
    ahead: int
    future: int
    oldest: int | None
    newest: int | None
    furthest: int | None
    believed: npt.NDArray[np.bool_] | None = None
    has_early: bool = False

    def oldest_since(self, moment: int) -> int | None:
        """The oldest usable one not before a moment, None where there is none."""
        if self.oldest is None or self.oldest >= moment:
            return self.oldest
        good = self.values if self.usable is None else self.values[self.usable]
        recent = good[good >= moment]
        return int(recent.min()) if len(recent) else None

    @property
    def not_future(self) -> npt.NDArray[np.bool_] | None:
        """Where it is not beyond what is kept ahead, or NULL; None: everywhere."""
        if self.usable is None or not self.future:
            return None
        kept: npt.NDArray[np.bool_] = self.usable | (self.values == _NULL)
        return kept

    @property
    def middle(self) -> tuple[int, int] | None:
        """How many are not NULL and their median, by a sample; None where there are none."""
        count = len(self.values) - self.nulls
        if not count:
            return None
        good = self.values[self.values != _NULL] if self.nulls else self.values
        sample = good[:: max(1, len(good) // _SAMPLE)]
        return count, int(np.partition(sample, len(sample) // 2)[len(sample) // 2])


def untimed(rows: int) -> EventTimes:
    """The event times of a batch that has none: nothing is counted of them."""
    nowhere = np.zeros(rows, np.bool_)
    return EventTimes(np.full(rows, _NULL), nowhere, rows, 0, 0, None, None, None, nowhere)


def event_times(column: pa.Array, limit: int, kept_ahead: int = 0) -> EventTimes:
    """Reads an event time column.

    Args:
        column: timestamps in microseconds.
        limit: the largest one to be believed, microseconds in UTC.
        kept_ahead: how far beyond it tuples are kept, microseconds.
    """
    if column.type.tz is None:
        limit += _FARTHEST_ZONE
    limit, last = min(limit, LATEST), min(limit + kept_ahead, LATEST)
    numbers = column.cast(pa.int64())
    nulls = numbers.null_count
    values = pc.fill_null(numbers, _NULL).to_numpy() if nulls else numbers.to_numpy()
    if not len(values):
        return EventTimes(values, None, 0, 0, 0, None, None, None)
    oldest, newest = int(values.min()), int(values.max())
    if not nulls and oldest >= EARLIEST and newest <= limit:
        return EventTimes(values, None, 0, 0, 0, oldest, newest, newest)
    is_there = numbers.is_valid().to_numpy(zero_copy_only=False) if nulls else np.True_
    usable = (values <= last) & is_there
    is_early = (values < EARLIEST) & is_there
    is_known = usable & ~is_early
    is_believed = is_known & (values <= limit)
    known, believed = values[is_known], values[is_believed]
    return EventTimes(
        np.where(is_early, _TOO_EARLY, values),
        usable,
        nulls,
        ahead=len(known) - len(believed),
        future=len(values) - nulls - int(np.count_nonzero(usable)),
        oldest=int(believed.min()) if len(believed) else None,
        newest=int(believed.max()) if len(believed) else None,
        furthest=int(known.max()) if len(known) else None,
        believed=is_believed,
        has_early=bool(is_early.any()),
    )
