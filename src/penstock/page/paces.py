"""Whether a stream keeps up: the tuples that arrive in a second beside those that Penstock answers."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

#: seconds that rates are of, and events of a stream that are kept for them
WINDOW_SECONDS, _MOST_EVENTS = 60.0, 256
#: least seconds without a batch after which a stream is idle
_IDLE_SECONDS = 5.0
#: unit of a backlog that counts tuples
_TUPLES = "records"


@dataclass(frozen=True, slots=True)
class Pace:
    """How a stream's arrivals and answers compare, over the last WINDOW_SECONDS.

    Attributes:
        answered: tuples answered a second, pauses between batches included; None before the first batch.
        arrives: tuples that arrived a second; None where the source does not count them.
    """

    answered: float | None = None
    arrives: float | None = None


@dataclass(slots=True)
class PaceMeter:
    """Takes in a stream's batches and backlogs; the owner sees to threads."""

    _batches: deque[tuple[float, float, float]] = field(default_factory=lambda: deque(maxlen=_MOST_EVENTS))
    _backlogs: deque[tuple[float, float | None]] = field(default_factory=lambda: deque(maxlen=_MOST_EVENTS))

    def add_batch(self, at: float, tuples: float, spent: float) -> None:
        """Takes in a batch.

        Args:
            at: when it was published, epoch seconds.
            tuples: of it.
            spent: seconds of work.
        """
        self._batches.append((at, tuples, spent))

    def add_backlog(self, at: float, backlog: float | None, unit: str | None) -> None:
        """Takes in how much waits in the source; files that wait are no number of tuples.

        Args:
            at: when it was measured, epoch seconds.
            backlog: of it; None: not known.
            unit: what it counts.
        """
        self._backlogs.append((at, backlog if unit == _TUPLES or backlog == 0 else None))

    def pace(self, now: float) -> Pace:
        """Return the pace.

        Args:
            now: epoch seconds; of a run that has ended, its last batch.
        """
        if not self._batches:
            return Pace()
        last_at, _, last_spent = self._batches[-1]
        # a batch that is running is not counted: neither is its time
        end = last_at if now - last_at <= max(_IDLE_SECONDS, 2 * last_spent) else now
        first_at, _, first_spent = self._batches[0]
        begin = max(end - WINDOW_SECONDS, first_at - first_spent)
        passed = end - begin
        if passed <= 0:
            return Pace()
        answered = sum(tuples for at, tuples, _ in self._batches if at > begin) / passed
        if not self._backlogs or self._backlogs[-1][1] is None:
            return Pace(answered)
        known = [(at, backlog) for at, backlog in self._backlogs if at > begin and backlog is not None]
        grown = 0.0
        if len(known) > 1 and known[-1][0] > known[0][0]:
            grown = (known[-1][1] - known[0][1]) / (known[-1][0] - known[0][0])
        return Pace(answered, max(0.0, answered + grown))
