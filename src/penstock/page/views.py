"""All views of a folder, searched, sorted and paged; one view's own page.

What depends on the catalog alone is prepared once for each catalog, what depends on the status once for each snapshot: a
request over 100,000 views compares numbers and texts, and makes the rows of its page only.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.errors import InputError, UnknownNameError
from penstock.monitor.book import Document
from penstock.monitor.overview import ViewRow, view_rows
from penstock.page.answers import LISTED, cut, encoded, short_name
from penstock.spark.reporting.definitions import is_running_view
from penstock.spark.results.joined_rows import LANES, kind_of_lane
from penstock.spark.storage.deadlines import DEADLINES_NAME

#: views of one answer
MOST_LIMIT = 500
#: (view, moment) pairs that the samples of rows have at most
_CELLS = 2_000_000
_MOST_SAMPLES = 600
SORTS = ("rows", "rate", "errors", "lag", "name")
ONLY = ("never", "failing", "errors")
KINDS = ("selection", "windows", "join", "deadline", "refreshed", "running", "union")

Numbers = NDArray[np.float64]


class ViewIndex:
    """The views of a catalog by position.

    Args:
        catalog: the streams and views.
    """

    def __init__(self, catalog: Document) -> None:
        self.entries: Mapping[str, Document] = catalog["views"]
        self.names: list[str] = list(self.entries)
        self.positions = {name: position for position, name in enumerate(self.names)}
        self._short: dict[str, str] = {short_name(name): name for name in self.names if len(name) > LISTED}

    def named(self, name: str) -> str:
        """The whole name of a view.

        Args:
            name: whole, or as lists show it.

        Raises:
            UnknownNameError: there is no such view.
        """
        if name in self.positions:
            return name
        if name not in self._short:
            raise UnknownNameError(f"View {cut(name, 100)} does not exist.")
        return self._short[name]

    @cached_property
    def searched(self) -> list[str]:
        """Name and text of each view, in small letters."""
        return [f"{name}\n{entry.get('sql', '')}".lower() for name, entry in self.entries.items()]

    @cached_property
    def kinds(self) -> NDArray[np.int8]:
        """The kind of each view, as its position in KINDS."""
        return np.array([KINDS.index(kind_of(entry)) for entry in self.entries.values()], np.int8)

    @cached_property
    def by_name(self) -> NDArray[np.int64]:
        """The positions in order of the names."""
        names = [name.lower() for name in self.names]
        return np.array(sorted(range(len(names)), key=names.__getitem__), np.int64)


class RowSamples:
    """How many rows each view had at the moments of the snapshots, thinned to a bounded number of samples.

    Args:
        index: the views.
    """

    def __init__(self, index: ViewIndex) -> None:
        self.index = index
        self._samples: list[tuple[float, Numbers]] = []

    def of(self, index: ViewIndex) -> RowSamples:
        """The samples of the views of another catalog; a view that was not there is unknown."""
        moved = RowSamples(index)
        places = np.array([self.index.positions.get(name, -1) for name in index.names], np.int64)
        for at, rows in self._samples:
            moved._samples.append((at, np.append(rows, np.nan)[places]))
        return moved

    def add(self, at: float, rows: Numbers) -> None:
        """Adds a sample where something changed."""
        if self._samples and np.array_equal(self._samples[-1][1], rows, equal_nan=True):
            return
        most = max(2, min(_MOST_SAMPLES, _CELLS // max(1, len(rows))))
        samples = [*self._samples, (at, rows)]
        # the newest is kept
        self._samples = samples if len(samples) <= most else [*samples[:-1:2], samples[-1]]

    def history(self, name: str) -> dict[str, list[float]]:
        """Return the samples of a view: `at` and `rows`."""
        position = self.index.positions[name]
        known = [(at, rows[position]) for at, rows in self._samples if not np.isnan(rows[position])]
        return {"at": [at for at, _ in known], "rows": [float(rows) for _, rows in known]}


class ViewTable:
    """The views of one snapshot.

    Args:
        index: the views of the catalog.
        document: see `folder_status`.
        samples: of the rows of earlier snapshots.
    """

    def __init__(self, index: ViewIndex, document: Document, samples: RowSamples) -> None:
        self.index = index
        self.samples = samples
        self._document = document
        self._lines: list[ViewRow | None] = [None] * len(index.names)
        for row in view_rows(document):
            position = index.positions.get(row.name)
            if position is not None:
                self._lines[position] = row
        self._orders: dict[str, NDArray[np.int64]] = {}

    @cached_property
    def rows(self) -> Numbers:
        """The rows of each view; NaN where they are not known."""
        return self._numbers("rows")

    @cached_property
    def _are_there(self) -> NDArray[np.bool_]:
        """Which views are not dropped."""
        return np.array([line is not None for line in self._lines], bool)

    def _numbers(self, what: str) -> Numbers:
        values = (np.nan if line is None else getattr(line, what) for line in self._lines)
        return np.array([np.nan if value is None else value for value in values], np.float64)

    def answer(
        self,
        version: int,
        *,
        search: str = "",
        sort: str = "rows",
        order: str = "desc",
        kind: str = "",
        only: str = "",
        offset: int = 0,
        limit: int = 100,
    ) -> bytes:
        """The answer to /api/views.

        Args:
            version: of the snapshot.
            search: a part of a name or text, in any case.
            sort: one of SORTS.
            order: `asc` or `desc`.
            kind: one of KINDS; "" for all.
            only: one of ONLY: views without a row, that fail, with errors; "" for all.
            offset, limit: which of the views found are listed.
        """
        chosen = self._are_there.copy()
        if kind:
            chosen &= self.index.kinds == KINDS.index(kind)
        if only:
            chosen &= self._only[only]
        if search:
            wanted = search.lower()
            chosen &= np.fromiter((wanted in text for text in self.index.searched), bool, len(chosen))
        ordered = self._ordered(sort)
        found = ordered[chosen[ordered]]
        if order == "desc":
            found = found[::-1]
        return encoded(
            {
                "version": version,
                "total": int(self._are_there.sum()),
                "found": len(found),
                "views": [self._listed(int(position)) for position in found[offset : offset + limit]],
            }
        )

    @cached_property
    def _only(self) -> Mapping[str, NDArray[np.bool_]]:
        return {
            "never": self.rows == 0,
            "failing": np.array([line is not None and line.is_broken for line in self._lines], bool),
            "errors": self._numbers("errors") > 0,
        }

    def _ordered(self, sort: str) -> NDArray[np.int64]:
        """The positions in ascending order; what is not known comes first."""
        if sort == "name":
            return self.index.by_name
        if sort not in self._orders:
            by_name = self.index.by_name[::-1]
            numbers = np.nan_to_num(self._numbers(sort)[by_name], nan=-1.0)
            self._orders[sort] = by_name[np.argsort(numbers, kind="stable")]
        return self._orders[sort]

    def _listed(self, position: int) -> dict[str, Any]:
        line, name = self._lines[position], self.index.names[position]
        entry = self.index.entries[name]
        shown = self._fields(line, entry)
        return {"name": short_name(name), **shown, "text": cut(str(entry.get("sql", "")), LISTED)}

    def _fields(self, line: ViewRow | None, entry: Document) -> dict[str, Any]:
        return {
            "kind": kind_of(entry),
            "streams": self._streams(entry),
            "state": "dropped" if line is None else line.state,
            "rows": None if line is None else line.rows,
            "rate": None if line is None else line.rate,
            "lag": None if line is None else line.lag,
            "promise": "" if line is None or line.promise == "-" else line.promise,
            "errors": 0 if line is None else line.errors,
        }

    def _streams(self, entry: Document) -> list[str]:
        if LANES in entry:
            return list(entry["streams"])
        if entry["stream"] == DEADLINES_NAME:
            lanes = self._document.get("lanes") or {}
            return [
                stream
                for name, lane in lanes.items()
                if name.startswith(f"{DEADLINES_NAME}.")
                for stream in lane.get("streams") or ()
            ]
        return [entry["stream"]]

    def line(self, name: str) -> dict[str, Any]:
        """What a list says of a view, with its name and text whole.

        Args:
            name: the whole name of a view of the index.
        """
        entry = self.index.entries[name]
        shown = self._fields(self._lines[self.index.positions[name]], entry)
        return {"name": name, **shown, "text": str(entry.get("sql", ""))}


def kind_of(entry: Mapping[str, Any]) -> str:
    """The kind of a view by its entry in the catalog, one of KINDS."""
    if "projection" in entry:
        return "selection"
    if LANES in entry:
        return kind_of_lane(entry)
    if is_running_view(entry):
        return "running"
    return "deadline" if entry["stream"] == DEADLINES_NAME else "windows"


def one_of(what: str, value: str, allowed: tuple[str, ...]) -> str:
    """A parameter that has one of some values.

    Raises:
        InputError: it has another.
    """
    if value not in allowed:
        raise InputError(
            f"{what}={cut(value, 40)}: allowed are {', '.join(each for each in allowed if each)}."
        )
    return value
