"""What a run says of itself at one moment."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any, cast

from penstock.monitor.book import stream_state
from penstock.monitor.figures import inserted_into
from penstock.monitor.troubles import open_troubles
from penstock.spark.execution import Execution
from penstock.spark.ingest.query import IngestQuery
from penstock.spark.lanes.lane import Lane
from penstock.spark.reporting.definitions import counted_as
from penstock.status import (
    LaneStatus,
    RunStatus,
    SinkStatus,
    State,
    StreamStatus,
    ViewStatus,
    trouble_of,
    view_status,
)

#: what the book of the run knows of a stream and this process does not
_OF_THE_BOOK = ("tried_until", "outage", "retries", "lag", "newest_event_time_us", "network", "aside")


def run_status(run: Execution) -> RunStatus:
    """Take the status of a run."""
    book = run.status_file.book.document()
    streams = {name: StreamStatus.of(name, _stream(run, query, book)) for name, query in run.queries.items()}
    running = run.lanes.running
    lanes = {name: _lane(name, lane, book) for name, lane in running.items()}
    views = _views(run, book, running.values())
    known = book.get("sinks", {})
    sinks = {
        name: _sink(name, known.get(name, {}), is_active=each.active)
        for name, each in run.followers.all.items()
    }
    return RunStatus(cast(State, book["state"]), str(run.layout.output), streams, views, lanes, sinks)


def _sink(name: str, known: Mapping[str, Any], *, is_active: bool) -> SinkStatus:
    since = known.get("backlog_since")
    return SinkStatus(
        name,
        known.get("view", ""),
        known.get("kind", ""),
        is_active,
        known.get("deliveries", 0),
        known.get("backlog", 0),
        None if since is None else round(max(0.0, time.time() - since), 3),
        known.get("rejected", 0),
        trouble_of(known.get("trouble")),
        known.get("missed", 0),
    )


def _views(run: Execution, book: Mapping[str, Any], lanes: Iterable[Lane]) -> dict[str, ViewStatus]:
    pairs = run.status_file.all_pairs()
    counted: dict[str, Mapping[str, Any]] = dict(book["views"])
    for lane in lanes:
        counted.update(_answered(book.get("lanes", {}), lane))
    troubles = {
        view: trouble
        for _, trouble in open_troubles(book.get("lanes", {}))
        for view in trouble.get("views") or ()
    }
    found = {}
    for name, kind, stream in run.views():
        known = book["streams"].get(stream, {})
        rows = counted.get(name, {})
        if kind == "selection":
            present = counted_as(name, run.queries[stream].plans.views[name].number)
            rows = {"rows": pairs.get(stream, {}).get(present, 0)}
        errors = known.get("errors", {}).get(name, 0)
        found[name] = view_status(name, kind, stream, rows, errors, troubles.get(name))
    return found


def _answered(known: Mapping[str, Mapping[str, Any]], lane: Lane) -> dict[str, dict[str, Any]]:
    """What is counted of a lane's views, with the lanes that answered the same definitions before it."""
    found: dict[str, dict[str, Any]] = {}
    for name in (*lane.before, lane.name):
        for view, counts in known.get(name, {}).get("views", {}).items():
            of_view = found.setdefault(view, {})
            for what, value in counts.items():
                of_view[what] = of_view.get(what, 0) + value if isinstance(value, int) else value
    return found


def _lane(name: str, lane: Lane, book: Mapping[str, Any]) -> LaneStatus:
    known = book.get("lanes", {}).get(name, {})
    return LaneStatus(
        name, tuple(lane.views), lane.active, known.get("cut"), trouble_of(known.get("trouble"))
    )


def _stream(run: Execution, query: IngestQuery, book: Mapping[str, Any]) -> dict[str, Any]:
    """A stream as the monitor reads it: see `penstock.monitor.snapshot`."""
    totals = query.totals
    running = run.rearranging.running(query.stream)
    known = book["streams"].get(query.stream, {})
    told: dict[str, Any] = {
        **{name: known.get(name) for name in _OF_THE_BOOK},
        "state": stream_state(known, run=book["state"]),
        "held_by": known.get("held_by", {}),
        "active": query.active,
        "busy": query.busy,
        "batches": totals.batches,
        "tuples": totals.tuples,
        "matched": totals.matched,
        "pairs": totals.pairs,
        "tuples_per_second": totals.tuples_per_second,
        "quarantined": dict(totals.quarantined),
        "rows_set_aside": totals.rows_set_aside,
        "files_changed": query.files.changed,
        "files_passed_over": query.files.passed_over,
        "unusable_times": totals.null_event_times + totals.future_event_times,
        "errors": dict(totals.view_errors),
        "views": len(query.plans.views) + len(query.plans.windows) + len(query.plans.running),
        "selections": len(query.plans.views),
        "inserts": sum(inserted_into(name) is not None for name in query.plans.views),
        "tuples_before": run.status_file.tuples_before.get(query.stream, 0),
        "running": len(query.plans.running),
        "windows": {},
        "overflowed": {},
        "troubles": {},
        "lanes": {},
        "view_pairs": {
            name: totals.view_pairs[present]
            for name, view in query.plans.views.items()
            if (present := counted_as(name, view.number)) in totals.view_pairs
        },
        "sequence": running.text,
        "evaluations_per_tuple": running.evaluations,
    }
    lanes: Mapping[str, Mapping[str, Any]] = book.get("lanes", {})
    for lane in run.lanes.running.values():
        if any(keeper.ingest is query for keeper in lane.streams):
            told["troubles"] |= _troubles(lanes, lane.name, f"{query.stream}.log")
            for name, value in lane.status().items():
                told[name] = {**told[name], **value}
            if lane.name in told["lanes"]:
                told["lanes"][lane.name] |= {
                    "names": list(lane.views),
                    "views": _answered(lanes, lane),
                    **{what: lanes.get(lane.name, {}).get(what) for what in ("behind_seconds", "answer")},
                }
    return told


def _troubles(lanes: Mapping[str, Mapping[str, Any]], *names: str) -> dict[str, Any]:
    """Of these lanes and their views those that fail, and why."""
    found = {name: lanes[name]["trouble"] for name in names if "trouble" in lanes.get(name, {})}
    for name in names:
        for view, sick in lanes.get(name, {}).get("sick", {}).items():
            found[f"{name} {view}"] = sick["trouble"]
    return found
