"""Which source, or which views and functions, a stream failed by: what its ingest query adds to a cause."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import replace

from penstock.spark.recovery.causes import DATA_LOST, SOURCE_UNREACHABLE, Cause
from penstock.spark.sources.watch import SourceState
from penstock.spark.storage.bindings import ViewDefinition, WindowDefinition

#: causes that are about a stream's source
_OF_SOURCES = (SOURCE_UNREACHABLE, "topic_missing", "topic_recreated", DATA_LOST)
#: causes that a function may be behind
_OF_FUNCTIONS = ("function_failed", "worker_lost")


def with_source(cause: Cause, state: SourceState) -> Cause:
    """The cause with the source it is about, where it is about one.

    Args:
        cause: why the query failed.
        state: what the newest look at the source found.
    """
    if cause.kind not in _OF_SOURCES or state.source is None:
        return cause
    return replace(cause, told=f"{state.source}: {cause.told}", topic=state.topic)


def with_views(
    cause: Cause,
    definitions: Iterable[ViewDefinition | WindowDefinition],
    functions: Collection[str],
) -> Cause:
    """The cause with the views whose functions may be behind it.

    Args:
        cause: why the query failed.
        definitions: the stream's views.
        functions: names of the user's functions.
    """
    if cause.kind not in _OF_FUNCTIONS:
        return cause
    suspects = functions if cause.function is None else (cause.function,)
    called = re.compile(rf"\b({'|'.join(map(re.escape, suspects))})\s*\(", re.IGNORECASE)
    calls = {
        each.name: found.group(1)
        for each in definitions
        if suspects and (found := called.search(each.sql)) is not None
    }
    if not calls:
        return cause
    view, function = next(iter(calls.items()))
    more = f" and {len(calls) - 1} more" if len(calls) > 1 else ""
    where = f"view {view}{more}" if cause.function else f"view {view}{more} calls {function}"
    return replace(cause, told=f"{cause.told} ({where})", view=view, function=function)
