"""The tables of a status: a line a stream and a line a view, in at most 100 columns."""

from __future__ import annotations

import shlex
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.monitor.book import Document
from penstock.monitor.details import backlog_words, result_rows
from penstock.monitor.figures import counted, event_moment, inserted_into, roughly, shown_view
from penstock.monitor.promises import Promise
from penstock.monitor.troubles import open_troubles
from penstock.spark.reporting.definitions import is_running_view

#: widest line, characters
WIDTH = 100
#: streams and views on one screen
MOST_STREAMS, MOST_VIEWS = 10, 20
_STREAM_COLUMNS = ("stream", "state", "tuples", "tuples/s", "backlog", "newest event", "set aside", "errors")
_VIEW_COLUMNS = ("view", "kind", "state", "rows", "rows/s", "lag", "promise", "errors")
#: numbers, which are aligned at the right
_NUMBERS = frozenset(("tuples", "tuples/s", "rows", "rows/s", "set aside", "errors"))
#: kinds of views, as the table and as a sentence names them
_KINDS = {
    "selection": "selection",
    "insert": "insert",
    "windows": "window view",
    "running": "running view",
    "deadline": "deadline view",
    "join": "join view",
    "refreshed": "refreshed view",
    "union": "UNION ALL view",
}
_LEAST_NAME = 12
#: a view so many batches behind its stream is shown before the others: fewer are on their way
_BEHIND = 5
_NONE = "-"
_SINK_COLUMNS = ("sink", "view", "state", "rows", "behind")


@dataclass(frozen=True, slots=True)
class ViewRow:
    """A view as a line of the table.

    Attributes:
        name, kind: of the view; kinds are selection, insert, windows, running, deadline, join, union and refreshed.
        state: that of its streams, or its own where it fails.
        rows: rows of results so far, of each the newest revision; None where they are not known.
        rate: rows a second; None where nothing measures it, as after the run.
        lag: seconds since its oldest unanswered tuple arrived, or that its newest answer took where none waits; None where
            they are not known.
        batches_behind: batches that it has not answered.
        promise: of MAX_ERROR or LOSS, in words.
        errors: tuples, rows and windows lost to errors.
        is_broken: whether it fails, or its promise is broken.
    """

    name: str
    kind: str
    state: str
    rows: int | None
    rate: float | None
    lag: float | None
    batches_behind: int
    promise: str
    errors: int
    is_broken: bool

    @property
    def urgency(self) -> tuple[bool, bool, int, int]:
        """Sorts the worst first, then the busiest."""
        behind = self.batches_behind if self.batches_behind >= _BEHIND else 0
        return self.is_broken, self.errors > 0, behind, self.rows or 0

    @property
    def is_unmatched(self) -> bool:
        """Whether it is a selection that no tuple has matched."""
        return self.kind in ("selection", "insert") and self.rows == 0

    def cells(self) -> tuple[str, ...]:
        """Return the texts of its columns."""
        rows = _NONE if self.rows is None else f"{self.rows:,}"
        return (
            *(_shown(self.name), self.kind, self.state, rows, _rate(self.rate)),
            *(_NONE if self.lag is None else roughly(self.lag), self.promise, f"{self.errors:,}"),
        )


def stream_table(document: Document, most: int | None) -> Iterator[str]:
    """Yield a line a stream below a header.

    Args:
        document: see `folder_status`.
        most: lines; None: all.
    """
    streams = list(document["streams"].items())
    shown = streams if most is None else streams[:most]
    is_live = _is_live(document)
    yield from _table(
        _STREAM_COLUMNS, [_stream_cells(name, stream, is_live=is_live) for name, stream in shown]
    )
    if len(shown) < len(streams):
        yield f"{len(streams) - len(shown):,} more: -v shows them"


def view_table(document: Document, most: int | None) -> Iterator[str]:
    """Yield a line a view below a header, the worst and busiest first where there are more than fit.

    Args:
        document: see `folder_status`.
        most: lines; None: all, in the order of the catalog.
    """
    rows = list(view_rows(document))
    shown = rows
    if most is not None and len(rows) > most:
        shown = sorted(rows, key=lambda row: row.urgency, reverse=True)[:most]
    if shown:
        yield from _table(_VIEW_COLUMNS, [row.cells() for row in shown])
    if len(shown) < len(rows):
        yield f"{len(rows) - len(shown):,} more: -v shows them"
        if unmatched := len(_unmatched(document, rows)):
            command = f"penstock status {shlex.quote(document['output'])} --without-matches"
            yield f"{unmatched:,} without a match: {command}"


def unmatched_lines(document: Document) -> Iterator[str]:
    """Yield the names of the selections that no tuple has matched, below their number."""
    names = [row.name for row in _unmatched(document, view_rows(document))]
    yield f"{counted(len(names), 'selection')} without a match{':' if names else ''}"
    yield from (f"  {shown_view(name)}" for name in names)


def sink_table(document: Document) -> Iterator[str]:
    """Yield a line a sink below a header: how far it is behind what is published, and the rows it was given so far."""
    sinks: Mapping[str, Mapping[str, Any]] = document.get("sinks") or {}
    is_live = _is_live(document)
    troubles = dict(open_troubles(sinks)) if is_live else {}
    lines = []
    for name, sink in sinks.items():
        view, backlog = str(sink.get("view") or ""), sink.get("backlog") or 0
        trouble = troubles.get(name) if is_live else sink.get("trouble")
        state = document["state"] if trouble is None else str(trouble["state"]) if is_live else "failed"
        rows = _NONE if sink.get("rows") is None else f"{sink['rows']:,}"
        behind = _NONE if "backlog" not in sink else counted(backlog, "batch") if backlog else "up to date"
        table = name.removesuffix(f".{view}")
        lines.append((table, view if inserted_into(view) is None else "INSERT INTO", state, rows, behind))
    if lines:
        yield from _table(_SINK_COLUMNS, lines)


def _shown(view: str) -> str:
    """The name of a view in a table: '-> alerts' of the view behind INSERT INTO alerts."""
    sink = inserted_into(view)
    return view if sink is None else f"-> {sink}"


def _unmatched(document: Document, rows: Iterable[ViewRow]) -> list[ViewRow]:
    """Return the selections without a match, but those on streams that no tuple has been read of."""
    streams = document["streams"].values()
    waiting = {
        name for stream in streams if not stream.get("tuples") for name in stream.get("selections") or ()
    }
    return [row for row in rows if row.is_unmatched and row.name not in waiting]


def stream_totals(document: Document) -> str:
    """Format the totals of the streams: '2 streams: 1,200 tuples, 40 matched, 3 records set aside'."""
    streams = document["streams"].values()
    tuples, matched = (sum(stream.get(count, 0) for stream in streams) for count in ("tuples", "matched"))
    aside = sum(sum((stream.get("quarantined") or {}).values()) for stream in streams)
    return (
        f"{counted(len(streams), 'stream')}: {counted(tuples, 'tuple')}, {matched:,} matched, "
        f"{counted(aside, 'record')} set aside"
    )


def view_totals(document: Document) -> str:
    """Format how many views of each kind exist: '250 views: 200 selections (3 without a match), 50 window views'."""
    rows = list(view_rows(document))
    kinds = Counter(row.kind for row in rows)
    idle = Counter(row.kind for row in _unmatched(document, rows))
    each = ", ".join(
        counted(count, _KINDS[kind]) + (f" ({idle[kind]:,} without a match)" if idle[kind] else "")
        for kind, count in kinds.items()
    )
    return f"{counted(kinds.total(), 'view')}: {each}" if kinds else "no views"


def view_rows(document: Document) -> Iterator[ViewRow]:
    """Yield a row for each view that is not dropped."""
    is_live = _is_live(document)
    troubles = {
        view: str(trouble["state"])
        for _, trouble in open_troubles(document.get("lanes", {}))
        for view in (trouble.get("views") or ())
        if is_live or trouble["state"] == document["state"] == "failed"
    }
    streams = document["streams"]
    # where single views failed, their streams have ended, and so have the others
    is_of_views = streams and all(_state(stream) == "ended" for stream in streams.values())
    of_others = "ended" if document["state"] == "failed" and is_of_views else document["state"]
    for stream in streams.values():
        of_all, tuples = _state(stream), stream.get("tuples", 0)
        rate, lag = current_rate(stream, is_live=is_live), stream_lag(stream) if is_live else None
        failed, errors = stream.get("failed_views", {}), stream.get("errors", {})
        for name, count in (stream.get("selections") or {}).items():
            state = "failed" if name in failed else of_all
            yield ViewRow(
                name,
                "selection" if inserted_into(name) is None else "insert",
                state,
                rows=count,
                rate=None if count is None or not tuples or rate is None else rate * count / tuples,
                lag=lag,
                batches_behind=0,
                promise=_NONE,
                errors=errors.get(name, 0),
                is_broken=state in ("failed", "retrying"),
            )
    for name, view in document["views"].items():
        if not view.get("dropped"):
            own = [streams[each] for each in view.get("streams") or [view.get("stream")] if each in streams]
            state = troubles.get(name) or (max(map(_state, own), key=_urgency) if own else of_others)
            lost = sum(stream.get("errors", {}).get(name, 0) for stream in own)
            yield _view_row(name, view, state, lost, is_live=is_live)


def _view_row(name: str, view: Mapping[str, Any], state: str, errors: int, *, is_live: bool) -> ViewRow:
    standing = view.get("standing") or {}
    kind, rate, promise, rows = "windows", None, _NONE, result_rows(view)
    if is_running_view(view):
        kind = "running"
    if "refresh_seconds" in view:
        kind, rows = "refreshed", (view.get("answer") or {}).get("rows", 0)
        batches = sum(view.get("backlog", {}).values())
    elif "branches" in view:
        kind, batches = "union", sum(view.get("backlog", {}).values())
    elif "streams" in view:
        kind, rate = "join", standing.get("measured_rate") if is_live else None
        batches, errors = sum(view.get("backlog", {}).values()), errors + view.get("raised", 0)
    else:
        first, last = view.get("not_answered") or (1, 0)
        batches, errors = last - first + 1, errors + view.get("overflowed", 0)
    if "released" in view:
        kind, errors = "deadline", errors + view.get("failed", 0)
        violations = standing.get("violations", 0)
        promise = (
            "kept" if standing and not violations else f"broken {violations:,}x" if violations else _NONE
        )
    elif (kept := Promise.of(view)) is not None:
        promise = kept.words
    is_broken = state in ("failed", "retrying") or promise.startswith("broken")
    seconds = view.get("waiting_seconds") if batches else view.get("behind_seconds")
    lag = seconds if is_live else None
    return ViewRow(name, kind, state, rows, rate, lag, batches, promise, errors, is_broken)


def stream_lag(stream: Mapping[str, Any]) -> float | None:
    """The seconds that the oldest unanswered tuple of a stream waits at least, or that its newest batch took."""
    if _state(stream) != "running":
        return None
    recent: Sequence[Sequence[float]] = stream.get("recent") or ()
    took = recent[-1][1] if recent else None
    if planned := stream.get("at_hand"):
        return max(float(planned["age_seconds"]), took or 0.0)
    return None if (stream.get("lag") or {}).get("backlog") else took


def _stream_cells(name: str, stream: Mapping[str, Any], *, is_live: bool) -> tuple[str, ...]:
    lag = stream.get("lag") or {}
    backlog = _NONE if lag.get("backlog") is None else backlog_words(lag)
    newest = stream.get("newest_event_time_us")
    aside, errors = (sum((stream.get(what) or {}).values()) for what in ("quarantined", "errors"))
    return (
        *(name, _state(stream), f"{stream.get('tuples', 0):,}"),
        *(_rate(current_rate(stream, is_live=is_live)), backlog),
        *(_NONE if newest is None else event_moment(newest, time.time()), f"{aside:,}", f"{errors:,}"),
    )


def _state(stream: Mapping[str, Any]) -> str:
    return str(stream.get("state") or "unknown").removeprefix("source ")


def _urgency(state: str) -> int:
    """Ranks states of a view's streams: the worst is the view's."""
    return {"failed": 3, "unreachable": 2, "retrying": 2, "running": 0}.get(state, 1)


def _is_live(document: Document) -> bool:
    return document["state"] in ("running", "starting")


def current_rate(stream: Mapping[str, Any], *, is_live: bool) -> float | None:
    """Tuples a second of the newest batches; None while the source is away, and after the run."""
    is_away = not is_live or _state(stream) in ("unreachable", "retrying")
    return None if is_away else stream.get("tuples_per_second")


def _rate(rate: float | None) -> str:
    if not rate:
        return _NONE
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield aligned lines; the first column gives way where a line would be too wide."""
    widths = [max(map(len, cells)) for cells in zip(columns, *rows, strict=True)]
    room = WIDTH - sum(widths[1:]) - 2 * (len(widths) - 1)
    widths[0] = max(min(widths[0], room), min(widths[0], _LEAST_NAME))
    for cells in (columns, *rows):
        first, *others = cells
        line = [_fitted(first, widths[0])]
        for column, cell, width in zip(columns[1:], others, widths[1:], strict=True):
            line.append(cell.rjust(width) if column in _NUMBERS else cell.ljust(width))
        yield "  ".join(line).rstrip()


def _fitted(text: str, width: int) -> str:
    return text.ljust(width) if len(text) <= width else f"{text[: width - 2]}.."
