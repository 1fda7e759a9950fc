"""The details of a status, which `penstock status -v` prints below its tables."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from penstock.monitor.book import Document
from penstock.monitor.deadlines import deadline_lines
from penstock.monitor.figures import (
    clock,
    counted,
    event_moment,
    length,
    moment,
    roughly,
    shortened,
    shown_source,
    since,
)
from penstock.monitor.joins import standing_lines
from penstock.monitor.lost import overflow_words
from penstock.monitor.networks import network_line
from penstock.monitor.news import event_line
from penstock.monitor.promises import Promise
from penstock.monitor.slacks import slack_words
from penstock.monitor.stream_faults import lost_rows, refused_views, source_faults
from penstock.spark.reporting.definitions import is_running_view

#: views and events named at the most
_NAMED = 8
#: states of a stream in which a batch may be under way
_AT_WORK = ("running", "starting", "waiting", "retrying", "source unreachable")


def detail_lines(document: Document) -> Iterator[str]:
    """Yield all that `folder_status` knows of each stream and view, then the newest events."""
    output = shlex.quote(document["output"])
    for name, stream in document["streams"].items():
        yield from _stream(name, stream)
        if stream.get("quarantined"):
            yield f"  all records set aside: penstock quarantine {output} {name}"
    for name, view in document["views"].items():
        yield from _view(name, view, document["state"])
        for table in (each for each, known in (view.get("tables") or {}).items() if known.get("malformed")):
            yield f"  all records of {table} set aside: penstock quarantine {output} {table}"
        if view.get("failed") or view.get("shed") or view.get("missed"):
            yield f"  the reason for each window: penstock results {output} {name} --misses"
    for name, sink in document.get("sinks", {}).items():
        yield _sink(name, sink)
    news = document.get("news", [])[-_NAMED:]
    if news:
        yield "newest events:"
        yield from (f"  {event_line(event)}" for event in news)


def _sink(name: str, sink: Mapping[str, Any]) -> str:
    parts = [f"sink {name} ({sink.get('kind', 'unknown')})"]
    parts.append(counted(sink.get("deliveries", 0), "delivery"))
    if sink.get("rows") is not None:
        parts.append(counted(sink["rows"], "row"))
    backlog = sink.get("backlog", 0)
    parts.append(f"{counted(backlog, 'batch')} behind" if backlog else "up to date")
    return " | ".join(parts)


def not_joined(view: Mapping[str, Any]) -> str:
    """Format how many batches of each stream a join view has not answered, by its `backlog`; "" where there are none."""
    backlog = view.get("backlog", {}).items()
    return ", ".join(f"{counted(entries, 'batch')} of {stream}" for stream, entries in backlog if entries)


def _matched_by(matching: Mapping[str, Any], sequence: str | None) -> str:
    """Format which way of matching answered the newest batch, and what each was measured to take."""
    names = {"index": "the index", "asc": "the ASCs"}
    used = matching["by"]
    told = f"matched by {names[used]}"
    for way in (used, *(each for each in names if each != used)):
        if way in matching:
            told += f"{': ' if way == used else f'; {names[way]} '}{matching[way]:,.0f} ns a tuple"
    return f"{told}; order of the columns: {sequence}" if sequence else told


def _stream(name: str, stream: Mapping[str, Any]) -> Iterator[str]:
    parts = [f"stream {name}: {stream.get('state', 'unknown')}"]
    parts.append(
        f"{counted(stream.get('tuples', 0), 'tuple')} in {counted(stream.get('batches', 0), 'batch')}"
    )
    if stream.get("tuples_per_second") and stream.get("state") in _AT_WORK:
        parts.append(f"{stream['tuples_per_second']:,.0f} tuples/s")
    parts.append(f"{stream.get('matched', 0):,} matched")
    yield " | ".join(parts)
    yield from (f"  {fault}" for fault in (*source_faults(stream), *refused_views(stream)))
    if "matching" in stream:
        yield f"  {_matched_by(stream['matching'], stream.get('sequence'))}"
    if lag := _lag(stream):
        yield f"  {lag}"
    if stream.get("network"):
        yield f"  {network_line(stream['network'])}"
    if stream.get("at_hand"):
        yield f"  {_current_batch(stream['at_hand'], stream.get('state'))}"
    for reason, count in stream.get("quarantined", {}).items():
        yield f"  set aside: {counted(count, 'record')}: {reason}"
        sample = stream.get("samples", {}).get(reason)
        if sample:
            what = sample["reason"] if sample["record"] is None else sample["record"]
            yield f"    for example in batch {sample['batch']}, from {sample['origin']}: {shortened(what)}"
    yield from (f"  {fault}" for fault in lost_rows(stream, _NAMED))
    if stream.get("files_passed_over"):
        yield f"  skipped: {counted(stream['files_passed_over'], 'name')} of FIFOs, sockets or devices"
    for reader, held in stream.get("held_by", {}).items():
        whose = "" if held["is_known"] else ", which no view of this run uses"
        age = length(held["seconds"] + since(held["time"]))
        yield (
            f"  reader {reader}{whose} keeps old parts of the log: {held['bytes']:,} bytes, the oldest from {age} ago"
        )
    if stream.get("decision"):
        yield f"  {stream['decision']}"


def _lag(stream: Mapping[str, Any]) -> str:
    parts = []
    lag = stream.get("lag") or {}
    if lag.get("backlog") is not None:
        parts.append(f"backlog {backlog_words(lag)}")
    if stream.get("newest_event_time_us") is not None:
        parts.append(f"newest event: {event_moment(stream['newest_event_time_us'], time.time())}")
    if stream.get("last_batch"):
        parts.append(f"last batch {roughly(since(stream['last_batch']))} ago")
    return " | ".join(parts)


def backlog_words(lag: Mapping[str, Any]) -> str:
    """Format the backlog of a source: '1 file', '1,200 records'."""
    unit = str(lag.get("unit") or "")
    return counted(lag["backlog"], unit[:-1]) if unit.endswith("s") else f"{lag['backlog']:,} {unit}".rstrip()


def _current_batch(batch: Mapping[str, Any], state: str | None) -> str:
    files = batch.get("files")
    named = f"batch {batch['batch']:,}" + (f" ({counted(files, 'file')})" if files is not None else "")
    if state in _AT_WORK:
        age = f"in progress: {named}, since {roughly(batch['age_seconds'])}"
        return age if files is None else f"{age}; the backlog does not count it"
    nor = "" if files is None else " and of the backlog"
    return f"unfinished: {named}, not part of the counts above{nor}; the next start answers it"


def _view(name: str, view: Mapping[str, Any], state: str) -> Iterator[str]:
    if "refresh_seconds" in view:
        yield from _refreshed(name, view)
        return
    if "branches" in view:
        yield from _union(name, view)
        return
    if "streams" in view:
        yield from _join(name, view)
        return
    if "released" in view:
        yield from deadline_lines(name, view)
        if view.get("dropped"):
            yield f"  dropped at {clock(view['dropped'])}; its results remain"
        return
    is_running = is_running_view(view)
    counts = ", ".join(f"{view.get(kind, 0):,} {kind}" for kind in ("early", "corrected", "final"))
    if view.get("final_corrected"):
        rows = counted(view.get("final_corrected_rows", 0), "row")
        counts += f", {view['final_corrected']:,} corrected after being final ({rows})"
    if is_running:
        parts = [
            f"running view {name} of {shown_source(view['stream'])}: {counted(result_rows(view), 'row')}"
        ]
    else:
        parts = [f"window view {name} of {shown_source(view['stream'])}: {counts}"]
    standing = view.get("standing") or {}
    # negative where the end of a run answered windows before their end
    if (view.get("slack_us") or -1) >= 0:
        parts.append(f"slack {length(view['slack_us'] / 1e6)}")
    if standing.get("horizon") is not None:
        parts.append(f"horizon {length(standing['horizon'] / 1e6)}")
    if standing.get("newest") is not None:
        parts.append(f"stream time {moment(standing['newest'])}")
    yield " | ".join(parts)
    if view.get("rows"):
        yield f"  rows: {result_rows(view):,}; with every revision {view['rows']:,}"
    if overflowed := overflow_words(view.get("overflowed", 0)):
        yield f"  {overflowed}; each revision counts"
    if view.get("dropped"):
        never = "" if is_running else ", its open windows are never answered"
        yield f"  dropped at {clock(view['dropped'])}; its results remain{never}"
        return
    behind = view.get("not_answered")
    if behind:
        first, last = behind
        batches = f"batch {first:,}" if first == last else f"batches {first:,} to {last:,}"
        yield f"  not answered yet: {batches} of the stream"
    if standing.get("open"):
        yield f"  not final: {why_open(standing, state, behind)}"
    if (slack := slack_words(standing)) is not None:
        yield f"  slack policy {slack}"
    if (promise := Promise.of(view)) is not None:
        yield f"  MAX_ERROR promise: {promise.words}"


def result_rows(view: Mapping[str, Any]) -> int:
    """Return the rows of a window view's results, of each its newest revision only."""
    return int(view.get("rows", 0)) - int(view.get("revised_rows", 0))


def _refreshed(name: str, view: Mapping[str, Any]) -> Iterator[str]:
    answer = view.get("answer") or {}
    parts = [
        f"refreshed view {name} of {', '.join(view['streams'])}: {counted(answer.get('rows', 0), 'row')}"
    ]
    every = view["refresh_seconds"]
    parts.append(f"every {roughly(every)}" if every else "as its inner views change")
    if answer:
        read = f"{answer['bytes']:,} bytes of {'tuples' if every else 'rows'}"
        parts.append(f"the newest answer took {roughly(answer['seconds'])} and read {read}")
    yield " | ".join(parts)
    if view.get("withdrawn"):
        yield f"  told so far: {counted(view['rows'], 'row')}, of which {view['withdrawn']:,} were withdrawn"
    if view.get("dropped"):
        yield f"  dropped at {clock(view['dropped'])}; its rows remain"
    elif behind := not_joined(view):
        yield f"  not in the answer yet: {behind}"


def _heading(kind: str, name: str, view: Mapping[str, Any]) -> Iterator[str]:
    """What is told of a view with a lane of its own."""
    parts = [f"{kind} {name} of {', '.join(view['streams'])}: {counted(view['rows'], 'row')}"]
    if view.get("behind_seconds") is not None:
        parts.append(f"{roughly(view['behind_seconds'])} behind")
    yield " | ".join(parts)
    if view.get("dropped"):
        yield f"  dropped at {clock(view['dropped'])}; its rows remain"


def _union(name: str, view: Mapping[str, Any]) -> Iterator[str]:
    yield from _heading("UNION ALL", name, view)
    if not view.get("dropped") and (behind := not_joined(view)):
        yield f"  not copied yet: {behind}"


def _join(name: str, view: Mapping[str, Any]) -> Iterator[str]:
    yield from _heading("join view", name, view)
    if view.get("raised"):
        yield f"  a condition failed: {counted(view['raised'], 'joined row')} left out"
    if view.get("withdrawn"):
        yield f"  withdrawn, because a partner was found later: {counted(view['withdrawn'], 'row')}"
    if view.get("beyond_history"):
        late = counted(view["beyond_history"], "tuple")
        yield f"  {late} arrived after partners may have been deleted (setting history_seconds)"
    if view.get("beyond_ttl"):
        yield f"  left out by STATE_TTL, of those up to twice as far apart: {counted(view['beyond_ttl'], 'pair')}"
    for table, known in (view.get("tables") or {}).items():
        yield from _static_table(table, known)
    if behind := not_joined(view):
        yield f"  not joined yet: {behind}"
    if view.get("standing"):
        yield from standing_lines(view["standing"])
    if view.get("switched"):
        yield f"  its order changed {counted(view['switched'], 'time')}, most recently:"
        for each in view["switches"]:
            yield f"    {clock(each['time'])}: {each['order']}: {each['reason']}"


def _static_table(name: str, table: Mapping[str, Any]) -> Iterator[str]:
    if "rows" in table:
        yield f"  static table {name}: {counted(table['rows'], 'row')}, read {roughly(since(table['time']))} ago"
    for reason, count in (table.get("malformed") or {}).items():
        yield f"  static table {name}, set aside: {counted(count, 'record')}: {reason}"
    if lost := table.get("lost"):
        yield f"  static table {name} is lost since {clock(lost['since'])}; its last version remains in use: {lost['reason']}"


def why_open(standing: Mapping[str, Any], state: str, behind: Sequence[int] | None) -> str:
    """Why the oldest window that is not final is not."""
    windows = counted(standing["open"], "window")
    oldest, horizon, newest = (standing.get(part) for part in ("oldest", "horizon", "newest"))
    if oldest is None or horizon is None or newest is None:
        return windows
    due, first = oldest + horizon, standing.get("final_from") or 0
    why = f"{windows}, the oldest ends {moment(oldest)}; "
    if behind:
        why += "the view has to answer these batches first"
    elif max(due, first) > newest:
        since = "its end + horizon" if due >= first else "the stream was observed too briefly before"
        due = max(due, first)
        why += (
            f"final once the stream's time passes {moment(due)} ({since}): needs a tuple that is "
            f"{length((due - newest) / 1e6)} newer"
        )
    else:
        why += "final with the next batch (a new view: after its backfill)"
    return why if state in ("running", "starting") else f"{why}; the run is {state}"
