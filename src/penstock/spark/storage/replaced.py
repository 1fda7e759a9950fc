"""Files that were replaced by merged ones, and live on for whoever has found them and is reading."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from math import inf
from pathlib import Path

from penstock.spark.storage.failpoints import failpoint

_log = logging.getLogger(__name__)
#: so long after it could not be removed a file is tried again
_RETRY_SECONDS = 60.0


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
        #: those that could not be removed: each is told once
        self._stuck: set[Path] = set()

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
        """Removes the files whose time is over; one that cannot be removed is tried again later, and holds nothing up."""
        now = time.time()
        if now < self._soonest:
            return
        for path in [path for path, due in self._due.items() if due <= now]:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                if path not in self._stuck:
                    _log.warning(
                        "%s was replaced but cannot be deleted; Penstock tries again: %s", path, error
                    )
                self._stuck.add(path)
                self._due[path] = now + _RETRY_SECONDS
                continue
            del self._due[path]
            self._stuck.discard(path)
            failpoint("replaced_half_removed", self._removed)
            self._removed += 1
        self._soonest = min(self._due.values(), default=inf)
