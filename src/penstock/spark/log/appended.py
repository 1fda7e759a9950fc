"""What wakes readers of logs that are written in their own process."""

from __future__ import annotations

import threading


class Appended:
    """Counts what is put into logs; any thread may tell and wait."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._count = 0

    @property
    def count(self) -> int:
        """Grows with every `tell`."""
        with self._condition:
            return self._count

    def tell(self) -> None:
        """Wakes whoever waits."""
        with self._condition:
            self._count += 1
            self._condition.notify_all()

    def wait(self, seen: int, timeout_seconds: float) -> None:
        """Waits until the count is no more what was seen, or the time is over."""
        with self._condition:
            self._condition.wait_for(lambda: self._count != seen, timeout_seconds)
