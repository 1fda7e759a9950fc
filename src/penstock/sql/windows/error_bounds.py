"""Error bounds among the columns of a window view whose windows may be answered by samples."""

from __future__ import annotations

import re
from dataclasses import replace

import pyarrow as pa

from penstock.errors import UnsupportedError
from penstock.plan.names import free_name
from penstock.plan.windows import ERROR_BOUND, Aggregate
from penstock.sql.windows.bind import BoundOutput, BoundWindow
from penstock.sql.windows.query import WindowQuery

_BOUNDED = frozenset({"count", "sum", "avg", "percentile", "approx_percentile"})
_ALLOWED = (
    "LOSS(k, m, 'approximate') allows COUNT, SUM, AVG, MEDIAN, PERCENTILE and APPROX_PERCENTILE of numbers"
)
_VALUE = re.compile(r"_a(\d+)")


def with_error_bounds(query: WindowQuery, window: BoundWindow) -> BoundWindow:
    """Adds to a view a column `<name>_bound` for each aggregate among its outputs.

    In its plan the bounds follow all aggregates, one for each, in the same order.

    Args:
        query: the view, flattened.
        window: as it is bound without bounds.

    Raises:
        UnsupportedError: no error can be stated for what it computes; names and underlines it.
    """
    aggregates = window.plan.aggregates
    for call in query.aggregates:
        if call.is_users or call.function not in _BOUNDED:
            message = f"The error of this aggregate has no bound when tuples are sampled. {_ALLOWED}."
            raise call.clause.error(UnsupportedError, message)
    for call, aggregate in zip(query.aggregates, aggregates, strict=True):
        if not _is_number(aggregate.type):
            raise call.clause.error(UnsupportedError, f"An error bound needs a number. {_ALLOWED}.")
    if query.having:
        place = query.having[0].clause
        message = "LOSS(k, m, 'approximate') allows no condition on groups: estimates would decide which groups are kept. Compare the values where you read the results."
        raise place.error(UnsupportedError, message)
    outputs, taken = list(window.outputs), {output.name for output in window.outputs}
    for written, output in zip(query.outputs, window.outputs, strict=True):
        value = _VALUE.fullmatch(output.expression)
        if value is None and _VALUE.search(output.expression):
            message = "The error of a value that is computed from aggregates has no bound. Select the aggregates themselves."
            raise written.clause.error(UnsupportedError, message)
        if value is not None:
            name = free_name(f"{output.name}_bound", taken)
            taken.add(name)
            number = len(aggregates) + int(value[1])
            outputs.append(BoundOutput(f"_a{number}", name, pa.float64()))
    bounds = (Aggregate(ERROR_BOUND, None, pa.float64()),) * len(aggregates)
    plan = replace(window.plan, aggregates=aggregates + bounds)
    return replace(window, plan=plan, outputs=tuple(outputs))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
