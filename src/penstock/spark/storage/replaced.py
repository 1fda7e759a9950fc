"""Files that were replaced by merged ones, and live on for whoever has found them and is reading."""

from __future__ import annotations

import time
from collections.abc import Iterable
from math import inf
from pathlib import Path

from penstock.spark.storage.failpoints import failpoint


class ReplacedFiles:
    """Removes files once their time is over; one thread at a time calls it.

    Args:
        grace_seconds: how long they live on.
    """

    def __init__(self, grace_seconds: float) -> None:
        self._grace = grace_seconds
        #: when each goes, seconds since the epoch
        self._due: dict[Path, float] = {}
        #: when the first of them goes: many are held for long, and it is asked with each batch
        self._soonest = inf
        self._removed = 0

    def add(self, paths: Iterable[Path], replaced: float) -> None:
        """Takes in files, those that are gone already too.

        Args:
            paths: which.
            replaced: when they were replaced, seconds since the epoch.
        """
        due = replaced + self._grace
        for path in paths:
            self._soonest = min(self._soonest, self._due.setdefault(path, due))
        self.remove()

    def keep(self, paths: Iterable[Path]) -> None:
        """Lets files live whose names are about to be given anew: what an attempt left under them was to go."""
        for path in paths:
            self._due.pop(path, None)

    def is_over(self, replaced: float, now: float) -> bool:
        """Whether the time of a file that was replaced at one moment is over at another."""
        return replaced + self._grace <= now

    def remove(self) -> None:
        """Removes the files whose time is over."""
        now = time.time()
        if now < self._soonest:
            return
        for path in [path for path, due in self._due.items() if due <= now]:
            path.unlink(missing_ok=True)
            del self._due[path]
            failpoint("replaced_half_removed", self._removed)
            self._removed += 1
        self._soonest = min(self._due.values(), default=inf)
