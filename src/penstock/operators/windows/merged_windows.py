"""Windows that were merged from their panes, kept for all views that ask for them until the panes change."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain, groupby, pairwise
from typing import Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.operators.windows.content import Content
from penstock.operators.windows.required_slack import END, WindowHistory, ascending
from penstock.operators.windows.rows import lowered
from penstock.plan.windows import Aggregate, ErrorBound, WindowPlan

Ints = npt.NDArray[np.int64]
#: start and end of a window, microseconds since the epoch
Span = tuple[int, int]

#: bytes of merged windows that are kept
_KEPT_BYTES = 8 << 20
#: bytes of several windows that are merged at a time
_PORTION_BYTES = 32 << 20
#: windows of several views are merged together as long as they hold so little, when each merge takes its time whatever it merges
_TOGETHER_BYTES = 4 << 20
#: windows are compared with what was said of them when they have so many rows
_BLOCK_ROWS = 1 << 18


class MergedWindows:
    """What some windows hold, each of which holds rows.

    Args:
        content: END, which is the number of the window, and one row for each window and group, those of a window together.
        spans: the windows, in the order of their numbers.
        keys: the grouping columns.
    """

    def __init__(self, content: Content, spans: Sequence[Span], keys: Sequence[str]) -> None:
        self.content = content
        self._keys = list(keys)
        #: the first row of each window and the one behind its last
        self.places = _places(content.partials.column(END).to_numpy(), spans)
        self._lowered: dict[tuple[Aggregate, ...], pa.Table] = {}

    def rows(self, plan: WindowPlan) -> pa.Table:
        """The results of a view's aggregates, in the order of the rows."""
        rows = self._lowered.get(plan.aggregates)
        if rows is None:
            rows = self._lowered[plan.aggregates] = lowered(plan, self.content, self._keys, [END])
        return rows

    @property
    def nbytes(self) -> int:
        """Size in memory."""
        return self.content.nbytes


class LookedBack:
    """The slack that each group of some windows required.

    Args:
        content: like that of `MergedWindows`, by arrival.
        spans: the windows, in the order of their numbers.
        keys: the grouping columns.
    """

    def __init__(self, content: Content, spans: Sequence[Span], keys: Sequence[str]) -> None:
        ends = np.array([end for _, end in spans])
        self._history = WindowHistory(content.partials, content.values, [END, *keys], ends)
        #: the first group of each window and the one behind its last
        self.places = _places(self._history.of_groups(END), spans)
        self._known: dict[tuple[tuple[Aggregate, ...], ErrorBound, tuple[float, ...]], Ints] = {}

    def ascending(self, plan: WindowPlan, shares: tuple[float, ...]) -> Ints:
        """int64[shares, groups], those of a window in ascending order; see `WindowHistory.required_slack`."""
        asked = plan.aggregates, plan.bound, shares
        found = self._known.get(asked)
        if found is None:
            found = self._known[asked] = ascending(self._history.required_slack(*asked), self._history.bounds)
        return found

    @property
    def nbytes(self) -> int:
        """Size in memory of the rows."""
        return self._history.nbytes


def _places(numbers: Ints, spans: Sequence[Span]) -> dict[Span, tuple[int, int]]:
    """By window where the first of the ascending numbers is that is its, and the first behind these."""
    bounds = np.searchsorted(numbers, np.arange(len(spans) + 1)).tolist()
    return dict(zip(spans, pairwise(bounds), strict=True))


class _Merged(Protocol):
    @property
    def nbytes(self) -> int: ...


_Kind = TypeVar("_Kind", bound=_Merged)
_Window = TypeVar("_Window")


class KnownWindows(Generic[_Kind]):
    """Merges windows, and knows the last ones.

    Args:
        size: gives the bytes of the panes that a window holds.
        merge: merges some windows, each of which holds rows.
    """

    def __init__(self, size: Callable[[Span], int], merge: Callable[[Sequence[Span]], _Kind]) -> None:
        self._size = size
        self._merge = merge
        self._known: dict[Span, _Kind] = {}

    def forget(self) -> None:
        """The panes change."""
        self._known.clear()

    def of(self, spans: Sequence[Span]) -> Iterator[tuple[_Kind, list[Span]]]:
        """What some windows are merged in, in their order, each with those of them."""
        for is_known, own in groupby(spans, self._known.__contains__):
            if is_known:
                for merged, alike in groupby(own, self._known.__getitem__):
                    yield merged, list(alike)
            else:
                yield from self._merged(list(own))

    def prepare(self, spans: Collection[Span]) -> None:
        """Merges windows that are about to be asked for together, if they hold little."""
        missing = sorted(set(spans) - self._known.keys())
        if len(missing) > 1 and sum(map(self._size, missing)) <= _TOGETHER_BYTES:
            self._known.update(dict.fromkeys(missing, self._merge(missing)))

    def _merged(self, spans: Sequence[Span]) -> Iterator[tuple[_Kind, list[Span]]]:
        several = portions(spans, self._size)
        first, second = next(several), next(several, None)
        merged = self._merge(first)
        if second is None and merged.nbytes <= _KEPT_BYTES:
            self._known.update(dict.fromkeys(first, merged))
        yield merged, first
        for portion in chain([] if second is None else [second], several):
            yield self._merge(portion), portion


def in_blocks(windows: Iterable[tuple[int, pa.Table]]) -> Iterator[dict[int, pa.Table]]:
    """The rows of windows by their ends, of some windows at a time."""
    block: dict[int, pa.Table] = {}
    held = 0
    for end, rows in windows:
        block[end] = rows
        held += rows.num_rows
        if held >= _BLOCK_ROWS:
            yield block
            block, held = {}, 0
    if block:
        yield block


def portions(windows: Sequence[_Window], size: Callable[[_Window], int]) -> Iterator[list[_Window]]:
    """Some windows at a time, of which all panes together are not large, or one of which they are.

    Args:
        windows: in the order in which they are given.
        size: gives the bytes of the panes that a window holds.
    """
    held: list[_Window] = []
    total = 0
    for window in windows:
        more = size(window)
        if held and total + more > _PORTION_BYTES:
            yield held
            held, total = [], 0
        held.append(window)
        total += more
    if held:
        yield held
