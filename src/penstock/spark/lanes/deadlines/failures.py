"""What the failure of an order's job is about: its window, or what all of them rest on; and what is told of windows that fail."""

from __future__ import annotations

from collections import Counter

from penstock.spark.recovery.causes import SESSION_ENDED, Cause, cause_of
from penstock.spark.storage.events import EventLog

#: the user is told of a view when so many windows have failed one after the other
_IN_A_ROW = 3

#: neither the tuples of a window nor the user's code bring these about, which is reported without an exception
_OF_ALL = frozenset(
    {
        SESSION_ENDED,
        "checkpoint_refused",
        "disk_full",
        "file_missing",
        "file_unreadable",
        "storage_failed",
    }
)


def window_cause(error: BaseException) -> Cause:
    """Why the job of an order failed, where that may be the matter of its window alone.

    A worker that is gone or without memory may be one that the user's code has ended.

    Args:
        error: what the job raised, from the driver or by way of Spark from a worker.

    Raises:
        BaseException: the error itself, where the next window would meet it as well: the log is damaged, files can be neither read
            nor written, or the session has ended.
    """
    cause = cause_of(error)
    if isinstance(error, OSError) or cause.kind in _OF_ALL:
        raise error
    return cause


class FailedWindows:
    """Tells of windows that fail: of the first one of each view, and where several do one after the other.

    Args:
        lane: the lane's name.
        events: the run's.
    """

    def __init__(self, lane: str, events: EventLog) -> None:
        self._lane = lane
        self._events = events
        self._told: set[str] = set()
        self._in_a_row: Counter[str] = Counter()

    def failed(self, view: str, reason: str) -> None:
        """A window of a view has failed."""
        self._in_a_row[view] += 1
        if view not in self._told:
            self._told.add(view)
            self._events.record("window_failed", lane=self._lane, view=view, reason=reason)
        if self._in_a_row[view] == _IN_A_ROW:
            self._events.record("windows_failing", lane=self._lane, view=view, reason=reason)

    def worked(self, view: str) -> None:
        """The user's code was not what kept a window of a view from being answered."""
        self._in_a_row.pop(view, None)
