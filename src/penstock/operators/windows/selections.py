"""Panes of views that differ in their conditions: one table for all, with a column that says whose tuples a row counts.

Such views are numbered by their conditions, their *selections*. What all of them need of a window is computed for all at
once: the windows merged, their results, the slack that each group required. A view looks at its own rows of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.operators.routing.routers import hashes_of
from penstock.operators.windows.aggregates import ROWS, SELECTION, Parts
from penstock.operators.windows.content import Content, merged_windows, together
from penstock.operators.windows.grouping import group_codes, shared_codes
from penstock.operators.windows.lifecycle import ends_of
from penstock.operators.windows.panes import Panes, different
from penstock.operators.windows.required_slack import ARRIVAL, END, WindowHistory, ascending
from penstock.operators.windows.rows import lowered
from penstock.operators.windows.sampling import MOST_GROUPS, largest_hashes
from penstock.plan.times import BEFORE_ALL
from penstock.plan.windows import Aggregate, ErrorBound, WindowPlan, Windows

Ints = npt.NDArray[np.int64]

#: what so many bytes of panes make is kept for the views of some selections; beyond that selections are taken in blocks
_BLOCK_BYTES = 32 << 20


class Sorted:
    """The rows of a pane, those of a selection together.

    Args:
        content: of the pane, with SELECTION.
        count: selections are below it.
    """

    def __init__(self, content: Content, count: int) -> None:
        self.content = content
        self._partials, self._bounds = _by_selection(content.partials)
        self._values = {name: _by_selection(table) for name, table in content.values.items()}
        stamps = content.partials.select([SELECTION, ARRIVAL, ROWS])
        counted = stamps.group_by([SELECTION, ARRIVAL], use_threads=False).aggregate([(ROWS, "sum")])
        #: int64[3, n]: selection, arrival and the tuples that arrived then
        self.arrivals = np.stack([column.to_numpy() for column in counted.columns])
        #: int64[count]: when the newest rows of each selection arrived, BEFORE_ALL where it has none
        self.newest = np.full(count, BEFORE_ALL)
        np.maximum.at(self.newest, self.arrivals[0], self.arrivals[1])

    def of(self, first: int, last: int) -> Content:
        """The rows of the selections in [first, last)."""
        return Content(
            _slice(self._partials, self._bounds, first, last),
            {name: _slice(table, bounds, first, last) for name, (table, bounds) in self._values.items()},
        )


def _by_selection(table: pa.Table) -> tuple[pa.Table, Ints]:
    selections = table.column(SELECTION).to_numpy()
    if (selections[1:] < selections[:-1]).any():
        order = np.argsort(selections, kind="stable")
        table, selections = table.take(pa.array(order)), selections[order]
    return table, selections


def _slice(table: pa.Table, selections: Ints, first: int, last: int) -> pa.Table:
    low, high = np.searchsorted(selections, [first, last]).tolist()
    return table.slice(low, high - low)


class _Windows:
    """Some windows of some selections, merged.

    Args:
        content: one row for each window, selection and group, in this order.
        keys: the views' grouping columns.
    """

    def __init__(self, content: Content, keys: Sequence[str]) -> None:
        self._content = content
        self._keys = keys
        ends, selections = (content.partials.column(name).to_numpy() for name in (END, SELECTION))
        self.places = _runs(ends, selections)
        self._lowered: dict[tuple[Aggregate, ...], pa.Table] = {}

    def rows(self, plan: WindowPlan, place: tuple[int, int]) -> pa.Table:
        """The results of one window of a view."""
        rows = self._lowered.get(plan.aggregates)
        if rows is None:
            rows = lowered(plan, self._content, self._keys, [END, SELECTION])
            self._lowered[plan.aggregates] = rows
        return rows.slice(place[0], place[1] - place[0])


class _Histories:
    """The like by arrival."""

    def __init__(self, history: WindowHistory) -> None:
        self._history = history
        self.places = _runs(history.of_groups(END), history.of_groups(SELECTION))
        self._bounds = np.array([0, *(last for _, last in self.places.values())])
        self._required: dict[tuple[tuple[Aggregate, ...], ErrorBound, tuple[float, ...]], Ints] = {}

    def ascending_slack(
        self,
        aggregates: tuple[Aggregate, ...],
        bound: ErrorBound,
        shares: tuple[float, ...],
        place: tuple[int, int],
    ) -> Ints:
        """The required slacks of one window of one selection, in ascending order."""
        asked = aggregates, bound, shares
        required = self._required.get(asked)
        if required is None:
            required = self._required[asked] = ascending(self._history.required_slack(*asked), self._bounds)
        return required[:, place[0] : place[1]]


def _runs(ends: Ints, selections: Ints) -> dict[tuple[int, int], tuple[int, int]]:
    """The rows of each (end, selection), which lie together."""
    first = np.flatnonzero(np.append(True, (np.diff(ends) != 0) | (np.diff(selections) != 0))[: len(ends)])
    places = pairwise([*first.tolist(), len(ends)])
    return dict(zip(zip(ends[first].tolist(), selections[first].tolist(), strict=True), places, strict=True))


class Selections:
    """What the views of one operator share until its panes change.

    Args:
        panes: the operator's, with SELECTION as the first of their keys.
        parts: what they hold.
        keys: the views' grouping columns.
        count: selections are below it.
        pane: length of a pane, microseconds.
    """

    def __init__(self, panes: Panes, parts: Parts, keys: Sequence[str], count: int, pane: int) -> None:
        self._panes = panes
        self._parts = parts
        self._keys = list(keys)
        self._count = count
        self._pane = pane
        self._sorted: dict[int, Sorted] = {}
        self._version = -1

    def arrivals(self, selection: int) -> Ints:
        """int64[3, n]: pane, arrival and the tuples that arrived then, those of a pane together; panes ascend."""
        self._follow()
        return self._arrivals[:, self._bounds[selection] : self._bounds[selection + 1]]

    def newest_arrival(self, selection: int, first: int, last: int) -> int:
        """When the newest rows of the panes that start in [first, last) arrived, BEFORE_ALL where there are none."""
        self._follow()
        newest = self._newest.get((first, last))
        if newest is None:
            own = [self._sorted[start].newest for start in self._panes.starts(first, last)]
            newest = np.max(own, axis=0, initial=BEFORE_ALL).tolist() if own else [BEFORE_ALL] * self._count
            self._newest[first, last] = newest
        return newest[selection]

    def content(self, selection: int, first: int, last: int) -> list[Content]:
        """The rows of the panes that start in [first, last), pane by pane."""
        self._follow()
        return [self._sorted[start].of(selection, selection + 1) for start in self._panes.starts(first, last)]

    def starts(self, selection: int) -> Ints:
        """Starts of the panes with rows of a selection, ascending."""
        starts = self.arrivals(selection)[0]
        if selection not in self._starts:
            self._starts[selection] = starts[np.append(True, starts[1:] != starts[:-1])[: len(starts)]]
        return self._starts[selection]

    def ends(self, selection: int, windows: Windows) -> Ints:
        """Ends of the windows that hold rows of a selection, ascending."""
        starts = self.starts(selection)
        place = windows, starts.tobytes()
        if place not in self._ends:
            self._ends[place] = ends_of(windows, starts)
        return self._ends[place]

    def windows(self, selection: int, ends: Sequence[int], size: int) -> Iterator[_WindowRows]:
        """The windows [end - size, end), each of which holds tuples of the selection."""
        known = self._blocks(selection, size)
        missing = [end for end in ends if end not in known.windows]
        if missing:
            known.windows.update(dict.fromkeys(missing, self._merge(known, missing)))
        return (_WindowRows(known.windows[end], end, selection) for end in ends)

    def histories(self, selection: int, ends: Sequence[int], size: int) -> Iterator[_WindowSlack]:
        """The like by arrival, of windows with many groups those of a random sample."""
        known = self._blocks(selection, size)
        missing = [end for end in ends if end not in known.histories]
        if missing:
            known.histories.update(dict.fromkeys(missing, self._look_back(known, missing)))
        return (_WindowSlack(known.histories[end], end, selection) for end in ends)

    def _follow(self) -> None:
        """Forgets what the panes were before."""
        if self._version == self._panes.version:
            return
        self._version = self._panes.version
        self._nbytes = self._panes.nbytes
        known, self._sorted = self._sorted, {}
        for start in self._panes:
            content = self._panes.content(start)
            same = known.get(start)
            self._sorted[start] = (
                same if same is not None and same.content is content else Sorted(content, self._count)
            )
        stamped = [
            np.insert(each.arrivals, 1, start, axis=0) for start, each in sorted(self._sorted.items())
        ] or [np.zeros((4, 0), np.int64)]
        every = np.concatenate(stamped, axis=1)
        order = np.argsort(every[0], kind="stable")
        self._bounds = np.searchsorted(every[0][order], np.arange(self._count + 1)).tolist()
        self._arrivals = every[1:, order]
        self._starts: dict[int, Ints] = {}
        self._ends: dict[tuple[Windows, bytes], Ints] = {}
        self._newest: dict[tuple[int, int], list[int]] = {}
        self._known: dict[int, _Block] = {}

    def _blocks(self, selection: int, size: int) -> _Block:
        """What is known of windows of some selections, this one among them; of no others where that is much."""
        self._follow()
        overlap = max(1, size // self._pane)
        width = max(1, -(-self._count // (1 + self._nbytes * overlap // _BLOCK_BYTES)))
        first = selection // width * width
        known = self._known.get(size)
        if known is None or known.first != first:
            known = self._known[size] = _Block(first, first + width, size)
        return known

    def _contents(self, block: _Block, ends: Sequence[int]) -> tuple[_Held, dict[int, Content]]:
        held = [(end, self._panes.starts(end - block.size, end)) for end in ends]
        starts = {start for _, own in held for start in own}
        return held, {start: self._sorted[start].of(block.first, block.last) for start in starts}

    def _merge(self, block: _Block, ends: Sequence[int]) -> _Windows:
        held, contents = self._contents(block, ends)
        for start, content in contents.items():
            if start not in block.merged:
                block.merged[start] = self._panes.without_arrivals(content)
            contents[start] = block.merged[start]
        merged = merged_windows(self._parts, contents, held, [END, SELECTION, *self._keys])
        return _Windows(_in_order(merged), self._keys)

    def _look_back(self, block: _Block, ends: Sequence[int]) -> _Histories:
        held, contents = self._contents(block, ends)
        keys = [END, SELECTION, *self._keys]
        merged = _in_order(merged_windows(self._parts, contents, held, [*keys, ARRIVAL], self._sampled))
        return _Histories(WindowHistory(merged.partials, merged.values, keys))

    def _sampled(self, content: Content) -> Content:
        """The rows of a sample of the groups of each window and selection that has many."""
        if not self._keys or content.partials.num_rows <= MOST_GROUPS:
            return content
        if group_codes(content.partials, self._keys).max() < MOST_GROUPS:
            return content
        tables = {"": content.partials, **content.values}
        windows = dict(zip(tables, shared_codes(list(tables.values()), [END, SELECTION]), strict=True))
        if np.bincount(windows[""]).max() <= MOST_GROUPS:
            return content
        hashes = {name: hashes_of(table, self._keys) for name, table in tables.items()}
        largest = largest_hashes(windows[""], hashes[""])
        chosen = {
            name: table.filter(pa.array(hashes[name] <= largest[windows[name]]))
            for name, table in tables.items()
        }
        return Content(chosen.pop(""), chosen)


_Held = list[tuple[int, list[int]]]


class _Block:
    """What is known of windows of the selections in [first, last), by their ends, and of panes, by their starts."""

    def __init__(self, first: int, last: int, size: int) -> None:
        self.first, self.last, self.size = first, last, size
        self.merged: dict[int, Content] = {}
        self.windows: dict[int, _Windows] = {}
        self.histories: dict[int, _Histories] = {}


class _WindowRows:
    """One window of one selection; see `WindowContents`."""

    def __init__(self, windows: _Windows, end: int, selection: int) -> None:
        self._windows, self._place = windows, windows.places[end, selection]
        self.ends = [end]
        self.bounds = [0, self._place[1] - self._place[0]]

    def rows(self, plan: WindowPlan) -> pa.Table:
        """The results of a view."""
        return self._windows.rows(plan, self._place)


class _WindowSlack:
    """One window of one selection; see `WindowHistory`."""

    def __init__(self, histories: _Histories, end: int, selection: int) -> None:
        self._histories, self._place = histories, histories.places[end, selection]
        self.ends = [end]
        self.bounds = [0, self._place[1] - self._place[0]]

    def ascending_slack(
        self, aggregates: tuple[Aggregate, ...], bound: ErrorBound, shares: tuple[float, ...]
    ) -> Ints:
        """int64[shares, groups]: the required slacks of the groups, in ascending order."""
        return self._histories.ascending_slack(aggregates, bound, shares, self._place)


def _in_order(content: Content) -> Content:
    """The rows by window and selection."""
    ends, selections = (content.partials.column(name).to_numpy() for name in (END, SELECTION))
    order = np.lexsort((selections, ends))
    if (order[1:] > order[:-1]).all():
        return content
    return Content(content.partials.take(pa.array(order)), content.values)


class SelectedPanes:
    """The panes of one operator as a view sees that has one of its selections; see `Panes`.

    Args:
        shared: of the operator.
        selection: the view's.
        keys: its grouping columns.
    """

    def __init__(self, shared: Selections, selection: int, keys: Sequence[str]) -> None:
        self._shared = shared
        self._selection = selection
        self._keys = list(keys)

    def __iter__(self) -> Iterator[int]:
        return iter(self._shared.starts(self._selection).tolist())

    def window_ends(self, windows: Windows) -> Ints:
        """Ends of the windows that hold tuples, ascending."""
        return self._shared.ends(self._selection, windows)

    def newest_arrival(self, first: int, last: int) -> int:
        """When the newest rows of the panes that start in [first, last) arrived."""
        return self._shared.newest_arrival(self._selection, first, last)

    def coverage(self, first: int, last: int, arrival: int) -> float:
        """Share of the tuples of the panes that start in [first, last) that had arrived by then; there are some."""
        if self.newest_arrival(first, last) <= arrival:
            return 1.0
        _, arrivals, rows = self._between(first, last)
        return float(rows[arrivals <= arrival].sum() / rows.sum())

    def windows(self, ends: Sequence[int], size: int) -> Iterator[_WindowRows]:
        """The rows of the windows [end - size, end) that hold tuples."""
        return self._shared.windows(self._selection, ends, size)

    def histories(self, ends: Sequence[int], size: int) -> Iterator[_WindowSlack]:
        """The like by arrival, of windows with many groups those of a random sample."""
        return self._shared.histories(self._selection, ends, size)

    def parted(self, first: int, last: int, arrival: int) -> tuple[Content, pa.Table]:
        """What of the panes that start in [first, last) had arrived by then, and keys of the groups that got rows later."""
        contents = self._shared.content(self._selection, first, last)
        later = pa.concat_tables([each.since(arrival).select([*self._keys, ARRIVAL]) for each in contents])
        return together(each.until(arrival) for each in contents), different(later, self._keys)

    def _between(self, first: int, last: int) -> Ints:
        every = self._shared.arrivals(self._selection)
        low, high = np.searchsorted(every[0], [first, last]).tolist()
        return every[:, low:high]


#: what a view sees of its operator's panes
WindowPanes = Panes | SelectedPanes
