"""The answer to /api/views/NAME: one view with all that is known of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.errors import PenstockError, SqlError
from penstock.page.answers import encoded, epoch, short_name
from penstock.page.asking import Script
from penstock.page.folder import Snapshot
from penstock.spark.reporting.definitions import is_selection, number_of
from penstock.spark.results.joined_rows import LANES
from penstock.spark.results.window_schemas import readable_view
from penstock.spark.storage.layout import Layout

#: points of a line
_LEAST_POINTS = 2
#: parts of a clause that are listed
_MOST_PARTS = 200


def view_answer(layout: Layout, snapshot: Snapshot, asked: str, script: Script | None) -> bytes:
    """The page of a view.

    Args:
        layout: of the results folder.
        snapshot: of the folder.
        asked: the view's name, whole or as lists show it.
        script: by which the page can ask Spark, if it knows one.

    Raises:
        UnknownNameError: there is no such view.
    """
    index = snapshot.views.index
    name = index.named(asked)
    entry = index.entries[name]
    return encoded(
        {
            **snapshot.views.line(name),
            "definition": number_of(entry),
            "declared": epoch(entry.get("declared")),
            "history": _history(snapshot, name, entry),
            "error": _error(snapshot, name),
            "dropped": bool(entry.get("dropped")),
            "clause": _clause(entry),
            "columns": _columns(layout, snapshot, name),
            "tuple": _tuple(snapshot, name),
            "script": None if script is None else script.words,
            "output": str(layout.output),
        }
    )


def _history(snapshot: Snapshot, name: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    """The rows of a view over time, `at` and `rows`; `of`: the stream of which all rules are counted together, else None.

    Events do not count the matches of each rule: while nobody has looked at a live run, those of all rules are what is known.
    """
    own = snapshot.histories.view(name)
    found: dict[str, Any] = {what: own[what] for what in ("at", "rows")}
    if not own["at"]:
        found = snapshot.views.samples.history(name)
        if len(found["at"]) < _LEAST_POINTS and is_selection(entry):
            stream = entry["stream"]
            return {**snapshot.histories.matches(stream), "of": short_name(stream)}
    return {**found, "of": None}


def _error(snapshot: Snapshot, name: str) -> str | None:
    """Why a view fails, or loses tuples."""
    for stream in snapshot.document["streams"].values():
        for kind in ("failed_views", "raising"):
            if told := (stream.get(kind) or {}).get(name):
                return str(told)
    return None


def _clause(entry: dict[str, Any]) -> list[str]:
    """The conjuncts of a selection's condition, as they are written."""
    # the parser takes long to load
    from penstock.sql.conditions.nodes import Junction
    from penstock.sql.conditions.parsing import parse_condition

    text = entry.get("condition")
    if text is None:
        return []
    try:
        condition = parse_condition(text)
    except SqlError:
        return [text]
    if isinstance(condition, Junction) and condition.conjunctive:
        return [text[child.start : child.end].strip() for child in condition.children[:_MOST_PARTS]]
    return [text]


def _columns(layout: Layout, snapshot: Snapshot, name: str) -> list[str]:
    entry = snapshot.views.index.entries[name]
    if LANES in entry:
        return _names(entry["columns"])
    if is_selection(entry):
        if entry["projection"] is None:
            return _names(snapshot.catalog["streams"][entry["stream"]])
        return [alias or text for text, alias in entry["projection"]]
    try:
        readable = readable_view(layout, entry["stream"], name)
    except PenstockError:
        # the page of its rows says which file is damaged
        return []
    return [] if readable is None else list(readable.columns.names)


def _tuple(snapshot: Snapshot, name: str) -> list[str]:
    """The columns of the first stream that a view reads."""
    streams = snapshot.catalog["streams"]
    return next(
        (_names(streams[each]) for each in snapshot.views.line(name)["streams"] if each in streams), []
    )


def _names(schema: dict[str, Any]) -> list[str]:
    return [field["name"] for field in schema["fields"]]
