"""The answer to /api/overview: the run, its streams, its lanes, its sinks, what is wrong and what happened last."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from penstock.monitor.book import Document
from penstock.monitor.details import backlog_words
from penstock.monitor.figures import clock
from penstock.monitor.news import event_line
from penstock.monitor.overview import current_rate, stream_lag
from penstock.monitor.problems import problem_lines
from penstock.monitor.troubles import open_troubles
from penstock.page.answers import cut, epoch, seconds, short_name
from penstock.page.histories import Histories
from penstock.page.sinks import sinks
from penstock.spark.publication.kinds import is_running_name, results_of
from penstock.spark.results.joined_rows import LANES, kind_of_lane, lanes_of
from penstock.spark.storage.deadlines import DEADLINES_NAME

#: at most so many of each are listed
_PROBLEMS, _STREAMS, _LANES, _SINKS, _VIEWS, _NEWS = 50, 200, 200, 200, 20, 40
#: points of all histories together, and of one at the least and at the most
_POINTS, _LEAST, _MOST = 4_000, 30, 240
#: characters of a problem or of news
_LINE = 1_000


def overview_answer(
    version: int, document: Document, catalog: Document, histories: Histories, error: str | None
) -> dict[str, Any]:
    """What the overview shows.

    Args:
        version: of the snapshot.
        document: see `folder_status`.
        catalog: the streams and views.
        histories: of streams and lanes.
        error: why the folder cannot be read now; None where it can.
    """
    lines = [] if error is None else [error]
    lines += islice(problem_lines(document), _PROBLEMS)
    streams: Mapping[str, Document] = document["streams"]
    return {
        "version": version,
        "run": {
            "state": document["state"],
            "reason": document.get("reason"),
            "started": epoch(document.get("started")),
            "output": document["output"],
            "pid": document.get("pid"),
        },
        "problems": [cut(line, _LINE) for line in lines],
        "totals": _totals(streams, catalog),
        "streams": [
            _stream(name, stream, document, histories) for name, stream in islice(streams.items(), _STREAMS)
        ],
        "lanes": list(islice(_lanes(document, catalog, histories), _LANES)),
        "sinks": list(islice(sinks(document), _SINKS)),
        "deadlines": standing_of_deadlines(document["views"]),
        "news": [
            {
                "at": epoch(each.event.get("time")),
                "kind": str(each.event.get("kind")),
                "text": cut(_untimed(each.event), _LINE),
                "count": each.count,
            }
            for each in histories.news(_NEWS)
        ],
    }


def standing_of_deadlines(views: Mapping[str, Document]) -> dict[str, int]:
    """Count the views with a deadline: `views`, `overloaded`, and how many times a LOSS promise was `broken`.

    Args:
        views: of a status; see `folder_status`.
    """
    standings = [
        view.get("standing") or {}
        for view in views.values()
        if "released" in view and not view.get("dropped")
    ]
    return {
        "views": len(standings),
        "overloaded": sum(bool(standing.get("overloaded")) for standing in standings),
        "broken": sum(standing.get("violations") or 0 for standing in standings),
    }


def _untimed(event: Mapping[str, Any]) -> str:
    """The line of an event without its time, which stands beside it."""
    return event_line(event).removeprefix(clock(event.get("time"))).lstrip()


def _totals(streams: Mapping[str, Document], catalog: Document) -> dict[str, int]:
    return {
        "streams": len(streams),
        "views": sum(not view.get("dropped") for view in catalog["views"].values()),
        **{
            what: sum(stream.get(what) or 0 for stream in streams.values())
            for what in ("tuples", "matched", "pairs")
        },
        **{what: sum(map(_summed(what), streams.values())) for what in ("quarantined", "errors")},
    }


def _summed(what: str) -> Any:
    return lambda stream: sum((stream.get(what) or {}).values())


def _stream(name: str, stream: Document, document: Document, histories: Histories) -> dict[str, Any]:
    is_live = document["state"] in ("running", "starting")
    lag = stream.get("lag") or {}
    pace = histories.pace(name, time.time() if is_live else epoch(stream.get("last_batch")) or 0.0)
    windows = sum(
        view.get("stream") == name and not view.get("dropped") for view in document["views"].values()
    )
    return {
        "name": short_name(name),
        "state": stream.get("state") or "unknown",
        "tuples": stream.get("tuples") or 0,
        "matched": stream.get("matched") or 0,
        "quarantined": _summed("quarantined")(stream),
        "errors": _summed("errors")(stream),
        "is_read": bool(stream.get("recent")),
        "rate": current_rate(stream, is_live=is_live),
        "answered": pace.answered,
        "arrives": pace.arrives,
        "lag": stream_lag(stream) if is_live else None,
        "backlog": None if lag.get("backlog") is None else backlog_words(lag),
        "newest_event": seconds(stream.get("newest_event_time_us")),
        "selections": len(stream.get("selections") or ()),
        "windows": windows,
        "place": stream.get("place"),
        "history": histories.stream(name, points(len(document["streams"]))),
    }


def _lanes(document: Document, catalog: Document, histories: Histories) -> Iterator[dict[str, Any]]:
    """The lanes that views have, in the order of the catalog."""
    found: dict[str, tuple[str, list[str]]] = {}
    for name, view in catalog["views"].items():
        if "projection" not in view and not view.get("dropped"):
            lane, kind = lane_of(view, catalog)
            found.setdefault(lane, (kind, []))[1].append(name)
    lanes: Mapping[str, Document] = document.get("lanes") or {}
    troubles = dict(open_troubles(lanes))
    is_live = document["state"] in ("running", "starting")
    for lane, (kind, views) in found.items():
        trouble = troubles.get(lane) if is_live else None
        if kind == "windows":
            behind = document["streams"].get(catalog["views"][views[0]]["stream"], {}).get("windows_seconds")
        else:
            behind = lanes.get(lane, {}).get("behind_seconds")
        yield {
            "name": short_name(lane),
            "kind": kind,
            "views": [short_name(view) for view in views[:_VIEWS]],
            "state": document["state"] if trouble is None else str(trouble["state"]),
            "behind": behind if is_live else None,
            "rows": sum(_rows(document["views"].get(view) or {}) for view in views),
            "trouble": None if trouble is None else cut(str(trouble.get("told")), _LINE),
            "history": histories.lane(lane, points(len(found))),
        }


def points(histories: int) -> int:
    """How many points a history has where an answer has so many of them."""
    return min(_MOST, max(_LEAST, _POINTS // max(1, histories)))


def lane_of(view: Mapping[str, Any], catalog: Document) -> tuple[str, str]:
    """The name of the lane that answers a view, and its kind: windows, running, join, union, refreshed, deadlines or derived.

    Args:
        view: its entry in the catalog; no selection.
        catalog: the streams and views.
    """
    if LANES in view:
        return lanes_of(view)[-1][1], kind_of_lane(view)
    stream = view["stream"]
    if stream == DEADLINES_NAME:
        return results_of(stream), "deadlines"
    if is_running_name(str(stream)):
        return results_of(stream), "running"
    return results_of(stream), "windows" if stream in catalog["streams"] else "derived"


def _rows(view: Mapping[str, Any]) -> int:
    return int(view.get("rows") or 0)
