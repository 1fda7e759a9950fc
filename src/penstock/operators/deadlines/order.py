"""What one order of a deadline view is: a window worked out for all of its groups."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from penstock.operators.deadlines.instances import (
    CalledAggregate,
    Carried,
    Extent,
    Tuples,
    WorkedOut,
    user_instance,
)
from penstock.operators.deadlines.pane_partials import (
    MergedWindow,
    PanePartials,
    from_panes,
    lifted,
    merged_panes,
    since,
)
from penstock.operators.deadlines.sampled_order import sampled_instance
from penstock.operators.windows.aggregates import Parts
from penstock.operators.windows.content import Content, together
from penstock.operators.windows.rows import OVERFLOWED, lowered
from penstock.plan.deadlines import WindowWork
from penstock.plan.windows import WindowPlan

#: the one key of views without any: the same for all tuples
_ALL = ""


@dataclass(frozen=True, slots=True)
class OrderPlan:
    """A window view as orders work it out.

    Attributes:
        window: the view, over the columns of its tuples; its aggregates are those that are built in.
        calls: the user's in place of them.

    Raises:
        ValueError: it has aggregates of both kinds.
    """

    window: WindowPlan
    calls: tuple[CalledAggregate, ...] = ()

    def __post_init__(self) -> None:
        if self.calls and self.window.aggregates:
            raise ValueError(
                f"view {self.window.name} has {len(self.window.aggregates)} built-in aggregates and {len(self.calls)} of your "
                "own: a view can have one kind only. Move one of them to another view."
            )

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a tuple that are needed, each once."""
        names = [name for name, _ in self.window.keys]
        if self.calls:
            names += [name for call in self.calls for name in call.arguments]
        else:
            names += Parts.of(self.window.aggregates).arguments
        return tuple(dict.fromkeys(names))

    @property
    def keys(self) -> list[str]:
        """The grouping columns, at least one."""
        return [name for name, _ in self.window.keys] or [_ALL]


def work_out(
    plan: OrderPlan,
    extent: Extent,
    tuples: Tuples,
    carried: Carried | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> WorkedOut:
    """Works out an instance of a window.

    Args:
        plan: the view.
        extent: of the instance.
        tuples: at least those in it and, where they are there still, those in the one that states are carried from.
        carried: states of the last processed instance, see `user_instance`; None: worked out afresh.
        clock: seconds.

    Returns:
        The instance; of one without tuples no states.

    Raises:
        AggregateFailedError: the user's code raises, or returns what does not fit; names aggregate, place and cause.
    """
    if not extent.holds(tuples).any():
        return _nothing(plan)
    keys, own = _keyed(plan, tuples)
    if not plan.calls:
        return _without_all(_built_in(plan.window, keys, extent, own, clock))
    return _without_all(user_instance(plan.calls, keys, extent, own, carried, clock))


def merge_from_panes(
    plan: OrderPlan,
    extent: Extent,
    tuples: Tuples,
    after: int,
    kept: PanePartials | None,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[MergedWindow, PanePartials]:
    """Merges a window with built-in aggregates from partials that are kept; see `from_panes`."""
    keys, own = _keyed(plan, tuples)
    return from_panes(plan.window, keys, extent, own, after, kept, clock)


def work_out_merged(
    plan: OrderPlan, merged: MergedWindow, clock: Callable[[], float] = time.perf_counter
) -> WorkedOut:
    """Works out an instance of a view from a window that was merged for its aggregates, and maybe for others."""
    began = clock()
    rows = lowered(plan.window, merged.content, plan.keys)
    found = WorkedOut(rows, merged.work, merged.adding_seconds, 0.0, clock() - began)
    return _without_all(found) if rows.num_rows else _nothing(plan)


def lift_share(plan: OrderPlan, extent: Extent, tuples: Tuples, *, by_pane: bool) -> tuple[Content, int]:
    """Lifts a part of the tuples of an instance with built-in aggregates to what `merge_shares` merges.

    Args:
        plan: the view.
        extent: of the instance.
        tuples: the part; of a lift by pane those that came after the window, too.
        by_pane: partials for later orders are made of it: tuples of `since(extent)` count.

    Returns:
        The partials, and of how many tuples they are.
    """
    keys, own = _keyed(plan, tuples)
    is_meant = (since(extent) if by_pane else extent).holds(own)
    return lifted(plan.window, keys, own, is_meant, by_pane=by_pane), int(is_meant.sum())


def merge_shares(
    plan: OrderPlan,
    extent: Extent,
    pieces: Sequence[Content],
    new: int,
    after: int | None,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[MergedWindow, PanePartials | None]:
    """Merges an instance from the partials of all parts of its tuples.

    Args:
        plan, extent: as of `lift_share`.
        pieces: of each part, at least one.
        new: tuples that they are of.
        after: the entries up to it have no tuples from the window's start on; None: the lift was not by pane.
        clock: seconds.

    Returns:
        The instance, and the partials that serve later ones if the lift was by pane.
    """
    began, kept = clock(), None
    if after is None:
        content = together(pieces).merged(Parts.of(plan.window.aggregates), plan.keys)
    else:
        content, kept = merged_panes(plan.window, plan.keys, extent, pieces, after)
    return MergedWindow(content, WindowWork(new, 0, carried=False), clock() - began), kept


def work_out_sampled(
    plan: OrderPlan,
    sample: Tuples,
    population: int,
    clock: Callable[[], float] = time.perf_counter,
) -> WorkedOut:
    """Works out an instance of a view with error bounds from a sample of its tuples; see `sampled_instance`."""
    if not len(sample.times):
        return _nothing(plan)
    keys, own = _keyed(plan, sample)
    return _without_all(sampled_instance(plan.window, keys, own.columns, population, clock))


def _keyed(plan: OrderPlan, tuples: Tuples) -> tuple[list[str], Tuples]:
    """The grouping columns, at least one, and tuples with these and the arguments alone."""
    columns = {name: tuples.columns.column(name) for name in plan.columns}
    if not plan.window.keys:
        columns[_ALL] = pa.array(np.zeros(len(tuples.times), np.int8))
    return plan.keys, Tuples(pa.table(columns), tuples.times, tuples.entries)


def _without_all(found: WorkedOut) -> WorkedOut:
    is_keyed = _ALL not in found.rows.column_names
    return found if is_keyed else replace(found, rows=found.rows.drop_columns([_ALL]))


def _nothing(plan: OrderPlan) -> WorkedOut:
    """An instance without tuples: it has no groups."""
    types = [call.aggregate.type for call in plan.calls] or [each.type for each in plan.window.aggregates]
    aggregates = [(f"_a{number}", kind) for number, kind in enumerate(types)]
    schema = pa.schema([*plan.window.keys, *aggregates, (OVERFLOWED, pa.bool_())])
    return WorkedOut(schema.empty_table(), WindowWork(0, 0, carried=False), 0.0, 0.0, 0.0)


def _built_in(
    window: WindowPlan, keys: Sequence[str], extent: Extent, tuples: Tuples, clock: Callable[[], float]
) -> WorkedOut:
    began = clock()
    is_held = extent.holds(tuples)
    content = lifted(window, keys, tuples, is_held, by_pane=False)
    ready = clock()
    rows = lowered(window, content, keys)
    work = WindowWork(int(is_held.sum()), 0, carried=False)
    return WorkedOut(rows, work, ready - began, 0.0, clock() - ready)
