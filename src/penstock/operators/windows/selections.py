"""Panes of views that differ in their conditions: one table for all, with a column that says whose tuples a row counts.

Such views are numbered by their conditions, their *selections*. What all of them need of a window is computed for all at
once: the windows merged, their results, the slack that each group required. A view looks at its own rows of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.operators.windows.aggregates import ROWS, SELECTION, Parts
from penstock.operators.windows.content import Content, merged_windows
from penstock.operators.windows.lifecycle import ends_of
from penstock.operators.windows.panes import Panes, different
from penstock.operators.windows.required_slack import ARRIVAL, END
from penstock.operators.windows.selected_windows import RequiredSlacks, SelectedWindows
from penstock.operators.windows.told_windows import Parted, Told, ToldWindows, told_windows
from penstock.plan.times import BEFORE_ALL
from penstock.plan.windows import WindowPlan, Windows

Ints = npt.NDArray[np.int64]

#: what so many bytes of panes make is kept for the views of some selections; beyond that selections are taken in blocks
_BLOCK_BYTES = 256 << 20
#: so many panes of windows are merged at a time
_MOST_PANES = 256


class Sorted:
    """The rows of a pane, those of a selection together.

    Args:
        content: of the pane, with SELECTION.
        count: selections are below it; rows of others are of views that were dropped.
        revision: of the content.
    """

    def __init__(self, content: Content, count: int, revision: int) -> None:
        self.revision = revision
        values = {name: _by_selection(table) for name, table in content.values.items()}
        self._content = Content(_by_selection(content.partials), values).in_one()
        stamps = content.partials.select([SELECTION, ARRIVAL, ROWS])
        counted = stamps.group_by([SELECTION, ARRIVAL], use_threads=False).aggregate([(ROWS, "sum")])
        every = np.stack([column.to_numpy() for column in counted.columns])
        #: int64[3, n]: selection, arrival and the tuples that arrived then
        self.arrivals = every[:, every[0] < count]
        #: int64[count]: when the newest rows of each selection arrived, BEFORE_ALL where it has none
        self.newest = np.full(count, BEFORE_ALL)
        np.maximum.at(self.newest, self.arrivals[0], self.arrivals[1])

    def of(self, first: int, last: int) -> Content:
        """The rows of the selections in [first, last)."""
        return Content(
            _slice(self._content.partials, first, last),
            {name: _slice(table, first, last) for name, table in self._content.values.items()},
        )


def _by_selection(table: pa.Table) -> pa.Table:
    selections = table.column(SELECTION).to_numpy()
    if (selections[1:] < selections[:-1]).any():
        table = table.take(pa.array(np.argsort(selections, kind="stable")))
    return table


def _slice(table: pa.Table, first: int, last: int) -> pa.Table:
    low, high = np.searchsorted(table.column(SELECTION).to_numpy(), [first, last]).tolist()
    return table.slice(low, high - low)


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
        self._known: dict[Windows, _Block] = {}
        self._version = -1

    def arrivals(self, selection: int) -> Ints:
        """int64[3, n]: pane, arrival and the tuples that arrived then, those of a pane together; panes ascend."""
        self._follow()
        return self._arrivals[:, self._bounds[selection] : self._bounds[selection + 1]]

    def newest_arrivals(self, selection: int, ends: Iterable[int], windows: Windows) -> list[int]:
        """When the newest rows of windows arrived, BEFORE_ALL where they hold none."""
        self._follow()
        known, wanted = self._newest.setdefault(windows.spans, {}), list(ends)
        for end in wanted:
            if end not in known:
                every = [self._sorted[start].newest for start in self._panes.starts(windows.begin(end), end)]
                nothing = np.full(self._count, BEFORE_ALL)
                known[end] = np.max([nothing, *every], axis=0).tolist()
        return [known[end][selection] for end in wanted]

    def content(self, selection: int, first: int, last: int) -> list[Content]:
        """The rows of the panes that start in [first, last), pane by pane."""
        self._follow()
        return [self._sorted[start].of(selection, selection + 1) for start in self._panes.starts(first, last)]

    def told(self, selection: int, windows: Sequence[Told]) -> Iterator[tuple[ToldWindows, list[Told]]]:
        """See `told_windows`."""
        self._follow()

        def parted(start: int, arrival: int) -> Parted:
            content = self._sorted[start].of(selection, selection + 1)
            later = content.since(arrival).select([*self._keys, ARRIVAL])
            return content.until(arrival).without_arrivals(), different(later, self._keys)

        return told_windows(
            windows,
            self._parts,
            self._keys,
            lambda span: self._panes.starts(*span),
            self._panes.bytes_of,
            parted,
        )

    def starts(self, selection: int) -> Ints:
        """Starts of the panes with rows of a selection, ascending."""
        self._follow()
        first, last = self._first_starts[selection : selection + 2]
        own: Ints = self._starts[first:last]
        return own

    def ends(self, selection: int, windows: Windows) -> Ints:
        """Ends of the windows that hold rows of a selection, ascending."""
        starts = self.starts(selection)
        place = windows, starts.tobytes()
        if place not in self._ends:
            self._ends[place] = ends_of(windows, starts)
        return self._ends[place]

    def results(
        self, selection: int, plan: WindowPlan, ends: Sequence[int]
    ) -> Iterator[tuple[int, pa.Table]]:
        """See `Panes.results`."""
        block = self._blocks(selection, plan.windows.spans)
        self._merge(block, ends)
        for merged, own in groupby(ends, lambda end: block.windows[end][0]):
            rows = merged.rows(plan)
            for end in own:
                first, last = merged.places.of(end, selection)
                yield end, rows.slice(first, last - first)

    def required(
        self, selection: int, plan: WindowPlan, ends: Sequence[int], shares: tuple[float, ...]
    ) -> Iterator[tuple[int, Ints]]:
        """See `Panes.required`."""
        block = self._blocks(selection, plan.windows.spans)
        missing = [end for end in ends if end not in block.slacks]
        if missing:
            block.slacks.update(dict.fromkeys(missing, self._look_back(block, missing)))
        for known, own in groupby(ends, block.slacks.__getitem__):
            slacks = known.ascending(plan.aggregates, plan.bound, shares)
            for end in own:
                first, last = known.places.of(end, selection)
                yield end, slacks[:, first:last]

    def _follow(self) -> None:
        """Forgets what the panes were before, but for windows of which no pane has changed."""
        if self._version == self._panes.version:
            return
        self._version = self._panes.version
        self._nbytes = self._panes.nbytes
        known, self._sorted = self._sorted, {}
        same = set()
        for start in self._panes:
            revision = self._panes.revision(start)
            if start in known and known[start].revision == revision:
                self._sorted[start] = known[start]
                same.add(start)
            else:
                self._sorted[start] = Sorted(self._panes.content(start), self._count, revision)
        stamped = [
            np.insert(each.arrivals, 1, start, axis=0) for start, each in sorted(self._sorted.items())
        ] or [np.zeros((4, 0), np.int64)]
        every = np.concatenate(stamped, axis=1)
        every = every[:, np.argsort(every[0], kind="stable")]
        selections = np.arange(self._count + 1)
        self._bounds = np.searchsorted(every[0], selections).tolist()
        self._arrivals = every[1:]
        is_first = np.append(True, (np.diff(every[:2]) != 0).any(axis=0))[: every.shape[1]]
        self._starts: Ints = every[1, is_first]
        self._first_starts = np.searchsorted(every[0, is_first], selections).tolist()
        self._ends: dict[tuple[Windows, bytes], Ints] = {}
        self._newest: dict[Windows, dict[int, list[int]]] = {}
        for spans, block in self._known.items():
            block.keep(same, {end: self._panes.starts(spans.begin(end), end) for end in block.windows})

    def _blocks(self, selection: int, spans: Windows) -> _Block:
        """What is known of windows of some selections, this one among them; of no others where that is much."""
        self._follow()
        overlap = max(1, spans.size // self._pane)
        width = max(1, -(-self._count // (1 + self._nbytes * overlap // _BLOCK_BYTES)))
        first = selection // width * width
        known = self._known.get(spans)
        if known is None or (known.first, known.last) != (first, first + width):
            known = self._known[spans] = _Block(first, first + width, spans)
        return known

    def _merge(self, block: _Block, ends: Sequence[int]) -> None:
        """Merges those windows of a block that are not merged yet."""
        ends = [end for end in ends if end not in block.windows]
        selections = np.arange(block.first, block.last + 1)
        held = [(end, self._panes.starts(block.spans.begin(end), end)) for end in ends]
        for start in {start for _, own in held for start in own} - block.merged.keys():
            content = self._panes.without_arrivals(self._sorted[start].of(block.first, block.last))
            own = content.partials.column(SELECTION).to_numpy()
            block.merged[start] = content, np.searchsorted(own, selections)
        step = max(1, _MOST_PANES * self._pane // block.spans.size)
        for place in range(0, len(held), step):
            several = held[place : place + step]
            contents, bounds = {}, {}
            for start in sorted({start for _, own in several for start in own}):
                contents[start], bounds[start] = block.merged[start]
            merged = merged_windows(self._parts, contents, several, [END, SELECTION, *self._keys], bounds)
            windows = SelectedWindows(merged, self._keys, len(several))
            block.windows.update((end, (windows, own)) for end, own in several)

    def _look_back(self, block: _Block, ends: Sequence[int]) -> RequiredSlacks:
        self._merge(block, ends)
        starts = sorted({start for end in ends for start in block.windows[end][1]})
        contents = {start: self._sorted[start].of(block.first, block.last) for start in starts}
        windows = {end: block.windows[end][0] for end in ends}
        return RequiredSlacks(self._parts, self._keys, windows, block.spans, contents)


class _Block:
    """What is known of windows of the selections in [first, last).

    Attributes:
        merged: the rows of panes without arrivals and where those of each selection begin, by start.
        windows: those that were merged together and the starts of its panes, by end.
        slacks: those that were looked back at together, by end.
    """

    def __init__(self, first: int, last: int, spans: Windows) -> None:
        self.first, self.last, self.spans = first, last, spans
        self.merged: dict[int, tuple[Content, Ints]] = {}
        self.windows: dict[int, tuple[SelectedWindows, list[int]]] = {}
        self.slacks: dict[int, RequiredSlacks] = {}

    def keep(self, same: set[int], starts: Mapping[int, list[int]]) -> None:
        """Forgets what has changed.

        Args:
            same: starts of the panes that have not.
            starts: of the panes that each window holds now.
        """
        self.merged = {start: known for start, known in self.merged.items() if start in same}
        current = {
            end: known
            for end, known in self.windows.items()
            if known[1] == starts[end] and same.issuperset(known[1])
        }
        # what was merged together is kept together: not for a few windows of many
        worth = _mostly_current([merged for merged, _ in current.values()])
        self.windows = {end: known for end, known in current.items() if id(known[0]) in worth}
        slacks = {end: known for end, known in self.slacks.items() if end in self.windows}
        worth = _mostly_current(list(slacks.values()))
        self.slacks = {end: known for end, known in slacks.items() if id(known) in worth}


def _mostly_current(held: Sequence[SelectedWindows | RequiredSlacks]) -> set[int]:
    """Identities of those of which at least half of the windows are held, each once for each of its windows."""
    counts = Counter(map(id, held))
    return {id(each) for each in held if 2 * counts[id(each)] >= each.count}


class SelectedPanes:
    """The panes of one operator as a view sees that has one of its selections; see `Panes`.

    Args:
        shared: of the operator.
        selection: the view's.
    """

    def __init__(self, shared: Selections, selection: int) -> None:
        self._shared = shared
        self._selection = selection

    def __iter__(self) -> Iterator[int]:
        return iter(self._shared.starts(self._selection).tolist())

    def window_ends(self, windows: Windows) -> Ints:
        """Ends of the windows that hold tuples, ascending."""
        return self._shared.ends(self._selection, windows)

    def newest_arrivals(self, ends: Iterable[int], windows: Windows) -> list[int]:
        """When the newest rows of windows arrived."""
        return self._shared.newest_arrivals(self._selection, ends, windows)

    def coverage(self, first: int, last: int, arrival: int) -> float:
        """Share of the tuples of the panes that start in [first, last) that had arrived by then; there are some."""
        _, arrivals, rows = self._between(first, last)
        return float(rows[arrivals <= arrival].sum() / rows.sum())

    def contents(self, first: int, last: int) -> list[Content]:
        """See `Panes.contents`."""
        return self._shared.content(self._selection, first, last)

    def results(self, plan: WindowPlan, ends: Sequence[int]) -> Iterator[tuple[int, pa.Table]]:
        """See `Panes.results`."""
        return self._shared.results(self._selection, plan, ends)

    def required(
        self, plan: WindowPlan, ends: Sequence[int], shares: tuple[float, ...]
    ) -> Iterator[tuple[int, Ints]]:
        """See `Panes.required`."""
        return self._shared.required(self._selection, plan, ends, shares)

    def told(self, windows: Sequence[Told]) -> Iterator[tuple[ToldWindows, list[Told]]]:
        """See `told_windows`."""
        return self._shared.told(self._selection, windows)

    def _between(self, first: int, last: int) -> Ints:
        every = self._shared.arrivals(self._selection)
        low, high = np.searchsorted(every[0], [first, last]).tolist()
        return every[:, low:high]


#: what a view sees of its operator's panes
WindowPanes = Panes | SelectedPanes
