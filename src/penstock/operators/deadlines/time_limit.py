"""Work that is abandoned when its time is over, or when it is asked to give way."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

_Result = TypeVar("_Result")
#: the timer fires again so long after each look, for the work may swallow what it raises and be asked at any time, seconds
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
    return _interrupted(seconds, lambda: True, work)


def unless_asked(is_asked: Callable[[], bool], work: Callable[[], _Result]) -> _Result:
    """Likewise, but the work has all the time there is until it is asked to give way.

    Args:
        is_asked: tells that, 50 ms after it has last done so; may be called anywhere in the work. Where it raises an OSError, as a look at
            a file does whose server is away, that says nothing and it is called again.
        work: what is done.

    Returns:
        What the work returns.

    Raises:
        TimeIsOver: it was asked before the work was done.
        ValueError: this is not the main thread.
    """

    def is_over() -> bool:
        try:
            return is_asked()
        except OSError:
            return False

    if is_over():
        raise TimeIsOver
    return _interrupted(_AGAIN, is_over, work)


def _interrupted(first: float, is_over: Callable[[], bool], work: Callable[[], _Result]) -> _Result:
    """Does some work; when so many seconds are over and from then on again and again it is looked whether it is to end."""
    is_working = True

    def fire(_: int, frame: FrameType | None) -> None:
        try:
            if is_working and frame is not None and frame.f_code is not _interrupted.__code__ and is_over():
                raise TimeIsOver
        finally:
            # not before: a look that takes longer than the timer would be interrupted by the next one
            if is_working:
                signal.setitimer(signal.ITIMER_REAL, _AGAIN)

    began = time.monotonic()
    handler = signal.signal(signal.SIGALRM, fire)
    left, again = signal.setitimer(signal.ITIMER_REAL, first)
    try:
        return work()
    finally:
        is_working = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if left:
            signal.setitimer(signal.ITIMER_REAL, max(left - (time.monotonic() - began), 1e-6), again)
