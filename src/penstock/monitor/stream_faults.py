"""What a stream lost or could not do, in words that the problems and the details of a status share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from penstock.monitor.figures import clock, counted, listed, view_words


def source_faults(stream: Mapping[str, Any]) -> Iterator[str]:
    """Yield what keeps a stream from reading, as 'source unreachable since 10:00:00: no broker answers'."""
    if outage := stream.get("outage"):
        source = f"{outage['source']}: " if outage.get("source") else ""
        yield f"source unreachable since {clock(outage['since'])}: {source}{outage['told']}"
    if stream.get("retries"):
        yield f"restarted {counted(stream['retries'], 'time')}, most recently: {stream.get('retry')}"


def refused_views(stream: Mapping[str, Any]) -> Iterator[str]:
    """Yield the views with an expression that Spark refuses."""
    for view, reason in (stream.get("failed_views") or {}).items():
        yield f"{view_words(view)} matches nothing, Spark refuses it: {reason}"


def lost_rows(stream: Mapping[str, Any], most: int) -> Iterator[str]:
    """Yield what no view answers: unreadable rows, changed files, tuples at which an expression failed.

    Args:
        stream: what is known of it.
        most: views named at the most.
    """
    if stream.get("rows_set_aside"):
        yield f"{counted(stream['rows_set_aside'], 'row')} unreadable, not answered"
    if stream.get("files_changed"):
        files = counted(stream["files_changed"], "file")
        yield f"{files} changed after the first read; the new content is not answered"
    if stream.get("topics_recreated"):
        yield f"{counted(stream['topics_recreated'], 'topic')} deleted and created again under the same name"
    errors = sorted((stream.get("errors") or {}).items(), key=lambda each: -each[1])
    if errors:
        raising = stream.get("raising") or {}
        named = listed(
            [
                f"{view} {count:,}{f' (`{raising[view]}`)' if view in raising else ''}"
                for view, count in errors
            ],
            most,
        )
        yield f"an expression failed; these tuples match nothing of the view: {named}"
    for count, why in (
        ("null_event_times", "is NULL"),
        ("future_event_times", "is too far ahead of the clock"),
    ):
        if stream.get(count):
            yield f"left out of windows and joins: {counted(stream[count], 'tuple')} whose event time {why}"
