"""The rows of a window's results: made of merged partials, and compared with what was said before."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.operators.windows.aggregates import Parts, lower, overflowed
from penstock.operators.windows.content import Content
from penstock.operators.windows.flattening import flattened
from penstock.operators.windows.grouping import shared_codes
from penstock.plan.windows import WindowPlan

#: a column of results: whether a result of the row is NULL because it does not fit its type
OVERFLOWED = "_overflowed"


def window_rows(plan: WindowPlan, parts: Parts, content: Content) -> pa.Table:
    """The results of a window: keys, `_a0`, `_a1`, ..., OVERFLOWED.

    Args:
        plan: the view.
        parts: what `content` holds, at least what the view needs.
        content: the window's tuples as partials.
    """
    keys = [name for name, _ in plan.keys]
    return lowered(plan, content.merged(parts, keys), keys)


def lowered(plan: WindowPlan, merged: Content, keys: Sequence[str], across: Sequence[str] = ()) -> pa.Table:
    """`window_rows` of a content with one row for each group.

    Args:
        plan: the view.
        merged: the content.
        keys: columns that tell groups apart.
        across: further ones, which are not in the rows.
    """
    columns: dict[str, Any] = {name: merged.partials.column(name) for name in keys}
    lost = np.zeros(merged.partials.num_rows, np.bool_)
    for number, aggregate in enumerate(plan.aggregates):
        values = merged.values.get(aggregate.argument or "")
        every = [*across, *keys]
        result = columns[f"_a{number}"] = lower(aggregate, merged.partials, values, every)
        if result.null_count:
            lost |= overflowed(aggregate, merged.partials, result, values, every)
    return pa.table({**columns, OVERFLOWED: lost})


def by_number(table: pa.Table, column: str, count: int) -> list[pa.Table]:
    """The rows of each of the numbers below `count`, without the column that has them, ascending."""
    bounds = np.searchsorted(table.column(column).to_numpy(), np.arange(count + 1)).tolist()
    rest = table.drop_columns([column])
    return [rest.slice(first, last - first) for first, last in pairwise(bounds)]


def by_touch(now: pa.Table, new: pa.Table, keys: Sequence[str]) -> tuple[pa.Table, pa.Table]:
    """The rows of the groups that got tuples, and the others; large sketches merged again may change those too."""
    own, touched = shared_codes([now, new], keys)
    mask = np.isin(own, touched)
    return now.filter(pa.array(mask)), now.filter(pa.array(~mask))


def differences(before: pa.Table, now: pa.Table, keys: Sequence[str]) -> tuple[pa.Table, pa.Table]:
    """The rows of `now` that `before` does not hold, and what that said of their groups."""
    whole = [before, now]
    if any(pa.types.is_nested(field.type) for field in now.schema):
        whole = [flattened(table) for table in whole]
    old, new = shared_codes(whole, whole[1].column_names)
    changed = now.filter(pa.array(~np.isin(new, old)))
    told, telling = shared_codes([before, changed], keys)
    return changed, before.filter(pa.array(np.isin(told, telling)))
