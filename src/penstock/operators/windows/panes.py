"""Panes: what each stretch of event time holds, with when it arrived."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.operators.windows.aggregates import Parts
from penstock.operators.windows.content import Content, merged_windows
from penstock.operators.windows.lifecycle import ends_of
from penstock.operators.windows.merged_windows import KnownWindows, LookedBack, MergedWindows, Span
from penstock.operators.windows.pane import Pane, PaneChange
from penstock.operators.windows.required_slack import ARRIVAL, END
from penstock.operators.windows.sampling import MOST_GROUPS, halvings_of
from penstock.operators.windows.told_windows import Parted, Told, ToldWindows, told_windows
from penstock.plan.times import BEFORE_ALL
from penstock.plan.windows import WindowPlan, Windows

Ints = npt.NDArray[np.int64]

#: column of a pane's start, microseconds since the epoch
PANE = "pane"
#: bytes of a pane whose parts are kept until the panes change
_SHARED_BYTES = 8 << 20
#: bytes of the panes of which a row a group is remembered
_REMEMBERED_BYTES = 64 << 20
#: so many rows of a pane are merged with those of a window's other panes, not before
_FEW_ROWS = 256
#: ... nor where so few are of one group; rows of one arrival are of different groups
_ROWS_A_GROUP = 2


class Panes:
    """The panes of one operator.

    Args:
        parts: what is kept of each group.
        keys: the grouping columns.
    """

    def __init__(self, parts: Parts, keys: Sequence[str]) -> None:
        self._parts = parts
        #: the grouping columns
        self.keys = list(keys)
        #: another one whenever a pane changes
        self.version = 0
        self._panes: dict[int, Pane] = {}
        self._ascending: list[int] = []
        self._changed: set[int] = set()
        self._windows = KnownWindows(self.bytes_of, self._merged_windows)
        self._looked_back = KnownWindows(self._sampled_bytes_of, self._look_back)
        self._parted: dict[tuple[int, int], Parted] = {}
        #: panes that remember rows of groups, and their bytes, in order of the last question
        self._remembered: dict[Pane, int] = {}
        self._remembered_bytes = 0
        self._ends: dict[Windows, npt.NDArray[np.int64]] = {}
        self._newest: dict[tuple[int, int], int] = {}
        self._halvings: dict[tuple[int, int], int] = {}
        self._coverages: dict[tuple[int, int, int], float] = {}

    def __iter__(self) -> Iterator[int]:
        return iter(self._panes)

    @property
    def nbytes(self) -> int:
        """Size in memory."""
        return sum(pane.nbytes for pane in self._panes.values())

    def content(self, start: int) -> Content:
        """The rows of a pane."""
        return self._panes[start].content

    def revision(self, start: int) -> int:
        """Another number whenever the rows of a pane change."""
        return self._panes[start].revision

    def append(self, partials: pa.Table, values: Mapping[str, pa.Table], arrival: int) -> list[int]:
        """Adds rows of one arrival, no earlier than those before.

        Args:
            partials: `pane`, keys and parts.
            values: `pane`, keys, value and rows, by argument.
            arrival: when they arrived.

        Returns:
            Starts of those panes that had rows before.
        """
        self.forget_shared()
        split_values = {name: split_by_pane(table) for name, table in values.items()}
        grown = []
        for start, rows in split_by_pane(partials).items():
            pane = self._panes.get(start)
            if pane is None:
                pane = self._panes[start] = Pane()
            else:
                grown.append(start)
            own = {
                name: split.get(start, values[name].slice(0, 0).drop_columns([PANE]))
                for name, split in split_values.items()
            }
            pane.append(Content(rows, own).arrived(arrival, self.keys), arrival)
            self._changed.add(start)
        return grown

    def merge_arrivals(self, start: int, apart: Sequence[int]) -> None:
        """Merges arrivals of a pane no window of which has come to its end; see `Pane.merge_arrivals`."""
        self.forget_shared()
        self._panes[start].merge_arrivals(self._parts, self.keys, apart)

    def window_ends(self, windows: Windows) -> npt.NDArray[np.int64]:
        """Ends of the windows that hold a pane, ascending."""
        if windows not in self._ends:
            starts = np.fromiter(self._panes, np.int64, len(self._panes))
            self._ends[windows] = ends_of(windows, starts)
        return self._ends[windows]

    def told(self, windows: Sequence[Told]) -> Iterator[tuple[ToldWindows, list[Told]]]:
        """See `told_windows`."""
        return told_windows(
            windows,
            self._parts,
            self.keys,
            lambda span: self.starts(*span),
            self.bytes_of,
            self._pane_parted,
        )

    def _pane_parted(self, start: int, arrival: int) -> Parted:
        place = start, arrival
        if place in self._parted:
            return self._parted[place]
        content = self._panes[start].content
        later = content.since(arrival).select([*self.keys, ARRIVAL])
        is_grown = later.num_rows > 0
        known = self._panes[start].grouped_by(arrival) if is_grown else self._grouped(start)
        if known is None:
            known = self.without_arrivals(content.until(arrival))
        parted = known, different(later, self.keys)
        if self._panes[start].nbytes <= _SHARED_BYTES:
            self._parted[place] = parted
        return parted

    def _newest_arrival(self, first: int, last: int) -> int:
        """When the newest rows of the panes that start in [first, last) arrived."""
        place = first, last
        if place not in self._newest:
            own = (self._panes[start].newest for start in self.starts(first, last))
            self._newest[place] = max(own, default=BEFORE_ALL)
        return self._newest[place]

    def _halvings_of(self, first: int, last: int) -> int:
        """How often the groups of the panes that start in [first, last) are halved for `_histories`."""
        place = first, last
        if place not in self._halvings:
            own = [self._panes[start] for start in self.starts(first, last)]
            count = 0
            if self.keys and sum(pane.content.partials.num_rows for pane in own) > MOST_GROUPS:
                samples = [pane.sampled(self.keys) for pane in own]
                count = max(sample.halvings for sample in samples)
                count = halvings_of(np.concatenate([sample.hashes(count) for sample in samples]), count)
            self._halvings[place] = count
        return self._halvings[place]

    def coverage(self, first: int, last: int, arrival: int) -> float:
        """Share of the tuples of the panes that start in [first, last) that had arrived by then; there are some."""
        place = first, last, arrival
        if place not in self._coverages:
            own = (self._panes[start].counted() for start in self.starts(first, last))
            counts = [each.until(arrival) for each in own]
            self._coverages[place] = sum(known for known, _ in counts) / sum(every for _, every in counts)
        return self._coverages[place]

    def contents(self, first: int, last: int) -> list[Content]:
        """The rows of the panes that start in [first, last), by arrival, pane by pane."""
        return [self._panes[start].content for start in self.starts(first, last)]

    def newest_arrivals(self, ends: Iterable[int], windows: Windows) -> list[int]:
        """When the newest rows of windows arrived."""
        return [self._newest_arrival(windows.begin(end), end) for end in ends]

    def results(self, plan: WindowPlan, ends: Sequence[int]) -> Iterator[tuple[int, pa.Table]]:
        """The results of a view's windows, each of which holds rows: ends, ascending, and rows."""
        begin = plan.windows.begin
        for merged, own in self._windows.of([(begin(end), end) for end in ends]):
            rows = merged.rows(plan)
            for span in own:
                first, last = merged.places[span]
                yield span[1], rows.slice(first, last - first)

    def required(
        self, plan: WindowPlan, ends: Sequence[int], shares: tuple[float, ...]
    ) -> Iterator[tuple[int, Ints]]:
        """`WindowHistory.required_slack` of a view's windows, each of which holds rows: ends, ascending, and
        int64[shares, groups] in ascending order; of many groups those of a random sample (`sampling`)."""
        begin = plan.windows.begin
        for known, own in self._looked_back.of([(begin(end), end) for end in ends]):
            slacks = known.ascending(plan, shares)
            for span in own:
                first, last = known.places[span]
                yield span[1], slacks[:, first:last]

    def prepare(self, asked: Collection[Span], looked_at: Collection[Span]) -> None:
        """Says of which windows, each of which holds rows, views are about to ask the results, and the required slacks."""
        self._windows.prepare(asked)
        self._looked_back.prepare(looked_at)

    def starts(self, first: int, last: int) -> list[int]:
        """Starts of the panes that start in [first, last), ascending."""
        every = self._ascending = self._ascending or sorted(self._panes)
        return every[bisect_left(every, first) : bisect_left(every, last)]

    def bytes_of(self, span: Span) -> int:
        """Size in memory of the panes that a window holds."""
        return sum(self._panes[start].nbytes for start in self.starts(*span))

    def _sampled_bytes_of(self, span: Span) -> int:
        return self.bytes_of(span) >> self._halvings_of(*span)

    def _merged_windows(self, spans: Sequence[Span]) -> MergedWindows:
        held = [self.starts(*span) for span in spans]
        every = sorted(set(chain.from_iterable(held)))
        if any(len(own) > 1 for own in held):
            contents = {start: self._grouped(start) for start in every}
        else:
            contents = {start: self._panes[start].content.without_arrivals() for start in every}
        merged = merged_windows(self._parts, contents, list(enumerate(held)), [END, *self.keys])
        return MergedWindows(merged, spans, self.keys)

    def _look_back(self, spans: Sequence[Span]) -> LookedBack:
        halvings = [self._halvings_of(*span) for span in spans]
        held = [
            [(halved, start) for start in self.starts(*span)]
            for span, halved in zip(spans, halvings, strict=True)
        ]
        contents = {share: self._sampled(*share) for share in sorted(set(chain.from_iterable(held)))}
        keys = [END, *self.keys, ARRIVAL]
        return LookedBack(
            merged_windows(self._parts, contents, list(enumerate(held)), keys), spans, self.keys
        )

    def _sampled(self, halved: int, start: int) -> Content:
        """A pane's rows of the groups that are left after so many halvings."""
        pane = self._panes[start]
        return Content(*pane.sampled(self.keys).rows(halved)) if halved else pane.content

    def _grouped(self, start: int) -> Content:
        """A pane's rows without arrivals, for all windows that hold it."""
        pane = self._panes[start]
        # deviations say something else in the last bits where they are merged step by step
        if pane.nbytes > _SHARED_BYTES or self._parts.moments:
            return self.without_arrivals(pane.content)
        if not self._is_merged_first(pane.rows, pane.arrivals.values()):
            return pane.content.without_arrivals()
        self._remember(pane)
        return pane.grouped(self._parts, self.keys)

    def _remember(self, pane: Pane) -> None:
        """Of the panes that were asked for last the rows of groups are remembered."""
        self._forget(pane)
        self._remembered[pane] = pane.nbytes
        self._remembered_bytes += pane.nbytes
        while self._remembered_bytes > _REMEMBERED_BYTES:
            old = next(iter(self._remembered))
            old.forget_groups()
            self._forget(old)

    def _forget(self, pane: Pane | None) -> None:
        """A pane is not there any more, or remembers nothing."""
        if pane is not None:
            self._remembered_bytes -= self._remembered.pop(pane, 0)

    def without_arrivals(self, content: Content) -> Content:
        """Some rows of a pane without arrivals, for all windows that hold it."""
        is_first = self._is_merged_first(content.partials.num_rows, content.arrivals.values())
        if is_first and content.nbytes <= _SHARED_BYTES:
            return content.merged(self._parts, self.keys)
        return content.without_arrivals()

    def _is_merged_first(self, rows: int, of_arrivals: Collection[int]) -> bool:
        """Whether a pane's rows are merged before those of a window: where groups have several. Sketches are not, as they may say something else
        where they are merged in another order; nor is what is too large to be kept for the other windows."""
        if self._parts.sketches or rows <= _FEW_ROWS:
            return False
        return sum(of_arrivals) >= _ROWS_A_GROUP * max(of_arrivals)

    def forget_shared(self) -> None:
        """Frees what views share."""
        self.version += 1
        self._windows.forget()
        self._looked_back.forget()
        self._ascending = []
        self._parted.clear()
        self._ends.clear()
        self._newest.clear()
        self._halvings.clear()
        self._coverages.clear()

    def drop_before(self, start: int, but: range | None = None) -> None:
        """Forgets the panes that start before, but for some."""
        self.forget_shared()
        for old in [each for each in self._panes if each < start and (but is None or each not in but)]:
            self._forget(self._panes.pop(old))
            self._changed.add(old)

    def take_changes(self) -> dict[int, PaneChange]:
        """What to store of each pane that changed or was dropped since the last call."""
        panes = {start: self._panes.get(start) for start in self._changed}
        self._changed.clear()
        return {
            start: PaneChange(0, []) if pane is None else pane.change(self._parts, self.keys)
            for start, pane in panes.items()
        }

    def put(self, start: int, pieces: Sequence[Content]) -> None:
        """A pane as it was stored."""
        self.forget_shared()
        self._forget(self._panes.get(start))
        self._panes[start] = Pane.stored(pieces)

    def take_over(self, start: int, others: Panes) -> None:
        """A pane as others have it."""
        self.forget_shared()
        self._forget(self._panes.get(start))
        self._panes[start] = others._panes[start]


def different(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """One row for each of the keys; some row where there are no keys."""
    return rows.group_by(list(keys), use_threads=False).aggregate([]) if keys else rows.slice(0, 1)


def split_by_pane(table: pa.Table) -> dict[int, pa.Table]:
    """Rows by pane, without the pane's column."""
    starts = table.column(PANE).to_numpy()
    rest = table.drop_columns([PANE])
    if not len(starts):
        return {}
    if (starts == starts[0]).all():
        return {int(starts[0]): rest}
    order = np.argsort(starts, kind="stable")
    found, first = np.unique(starts[order], return_index=True)
    ends = np.append(first[1:], len(order))
    return {
        int(start): rest.take(pa.array(order[low:high]))
        for start, low, high in zip(found, first, ends, strict=True)
    }
