"""What a run looks like at one moment: frozen, so that any reporter can show it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from penstock.monitor.book import stream_state
from penstock.monitor.deadlines import deadline_words
from penstock.monitor.details import backlog_words, not_joined, result_rows
from penstock.monitor.figures import (
    counted,
    event_moment,
    listed,
    roughly,
    shown_source,
    shown_view,
    view_words,
    views_words,
)
from penstock.monitor.lost import nothing_read, overflow_words
from penstock.spark.publication.kinds import is_running_name, results_of

#: views named at the most
_NAMED = 3
_WINDOWS = ("early", "corrected", "final", "final_corrected")


@dataclass(frozen=True, slots=True)
class StreamSnapshot:
    """One stream since the run started.

    Attributes:
        name: the stream.
        views: views registered: selections, and windows over the stream itself.
        selections: of these, the selections; what is matched is matched by them.
        running: of these, aggregations without a window.
        inserts: of the selections, those behind an INSERT INTO with a condition or projection of its own.
        tuples_before: of earlier runs.
        is_under_way: whether a batch is being answered, or the source has more.
        tuples, matched: published so far.
        quarantined: records set aside.
        unusable_times: tuples kept from windows: their event time is NULL or too far ahead of the clock.
        errors: (tuple, view) pairs lost to an expression that raised.
        raising: the views that lost most of them.
        tuples_per_second: of the newest batches.
        windows: windows that window views have answered: early ones, corrected ones, final ones, and final ones that were
            corrected afterwards; one counts once in each batch that answers it.
        state: what the stream is doing, such as `running`, `retrying`, `source unreachable`.
        rows_set_aside: rows of files and row groups that could not be read.
        files_changed: files that changed after they had been read.
        files_passed_over: FIFOs, sockets and devices among the files.
        backlog: what is in the source and in no batch yet, with its unit; "" where it is not known.
        newest_event: the newest event time in words; "" without one.
        nothing_read: that all records were set aside, and why; "" where one was read.
        overflowed: rows with a sum that does not fit its type, by view.
        lost_packets: of the packets that a simulated network has created so far, how many it loses, and all; None of other sources.
    """

    name: str
    views: int
    selections: int
    tuples: int
    matched: int
    quarantined: int
    unusable_times: int
    errors: int
    raising: str
    tuples_per_second: float
    windows: tuple[int, int, int, int] = (0, 0, 0, 0)
    state: str = "running"
    rows_set_aside: int = 0
    files_changed: int = 0
    files_passed_over: int = 0
    backlog: str = ""
    newest_event: str = ""
    lost_packets: tuple[int, int] | None = None
    nothing_read: str = ""
    overflowed: tuple[tuple[str, int], ...] = ()
    running: int = 0
    inserts: int = 0
    tuples_before: int = 0
    is_under_way: bool = False

    def _others(self) -> str:
        """Format the share of the tuples that matched no view; "" where all matched one."""
        if not (others := self.tuples - self.matched):
            return ""
        told = f"{others / self.tuples:.1%}"
        if told in ("0.0%", "100.0%") and self.matched:
            told = "less than 0.1%" if told == "0.0%" else "more than 99.9%"
        return f", {told} matched no view"

    def _nothing_yet(self) -> str:
        """Say why this run has read no tuple."""
        if self.quarantined:
            return "no tuples"
        since = " since this start" if self.tuples_before else ""
        if self.is_under_way and self.state in ("running", "waiting"):
            return f"the first batch{since} is running"
        return f"no rows{since}" if since else "waiting for the first rows"

    def line(self) -> str:
        """Format the snapshot as one line for a terminal."""
        if self.tuples:
            parts = [
                f"{self.name}: {counted(self.tuples, 'tuple')}{' since this start' if self.tuples_before else ''}",
                f"{self.tuples_per_second:,.0f} tuples/s",
            ]
            if self.selections:
                parts.append(f"{self.matched:,} matched{self._others()}")
        else:
            parts = [f"{self.name}: {self._nothing_yet()}"]
        if self.selections > self.inserts:
            parts.append(counted(self.selections - self.inserts, "selection"))
        if self.inserts:
            parts.append(counted(self.inserts, "insert"))
        if windows := self.views - self.selections - self.running:
            parts.append(counted(windows, "window view"))
        if self.running:
            parts.append(counted(self.running, "running view"))
        if self.state not in ("running", "waiting", "ended", "stopped"):
            parts.insert(0, self.state.upper())
        if self.nothing_read:
            parts.insert(0, self.nothing_read)
        if self.backlog:
            parts.append(f"backlog {self.backlog}")
        if self.newest_event:
            parts.append(f"newest event: {self.newest_event}")
        if self.lost_packets is not None:
            parts.append("{:,} of {:,} packets lost".format(*self.lost_packets))
        if any(self.windows):
            parts.append("windows: {:,} early, {:,} corrected, {:,} final".format(*self.windows))
            if self.windows[3]:
                parts.append(f"{self.windows[3]:,} corrected after being final")
        if overflowed := overflow_words(sum(rows for _, rows in self.overflowed)):
            parts.append(f"{overflowed} in {_named(dict(self.overflowed))}")
        if self.quarantined:
            parts.append(f"{counted(self.quarantined, 'record')} set aside")
        if self.rows_set_aside:
            parts.append(f"{counted(self.rows_set_aside, 'row')} unreadable")
        if self.files_changed:
            parts.append(f"{counted(self.files_changed, 'file')} changed after the first read")
        if self.files_passed_over:
            parts.append(f"{counted(self.files_passed_over, 'name')} skipped: not a file")
        if self.unusable_times:
            parts.append(
                f"{counted(self.unusable_times, 'tuple')} left out of windows and joins (event time NULL or in the future)"
            )
        if self.errors:
            parts.append(f"{counted(self.errors, 'expression error')} in {self.raising}")
        return " | ".join(parts)


@dataclass(frozen=True, slots=True)
class LaneSnapshot:
    """A lane: one join view, or all views over the rows of another view.

    Attributes:
        name: of the only view, or of the stream or view whose rows the lane reads.
        views: by name what it has answered of each, in words.
        silent: views that it has no rows of yet.
        behind_seconds: from the newest batch of its streams to the visible result, or None.
        not_joined: batches of its streams that it has not answered; "" where there are none.
        measured_rate: joined rows that a second of its streams produces, or None.
        lost_tables: static tables that are gone or unreadable: their last versions remain in use.
    """

    name: str
    views: tuple[tuple[str, str], ...]
    behind_seconds: float | None
    not_joined: str
    measured_rate: float | None
    lost_tables: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()

    def line(self) -> str:
        """Format the snapshot as one line for a terminal: 'view pairs: 12,430 rows, 0.8 s behind'."""
        behind = "" if self.behind_seconds is None else f", {roughly(self.behind_seconds)} behind"
        parts = [f"{view_words(view)}: {told}{behind}" for view, told in self.views]
        if self.silent:
            parts.append(f"{views_words(self.silent, _NAMED)}: no rows yet")
        if self.measured_rate is not None:
            parts.append(f"{self.measured_rate:,.3g} joined rows/s")
        if self.not_joined:
            parts.append(f"not answered yet: {self.not_joined}")
        if self.lost_tables:
            parts.append(f"static table lost, its last version remains in use: {', '.join(self.lost_tables)}")
        return " | ".join(parts)


def take_snapshot(status: Mapping[str, Mapping[str, Any]]) -> list[StreamSnapshot]:
    """Freeze what `Run.status` says of the streams."""
    return [
        StreamSnapshot(
            name=name,
            views=stream["views"],
            selections=stream["selections"],
            tuples=stream["tuples"],
            matched=stream["matched"],
            quarantined=sum(stream["quarantined"].values()),
            unusable_times=stream["unusable_times"],
            errors=sum(stream["errors"].values()),
            raising=_named(stream["errors"]),
            tuples_per_second=stream["tuples_per_second"],
            state=stream_state(stream),
            rows_set_aside=stream.get("rows_set_aside", 0),
            files_changed=stream.get("files_changed", 0),
            files_passed_over=stream.get("files_passed_over", 0),
            backlog=_backlog(stream.get("lag")),
            newest_event=_newest(stream.get("newest_event_time_us")),
            windows=tuple(stream["windows"].get(kind, 0) for kind in _WINDOWS),
            running=stream.get("running", 0),
            inserts=stream.get("inserts", 0),
            tuples_before=stream.get("tuples_before", 0),
            is_under_way=stream.get("busy", False) or bool((stream.get("lag") or {}).get("backlog")),
            lost_packets=_lost_packets(stream.get("network")),
            nothing_read=nothing_read(stream),
            overflowed=tuple((view, rows) for view, rows in stream.get("overflowed", {}).items() if rows),
        )
        for name, stream in status.items()
    ]


def take_lanes(status: Mapping[str, Mapping[str, Any]]) -> list[LaneSnapshot]:
    """Freeze what `Run.status` says of the views that lanes of their own answer."""
    lanes = {name: lane for stream in status.values() for name, lane in stream["lanes"].items()}
    return [_lane(name, lane) for name, lane in lanes.items()]


def _lane(name: str, lane: Mapping[str, Any]) -> LaneSnapshot:
    place = name.removesuffix(results_of(""))
    counted_views = lane.get("views", {})
    told = _told_of_groups if is_running_name(place) else _told
    if lane.get("answer") is not None:
        told = partial(_told_of_answer, lane["answer"])
    return LaneSnapshot(
        lane.get("view", shown_source(place)),
        tuple((view, told(counts)) for view, counts in counted_views.items()),
        lane.get("behind_seconds"),
        not_joined(lane),
        lane.get("measured_rate"),
        tuple(lane.get("lost_tables", ())),
        tuple(view for view in lane.get("names", ()) if view not in counted_views),
    )


def _told_of_answer(answer: Mapping[str, Any], counts: Mapping[str, Any]) -> str:
    """Of a refreshed view: the rows of its newest answer, and the changes that led to it."""
    inserted, deleted = counts.get("rows", 0), counts.get("withdrawn", 0)
    changes = f"{inserted:,} inserted, {deleted:,} deleted"
    return f"{counted(answer['rows'], 'row')} now ({changes} so far)"


def _told_of_groups(counts: Mapping[str, Any]) -> str:
    """Of a running view: its rows now."""
    return counted(result_rows(counts), "row")


def _told(counts: Mapping[str, Any]) -> str:
    if "released" in counts:
        return deadline_words(counts)
    if "early" in counts:
        if counts.get("rows") and not any(counts.get(kind) for kind in _WINDOWS):
            # rows of no window: a running view over another view
            return _told_of_groups(counts)
        windows = [f"{counts[kind]:,} {kind}" for kind in _WINDOWS[:3]]
        return ", ".join([*windows, *filter(None, [overflow_words(counts.get("overflowed", 0))])])
    told = counted(counts.get("rows", 0), "row")
    return (
        f"{told}, {counts['raised']:,} left out because a condition failed" if counts.get("raised") else told
    )


def _backlog(lag: Mapping[str, Any] | None) -> str:
    if lag is None or lag.get("backlog") is None:
        return ""
    return backlog_words(lag)


def _lost_packets(network: Mapping[str, Any] | None) -> tuple[int, int] | None:
    return None if network is None else (sum(network["lost"].values()), network["created"])


def _newest(newest: int | None) -> str:
    if newest is None:
        return ""
    # whole minutes: nobody reads a line that changes every second
    now = time.time()
    age = (now - newest / 1e6) // 60 * 60
    return event_moment(newest, newest / 1e6 + age) if abs(age) >= 60 else "less than a minute ago"


def _named(errors: Mapping[str, int]) -> str:
    return listed([shown_view(view) for view in sorted(errors, key=lambda view: -errors[view])], _NAMED)
