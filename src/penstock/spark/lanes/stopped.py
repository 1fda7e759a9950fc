"""Views of a lane that cannot be answered while the others can: each is tried again by itself, as a lane is.

Which views fail is found by halves: what fails for several at once is tried for each half, until single views remain (group testing; Dorfman,
"The detection of defective members of large populations", 1943).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from penstock.settings import Settings
from penstock.spark.recovery.causes import Cause, cause_of
from penstock.spark.recovery.retries import FOR_GOOD, Retries
from penstock.spark.storage.events import EventLog

#: Spark's condition of a job that somebody broke off, such as the end of a run: no view is at fault
_CANCELLED = "SPARK_JOB_CANCELLED"

Part = TypeVar("Part")
Answer = TypeVar("Answer")


class Place(NamedTuple):
    """An operator and a view of it. While a view is redefined, an old and a new operator may answer it in one cut."""

    operator: int
    view: str


@dataclass(frozen=True, slots=True)
class Settled:
    """What came of the views of a cut.

    Attributes:
        replaced: those that are dropped, or defined otherwise.
        answered: those that are answered.
        failed: those that could not be answered, with the cause.
        kept_rows: groups that wait, by view that is not answered; views without such groups may be left out.
    """

    replaced: Collection[Place] = ()
    answered: Collection[Place] = ()
    failed: Mapping[Place, Cause] = field(default_factory=dict)
    kept_rows: Mapping[Place, int] = field(default_factory=dict)


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
        self._views: Mapping[Place, _Stopped] = {}

    def __contains__(self, place: Place) -> bool:
        return place in self._views

    @property
    def places(self) -> list[Place]:
        """The views, each with the operator that is stopped."""
        return list(self._views)

    @property
    def names(self) -> list[str]:
        """The names of the views."""
        return [place.view for place in self._views]

    def is_due(self, place: Place) -> bool:
        """Whether a view is answered by the next cut: it is not stopped, or its wait is over."""
        known = self._views.get(place)
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

    def remember(self, place: Place, kept_rows: int) -> None:
        """A run before has stopped a view: it is tried at once."""
        self._put(place, _Stopped(self._retries(place), time.monotonic(), kept_rows))

    def retain(self, places: Collection[Place]) -> None:
        """Forgets all others: they are not among what was published."""
        self._views = {place: each for place, each in self._views.items() if place in places}

    def settle(self, settled: Settled) -> None:
        """Goes by what came of views in a cut that is published, and records it: first what is over, then what fails."""
        gone = {place: each for place, each in self._views.items() if place in settled.replaced}
        self._views = {place: each for place, each in self._views.items() if place not in gone}
        for place, each in gone.items():
            fields = {"stream": self._stream, "part": self._part, "lane": self._lane, "view": place.view}
            self._events.record("view_left", **fields, kept_rows=each.kept_rows)
        for place in settled.answered:
            self._answered(place)
        for place, cause in settled.failed.items():
            self._stop(place, cause, settled.kept_rows.get(place, 0))
        for place, rows in settled.kept_rows.items():
            if place not in settled.failed:
                known = self._views[place]
                self._put(place, _Stopped(known.retries, known.due, rows))

    def _answered(self, place: Place) -> None:
        known = self._views.get(place)
        if known is not None:
            self._views = {other: each for other, each in self._views.items() if other != place}
            known.retries.succeeded()

    def _stop(self, place: Place, cause: Cause, kept_rows: int) -> None:
        known = self._views.get(place)
        retries = self._retries(place) if known is None else known.retries
        self._put(place, _Stopped(retries, math.inf, kept_rows))
        retry = retries.count(cause)
        due = math.inf if retry is None else time.monotonic() + retry.seconds
        self._put(place, _Stopped(retries, due, kept_rows))

    def _put(self, place: Place, stopped: _Stopped) -> None:
        self._views = {**self._views, place: stopped}

    def _retries(self, place: Place) -> Retries:
        def details() -> dict[str, Any]:
            known = self._views.get(place)
            kept = {"kept_rows": known.kept_rows} if known is not None and known.kept_rows else {}
            return {"lane": self._lane, "view": place.view, **kept}

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
        Exception: the first failure, if its cause has nothing to do with parts: it can pass and did not last, the job was cancelled, or it ends the run.
    """
    try:
        return [attempt(parts)], []
    except Exception as error:
        cause = cause_of(error)
        if cause.kind in FOR_GOOD or (cause.is_transient and not was_tried) or _CANCELLED in str(error):
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
