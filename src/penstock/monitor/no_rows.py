"""Why a view has no rows: no run has started, its first batch is running, or no tuple matched."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from penstock.monitor.book import Document
from penstock.monitor.details import not_joined, result_rows
from penstock.monitor.figures import counted, roughly, view_words
from penstock.monitor.lost import nothing_read
from penstock.spark.reporting.definitions import is_running_view

#: the number of the last batch before the first
_NO_BATCH = -1
#: when a row of a view without a window is final
FINAL_OF_RUNNING = (
    "Rows of rankings and other running views become final when the stream has ended (`penstock run --available-now --ended`), when "
    "STATE_TTL removes their group from the state, or when their session is over."
)
_LIVE = ("running", "starting")


def no_rows_words(
    document: Document, view: str, entry: Mapping[str, Any], *, final_only: bool = False
) -> str:
    """Format why a view has no rows.

    Args:
        document: see `folder_status`.
        view: the view's name.
        entry: its entry in the catalog.
        final_only: whether only final rows were asked for.
    """
    if final_only and is_running_view(entry) and result_rows(document["views"].get(view, {})) > 0:
        return f"{view_words(view)}: no final rows yet. {FINAL_OF_RUNNING} Without --final, the rows so far are printed."
    return f"{view_words(view)}: no rows. {_reason(document, view, entry)}"


def no_views_words(document: Document) -> str:
    """Format why a folder has no views yet."""
    if document["state"] in _LIVE:
        return f"A run is starting (process {document.get('pid')}). It has declared no view yet."
    return f"No run has declared a view{_ended(document)}. Start one: penstock run SCRIPT --output DIR"


def _reason(document: Document, view: str, entry: Mapping[str, Any]) -> str:
    known: Mapping[str, Document] = document["streams"]
    named = entry.get("streams") or [entry["stream"]]
    # of a view over another view all streams count
    streams = {name: known[name] for name in named if name in known} or known
    is_live = document["state"] in _LIVE
    if all(stream.get("batch", _NO_BATCH) == _NO_BATCH for stream in streams.values()):
        return _before_the_first(document, streams, is_live)
    read = "; ".join(f"{_tuples(stream)} of stream {name} read" for name, stream in streams.items())
    waiting = _waiting(document["views"].get(view, {}), streams) if is_live else ()
    lost = (f"Stream {name}: {told}" for name, stream in streams.items() if (told := nothing_read(stream)))
    if told := _told_before(document, view, streams):
        gone = "retention or `penstock prune` removed them, an earlier definition published them, or they are early"
        return f"{read}. {told} but none is in these results: {gone}."
    return " ".join([f"{read}, {_outcome(entry)}.", *_failed(view, streams), *waiting, *lost])


def _before_the_first(document: Document, streams: Mapping[str, Document], is_live: bool) -> str:
    if not is_live:
        return f"No batch is complete{_ended(document)}."
    for name, stream in streams.items():
        if planned := stream.get("at_hand"):
            return f"The first batch of stream {name} is running ({roughly(planned['age_seconds'])} so far)."
    if document["state"] == "starting":
        return "The run is starting."
    return f"No tuple of {' or '.join(streams)} has arrived yet."


def _tuples(stream: Document) -> str:
    return counted(stream.get("tuples", 0), "tuple")


def _outcome(entry: Mapping[str, Any]) -> str:
    if "projection" in entry:
        return "none matched"
    if "lanes" in entry:
        return "none joined"
    return "no group has a row" if is_running_view(entry) else "no window has a row"


def _failed(view: str, streams: Mapping[str, Document]) -> Iterator[str]:
    """How many tuples an expression of the view failed at."""
    for stream in streams.values():
        if count := (stream.get("errors") or {}).get(view):
            told = (stream.get("raising") or {}).get(view)
            which = "" if told is None else f": `{told}`"
            yield f"An expression of the view failed at {counted(count, 'tuple')}, which are left out{which}. See penstock status."


def _told_before(document: Document, view: str, streams: Mapping[str, Document]) -> str:
    """How many rows were published of a view that has none now; "" where none was."""
    matches = sum((stream.get("selections") or {}).get(view) or 0 for stream in streams.values())
    rows = matches or result_rows(document["views"].get(view, {}))
    return (
        f"{counted(rows, 'row')} of it {'was' if rows == 1 else 'were'} published before," if rows > 0 else ""
    )


def _waiting(view: Document, streams: Mapping[str, Document]) -> Iterator[str]:
    """What a run that lasts has not answered."""
    for name, stream in streams.items():
        if planned := stream.get("at_hand"):
            yield f"Batch {planned['batch']} of stream {name} is running."
    if "not_answered" in view:
        first, last = view["not_answered"]
        yield f"The windows of batches {first} to {last} are not answered yet."
    if missing := not_joined(view):
        yield f"Not answered yet: {missing}."


def _ended(document: Document) -> str:
    """How the last run left the folder."""
    if document["state"] == "never started":
        return ": no run has started"
    return f": the last run is {document['state']}"
