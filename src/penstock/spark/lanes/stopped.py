"""Views of a lane that cannot be answered while the others can: each is tried again by itself, as a lane is.

Which views fail is found by halves: what fails for several at once is tried for each half, until single views remain (group testing; Dorfman,
"The detection of defective members of large populations", 1943).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from penstock.settings import Settings
from penstock.spark.recovery.causes import Cause, cause_of
from penstock.spark.recovery.retries import FOR_GOOD, Retries
from penstock.spark.storage.events import EventLog

Part = TypeVar("Part")
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class _Stopped:
    """A view that is not answered.

    Attributes:
        retries: counts its attempts.
        due: when it is tried again, by `time.monotonic`; infinite: not in this run.
        kept_rows: groups that wait for it.
    """

    retries: Retries
    due: float
    kept_rows: int = 0


class StoppedViews:
    """The views of one lane that are not answered. The lane's thread changes them, any reads.

    Args:
        lane: the lane's name.
        stream: of its first log.
        part: what the lane is, for events.
        settings: how often views are tried again, and after what wait.
        events: where that is recorded.
        is_endless: whether the run does not end by itself.
    """

    def __init__(
        self, lane: str, stream: str, part: str, settings: Settings, events: EventLog, *, is_endless: bool
    ) -> None:
        self._lane = lane
        self._stream = stream
        self._part = part
        self._settings = settings
        self._events = events
        self._is_endless = is_endless
        #: replaced, never changed
        self._views: Mapping[str, _Stopped] = {}

    def __contains__(self, view: str) -> bool:
        return view in self._views

    @property
    def names(self) -> list[str]:
        """The views."""
        return list(self._views)

    def is_due(self, view: str) -> bool:
        """Whether a view is answered by the next cut: it is not stopped, or its wait is over."""
        known = self._views.get(view)
        return known is None or time.monotonic() >= known.due

    @property
    def are_due(self) -> bool:
        """Whether a stopped view is tried again now."""
        now = time.monotonic()
        return any(now >= each.due for each in self._views.values())

    @property
    def are_awaited(self) -> bool:
        """Whether one will be, though nothing comes."""
        return any(each.due < math.inf for each in self._views.values())

    @property
    def failures(self) -> list[Mapping[str, Any]]:
        """What was recorded of those that this run does not try again."""
        return [each.retries.failed for each in self._views.values() if each.retries.failed is not None]

    def remember(self, view: str, kept_rows: int) -> None:
        """A run before has stopped a view: it is tried at once."""
        self._put(view, _Stopped(self._retries(view), time.monotonic(), kept_rows))

    def stop(self, view: str, cause: Cause, kept_rows: int = 0) -> None:
        """A view could not be answered.

        Args:
            view: its name.
            cause: why.
            kept_rows: groups that wait for it.
        """
        known = self._views.get(view)
        retries = self._retries(view) if known is None else known.retries
        self._put(view, _Stopped(retries, math.inf, kept_rows))
        retry = retries.count(cause)
        self._put(
            view,
            _Stopped(retries, math.inf if retry is None else time.monotonic() + retry.seconds, kept_rows),
        )

    def keep(self, view: str, kept_rows: int) -> None:
        """More groups wait for a view that is not due."""
        known = self._views[view]
        self._put(view, _Stopped(known.retries, known.due, kept_rows))

    def answered(self, view: str) -> None:
        """A view is answered; nothing happens if it was not stopped."""
        known = self._views.get(view)
        if known is not None:
            self._views = {name: each for name, each in self._views.items() if name != view}
            known.retries.succeeded()

    def forget(self, views: Collection[str]) -> None:
        """Records that these are dropped, or defined otherwise, if they were stopped: they are tried as any other."""
        gone = {name: each for name, each in self._views.items() if name in views}
        self._views = {name: each for name, each in self._views.items() if name not in gone}
        for view, each in gone.items():
            fields = {"stream": self._stream, "part": self._part, "lane": self._lane, "view": view}
            self._events.record("view_left", **fields, kept_rows=each.kept_rows)

    def retain(self, views: Collection[str]) -> None:
        """Forgets all others: what stopped them was not published."""
        self._views = {name: each for name, each in self._views.items() if name in views}

    def _put(self, view: str, stopped: _Stopped) -> None:
        self._views = {**self._views, view: stopped}

    def _retries(self, view: str) -> Retries:
        def details() -> dict[str, Any]:
            known = self._views.get(view)
            kept = {"kept_rows": known.kept_rows} if known is not None and known.kept_rows else {}
            return {"lane": self._lane, "view": view, **kept}

        return Retries(
            self._stream,
            self._part,
            self._settings,
            self._events,
            details=details,
            is_endless=self._is_endless,
            kind="view",
        )


def divided(
    attempt: Callable[[Sequence[Part]], Answer], parts: Sequence[Part], *, was_tried: bool
) -> tuple[list[Answer], list[tuple[Part, Cause]]]:
    """Do something for parts together, without those that fail.

    Args:
        attempt: does it for some of them.
        parts: all; at least one.
        was_tried: whether the attempt before failed for a cause that can pass.

    Returns:
        What the attempts returned that succeeded, and the parts for which it fails, with the cause.

    Raises:
        Exception: the first failure, if its cause has nothing to do with parts: it can pass and did not last, or ends the run.
    """
    try:
        return [attempt(parts)], []
    except Exception as error:
        cause = cause_of(error)
        if cause.kind in FOR_GOOD or (cause.is_transient and not was_tried):
            raise
        if len(parts) == 1:
            return [], [(parts[0], cause)]
    middle = len(parts) // 2
    answers: list[Answer] = []
    failed: list[tuple[Part, Cause]] = []
    for half in (parts[:middle], parts[middle:]):
        found, sick = divided(attempt, half, was_tried=was_tried)
        answers += found
        failed += sick
    return answers, failed
