"""Windows of several selections, merged and looked back at: all of them at once, for the views that have these selections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.operators.routing.routers import hashes_of
from penstock.operators.windows.aggregates import SELECTION, Parts
from penstock.operators.windows.content import Content, together
from penstock.operators.windows.grouping import shared_codes
from penstock.operators.windows.required_slack import ARRIVAL, END, WindowHistory
from penstock.operators.windows.rows import lowered
from penstock.operators.windows.sampling import MOST_GROUPS, Hashes, largest_hashes
from penstock.plan.windows import Aggregate, ErrorBound, WindowPlan, Windows

Ints = npt.NDArray[np.int64]


class Places:
    """Where the rows of windows of selections are.

    Args:
        ends, selections: int64[windows], ascending by end and selection.
        bounds: int64[windows + 1], where the rows of each begin, with the end.
    """

    def __init__(self, ends: Ints, selections: Ints, bounds: Ints) -> None:
        self._every = np.unique(ends)
        self._count = int(selections.max(initial=-1)) + 1
        self._known: Ints = np.searchsorted(self._every, ends) * self._count + selections
        asked = np.arange(len(self._every) * self._count + 1)
        self._first: list[int] = bounds[np.searchsorted(self._known, asked)].tolist()
        self._base = {end: number * self._count for number, end in enumerate(self._every.tolist())}

    def of(self, end: int, selection: int) -> tuple[int, int]:
        """The first row of a window and the one behind its last."""
        place = self._base[end] + selection
        return self._first[place], self._first[place + 1]

    def numbers(self, ends: Ints, selections: Ints) -> Ints:
        """int64[rows]: the number of the window of each end and selection."""
        places = np.searchsorted(self._every, ends) * self._count + selections
        return np.searchsorted(self._known, places)


class SelectedWindows:
    """Some windows of some selections, merged.

    Args:
        content: one row for each window, selection and group, in this order.
        keys: the views' grouping columns.
        count: how many windows were merged, whatever selections they have.

    Attributes:
        ends, selections: int64[windows], of those that hold tuples, in the order of their rows.
        places: where the rows of each are.
    """

    def __init__(self, content: Content, keys: Sequence[str], count: int) -> None:
        self.count = count
        self._content = content
        self._keys = keys
        ends, selections = _windows_of(content.partials)
        is_first = np.append(True, (np.diff(ends) != 0) | (np.diff(selections) != 0))[: len(ends)]
        first = np.flatnonzero(is_first)
        self.ends, self.selections = ends[first], selections[first].astype(np.int64)
        self._bounds = np.append(first, len(ends))
        self.places = Places(self.ends, self.selections, self._bounds)
        self._lowered: dict[tuple[Aggregate, ...], pa.Table] = {}

    def rows(self, plan: WindowPlan) -> pa.Table:
        """The results of a view's aggregates."""
        rows = self._lowered.get(plan.aggregates)
        if rows is None:
            rows = lowered(plan, self._content, self._keys, [END, SELECTION])
            self._lowered[plan.aggregates] = rows
        return rows

    @cached_property
    def sampled(self) -> tuple[Ints, Hashes]:
        """int64[windows], uint64[windows]: how many groups are looked back at, and the largest hash among theirs."""
        sizes = np.diff(self._bounds)
        if not self._keys or sizes.max(initial=0) <= MOST_GROUPS:
            return sizes, np.full(len(sizes), np.iinfo(np.uint64).max)
        windows = np.repeat(np.arange(len(sizes)), sizes)
        hashes = hashes_of(self._content.partials, self._keys)
        largest = largest_hashes(windows, hashes)
        return np.bincount(windows[hashes <= largest[windows]], minlength=len(sizes)), largest


class RequiredSlacks:
    """The slack that each group of some windows of some selections required.

    Answers are given after the end of a window, so that what had arrived before is in all of them: a group of which no row
    arrived later required no slack, and only the others are looked back at.

    Args:
        parts: what is kept of each group.
        keys: the views' grouping columns.
        windows: what each window is merged in, by its end, ascending.
        spans: where they begin, by their ends.
        contents: the rows of the panes that they hold, by start, ascending.

    Attributes:
        count: how many windows, whatever selections they have.
        places: where the groups of each window are.
    """

    def __init__(
        self,
        parts: Parts,
        keys: Sequence[str],
        windows: Mapping[int, SelectedWindows],
        spans: Windows,
        contents: Mapping[int, Content],
    ) -> None:
        chosen = [(merged, np.flatnonzero(merged.ends == end)) for end, merged in windows.items()]
        ends, selections, sizes = (
            np.concatenate([each[own] for each, own in arrays])
            for arrays in (
                [(merged.ends, own) for merged, own in chosen],
                [(merged.selections, own) for merged, own in chosen],
                [(merged.sampled[0], own) for merged, own in chosen],
            )
        )
        self._bounds = np.append(0, np.cumsum(sizes))
        self.places = Places(ends, selections, self._bounds)
        self.count = len(windows)
        self._known: dict[tuple[tuple[Aggregate, ...], ErrorBound, tuple[float, ...]], Ints] = {}
        late = _late_groups(list(windows), spans, contents, keys)
        if keys:
            largest = np.concatenate([merged.sampled[1][own] for merged, own in chosen])
            late = {
                name: table.filter(
                    pa.array(hashes_of(table, keys) <= largest[self.places.numbers(*_windows_of(table))])
                )
                for name, table in late.items()
            }
        self._history: WindowHistory | None = None
        if late[""].num_rows:
            across = [END, SELECTION, *keys]
            by_arrival = Content(late.pop(""), late).merged(parts, [*across, ARRIVAL])
            self._history = WindowHistory(by_arrival.partials, by_arrival.values, across)

    def ascending(
        self, aggregates: tuple[Aggregate, ...], bound: ErrorBound, shares: tuple[float, ...]
    ) -> Ints:
        """int64[shares, groups], those of a window in ascending order; see `WindowHistory.required_slack`."""
        asked = aggregates, bound, shares
        found = self._known.get(asked)
        if found is None:
            found = self._known[asked] = self._look_back(*asked)
        return found

    def _look_back(
        self, aggregates: tuple[Aggregate, ...], bound: ErrorBound, shares: tuple[float, ...]
    ) -> Ints:
        found = np.zeros((len(shares), int(self._bounds[-1])), np.int64)
        if self._history is None:
            return found
        windows = self.places.numbers(self._history.of_groups(END), self._history.of_groups(SELECTION))
        for own, required in zip(found, self._history.required_slack(aggregates, bound, shares), strict=True):
            order = np.lexsort((required, windows))
            # the last ones of each window, behind those that required none
            behind = np.searchsorted(windows[order], windows[order], "right") - np.arange(len(order))
            own[self._bounds[windows[order] + 1] - behind] = required[order]
        return found


def _windows_of(table: pa.Table) -> tuple[Ints, Ints]:
    return table.column(END).to_numpy(), table.column(SELECTION).to_numpy()


def _late_groups(
    ends: Sequence[int], laid: Windows, contents: Mapping[int, Content], keys: Sequence[str]
) -> dict[str, pa.Table]:
    """The rows of the groups of windows of which some row arrived after the window's end, with END.

    Args:
        ends: of the windows.
        laid: where they begin, by their ends.
        contents: rows of panes by start, ascending.
        keys: the views' grouping columns.

    Returns:
        Partials by "", values by argument.
    """
    whole = together(contents.values())
    tables = {"": whole.partials, **whole.values}
    panes = {name: np.repeat(list(contents), _rows_of(name, contents)) for name in tables}
    spans = {
        name: np.searchsorted(own, [[laid.begin(end), end] for end in ends]) for name, own in panes.items()
    }
    arrivals = whole.partials.column(ARRIVAL).to_numpy()
    late = [place for place, (low, high) in enumerate(spans[""]) if arrivals[low:high].max() >= ends[place]]
    rows: dict[str, list[Ints]] = {name: [np.zeros(0, np.int64)] for name in tables}
    if late:
        codes = dict(zip(tables, shared_codes(list(tables.values()), [SELECTION, *keys]), strict=True))
        groups = 1 + max(int(own.max(initial=-1)) for own in codes.values())
    for place in late:
        low, high = spans[""][place]
        is_late = np.zeros(groups, np.bool_)
        is_late[codes[""][low:high][arrivals[low:high] >= ends[place]]] = True
        for name, own in rows.items():
            low, high = spans[name][place]
            own.append(low + np.flatnonzero(is_late[codes[name][low:high]]))
    return {
        name: table.take(pa.array(np.concatenate(rows[name]))).append_column(
            END, pa.array(np.repeat([0, *(ends[place] for place in late)], [len(own) for own in rows[name]]))
        )
        for name, table in tables.items()
    }


def _rows_of(name: str, contents: Mapping[int, Content]) -> list[int]:
    """The number of rows of partials or of the values of an argument, by pane."""
    if not name:
        return [content.partials.num_rows for content in contents.values()]
    return [content.values[name].num_rows if name in content.values else 0 for content in contents.values()]
