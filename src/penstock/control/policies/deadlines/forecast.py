"""Which instances of a query are still to come: its windows slide by the hop, and tuples come as they did of late."""

from __future__ import annotations

from collections import deque
from math import ceil

from penstock.control.policies.deadlines.disciplines import Instance
from penstock.plan.deadlines import WindowSpan

#: hops over which the rate of creation and of tuples is averaged
_HOPS = 5
#: instances of a query that are looked ahead to: beside an hour's deadline thousands of a second's would be due, and settle nothing
_MOST = 16


class InstanceForecast:
    """Remembers when the last instances of a query were created and what they hold, and goes on in the same way."""

    def __init__(self) -> None:
        self._recent: deque[Instance] = deque(maxlen=_HOPS + 1)

    def created(self, instance: Instance) -> None:
        """An instance was created."""
        self._recent.append(instance)

    @property
    def newest(self) -> list[WindowSpan]:
        """Tuples of the last instances created, the oldest first."""
        return [each.span for each in self._recent]

    @property
    def hop(self) -> float:
        """Seconds from one to the next; 0 where all that are known were created at one moment.

        Instances created together count as evenly spread: those of the first moment belong to the time before it.
        """
        if not self._recent:
            return 0.0
        first = self._recent[0].created
        later = sum(each.created > first for each in self._recent)
        return (self._recent[-1].created - first) / later if later else 0.0

    @property
    def lag(self) -> float:
        """Seconds from creation until it is noticed, the mean of the last ones; 0 where none are known."""
        lags = [each.noticed - each.created for each in self._recent]
        return sum(lags) / len(lags) if lags else 0.0

    def until(self, due: float, now: float) -> list[Instance]:
        """The next ones to be created whose deadline is not after `due`, in their order, each as large as the newest; overdue ones
        are left out, and so are those beyond the first 16.

        Args:
            due: by the clock.
            now: by the clock.
        """
        hop = self.hop
        if hop <= 0:
            return []
        oldest, newest = self._recent[0], self._recent[-1]
        tuples = (newest.span.last - oldest.span.last) / (len(self._recent) - 1)
        past = max(0, ceil((now - newest.created) / hop) - 1)
        last = min(int((due - newest.deadline) / hop + 1e-9), past + _MOST)
        return [_later(newest, number, hop, tuples, self.lag) for number in range(past + 1, last + 1)]


def _later(newest: Instance, number: int, hop: float, tuples: float, lag: float) -> Instance:
    seconds, by = number * hop, round(number * tuples)
    return Instance(
        newest.number + number,
        newest.created + seconds,
        newest.deadline + seconds,
        WindowSpan(newest.span.first + by, newest.span.last + by),
        newest.arrival + number,
        newest.created + seconds + lag,
    )
