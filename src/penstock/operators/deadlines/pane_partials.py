"""Partials by pane that orders of a view keep: a window is merged from those of its panes, and only tuples that came since are read.

Source: Wu, Gu, Lyu, Yu, formula 2, for aggregates whose partials merge. Nothing is subtracted: panes that have expired are left out,
so a sum of floating-point values is as exact as that of all tuples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from penstock.operators.deadlines.instances import Extent, Mask, Tuples
from penstock.operators.hashing import canonical_columns
from penstock.operators.windows.aggregates import Parts, lift_values
from penstock.operators.windows.content import Content, together
from penstock.operators.windows.panes import PANE
from penstock.plan.deadlines import WindowWork
from penstock.plan.times import LATEST
from penstock.plan.windows import WindowPlan

#: rows of one group and pane are merged when there are twice as many as after the last time, and so many more
_LOOSE_ROWS = 256


@dataclass(frozen=True, slots=True, eq=False)
class PanePartials:
    """Partials of a view's tuples by pane and group.

    Attributes:
        after, until: of the tuples that came with the log entries behind one and up to another,
        oldest: of those with event times from here on, microseconds.
        content: PANE and keys, and the columns of the parts; of a group and pane one row or several.
        settled: how many rows there were when they were last merged.
    """

    after: int
    until: int
    oldest: int
    content: Content
    settled: int

    def serves(self, extent: Extent, after: int) -> bool:
        """Whether a window can be worked out from these and the tuples that came since.

        Args:
            extent: of the window.
            after: the entries up to it have no tuples from the window's start on.
        """
        return self.after <= after and self.oldest <= extent.start and self.until < extent.entries


@dataclass(frozen=True, slots=True, eq=False)
class MergedWindow:
    """A window as partials: views that differ in nothing but their aggregates make their rows of it.

    Attributes:
        content: a row for each group.
        work: what it was merged from.
        adding_seconds: what the new tuples took.
    """

    content: Content
    work: WindowWork
    adding_seconds: float


def since(extent: Extent) -> Extent:
    """The tuples that partials from the start of a window on stand for."""
    return replace(extent, end=LATEST + 1)


def from_panes(
    window: WindowPlan,
    keys: Sequence[str],
    extent: Extent,
    tuples: Tuples,
    after: int,
    kept: PanePartials | None,
    clock: Callable[[], float],
) -> tuple[MergedWindow, PanePartials]:
    """Merges a window with built-in aggregates.

    Args:
        window: the view, or several that differ in nothing but their aggregates, with those of all.
        keys: the grouping columns of the tuples, at least one.
        extent: of the window.
        tuples: at least those of `since(extent)` that came after what is kept.
        after: the entries up to it have no tuples from the window's start on.
        kept: partials that serve it; None: there are none.
        clock: seconds.

    Returns:
        The window, and the partials that serve later ones.
    """
    began = clock()
    parts, groups = Parts.of(window.aggregates), [PANE, *keys]
    is_new = since(extent).holds(tuples)
    if kept is not None:
        is_new &= tuples.entries > kept.until
    new = int(is_new.sum())
    pieces = []
    settled = 0
    if kept is not None:
        pieces.append(_between(kept.content, extent.start, LATEST))
        settled = kept.settled
    if new or kept is None:
        pieces.append(lifted(window, keys, tuples, is_new))
    content = _joined(pieces)
    if _rows(content) > 2 * settled + _LOOSE_ROWS:
        content = content.merged(parts, groups).in_one()
        settled = _rows(content)
    adding = clock() - began
    own = _between(content, extent.start, extent.end).merged(parts, keys)
    found = MergedWindow(own, WindowWork(new, 0, carried=kept is not None), adding)
    after = after if kept is None else kept.after
    return found, PanePartials(after, extent.entries - 1, extent.start, content, settled)


def lifted(
    window: WindowPlan, keys: Sequence[str], tuples: Tuples, is_meant: Mask, *, by_pane: bool = True
) -> Content:
    """Partials of some tuples by pane and group, or by group alone.

    Args:
        window: the view.
        keys: the grouping columns, at least one.
        tuples: with the columns of the view.
        is_meant: bool[n], which of them.
        by_pane: whether those of each pane are apart.
    """
    parts = Parts.of(window.aggregates)
    held = tuples.columns.filter(pa.array(is_meant))
    groups = list(keys)
    if by_pane:
        held = held.append_column(PANE, pa.array(window.windows.panes_of(tuples.times[is_meant])))
        groups = [PANE, *keys]
    held = canonical_columns(held, (*keys, *parts.values))
    values = {name: lift_values(held, groups, name) for name in parts.values}
    return Content(parts.lift(held, groups), values)


def merged_panes(
    window: WindowPlan, keys: Sequence[str], extent: Extent, pieces: Sequence[Content], after: int
) -> tuple[Content, PanePartials]:
    """Merges partials by pane that parts of the tuples were lifted to; see `from_panes`.

    Args:
        window, keys, extent: as there.
        pieces: of disjoint parts of the tuples of `since(extent)`, at least one.
        after: as there.

    Returns:
        The window, a row for each group, and the partials that serve later ones.
    """
    parts = Parts.of(window.aggregates)
    content = together(pieces).merged(parts, [PANE, *keys]).in_one()
    own = _between(content, extent.start, extent.end).merged(parts, keys)
    return own, PanePartials(after, extent.entries - 1, extent.start, content, _rows(content))


def _rows(content: Content) -> int:
    return int(content.partials.num_rows + sum(each.num_rows for each in content.values.values()))


def _joined(pieces: Sequence[Content]) -> Content:
    if len(pieces) == 1:
        return pieces[0]
    names = pieces[0].values
    values = {name: pa.concat_tables([each.values[name] for each in pieces]) for name in names}
    return Content(pa.concat_tables([each.partials for each in pieces]), values)


def _between(content: Content, start: int, end: int) -> Content:
    """The rows of the panes of a stretch of time, [start, end)."""

    def own(table: pa.Table) -> pa.Table:
        panes = table.column(PANE).to_numpy()
        is_own = (panes >= start) & (panes < end)
        return table if is_own.all() else table.filter(pa.array(is_own))

    return Content(own(content.partials), {name: own(table) for name, table in content.values.items()})
