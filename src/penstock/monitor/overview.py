"""The tables of a status: a line a stream and a line a view, in at most 100 columns."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.monitor.book import Document
from penstock.monitor.details import backlog_words, windows_needed
from penstock.monitor.figures import counted, event_moment, roughly
from penstock.monitor.troubles import open_troubles

#: widest line, characters
WIDTH = 100
#: streams and views on one screen
MOST_STREAMS, MOST_VIEWS = 10, 20
_STREAM_COLUMNS = ("stream", "state", "tuples", "tuples/s", "lag", "newest event", "errors")
_VIEW_COLUMNS = ("view", "kind", "state", "rows", "rows/s", "lag", "promise", "errors")
#: numbers, which are aligned at the right
_NUMBERS = frozenset(("tuples", "tuples/s", "rows", "rows/s", "errors"))
#: kinds of views, as the table and as a sentence names them
_KINDS = {
    "selection": "selection",
    "windows": "window view",
    "deadline": "deadline view",
    "join": "join view",
}
_LEAST_NAME = 12
_NONE = "-"


@dataclass(frozen=True, slots=True)
class ViewRow:
    """A view as a line of the table.

    Attributes:
        name, kind: of the view; kinds are selection, windows, deadline and join.
        state: that of its streams, or its own where it fails.
        rows: rows of results so far; None where they are not known.
        rate: rows a second; None where nothing measures it.
        lag: how far it is behind, in words.
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
    lag: str
    batches_behind: int
    promise: str
    errors: int
    is_broken: bool

    @property
    def urgency(self) -> tuple[bool, bool, int, int]:
        """Sorts the worst first, then the busiest."""
        return (self.is_broken, self.errors > 0, self.batches_behind, self.rows or 0)

    def cells(self) -> tuple[str, ...]:
        """Return the texts of its columns."""
        rows = _NONE if self.rows is None else f"{self.rows:,}"
        return (
            *(self.name, self.kind, self.state, rows, _rate(self.rate)),
            *(self.lag, self.promise, f"{self.errors:,}"),
        )


def stream_table(document: Document, most: int | None) -> Iterator[str]:
    """Yield a line a stream below a header.

    Args:
        document: see `folder_status`.
        most: lines; None: all.
    """
    streams = list(document["streams"].items())
    shown = streams if most is None else streams[:most]
    yield from _table(_STREAM_COLUMNS, [_stream_cells(name, stream) for name, stream in shown])
    if len(shown) < len(streams):
        yield f"{len(streams) - len(shown):,} more: -v"


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
        yield f"{len(rows) - len(shown):,} more: -v"


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
    """Format how many views of each kind exist: '250 views: 200 selections, 50 window views'."""
    kinds = Counter(row.kind for row in view_rows(document))
    each = ", ".join(counted(count, _KINDS[kind]) for kind, count in kinds.items())
    return f"{counted(kinds.total(), 'view')}: {each}" if kinds else "no views"


def view_rows(document: Document) -> Iterator[ViewRow]:
    """Yield a row for each view that is not dropped."""
    is_live = document["state"] in ("running", "starting")
    troubles = {
        view: str(trouble["state"])
        for _, trouble in (open_troubles(document.get("lanes", {})) if is_live else ())
        for view in trouble.get("views") or ()
    }
    streams = document["streams"]
    for stream in streams.values():
        for name, count in (stream.get("selections") or {}).items():
            state = "failed" if name in stream.get("failed_views", {}) else _state(stream)
            tuples, rate = stream.get("tuples", 0), _current_rate(stream)
            yield ViewRow(
                name,
                "selection",
                state,
                rows=count,
                rate=None if count is None or not tuples or rate is None else rate * count / tuples,
                lag=_stream_lag(stream),
                batches_behind=0,
                promise=_NONE,
                errors=stream.get("errors", {}).get(name, 0),
                is_broken=state in ("failed", "retrying"),
            )
    for name, view in document["views"].items():
        if not view.get("dropped"):
            own = [streams[each] for each in view.get("streams") or [view.get("stream")] if each in streams]
            state = troubles.get(name) or (max(map(_state, own), key=_urgency) if own else document["state"])
            errors = sum(stream.get("errors", {}).get(name, 0) for stream in own)
            yield _view_row(name, view, state, errors, is_live=is_live)


def _view_row(name: str, view: Mapping[str, Any], state: str, errors: int, *, is_live: bool) -> ViewRow:
    standing = view.get("standing") or {}
    kind, rate, promise, rows = "windows", None, _NONE, view.get("rows", 0)
    if "streams" in view:
        kind, rate = "join", standing.get("measured_rate")
        batches, errors = sum(view.get("backlog", {}).values()), errors + view.get("raised", 0)
    else:
        first, last = view.get("not_answered") or (1, 0)
        batches, errors = last - first + 1, errors + view.get("overflowed", 0)
    if "released" in view:
        kind, rows, errors = "deadline", view["released"], errors + view.get("failed", 0)
        violations = standing.get("violations", 0)
        promise = (
            "kept" if standing and not violations else f"broken {violations:,}x" if violations else _NONE
        )
    elif standing.get("promised") is not None:
        promise = "active" if standing["promised"] else _starts(view)
    is_broken = state in ("failed", "retrying") or promise.startswith("broken")
    lag = _lag(batches, view.get("behind_seconds") if is_live else None)
    return ViewRow(name, kind, state, rows, rate, lag, batches, promise, errors, is_broken)


def _starts(view: Mapping[str, Any]) -> str:
    """How many final windows a promise has of those that it needs."""
    bound = view["standing"].get("bound")
    needed = None if bound is None else windows_needed(bound)
    final = view.get("final", 0)
    return f"{final:,}/{needed:,} windows" if needed is not None and final < needed else "not yet"


def _lag(batches: int, seconds: float | None) -> str:
    if batches:
        return counted(batches, "batch")
    return _NONE if seconds is None else roughly(seconds)


def _stream_lag(stream: Mapping[str, Any]) -> str:
    """The backlog of a stream, or the duration of its newest batch where nothing waits."""
    lag = stream.get("lag") or {}
    if lag.get("backlog"):
        return backlog_words(lag)
    recent: Sequence[Sequence[float]] = stream.get("recent") or ()
    return roughly(recent[-1][1]) if recent and _state(stream) == "running" else _NONE


def _stream_cells(name: str, stream: Mapping[str, Any]) -> tuple[str, ...]:
    newest = stream.get("newest_event_time_us")
    errors = sum((stream.get("quarantined") or {}).values()) + sum((stream.get("errors") or {}).values())
    return (
        *(name, _state(stream), f"{stream.get('tuples', 0):,}", _rate(_current_rate(stream))),
        *(_stream_lag(stream), _NONE if newest is None else event_moment(newest, time.time()), f"{errors:,}"),
    )


def _state(stream: Mapping[str, Any]) -> str:
    return str(stream.get("state") or "unknown").removeprefix("source ")


def _urgency(state: str) -> int:
    """Ranks states of a view's streams: the worst is the view's."""
    return {"failed": 3, "unreachable": 2, "retrying": 2, "running": 0}.get(state, 1)


def _current_rate(stream: Mapping[str, Any]) -> float | None:
    """Tuples a second of the newest batches; None while the source is away."""
    return None if _state(stream) in ("unreachable", "retrying") else stream.get("tuples_per_second")


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
