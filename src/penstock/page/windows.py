"""The answers to /api/windows: what window views promise, and the windows of one key with all their answers."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from penstock.errors import InputError, UnknownNameError
from penstock.monitor.details import why_open
from penstock.page.answers import cut, encoded, seconds, short_name
from penstock.page.cells import Cell, cells_of, texts_of
from penstock.page.folder import Snapshot
from penstock.page.overview import points
from penstock.page.views import kind_of
from penstock.spark.results.read_plain import window_revisions
from penstock.spark.results.window_schemas import COVERAGE, FINAL, OP, REVISION, ROW, SLACK, UPSERT
from penstock.spark.storage.layout import Layout

_log = logging.getLogger(__name__)

#: views of one answer, groups and windows of a view's page, revisions of a window
_MOST_VIEWS, _MOST_GROUPS, _MOST_WINDOWS, _MOST_REVISIONS = 1_000, 200, 300, 50
#: rows of a view that are looked at for how many answers were within the bound
_MOST_ROWS = 500_000
#: revisions of a view that are looked at for its page, the newest
_MOST_SHOWN = 200_000
#: seconds that one answer spends on that, and after which a view is looked at again where it has new rows
_JUDGING_SECONDS, _JUDGED_SECONDS = 0.5, 10.0
_WINDOW = ("start", "end")
#: the bound within which two answers are equal
_SAME: Mapping[str, Any] = {"epsilon": 0.0, "absolute": True}

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Revisions:
    """The newest revisions of a window view's rows.

    Attributes:
        table: see `window_revisions`.
        marks: how MARKS are called.
        keys: the names of its keys, each with the column of ROW that has it.
        values: the columns that are neither keys nor windows.
        rows: a number for each row (window and key) of the results, at each revision.
        order: positions by row, its revisions in order.
        is_whole: whether these are all revisions.
    """

    table: pa.Table
    marks: Mapping[str, str]
    keys: Mapping[str, pa.ChunkedArray]
    values: Sequence[str]
    rows: Ints
    order: Ints
    is_whole: bool

    def mark(self, name: str) -> pa.ChunkedArray:
        """A column of MARKS."""
        return self.table.column(self.marks[name])

    def moments(self, part: str) -> Ints:
        """The start or end of each row's window, microseconds."""
        moments = pc.struct_field(self.table.column(ROW), part).cast(pa.int64())
        found: Ints = moments.to_numpy()
        return found


def read_revisions(layout: Layout, view: str, most: int) -> Revisions:
    """The newest revisions of a window view's rows, `most` at the most; raises what `window_revisions` raises."""
    table, marks, is_whole = window_revisions(layout, view, most)
    row = table.column(ROW)
    parts = [field.name for field in row.type if field.name not in _WINDOW]
    own = table.column_names[: table.column_names.index(marks[REVISION])]
    keys: dict[str, pa.ChunkedArray] = {}
    for part in parts:
        values = pc.struct_field(row, part)
        keys[next((name for name in own if name not in keys and table.column(name).equals(values)), part)] = (
            values
        )
    others = [
        name for name in own if name not in keys and not pa.types.is_struct(table.schema.field(name).type)
    ]
    rows = np.zeros(table.num_rows, np.int64)
    for part in [*_WINDOW, *parts]:
        codes = _codes(pc.struct_field(row, part))
        rows = np.unique(rows * (table.num_rows + 1) + codes, return_inverse=True)[1].astype(np.int64)
    revisions = table.column(marks[REVISION]).to_numpy()
    order = np.lexsort((revisions, rows)).astype(np.int64)
    return Revisions(table, marks, keys, others, rows, order, is_whole)


def _codes(values: pa.ChunkedArray) -> Ints:
    """A number for each value, equal ones the same; of structs and lists those of one text are equal."""
    own = values.combine_chunks()
    if pa.types.is_nested(own.type):
        own = pa.array(texts_of(own), pa.string())
    found: Ints = own.dictionary_encode(null_encoding="encode").indices.to_numpy().astype(np.int64)
    return found


@dataclass(frozen=True, slots=True)
class Judgement:
    """How the first answers of a view's final rows came out; a row has a window and a key.

    Attributes:
        first: rows that are final.
        first_off: of these, rows whose first answer was off by the bound or more, in one of their values.
        early: rows whose first answer was early: others were final at once.
        off: of these, rows whose first answer was off: the promise is of them.
        corrected: rows of which an answer differs from the one before it.
    """

    first: int
    first_off: int
    early: int
    off: int
    corrected: int

    @property
    def within(self) -> float:
        """The share of early answers within the bound."""
        return 1 - self.off / self.early


@dataclass(frozen=True, slots=True)
class _Judged:
    """What a view was judged by.

    Attributes:
        rows: that it had then.
        at: when that began, on the monotonic clock.
        judgement: see `judge`.
    """

    rows: int = -1
    at: float = -_JUDGED_SECONDS
    judgement: Judgement | None = None


class Judgements:
    """How the early answers of views came out, worked out a little at a time; any thread may ask."""

    def __init__(self) -> None:
        #: nothing is read while a thread has it
        self._lock = threading.Lock()
        self._known: dict[str, _Judged] = {}
        self._judging: set[str] = set()

    def of(
        self, layout: Layout, views: Mapping[str, Mapping[str, Any]], budget: float
    ) -> dict[str, Judgement | None]:
        """The judgements that are known by now.

        Args:
            layout: of the results folder.
            views: what is known of each.
            budget: seconds to work out others.
        """
        until = time.monotonic() + budget
        for name in self._oldest_first(views):
            now = time.monotonic()
            if now >= until:
                break
            rows = views[name].get("rows") or 0
            if self._begins(name, rows, now):
                judgement = None
                try:
                    judgement = _judged(layout, name, views[name])
                finally:
                    self._end(name, _Judged(rows, now, judgement))
        with self._lock:
            return {name: self._known.get(name, _Judged()).judgement for name in views}

    def _oldest_first(self, views: Iterable[str]) -> list[str]:
        with self._lock:
            return sorted(views, key=lambda name: self._known.get(name, _Judged()).at)

    def _begins(self, name: str, rows: int, now: float) -> bool:
        """Whether a view is to be judged, and no other thread does that."""
        with self._lock:
            known = self._known.get(name, _Judged())
            if name in self._judging or rows == known.rows or now - known.at < _JUDGED_SECONDS:
                return False
            self._judging.add(name)
            return True

    def _end(self, name: str, judged: _Judged) -> None:
        with self._lock:
            self._judging.remove(name)
            self._known[name] = judged


def _judged(layout: Layout, name: str, view: Mapping[str, Any]) -> Judgement | None:
    bound = (view.get("standing") or {}).get("bound")
    if bound is None or not view.get("final") or (view.get("rows") or 0) > _MOST_ROWS:
        return None
    try:
        found = read_revisions(layout, name, _MOST_ROWS)
        return judge(found, bound) if found.is_whole else None
    except Exception as error:
        # what one view has must not keep the others from their answers
        _log.warning("cannot judge the windows of %s: %s: %s", name[:100], type(error).__name__, error)
        return None


def judge(found: Revisions, bound: Mapping[str, Any]) -> Judgement | None:
    """Compare the answers of the final rows; None where no row is final whose first answer was early.

    Args:
        found: all revisions of a view.
        bound: `epsilon` and whether it is `absolute`; see `ErrorBound`.
    """
    if not len(found.order):
        return None
    rows = found.rows[found.order]
    begins = np.flatnonzero(np.append(True, rows[1:] != rows[:-1]))
    first, last = found.order[begins], found.order[np.append(begins[1:], len(rows)) - 1]
    is_final = found.mark(FINAL).to_numpy()[last]
    first, last = first[is_final], last[is_final]
    is_early = ~found.mark(FINAL).to_numpy()[first]
    if not is_early.any():
        return None
    good = np.ones(len(first), bool)
    follows = np.flatnonzero(rows[1:] == rows[:-1])
    before, after = found.order[follows], found.order[follows + 1]
    same = np.ones(len(follows), bool)
    for name in found.values:
        column = found.table.column(name)
        good &= _near(column, first, last, bound)
        same &= _near(column, before, after, _SAME)
    corrected = len(np.unique(rows[follows[~same]]))
    return Judgement(
        len(first), int((~good).sum()), int(is_early.sum()), int((~good & is_early).sum()), corrected
    )


def _near(values: pa.ChunkedArray, first: Ints, last: Ints, bound: Mapping[str, Any]) -> Bools:
    early, final = values.take(pa.array(first)), values.take(pa.array(last))
    kind = values.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        return np.array(
            [one == other for one, other in zip(early.to_pylist(), final.to_pylist(), strict=True)], bool
        )
    before, after = (each.cast(pa.float64()).fill_null(np.nan).to_numpy() for each in (early, final))
    with np.errstate(invalid="ignore", divide="ignore"):
        apart = np.abs(before - after) / (1.0 if bound.get("absolute") else np.abs(after))
    same = (before == after) | (np.isnan(before) & np.isnan(after))
    near: Bools = same | (apart < bound["epsilon"])
    return near


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
        "promised": standing.get("promised"),
        "slack": seconds(slack),
        "horizon": seconds(standing.get("horizon")),
        "coverage": standing.get("coverage"),
        **{count: view.get(count) or 0 for count in ("early", "corrected", "final", "final_corrected")},
        "rows": shown["rows"] or 0,
        "reached": seconds(standing.get("reached")),
        "oldest_open": seconds(standing.get("oldest")),
        "within": None if judgement is None else judgement.within,
        "judged": None if judgement is None else asdict(judgement),
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
        codes = np.unique(codes * (len(codes) + 1) + _codes(values), return_inverse=True)[1].astype(np.int64)
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
