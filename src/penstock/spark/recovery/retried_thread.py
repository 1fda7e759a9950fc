"""Work in a thread of its own that is begun again where that helps."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from penstock.spark.recovery.retries import Retries, told_of


class RetriedThread(ABC):
    """A part of a run that works in a thread of its own until it has come to its end, is stopped, or fails for good.

    Args:
        name: of the thread.
        retries: what is tried again, and how often.
    """

    def __init__(self, name: str, retries: Retries) -> None:
        self.retries = retries
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True, name=name)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    @property
    def active(self) -> bool:
        """Whether the thread works, or will again."""
        return self._thread.is_alive()

    def prepare_stop(self) -> None:
        """Says that what it follows is about to be stopped: that is no end of it."""
        self._stopping.set()

    def await_termination(self, timeout_seconds: float | None = None) -> bool:
        """Waits for the end; False where the time ran out first.

        Raises:
            StreamFailedError: something stopped it for good.
        """
        has_ended = self.join(timeout_seconds)
        if self._failure is not None:
            raise self._failure
        return has_ended

    def join(self, timeout_seconds: float | None) -> bool:
        """Likewise, whatever has ended it."""
        self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    @property
    def failed(self) -> Mapping[str, Any] | None:
        """What was told of the failure that has ended it, or None."""
        return told_of(self._failure, self.retries)

    @abstractmethod
    def _attempt(self) -> None:
        """Works until it is stopped or has come to its end; what is raised is tried again where that helps."""

    def _run(self) -> None:
        try:
            self.retries.run(self._attempt, self._stopping)
        except BaseException as error:
            self._failure = error
