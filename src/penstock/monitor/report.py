"""The status of a results folder as lines of text."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from penstock.monitor.book import MEASURED, Document
from penstock.monitor.deadlines import REPEATED, deadline_lines
from penstock.monitor.joins import standing_lines
from penstock.monitor.lost import nothing_read, overflow_words
from penstock.monitor.networks import network_line
from penstock.monitor.troubles import open_troubles, trouble_words

#: views, errors and events named at the most
_NAMED = 8
_CYCLE_SECONDS = 146_097 * 86_400
#: characters of a sample
_WIDTH = 100
#: states of a stream in which a batch may be under way
_AT_WORK = ("running", "starting", "waiting", "retrying", "source unreachable")
#: fields of an event that its line need not repeat
_SILENT = frozenset(
    {
        "time",
        "kind",
        "stream",
        "told",
        "reason",
        "figures",
        "arrangement",
        "version",
        "plan",
        "cause",
        "part",
        "orders",
    }
)
#: what the screen of a run counts or says itself
_COUNTED = frozenset(
    {
        "run_started",
        "stream_started",
        "run_ended",
        "run_stopped",
        "run_failed",
        "run_refused",
        "decision",
        "views_changed",
    }
    | {"records_quarantined", "expression_raised", "event_times_unusable", "event_times_ahead"}
)
#: kinds whose name does not say it
_WORDS = {
    "source_unreachable": "source out of reach",
    "source_reachable": "source back",
    "stream_retried": "tried again after a failure",
    "lane_retried": "some of its views wait, and are tried again after a failure",
    "lane_failed": "some of its views are not answered any more in this run",
    "lane_back": "the views that waited are answered again",
    "backfill_retried": "windows of earlier batches tried again after a failure",
    "backfill_failed": "windows of earlier batches are not whole until the next start",
    "windows_restarted": "its windows were started again",
    "run_failed": "stopped by a failure",
    "history_held": "its log is held back",
    "history_released": "its log is not held back any more",
    "records_quarantined": "records set aside",
    "static_table_lost": "a static table is lost, its last version stays in use",
    "static_table_back": "a static table is back",
    "expression_raised": "an expression raised for some tuples",
    "views_failed": "Spark refuses an expression of some views, which match nothing; the others go on",
    "event_times_unusable": "tuples kept from windows",
    "event_times_ahead": "tuples too far ahead of the clock to move the stream on",
    "clock_behind": "the clock of this machine is behind most of the stream, which tells the time from here on",
}


def status_lines(document: Document) -> Iterator[str]:
    """What `penstock status` prints of `folder_status`."""
    for name, stream in document["streams"].items():
        if told := nothing_read(stream):
            yield f"stream {name}: {told}"
    yield _run(document)
    is_running = document["state"] in ("running", "starting")
    for name, trouble in open_troubles(document.get("lanes", {})) if is_running else ():
        yield f"  {trouble_words(name, trouble)}"
    for name, stream in document["streams"].items():
        yield from _stream(name, stream)
        if stream.get("quarantined"):
            yield f"  all of them: penstock quarantine {shlex.quote(document['output'])} {name}"
    views = document["views"]
    for name, view in views.items():
        yield from _view(name, view, document["state"])
        for table in (each for each, known in (view.get("tables") or {}).items() if known.get("malformed")):
            yield f"  all that {table} lacks: penstock quarantine {shlex.quote(document['output'])} {table}"
        if view.get("failed") or view.get("shed") or view.get("missed"):
            yield f"  why, by window: penstock results {shlex.quote(document['output'])} {name} --misses"
    for name, lane in document.get("lanes", {}).items():
        if "cut" not in lane:
            # it has left, or only its published cuts were counted
            continue
        reach = ", ".join(f"{stream} up to entry {entry:,}" for stream, entry in lane["streams"].items())
        yield f"lane {name}: cut {lane['cut']:,} {length(_since(lane['time']))} ago, {reach}"
    news = document.get("news", [])[-_NAMED:]
    if news:
        yield "of late:"
        yield from (f"  {event_line(event)}" for event in news)


def length(seconds: float) -> str:
    """A length of time in one or two units: '45 s', '3 min 20 s', '2 h 5 min', '4 days 3 h'."""
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


def counted(number: int, noun: str) -> str:
    """A number of things: '1 batch', '3 queries'."""
    if number != 1:
        noun = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}{'es' if noun.endswith('ch') else 's'}"
    return f"{number:,} {noun}"


def moment(microseconds: float) -> str:
    """A moment in UTC, of any year."""
    # every 400 years the calendar is the same
    cycles, within = divmod(microseconds // 1_000_000, _CYCLE_SECONDS)
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=within)
    return f"{at.year + 400 * int(cycles):04d}{at:-%m-%d %H:%M:%S} UTC"


def _run(document: Document) -> str:
    parts = [f"{document['output']}: {document['state']}"]
    if document["state"] in ("running", "starting"):
        parts[0] += f" (process {document['pid']})"
    if document.get("started"):
        parts.append(f"started {_clock(document['started'])}")
    if document.get("time"):
        parts.append(f"last word {_clock(document['time'])}, {length(_since(document['time']))} ago")
    line = ", ".join(parts)
    return f"{line}\n  {document['reason']}" if document.get("reason") else line


def _stream(name: str, stream: Mapping[str, Any]) -> Iterator[str]:
    parts = [f"stream {name}: {stream.get('state', 'unknown')}"]
    parts.append(
        f"{counted(stream.get('tuples', 0), 'tuple')} in {counted(stream.get('batches', 0), 'batch')}"
    )
    if stream.get("tuples_per_second"):
        parts.append(f"{stream['tuples_per_second']:,.0f}/s")
    parts.append(f"{stream.get('matched', 0):,} matched")
    yield " | ".join(parts)
    outage = stream.get("outage")
    if outage:
        source = f"{outage['source']}: " if outage.get("source") else ""
        yield f"  source out of reach since {_clock(outage['since'])}: {source}{outage['told']}"
    if stream.get("retries"):
        yield f"  started again {counted(stream['retries'], 'time')}, last for: {stream.get('retry')}"
    for view, reason in stream.get("failed_views", {}).items():
        yield f"  view {view} matches nothing, Spark refuses it: {reason}"
    lag = _lag(stream)
    if lag:
        yield f"  {lag}"
    if stream.get("network"):
        yield f"  {network_line(stream['network'])}"
    if stream.get("at_hand"):
        yield f"  {_at_hand(stream['at_hand'], stream.get('state'))}"
    busiest = stream.get("busiest", {})
    if busiest:
        named = ", ".join(f"{view} {count:,}" for view, count in list(busiest.items())[:_NAMED])
        silent = stream.get("silent")
        quiet = f"; {counted(silent, 'selection')} without a match so far" if silent else ""
        yield f"  busiest queries: {named}{quiet}"
    elif stream.get("silent"):
        if stream["silent"] == 1:
            yield "  1 selection, without a match so far"
        else:
            yield f"  {stream['silent']:,} selections, none with a match so far"
    for reason, count in stream.get("quarantined", {}).items():
        yield f"  quarantined: {count:,} for: {reason}"
        sample = stream.get("samples", {}).get(reason)
        if sample:
            what = sample["reason"] if sample["record"] is None else sample["record"]
            yield f"    such as, in batch {sample['batch']}, from {sample['origin']}: {_cut(what)}"
    if stream.get("rows_set_aside"):
        yield f"  not answered: {counted(stream['rows_set_aside'], 'row')} that could not be read"
    if stream.get("files_changed"):
        files = counted(stream["files_changed"], "file")
        yield f"  changed after being read: {files}; what is in there now is not answered"
    if stream.get("files_passed_over"):
        names = counted(stream["files_passed_over"], "name")
        yield f"  passed over: {names} of FIFOs, sockets or devices, see the news"
    if stream.get("topics_recreated"):
        yield f"  created anew under the same name: {counted(stream['topics_recreated'], 'topic')}, see the news"
    errors = sorted(stream.get("errors", {}).items(), key=lambda each: -each[1])
    if errors:
        named = ", ".join(f"{view} {count:,}" for view, count in errors[:_NAMED])
        more = f" and {len(errors) - _NAMED} more views" if len(errors) > _NAMED else ""
        yield f"  an expression raised, so that tuples are no match of: {named}{more}"
    for count, why in (
        ("null_event_times", "is NULL"),
        ("future_event_times", "is too far ahead of the clock"),
    ):
        if stream.get(count):
            yield f"  kept from windows: {counted(stream[count], 'tuple')} whose event time {why}"
    for reader, held in stream.get("held_by", {}).items():
        whose = "" if held["is_known"] else ", which is no lane of this run"
        age = length(held["seconds"] + _since(held["time"]))
        yield (
            f"  its log is held back by reader {reader}{whose}: entry {held['entry']:,}, put {age} ago, and the "
            f"{held['bytes']:,} bytes from there on"
        )
    if stream.get("decision"):
        yield f"  last decision: {stream['decision']}"


def _lag(stream: Mapping[str, Any]) -> str:
    parts = []
    lag = stream.get("lag") or {}
    if lag.get("backlog") is not None:
        parts.append(f"backlog {lag['backlog']:,} {lag.get('unit') or ''}".rstrip())
    if stream.get("newest_event_time_us") is not None:
        parts.append(
            f"newest event time {moment(stream['newest_event_time_us'])}, "
            f"{length(stream['newest_event_age_seconds'])} behind the clock"
        )
    if stream.get("last_batch"):
        parts.append(f"last batch {length(_since(stream['last_batch']))} ago")
    return " | ".join(parts)


def _at_hand(batch: Mapping[str, Any], state: str | None) -> str:
    files = batch.get("files")
    named = f"batch {batch['batch']:,}" + (f" ({counted(files, 'file')})" if files is not None else "")
    if state in _AT_WORK:
        told = f"{named} is at hand, planned {length(batch['age_seconds'])} ago"
        return told if files is None else f"{told}; the backlog does not count it"
    nor = "" if files is None else ", nor in the backlog"
    return f"{named} was at hand and is not counted above{nor}; the next start answers it"


def _view(name: str, view: Mapping[str, Any], state: str) -> Iterator[str]:
    if "streams" in view:
        yield from _join(name, view)
        return
    if "released" in view:
        yield from deadline_lines(name, view)
        if view.get("dropped"):
            yield f"  dropped at {_clock(view['dropped'])}: its results stay"
        return
    counts = ", ".join(f"{view.get(kind, 0):,} {kind}" for kind in ("early", "corrected", "final"))
    if view.get("final_corrected"):
        rows = counted(view.get("final_corrected_rows", 0), "row")
        counts += f", final windows corrected all the same: {view['final_corrected']:,} ({rows})"
    parts = [f"window view {name} of {view['stream']}: {counts}"]
    standing = view.get("standing") or {}
    if view.get("slack_us") is not None:
        parts.append(f"slack K {length(view['slack_us'] / 1e6)}")
    if standing.get("horizon") is not None:
        parts.append(f"horizon {length(standing['horizon'] / 1e6)}")
    if standing.get("newest") is not None:
        parts.append(f"stream time {moment(standing['newest'])}")
    yield " | ".join(parts)
    if told := overflow_words(view.get("overflowed", 0)):
        yield f"  {told}; each revision counts"
    if view.get("dropped"):
        yield f"  dropped at {_clock(view['dropped'])}: its results stay, its open windows are never answered"
        return
    behind = view.get("not_answered")
    if behind:
        first, last = behind
        batches = f"batch {first:,}" if first == last else f"batches {first:,} to {last:,}"
        yield f"  the windows have not answered {batches} of the stream yet"
    if standing.get("open"):
        yield f"  not final: {_why_open(standing, state, behind)}"
    if standing.get("promised") is False:
        yield "  no bound can be promised yet: too few final windows have been learned from (none that a batch left far behind)"


def _join(name: str, view: Mapping[str, Any]) -> Iterator[str]:
    parts = [f"join view {name} of {', '.join(view['streams'])}: {counted(view['rows'], 'row')}"]
    if view.get("cut") is not None:
        parts.append(f"cut {view['cut']:,}")
    yield " | ".join(parts)
    if view.get("dropped"):
        yield f"  dropped at {_clock(view['dropped'])}: its rows stay"
    if view.get("raised"):
        yield f"  a condition raised, so that {counted(view['raised'], 'joined row')} are no match"
    if view.get("withdrawn"):
        yield f"  found a partner after all, so that they were withdrawn: {counted(view['withdrawn'], 'row')}"
    if view.get("beyond_history"):
        late = counted(view["beyond_history"], "tuple")
        yield f"  came so late that partners may be gone with the history (history_seconds): {late}"
    for table, known in (view.get("tables") or {}).items():
        yield from _static_table(table, known)
    if behind := not_joined(view):
        yield f"  not joined yet: {behind}"
    if view.get("standing"):
        yield from standing_lines(view["standing"])
    if view.get("switched"):
        yield f"  its order was switched {counted(view['switched'], 'time')}, the last ones:"
        for each in view["switches"]:
            yield f"    {_clock(each['time'])}, behind cut {each['cut']:,}: {each['order']}: {each['reason']}"


def _static_table(name: str, table: Mapping[str, Any]) -> Iterator[str]:
    if "rows" in table:
        yield f"  static table {name}: {counted(table['rows'], 'row')}, read {length(_since(table['time']))} ago"
    for reason, count in (table.get("malformed") or {}).items():
        yield f"  static table {name}, left out: {count:,} for: {reason}"
    if lost := table.get("lost"):
        yield f"  static table {name} is lost since {_clock(lost['since'])}, its last version stays in use: {lost['reason']}"


def not_joined(view: Mapping[str, Any]) -> str:
    """How many batches of each stream a join view has not answered, by its `backlog`; "" where there are none."""
    backlog = view.get("backlog", {}).items()
    return ", ".join(f"{counted(entries, 'batch')} of {stream}" for stream, entries in backlog if entries)


def _why_open(standing: Mapping[str, Any], state: str, behind: Sequence[int] | None) -> str:
    """Why the oldest window that is not final is not."""
    windows = f"{standing['open']:,} windows" if standing["open"] > 1 else "1 window"
    oldest, horizon, newest = (standing.get(part) for part in ("oldest", "horizon", "newest"))
    if oldest is None or horizon is None or newest is None:
        return windows
    due = oldest + horizon
    told = f"{windows}, the oldest ends {moment(oldest)}; "
    if behind:
        told += "what it waits for is known once these batches are answered"
    elif due > newest:
        told += f"it is final once the stream's time passes {moment(due)} (its end and the horizon, as late as tuples "
        told += f"may come), which needs a tuple of {length((due - newest) / 1e6)} later"
    else:
        told += (
            f"the horizon is past ({moment(due)}): it is final with the stream's next batch or, if its first "
        )
        told += "tuples may have come before the view was there, once it is made whole"
    return told if state in ("running", "starting") else f"{told}; the run is {state}"


def event_line(event: Mapping[str, Any]) -> str:
    """An event of `events.jsonl` as a line to read."""
    kind = str(event.get("kind"))
    what = _WORDS.get(kind, kind.replace("_", " "))
    words = [
        _clock(str(event.get("time"))),
        f"stream {event['stream']}: {what}" if event.get("stream") else what,
    ]
    told = event.get("told") or event.get("reason")
    fields = [
        f"{name.replace('_', ' ')} {_cut(_plain(value))}"
        for name, value in event.items()
        if name not in _SILENT
        and value not in (None, {}, [])
        and not (told and isinstance(value, list | Mapping))
    ]
    line = " ".join(words) + (f": {told}" if told else "")
    return f"{line} ({', '.join(fields)})" if fields else line


class News:
    """What a run's events say that is to be read at once: everything but measurements and what the screen counts.

    Args:
        events: gives the newest events of the run, oldest first.
    """

    def __init__(self, events: Callable[[], Sequence[Mapping[str, Any]]]) -> None:
        self._events = events
        self._seen: Mapping[str, Any] | None = None
        self._repeated: set[tuple[str, str]] = set()

    def lines(self) -> list[str]:
        """Those since the last call, a line each."""
        fresh: list[Mapping[str, Any]] = []
        for event in reversed(self._events()):
            if event is self._seen:
                break
            fresh.append(event)
        if fresh:
            self._seen = fresh[0]
        return [event_line(event) for event in reversed(fresh) if self._is_told(event)]

    def _is_told(self, event: Mapping[str, Any]) -> bool:
        """Whether an event is to be read; what repeats is once for each view."""
        again = (event["kind"], event.get("view", ""))
        if event["kind"] == "lane_retried" and event["attempt"] > 1:
            # the line of the lane says so as long as it lasts
            return False
        if event["kind"] in MEASURED | _COUNTED or again in self._repeated:
            return False
        if REPEATED.get(event["kind"]) == "view":
            self._repeated.add(again)
        return True


def _plain(value: object) -> str:
    """A value of an event without the punctuation of programs."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_plain(each)}" for name, each in value.items())
    if isinstance(value, list):
        return ", ".join(map(_plain, value))
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _clock(time: str) -> str:
    """A moment of the event log as the local clock shows it."""
    try:
        return datetime.fromisoformat(time).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except ValueError:
        return time


def _since(time: str) -> float:
    try:
        return (datetime.now(UTC) - datetime.fromisoformat(time)).total_seconds()
    except (ValueError, TypeError):
        return 0.0


def _cut(text: str | None) -> str:
    shown = " ".join(repr(text)[1:-1].split()) if text else ""
    return shown if len(shown) <= _WIDTH else f"{shown[: _WIDTH - 3]}..."
