"""Which keys make a join put out far more rows than tuples came: told to the user, who alone can say whether it is meant."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from penstock.operators.joins.tuples import RunSlice
from penstock.operators.python_values import python_values


@dataclass(frozen=True, slots=True)
class HotKey:
    """The most frequent key of some tuples.

    Attributes:
        columns: the key's columns.
        values: its values, as text.
        tuples: so many tuples have it.
        of: among so many.
    """

    columns: tuple[str, ...]
    values: tuple[str, ...]
    tuples: int
    of: int


def hottest(slices: Iterable[RunSlice]) -> HotKey | None:
    """The key that most tuples of some sorted runs have in one part; None where no run has a key.

    Equal keys lie beside each other, so a part is read once. Different keys with one hash count as one. Rows of other entries in merged
    runs count too.
    """
    best: HotKey | None = None
    total = 0
    for each in slices:
        key = each.run.plan.key
        for number in each.run.parts if key else ():
            part = each.run.part(number)
            assert part is not None, "it is in the directory"
            total += len(part.keys)
            if not len(part.keys):
                continue
            begins = np.flatnonzero(np.r_[True, part.keys[1:] != part.keys[:-1]])
            counts = np.diff(np.r_[begins, len(part.keys)])
            if best is None or counts.max() > best.tuples:
                row = int(begins[counts.argmax()])
                values = tuple(str(*python_values(part.tuples.column(name).slice(row, 1))) for name in key)
                best = HotKey(key, values, int(counts.max()), 0)
    return None if best is None else HotKey(best.columns, best.values, best.tuples, total)
