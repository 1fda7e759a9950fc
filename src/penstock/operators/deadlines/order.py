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
from penstock.operators.deadlines.pane_partials import MergedWindow, PanePartials, from_panes
from penstock.operators.deadlines.sampled_order import sampled_instance
from penstock.operators.hashing import canonical_columns
from penstock.operators.windows.aggregates import Parts, lift_values
from penstock.operators.windows.content import Content
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
    parts = Parts.of(window.aggregates)
    held = tuples.columns.filter(pa.array(extent.holds(tuples)))
    held = canonical_columns(held, (*keys, *parts.values))
    values = {name: lift_values(held, keys, name) for name in parts.values}
    content = Content(parts.lift(held, keys), values)
    lifted = clock()
    rows = lowered(window, content, keys)
    return WorkedOut(rows, WindowWork(held.num_rows, 0, carried=False), lifted - began, 0.0, clock() - lifted)
