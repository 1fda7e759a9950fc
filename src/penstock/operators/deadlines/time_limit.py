"""Work that is abandoned when its time is over."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

_Result = TypeVar("_Result")
#: the timer fires again and again, for the work may swallow what it raises, seconds
_AGAIN = 0.05


class TimeIsOver(BaseException):
    """Raised in the work itself, wherever its Python stands; no `except Exception` takes it for a failure."""


def within(seconds: float, work: Callable[[], _Result]) -> _Result:
    """Does some work in the main thread of a process, and abandons it when its time is over.

    An interval timer raises in the work as soon as it runs Python: a call into C is waited for. Nothing is raised once the work
    has returned. The signal's handler and a timer that ran before are put back.

    Args:
        seconds: how long it may take; without time it is not begun.
        work: what is done.

    Returns:
        What the work returns.

    Raises:
        TimeIsOver: the time was over before the work.
        ValueError: this is not the main thread.
    """
    if seconds <= 0:
        raise TimeIsOver
    is_working = False

    def fire(_: int, frame: FrameType | None) -> None:
        if is_working and frame is not None and frame.f_code is not within.__code__:
            raise TimeIsOver

    began = time.monotonic()
    handler = signal.signal(signal.SIGALRM, fire)
    left, again = signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN)
    try:
        is_working = True
        return work()
    finally:
        is_working = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if left:
            signal.setitimer(signal.ITIMER_REAL, max(left - (time.monotonic() - began), 1e-6), again)
