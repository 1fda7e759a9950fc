"""Partials of grouping sets, made of those of the groups of all keys.

The groups of a set are those of any larger set, put together by the keys that are left. So tuples are aggregated once, by all keys, and
each set is made of the smallest larger one that is there already. Source: Agarwal et al., "On the computation of multidimensional
aggregates", VLDB 1996 (smallest parent).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from penstock.operators.windows.content import Content
from penstock.plan.windows import GroupingSet


def by_sets(
    groups: Content,
    sets: Sequence[GroupingSet],
    keys: Sequence[str],
    set_key: str,
    merged: Callable[[Content, Sequence[str]], Content],
) -> Content:
    """The groups of grouping sets.

    Args:
        groups: those of all keys: columns that every set has, then the keys, then the rest; a row for each group.
        sets: at least one.
        keys: names of the keys.
        set_key: the name of the grouping ID.
        merged: gives a row for each group of a content that has some of the keys.

    Returns:
        The rows of all sets: keys that are not in the set are NULL, and the grouping ID is behind the keys.
    """
    made = {tuple(range(len(keys))): groups}
    for each in sorted(sets, key=lambda own: -len(own.keys)):
        if each.keys not in made:
            larger = (own for own in made if set(each.keys) < set(own))
            parent = min(larger, key=lambda own: made[own].partials.num_rows)
            left = [keys[number] for number in each.keys]
            dropped = [keys[number] for number in parent if number not in each.keys]
            made[each.keys] = merged(_without(made[parent], dropped), left)
    parts = [_labelled(made[each.keys], each, groups, keys, set_key) for each in sets]
    return Content(
        pa.concat_tables([part.partials for part in parts]),
        {name: pa.concat_tables([part.values[name] for part in parts]) for name in groups.values},
    )


def _without(groups: Content, dropped: Sequence[str]) -> Content:
    return _each(groups, lambda table: table.drop_columns(list(dropped)))


def _labelled(
    groups: Content, own: GroupingSet, whole: Content, keys: Sequence[str], set_key: str
) -> Content:
    """The groups of a set with all keys and the grouping ID."""
    kinds = {name: whole.partials.schema.field(name).type for name in keys}

    def labelled(table: pa.Table) -> pa.Table:
        first = whole.partials.schema.get_field_index(keys[0])
        for number, name in enumerate(keys):
            if number not in own.keys:
                table = table.add_column(first + number, name, pa.nulls(table.num_rows, kinds[name]))
        return table.add_column(first + len(keys), set_key, pa.array(np.full(table.num_rows, own.id)))

    return _each(groups, labelled)


def _each(groups: Content, change: Callable[[pa.Table], pa.Table]) -> Content:
    return Content(change(groups.partials), {name: change(table) for name, table in groups.values.items()})
