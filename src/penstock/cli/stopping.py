"""How a run is told to stop: by Ctrl-C or SIGTERM, which `timeout` and systemd send to every process and `timeout` twice."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from penstock.errors import StartStoppedError

#: a signal that comes so soon behind the first one is the same word to stop
_SAME_SECONDS = 1.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopSignals:
    """Takes Ctrl-C and SIGTERM as the word to stop, in a `with` block of the main thread.

    Until `take_note` is called, the first one breaks off the block: nothing is written yet, and Spark may be waiting for its master.
    From then on it is noted only, instead of breaking off a call into the JVM half way. One that follows later does what it always does.

    Args:
        clock: seconds.

    Raises:
        StartStoppedError: behind the block that is broken off.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._before: dict[int, Any] = {}
        self._notes = False
        #: when the first one came
        self._told: float | None = None

    def __enter__(self) -> StopSignals:
        for number in _SIGNALS:
            self._before[number] = signal.signal(number, self._hear)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._is_the_same():
            self._restore()
        if error is not None and self._told is not None and not self._notes:
            raise StartStoppedError("The start was stopped.") from error

    def take_note(self) -> None:
        """Only notes the first signal from now on. Spark handles Ctrl-C since it has started."""
        self._notes = True
        for number in _SIGNALS:
            signal.signal(number, self._hear)

    def are_told(self) -> bool:
        """Whether one has come."""
        return self._told is not None

    def _hear(self, number: int, _: FrameType | None) -> None:
        if self._told is None:
            self._told = self._clock()
            if not self._notes:
                raise KeyboardInterrupt
        elif not self._is_the_same():
            self._restore()
            signal.raise_signal(number)

    def _is_the_same(self) -> bool:
        return self._told is not None and self._clock() - self._told < _SAME_SECONDS

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
