"""The answers to /api/windows: what window views promise, and the windows of one key with all their answers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import InputError, UnknownNameError
from penstock.monitor.details import why_open
from penstock.monitor.promises import Promise
from penstock.page.answers import cut, encoded, seconds, short_name
from penstock.page.cells import Cell, cells_of
from penstock.page.folder import Snapshot
from penstock.page.judgements import Ints, Judgement, Judgements, Revisions, codes_of, read_revisions
from penstock.page.overview import points
from penstock.page.views import kind_of
from penstock.spark.results.window_schemas import COVERAGE, FINAL, OP, REVISION, SLACK, UPSERT
from penstock.spark.storage.layout import Layout

#: views of one answer, groups and windows of a view's page, revisions of a window
_MOST_VIEWS, _MOST_GROUPS, _MOST_WINDOWS, _MOST_REVISIONS = 1_000, 200, 300, 50
#: revisions of a view that are looked at for its page, the newest
_MOST_SHOWN = 200_000
#: seconds that one answer spends on how many answers were within the bound
_JUDGING_SECONDS = 0.5


def windows_answer(layout: Layout, snapshot: Snapshot, judgements: Judgements) -> bytes:
    """All views with windows."""
    names = _views(snapshot)[:_MOST_VIEWS]
    known = snapshot.document["views"]
    judged = judgements.of(layout, {name: known.get(name) or {} for name in names}, _JUDGING_SECONDS)
    return encoded({"views": [_line(snapshot, name, judged[name], points(len(names))) for name in names]})


def _views(snapshot: Snapshot) -> list[str]:
    entries = snapshot.views.index.entries
    return [
        name
        for name, entry in entries.items()
        if kind_of(entry) in ("windows", "deadline") and not entry.get("dropped")
    ]


def _line(snapshot: Snapshot, name: str, judgement: Judgement | None, most: int) -> dict[str, Any]:
    shown = snapshot.views.line(name)
    view = snapshot.document["views"].get(name) or {}
    standing = view.get("standing") or {}
    bound = standing.get("bound")
    history = snapshot.histories.view(name, most)
    slack = standing.get("slack", view.get("slack_us"))
    within = None if judgement is None else judgement.within
    kept = Promise.of({**view, "within": within})
    return {
        "name": short_name(name),
        "stream": short_name(", ".join(shown["streams"])),
        "kind": shown["kind"],
        "state": shown["state"],
        "bound": None
        if bound is None
        else {
            "error": bound["epsilon"],
            "probability": bound["delta"],
            "absolute": bool(bound.get("absolute")),
        },
        "slack": seconds(slack),
        "horizon": seconds(standing.get("horizon")),
        "coverage": standing.get("coverage"),
        **{count: view.get(count) or 0 for count in ("early", "corrected", "final", "final_corrected")},
        "rows": shown["rows"] or 0,
        "reached": seconds(standing.get("reached")),
        "oldest_open": seconds(standing.get("oldest")),
        "within": within,
        "judged": None if judgement is None else asdict(judgement),
        "kept": None if kept is None else kept.state,
        "kept_words": None if kept is None else kept.words,
        "history": {what: history[what] for what in ("at", "slack", "early", "final")},
    }


def _delays(snapshot: Snapshot, stream: str, at: Sequence[float | None]) -> list[float | None]:
    """The largest delays of a stream's tuples between each of some moments and the one before, seconds."""
    found = snapshot.histories.delays(stream)
    places = np.searchsorted(np.array(at, np.float64), np.array(found["at"], np.float64))
    delays: list[float | None] = [None] * len(at)
    for place, delay in zip(places.tolist(), found["delay"], strict=True):
        if place < len(delays) and delay is not None:
            delays[place] = max(delay, delays[place] or 0.0)
    return delays


def window_answer(
    layout: Layout,
    snapshot: Snapshot,
    judgements: Judgements,
    asked: str,
    *,
    key: str | None,
    value: str | None,
) -> bytes:
    """The windows of one view and key, among the newest _MOST_SHOWN revisions; `is_whole` says whether these are all.

    Args:
        layout: of the results folder.
        snapshot: of the folder.
        judgements: of earlier requests.
        asked: the view's name, whole or as lists show it.
        key: a JSON object with the values of its keys, as `groups` has it; None: the first group.
        value: one of its values; None: the first.

    Raises:
        UnknownNameError: there is no such view with windows, or no such value or group.
        InputError: `key` is no JSON object, or a file is damaged (`DamagedError`).
    """
    name = snapshot.views.index.named(asked)
    entry = snapshot.views.index.entries[name]
    if kind_of(entry) not in ("windows", "deadline"):
        raise UnknownNameError(f"View {cut(name, 100)} has no windows.")
    view = snapshot.document["views"].get(name) or {}
    wanted = None if key is None else _object(key)
    standing = view.get("standing") or {}
    open_why = None
    if standing.get("open"):
        open_why = why_open(standing, snapshot.document["state"], view.get("not_answered"))
    judgement = judgements.of(layout, {name: view}, _JUDGING_SECONDS)[name]
    line = _line(snapshot, name, judgement, 600)
    delays = _delays(snapshot, view.get("stream") or "", line["history"]["at"])
    answer = {
        "view": {**line, "name": name, "history": {**line["history"], "delay": delays}},
        "why_open": open_why,
        **{"keys": [], "values": [], "groups": [], "key": {}, "value": value or "", "windows": []},
        "is_whole": True,
    }
    try:
        found = read_revisions(layout, name, _MOST_SHOWN)
    except UnknownNameError:
        # it has not answered yet
        return encoded(answer)
    shown = _windows(found, wanted, value)
    if not found.is_whole and kind_of(entry) == "windows":
        for window in shown["windows"]:
            _leave_open(window)
    return encoded({**answer, **shown, "is_whole": found.is_whole})


def _leave_open(window: dict[str, Any]) -> None:
    """Puts an unknown first answer before the revisions of a window whose own is not among the newest."""
    first = window["revisions"][0]
    if first["revision"] > 0:
        unknown = dict.fromkeys(("value", "coverage", "slack"))
        window["revisions"].insert(0, {**unknown, "revision": 0, "is_final": False})
        if window["state"] != "final":
            window["state"] = "corrected"


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InputError("key: a JSON object with the values of the view's keys is allowed.")
    return found


def _windows(found: Revisions, wanted: Mapping[str, Any] | None, value: str | None) -> dict[str, Any]:
    numbers = [
        name
        for name in found.values
        if pa.types.is_integer(kind := found.table.schema.field(name).type)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
    ]
    if value is not None and value not in numbers:
        raise UnknownNameError(
            f"The view has no value {cut(value, 100)}. Its values: {', '.join(numbers) or 'none'}"
        )
    shown = value or (numbers[0] if numbers else "")
    groups, codes = _groups(found)
    number = 0
    if wanted is not None:
        number = next((place for place, group in enumerate(groups) if group == wanted), -1)
        if number < 0:
            raise UnknownNameError("The view has no windows with this key.")
    places = found.order[codes[found.order] == number] if groups else found.order
    return {
        "keys": list(found.keys),
        "values": numbers,
        "groups": groups[:_MOST_GROUPS],
        "key": groups[number] if groups else {},
        "value": shown,
        "windows": _of_group(found, places, shown),
    }


def _groups(found: Revisions) -> tuple[list[dict[str, Cell]], Ints]:
    """The keys that the rows have, and of each row the number of its own."""
    codes = np.zeros(found.table.num_rows, np.int64)
    for values in found.keys.values():
        codes = np.unique(codes * (len(codes) + 1) + codes_of(values), return_inverse=True)[1].astype(
            np.int64
        )
    _, places = np.unique(codes, return_index=True)
    columns = [cells_of(values.take(pa.array(places))) for values in found.keys.values()]
    groups = (
        [dict(zip(found.keys, cells, strict=True)) for cells in zip(*columns, strict=True)] if columns else []
    )
    return groups or ([{}] if len(codes) else []), codes


def _of_group(found: Revisions, places: Ints, value: str) -> list[dict[str, Any]]:
    """The newest windows at these places, by start."""
    starts = found.moments("start")[places]
    newest = np.unique(starts)[-_MOST_WINDOWS:]
    places = places[starts >= newest[0]] if len(newest) else places
    chosen = found.table.take(pa.array(places))
    columns = {
        name: chosen.column(found.marks[name]).to_pylist() for name in (REVISION, COVERAGE, SLACK, FINAL, OP)
    }
    if value:
        values = [None if each is None else float(each) for each in chosen.column(value).to_pylist()]
    else:
        values = [None] * len(places)
    windows: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for at, (start, end) in enumerate(
        zip(found.moments("start")[places].tolist(), found.moments("end")[places].tolist(), strict=True)
    ):
        windows.setdefault((start, end), []).append(
            {
                "revision": columns[REVISION][at],
                "value": values[at] if columns[OP][at] == UPSERT else None,
                "coverage": columns[COVERAGE][at],
                "slack": columns[SLACK][at],
                "is_final": columns[FINAL][at],
            }
        )
    return [
        {
            "start": start / 1e6,
            "end": end / 1e6,
            "state": "final" if own[-1]["is_final"] else "early" if len(own) == 1 else "corrected",
            "coverage": own[-1]["coverage"],
            "revisions": [own[0], *own[1:][-_MOST_REVISIONS:]],
        }
        for (start, end), own in sorted(windows.items())
    ]
