"""What the status says of lanes that fail while their run goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

#: what was tried again and has not failed for so long since then works
SETTLED_SECONDS = 60.0
#: views named at the most
_NAMED = 3

Trouble = Mapping[str, Any]


def _retried(lane: dict[str, Any], event: Mapping[str, Any]) -> None:
    since = lane.get("trouble", {}).get("since", event.get("time"))
    until = seconds_of(event.get("time")) + (event.get("wait_seconds") or 0.0) + SETTLED_SECONDS
    lane["trouble"] = {**_told(event), "state": "retrying", "since": since, "tried_until": until}
    lane["trouble"]["attempt"] = event.get("attempt")


def _failed(lane: dict[str, Any], event: Mapping[str, Any]) -> None:
    since = lane.get("trouble", {}).get("since", event.get("time"))
    lane["trouble"] = {**_told(event), "state": "failed", "since": since}


def _back(lane: dict[str, Any], _: Mapping[str, Any]) -> None:
    lane.pop("trouble", None)


def _told(event: Mapping[str, Any]) -> dict[str, Any]:
    return {name: event.get(name) for name in ("stream", "part", "views", "cause", "told")}


#: by kind of event: given what is known of the lane
TROUBLE_HANDLERS: Mapping[str, Callable[[dict[str, Any], Mapping[str, Any]], None]] = {
    "lane_retried": _retried,
    "lane_failed": _failed,
    "lane_back": _back,
}


def open_troubles(
    lanes: Mapping[str, Mapping[str, Any]], now: Callable[[], float] = time.time
) -> Iterator[tuple[str, Trouble]]:
    """The lanes that fail, and why: one that was tried again and has held since then works, though nothing came.

    Args:
        lanes: what is known of each, by name.
        now: the clock, seconds since the epoch.
    """
    for name, lane in lanes.items():
        trouble = lane.get("trouble")
        if trouble is not None and now() <= trouble.get("tried_until", float("inf")):
            yield name, trouble


def trouble_words(name: str, trouble: Trouble) -> str:
    """A lane that fails as a line to read."""
    views = trouble.get("views") or ()
    what, waits = _named(views) if views else name, "wait" if len(views) > 1 else "waits"
    attempt = trouble.get("attempt")
    again = f"; tried again {'once' if attempt == 1 else f'{attempt:,} times'}" if attempt else ""
    told = f"{trouble['state'].upper()}: {what} of stream {trouble['stream']} {waits} since {_clock(trouble['since'])}"
    return f"{told}: {trouble['told']}{again}; everything else goes on"


def _named(views: Sequence[str]) -> str:
    more = f" and {len(views) - _NAMED} more" if len(views) > _NAMED else ""
    return f"{'view' if len(views) == 1 else 'views'} {', '.join(views[:_NAMED])}{more}"


def unanswered_words(failed: Sequence[Mapping[str, Any]], waiting: Sequence[str] = ()) -> str:
    """Which views a run has not answered all that was there for, and why.

    Args:
        failed: of each lane that was given up `told` and where they are known `stream`, `part` and `views`.
        waiting: the views that read what these answer.
    """
    parts = []
    for each in failed:
        whose = f"the {each.get('part', 'lane')} of stream {each.get('stream')}"
        parts.append(f"{_named(each['views']) if each.get('views') else whose}: {each['told']}")
    if waiting:
        parts.append(
            f"{_named(waiting)}: what {'it reads' if len(waiting) == 1 else 'they read'} is not answered"
        )
    return f"not everything is answered: {'; '.join(parts)}. All else is; the same command goes on from here"


@dataclass(frozen=True, slots=True)
class TroubleSnapshot:
    """A lane that fails, as one line for a terminal.

    Attributes:
        text: the line.
    """

    text: str

    def line(self) -> str:
        """The line."""
        return self.text


def take_troubles(status: Mapping[str, Mapping[str, Any]]) -> list[TroubleSnapshot]:
    """Freezes what `Run.status` says of lanes that fail."""
    lanes = {
        name: {"trouble": trouble}
        for stream in status.values()
        for name, trouble in stream["troubles"].items()
    }
    return [TroubleSnapshot(trouble_words(name, trouble)) for name, trouble in open_troubles(lanes)]


def seconds_of(time_text: Any) -> float:
    """A moment of the event log, seconds since the epoch; 0 where it is none."""
    try:
        return datetime.fromisoformat(str(time_text)).timestamp()
    except ValueError:
        return 0.0


def _clock(time_text: Any) -> str:
    try:
        return datetime.fromisoformat(str(time_text)).astimezone().strftime("%H:%M:%S")
    except ValueError:
        return str(time_text)
