"""What the status says of lanes that fail while their run continues."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from penstock.monitor.figures import counted, source_words, views_words

#: a lane that was retried and has not failed for so long since then works
SETTLED_SECONDS = 300.0
#: the screen of a run prints a failure that lasts again after so long
AGAIN_SECONDS = 60.0
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
    found = {name: event.get(name) for name in ("stream", "part", "views", "cause", "told")}
    if event.get("view"):
        found |= {"views": [event["view"]], "kept_rows": event.get("kept_rows", 0)}
    return found


#: by kind of event: given what is known of the lane
TROUBLE_HANDLERS: Mapping[str, Callable[[dict[str, Any], Mapping[str, Any]], None]] = {
    "lane_retried": _retried,
    "lane_failed": _failed,
    "lane_back": _back,
}
#: likewise of events of one of its views: given what is known of that
_OF_VIEWS = {"view_retried": _retried, "view_failed": _failed, "view_back": _back, "view_left": _back}


def _of_view(lane: dict[str, Any], event: Mapping[str, Any]) -> None:
    sick = lane.setdefault("sick", {})
    _OF_VIEWS[event["kind"]](sick.setdefault(event["view"], {}), event)
    if "trouble" not in sick[event["view"]]:
        del sick[event["view"]]


def forget_views(lane: dict[str, Any], views: Collection[str]) -> None:
    """Let the status forget the troubles of views that are dropped or defined anew."""
    for view in views:
        lane.get("sick", {}).pop(view, None)


#: by kind of event: given what is known of the lane
VIEW_TROUBLE_HANDLERS: Mapping[str, Callable[[dict[str, Any], Mapping[str, Any]], None]] = dict.fromkeys(
    _OF_VIEWS, _of_view
)


def _of_sink(document: dict[str, Any], event: Mapping[str, Any]) -> None:
    sink = document.setdefault("sinks", {}).setdefault(str(event.get("sink")), {})
    if event["kind"] == "sink_rejected":
        sink["rejected"] = sink.get("rejected", 0) + (event.get("rows") or 0)
        sink["dead_letters"] = event.get("file")
    elif event["kind"] == "sink_missed":
        sink["missed"] = sink.get("missed", 0) + (event.get("rows") or 0)
    else:
        _SINK_HANDLERS[event["kind"]](sink, event)


_SINK_HANDLERS = {"sink_retried": _retried, "sink_failed": _failed, "sink_back": _back}
#: by kind of event: given what is known of the run
SINK_HANDLERS: Mapping[str, Callable[[dict[str, Any], Mapping[str, Any]], None]] = dict.fromkeys(
    (*_SINK_HANDLERS, "sink_rejected", "sink_missed"), _of_sink
)


def open_troubles(
    lanes: Mapping[str, Mapping[str, Any]], now: Callable[[], float] = time.time
) -> Iterator[tuple[str, Trouble]]:
    """The lanes that fail, and why, and those in which single views do; what was tried again and has held since then works, though nothing came.

    Args:
        lanes: what is known of each, by name.
        now: the clock, seconds since the epoch.
    """
    for name, lane in lanes.items():
        for each in (lane, *lane.get("sick", {}).values()):
            trouble = each.get("trouble")
            if trouble is not None and now() <= trouble.get("tried_until", float("inf")):
                yield name, trouble


def trouble_words(name: str, trouble: Trouble, *, is_over: bool = False) -> str:
    """Format a lane that fails: 'RETRYING: view a of stream s, since 10:00:00: the disk is full; retried 3 times'.

    Args:
        name: the lane's.
        trouble: why it fails.
        is_over: whether the run has ended meanwhile.
    """
    views = trouble.get("views") or ()
    what = views_words(views, _NAMED) if views else f"a reader of the log ({name})"
    attempt = trouble.get("attempt")
    again = f"; retried {counted(attempt, 'time')}" if attempt else ""
    kept = trouble.get("kept_rows")
    if kept:
        again += f"; {counted(kept, 'changed group')} kept for it"
    if "kept_rows" in trouble and not is_over:
        again += "; nothing of it is lost: correct the cause and start again, or use CREATE OR REPLACE VIEW"
    return (
        f"{trouble['state'].upper()}: {what} of {source_words(trouble['stream'])}, since {_clock(trouble['since'])}: "
        f"{trouble['told']}{again}; "
        + ("the run ended before it answered" if is_over else "all other views continue")
    )


def sink_words(name: str, sink: Mapping[str, Any], *, is_over: bool = False) -> Iterator[str]:
    """Format what is wrong with a sink: 'RETRYING: sink a of view v failed: ... since 10:00:00; 3 batches behind'.

    Args:
        name: the sink's.
        sink: what is known of it.
        is_over: whether the run has ended meanwhile.
    """
    trouble = sink.get("trouble")
    if trouble is not None:
        behind = f"; {counted(sink['backlog'], 'batch')} behind" if sink.get("backlog") else ""
        rest = "the next start continues" if is_over else "streams and other sinks continue"
        yield f"{trouble['state'].upper()}: {trouble['told']}, since {_clock(trouble['since'])}{behind}; {rest}"
    if sink.get("rejected"):
        yield f"sink {name}: the server refused {counted(sink['rejected'], 'row')}; see {sink['dead_letters']}"
    if sink.get("missed"):
        yield f"sink {name}: {counted(sink['missed'], 'row')} left the folder before the sink had them"


def unanswered_words(failed: Sequence[Mapping[str, Any]], waiting: Sequence[str] = ()) -> str:
    """Format which views a run has not answered completely, and why.

    Args:
        failed: of each lane that failed `told` and where they are known `stream`, `part` and `views`, of a single view `view`.
        waiting: the views that read the rows of these.
    """
    parts = []
    for each in failed:
        whose = f"the {each.get('part', 'lane')} of {source_words(str(each.get('stream')))}"
        views = each.get("views") or ([each["view"]] if each.get("view") else [])
        parts.append(f"{views_words(views, _NAMED) if views else whose}: {each['told']}")
    if waiting:
        parts.append(
            f"{views_words(waiting, _NAMED)}: {'its' if len(waiting) == 1 else 'their'} input is incomplete"
        )
    return f"some views are incomplete: {'; '.join(parts)}. All others are complete. Run the same command again to continue"


def undelivered_words(failed: Sequence[Mapping[str, Any]]) -> str:
    """Format which sinks a run has not brought up to date, and why: of each `told`."""
    told = "; ".join(str(each["told"]) for each in failed)
    return f"some sinks lack rows: {told}. The results folder has all rows. Run the same command again to continue"


@dataclass(frozen=True, slots=True)
class TroubleSnapshot:
    """A lane that fails, as one line for a terminal.

    Attributes:
        key: the lane and its state.
        text: the line.
    """

    key: str
    text: str

    def line(self) -> str:
        """Return the line."""
        return self.text


def take_troubles(status: Mapping[str, Mapping[str, Any]]) -> list[TroubleSnapshot]:
    """Freezes what `Run.status` says of lanes that fail."""
    lanes = {
        name: {"trouble": trouble}
        for stream in status.values()
        for name, trouble in stream["troubles"].items()
    }
    return [
        TroubleSnapshot(f"{name} {trouble['state']}", trouble_words(name, trouble))
        for name, trouble in open_troubles(lanes)
    ]


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
