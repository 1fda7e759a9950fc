"""How many early answers of window views were within their bound: read from the published revisions, a little at a time."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from penstock.page.cells import texts_of
from penstock.spark.results.read_plain import window_revisions
from penstock.spark.results.window_schemas import FINAL, REVISION, ROW
from penstock.spark.storage.layout import Layout

_log = logging.getLogger(__name__)
#: rows of a view that are looked at for how many answers were within the bound
_MOST_ROWS = 500_000
#: seconds after which a view is looked at again where it has new rows
_JUDGED_SECONDS = 10.0
WINDOW = ("start", "end")
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
    parts = [field.name for field in row.type if field.name not in WINDOW]
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
    for part in [*WINDOW, *parts]:
        codes = codes_of(pc.struct_field(row, part))
        rows = np.unique(rows * (table.num_rows + 1) + codes, return_inverse=True)[1].astype(np.int64)
    revisions = table.column(marks[REVISION]).to_numpy()
    order = np.lexsort((revisions, rows)).astype(np.int64)
    return Revisions(table, marks, keys, others, rows, order, is_whole)


def codes_of(values: pa.ChunkedArray) -> Ints:
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

    def put(self, layout: Layout, views: Mapping[str, dict[str, Any]], budget: float) -> None:
        """Put the shares of early answers within the bound, where they are known by now, into views whose promise applies, as `within`.

        Args:
            layout, budget: see `of`.
            views: what `folder_status` has of each; it is changed.
        """
        promised = {
            name: view for name, view in views.items() if (view.get("standing") or {}).get("promised")
        }
        for name, judgement in self.of(layout, promised, budget).items():
            views[name]["within"] = None if judgement is None else judgement.within

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
