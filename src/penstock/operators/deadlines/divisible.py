"""Which aggregates come out the same to the last bit, whichever way the tuples of a window are divided."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from penstock.operators.windows.moments import OF_MOMENTS
from penstock.operators.windows.sketches import SKETCHED
from penstock.plan.windows import Aggregate

#: of floating-point values their last digits depend on what is added to what
_SUMMING = frozenset({"sum", "avg", "sum_distinct", "avg_distinct"})


def are_divisible(aggregates: Iterable[Aggregate], schema: pa.Schema) -> bool:
    """Whether partials of parts of the tuples merge to exactly the values that one lift of all tuples has.

    Not so: central moments and sketches, and sums and averages of floating-point values. Collected values are ordered by value.

    Args:
        aggregates: those that are built in.
        schema: of the tuples.
    """

    def is_exact(each: Aggregate) -> bool:
        if each.function in OF_MOMENTS or each.function in SKETCHED:
            return False
        if each.argument is None or each.function not in _SUMMING:
            return True
        return not pa.types.is_floating(schema.field(each.argument).type)

    return all(map(is_exact, aggregates))
