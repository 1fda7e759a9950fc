"""Partials of random pieces of some tuples, merged in random order."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.operators.windows.aggregates import Parts


def merged_pieces(parts: Parts, tuples: pa.Table, rng: np.random.Generator) -> pa.Table:
    """The partials of the groups by column `k`, which are one piece's or were merged at random.

    Args:
        parts: what is kept of a group.
        tuples: at least one.
        rng: draws the pieces and the order.
    """
    order = rng.permutation(tuples.num_rows)
    ends = np.sort(rng.integers(0, tuples.num_rows + 1, int(rng.integers(0, 4))))
    pieces = [own for own in np.split(order, ends) if len(own)]
    partials = [parts.lift(tuples.take(pa.array(own)), ["k"]) for own in pieces]
    while len(partials) > 1:
        joined = parts.merge(pa.concat_tables([partials.pop(), partials.pop()]), ["k"])
        partials.insert(int(rng.integers(0, len(partials) + 1)), joined)
    return partials[0]
