"""A random sample of a window's groups, the same wherever it is taken: of many groups those with small hashes.

The hashes of the keys are uniform, so the groups below 2^(64 - k) are a random share 2^-k of all. The least k that leaves at
most `MOST_GROUPS` groups is a function of the groups alone: not of batches, processes or what came before. Samples of
other windows are nested in each other, so that a group that is in a smaller share is in every larger one.

Source: adaptive sampling (Wegman; Flajolet, "On adaptive sampling", Computing 1990).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.operators.routing.routers import hashes_of
from penstock.operators.windows.aggregates import ROWS
from penstock.operators.windows.required_slack import ARRIVAL

Hashes = npt.NDArray[np.uint64]

#: of a window with more groups a sample is judged: between half as many and so many
MOST_GROUPS = 256
_LARGEST_HASH = 2**64 - 1


def halvings_of(hashes: Hashes, least: int = 0) -> int:
    """How often the hashes' range is halved until at most MOST_GROUPS different ones are left.

    Args:
        hashes: of rows, any number of them of the same group.
        least: known to be needed.
    """
    # where rows are few enough, the groups are: from there downwards little has to be sorted
    found = max(least, (len(hashes) // MOST_GROUPS).bit_length())
    while found > least and _groups(hashes, found - 1) <= MOST_GROUPS:
        found -= 1
    while _groups(hashes, found) > MOST_GROUPS:
        found += 1
    return found


def largest_hashes(windows: npt.NDArray[np.int64], hashes: Hashes) -> Hashes:
    """The largest hash that is left in each of several windows when as many halvings as `halvings_of` says have been made.

    Args:
        windows: int64[rows], the window of each row, numbered from 0.
        hashes: uint64[rows], of their groups.

    Returns:
        uint64[windows].
    """
    order = np.lexsort((hashes, windows))
    windows, hashes = windows[order], hashes[order]
    again = (windows[1:] == windows[:-1]) & (hashes[1:] == hashes[:-1])
    windows, hashes = (each[np.append(True, ~again)[: len(each)]] for each in (windows, hashes))
    first = np.searchsorted(windows, np.arange(int(windows.max(initial=-1)) + 2))
    found = np.full(len(first) - 1, _LARGEST_HASH, np.uint64)
    for window in np.flatnonzero(np.diff(first) > MOST_GROUPS).tolist():
        too_large = int(hashes[first[window] + MOST_GROUPS])
        found[window] = (1 << too_large.bit_length() - 1) - 1
    return found


def _below(hashes: Hashes, count: int) -> npt.NDArray[np.bool_]:
    below: npt.NDArray[np.bool_] = hashes <= np.uint64(_LARGEST_HASH >> count)
    return below


def _groups(hashes: Hashes, count: int) -> int:
    own = hashes[_below(hashes, count)]
    return len(own) if len(own) <= MOST_GROUPS else len(np.unique(own))


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """Rows with the hashes of their groups."""

    table: pa.Table
    hashes: Hashes

    def below(self, count: int) -> _Rows:
        chosen = _below(self.hashes, count)
        if chosen.all():
            return self
        return _Rows(self.table.filter(pa.array(chosen)), self.hashes[chosen])

    def with_more(self, others: _Rows) -> _Rows:
        return _Rows(
            pa.concat_tables([self.table, others.table]), np.concatenate([self.hashes, others.hashes])
        )


class GroupSample:
    """The rows of a sample of a pane's groups, taken in table by table.

    Args:
        keys: the grouping columns, at least one.

    Attributes:
        halvings: see `halvings_of`; of the groups taken in so far.
        tables: how many of the pane's tables were taken in.
    """

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = keys
        self._partials: _Rows | None = None
        self._values: dict[str, _Rows] = {}
        self._groups = np.zeros(0, np.uint64)
        self.halvings = 0
        self.tables = 0

    def take_in(self, partials: pa.Table, values: Mapping[str, pa.Table], tables: int) -> None:
        """Takes in rows: keys and anything.

        Args:
            partials: of the groups.
            values: kept values of the same groups, by argument.
            tables: how many of the pane's have been taken in with these.
        """
        self.tables = tables
        own = self._hashed(partials)
        self._partials = own if self._partials is None else self._partials.with_more(own)
        for name, table in values.items():
            more = self._hashed(table)
            self._values[name] = self._values[name].with_more(more) if name in self._values else more
        groups = np.concatenate([self._groups, own.hashes])
        count = halvings_of(groups, self.halvings)
        self._groups = np.unique(groups[_below(groups, count)])
        if count > self.halvings:
            self.halvings = count
            self._partials = self._partials.below(count)
            self._values = {name: rows.below(count) for name, rows in self._values.items()}

    def hashes(self, count: int) -> Hashes:
        """Hashes of the groups that are left after so many halvings, no fewer than the pane's own; each once."""
        return self._groups[_below(self._groups, count)]

    def rows(self, count: int) -> tuple[pa.Table, dict[str, pa.Table]]:
        """Partials and values whose groups are left after so many halvings, no fewer than the pane's own."""
        assert self._partials is not None, "a pane holds a table"
        values = {name: rows.below(count).table for name, rows in self._values.items()}
        return self._partials.below(count).table, values

    def _hashed(self, table: pa.Table) -> _Rows:
        return _Rows(table, hashes_of(table, self._keys)).below(self.halvings)


class TuplesByArrival:
    """How many tuples of a pane arrived when, taken in table by table.

    Attributes:
        tables: how many of the pane's tables were taken in.
    """

    def __init__(self) -> None:
        self._arrivals = np.zeros(0, np.int64)
        self._rows = np.zeros(0, np.int64)
        #: tuples before each of the arrivals, which ascend, and all
        self._so_far = np.zeros(1, np.int64)
        self.tables = 0

    def take_in(self, partials: pa.Table, tables: int) -> None:
        """Takes in partials of groups, ARRIVAL and ROWS; with them so many of the pane's tables have been taken in."""
        self.tables = tables
        arrivals = partials.column(ARRIVAL).to_numpy()
        if len(arrivals) and (arrivals != arrivals[0]).any():
            partials = partials.group_by(ARRIVAL, use_threads=False).aggregate([(ROWS, "sum")])
            arrivals, rows = (column.to_numpy() for column in partials.columns)
        else:
            arrivals, rows = (
                arrivals[:1],
                partials.column(ROWS).to_numpy().sum(keepdims=True)[: len(arrivals)],
            )
        arrivals = np.append(self._arrivals, arrivals)
        order = np.argsort(arrivals, kind="stable")
        self._arrivals, self._rows = arrivals[order], np.append(self._rows, rows)[order]
        self._so_far = np.append(0, np.cumsum(self._rows))

    def until(self, arrival: int) -> tuple[int, int]:
        """How many had arrived by then, and all."""
        return int(self._so_far[self._arrivals.searchsorted(arrival, "right")]), int(self._so_far[-1])
