"""Numbers, lengths of time and moments as text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from penstock.spark.publication.kinds import running_of

_CYCLE_SECONDS = 146_097 * 86_400
#: longest sample of a record or value, characters
_WIDTH = 100
#: the views behind an INSERT INTO with a condition or projection of its own
_INSERTED = re.compile(r"insert_into_(.+)_[0-9a-f]{6}")
#: the log of the rows of a join view, UNION ALL or running view
_ROWS_OF_LANE = re.compile(r"(?:(?:joins|unions)\.\d+|.+\.running\.0)\.(.+)")
_DAY = 86_400


def length(seconds: float) -> str:
    """Format a length of time in one or two units: '45 s', '3 min 20 s', '2 h 5 min', '4 days 3 h'."""
    if seconds < 0:
        return f"-{length(-seconds)}"
    if seconds < 60:
        return f"{seconds:.3g} s"
    units = ((86_400, "days"), (3_600, "h"), (60, "min"), (1, "s"))
    for (size, unit), (smaller, next_unit) in pairwise(units):
        if seconds >= size:
            rest = int(seconds % size // smaller)
            whole = f"{int(seconds // size)} {unit if unit != 'days' or seconds >= 2 * size else 'day'}"
            return f"{whole} {rest} {next_unit}" if rest else whole
    return f"{seconds:.0f} s"


def roughly(seconds: float) -> str:
    """Format a length of time to a tenth of a second: '0.8 s', '3 min 20 s'."""
    return length(round(seconds, 1))


def counted(number: int, noun: str) -> str:
    """Format a number of things: '1 batch', '3 queries'."""
    if number != 1:
        noun = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}{'es' if noun.endswith('ch') else 's'}"
    return f"{number:,} {noun}"


def listed(names: Sequence[str], most: int) -> str:
    """Join names, at most so many: 'a, b and 3 more'."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def shown_view(view: str) -> str:
    """Return the name under which a view is shown: that of the view behind an INSERT INTO names its sink."""
    sink = inserted_into(view)
    return view if sink is None else f"INSERT INTO {sink}"


def inserted_into(view: str) -> str | None:
    """Return the sink of the view behind an INSERT INTO with a condition or projection of its own; None: it is another view."""
    made = _INSERTED.fullmatch(view)
    return made.group(1) if made else None


def view_words(view: str) -> str:
    """Format what a line is about: 'view large', 'INSERT INTO alerts'."""
    shown = shown_view(view)
    return f"view {view}" if shown == view else shown


def views_words(views: Sequence[str], most: int) -> str:
    """Format which views a line is about, at most so many: 'view a', 'views a, b and 3 more'."""
    if len(views) == 1:
        return view_words(views[0])
    return f"views {listed([shown_view(view) for view in views], most)}"


def shown_source(stream: str) -> str:
    """Return the stream or view that a view reads, by the name that its results or its log are under."""
    return stream.removesuffix(running_of("")).rpartition(".")[2]


def source_words(stream: str) -> str:
    """Format what a line is about by the name of a log: 'stream orders', 'view pairs' of the rows of a view.

    Example:
        >>> source_words("orders"), source_words("orders.running.0"), source_words("orders.totals")
        ('stream orders', 'stream orders', 'view totals')
    """
    if rows := _ROWS_OF_LANE.fullmatch(stream):
        return f"view {rows.group(1)}"
    name = stream.removesuffix(running_of(""))
    return f"view {name.rpartition('.')[2]}" if "." in name else f"stream {name}"


def moment(microseconds: float) -> str:
    """Format a moment of any year in UTC.

    Args:
        microseconds: since the epoch.
    """
    # every 400 years the calendar is the same
    cycles, within = divmod(microseconds // 1_000_000, _CYCLE_SECONDS)
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=within)
    return f"{at.year + 400 * int(cycles):04d}{at:-%m-%d %H:%M:%S} UTC"


def event_moment(microseconds: int, now: float) -> str:
    """Format the newest event time: '0.8 s ago', or for old events the moment.

    Args:
        microseconds: the event time, since the epoch.
        now: the clock, seconds since the epoch.
    """
    age = now - microseconds / 1e6
    if abs(age) < _DAY:
        return f"{roughly(age)} ago" if age >= 0 else f"{roughly(-age)} ahead of the clock"
    return moment(microseconds).removesuffix(" UTC")[:-3]


def clock(time: object) -> str:
    """Format a moment of the event log in local time."""
    try:
        return datetime.fromisoformat(str(time)).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except ValueError:
        return str(time)


def since(time: object) -> float:
    """Return the seconds since a moment of the event log; 0 where the text is none."""
    try:
        return (datetime.now(UTC) - datetime.fromisoformat(str(time))).total_seconds()
    except (ValueError, TypeError):
        return 0.0


def shortened(text: str | None, most: int = _WIDTH) -> str:
    """Return a text on one line, cut at `most` characters."""
    shown = " ".join(repr(text)[1:-1].split()) if text else ""
    return shown if len(shown) <= most else f"{shown[: most - 3]}..."
