"""A window worked out from a sample of its tuples: each aggregate with its error bound."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.operators.deadlines.error_bounds import (
    Estimates,
    Longs,
    Sampled,
    estimated_counts,
    estimated_means,
    estimated_quantiles,
    estimated_sums,
)
from penstock.operators.deadlines.instances import WorkedOut
from penstock.operators.hashing import canonical_columns
from penstock.operators.windows.grouping import first_rows, group_codes
from penstock.operators.windows.rows import OVERFLOWED
from penstock.plan.deadlines import WindowWork
from penstock.plan.windows import ERROR_BOUND, Aggregate, WindowPlan

#: decimals have up to 38 digits, those that are cut off not counted
_EXACT = Context(prec=80)
#: the interpolated quantile; the other one is a value that occurs
_INTERPOLATED = "percentile"
#: the fraction of a percentile without one: MEDIAN
_MEDIAN = 0.5


def sampled_instance(
    window: WindowPlan,
    keys: Sequence[str],
    tuples: pa.Table,
    population: int,
    clock: Callable[[], float],
) -> WorkedOut:
    """Works an instance out from a sample.

    Args:
        window: the view; of its aggregates the second half are the error bounds of the first.
        keys: the grouping columns of the tuples, at least one.
        tuples: the sample, at least one tuple.
        population: tuples of the window.
        clock: seconds.

    Returns:
        The instance, without the groups of which no tuple was drawn.
    """
    began = clock()
    sampled = Sampled(tuples.num_rows, population)
    own = canonical_columns(tuples, keys)
    codes = group_codes(own, keys)
    groups = own.select(list(keys)).take(pa.array(first_rows(codes)))
    sample = _Sample(tuples, codes, groups.num_rows, sampled)
    exact = [each for each in window.aggregates if each.function != ERROR_BOUND]
    estimates = [sample.estimates(each, is_whole=not window.keys) for each in exact]
    grouped = clock()
    absent = [sample.absent(each) for each in exact]
    values = [
        _typed(*each) for each in zip((found.values for found in estimates), absent, exact, strict=True)
    ]
    bounds = [pa.array(each.bounds, mask=np.isnan(each.bounds)) for each in estimates]
    columns = {f"_a{number}": column for number, column in enumerate([*values, *bounds])}
    lost = np.zeros(groups.num_rows, np.bool_)
    for column, nothing in zip(values, absent, strict=True):
        lost |= column.is_null().to_numpy(zero_copy_only=False) & ~nothing
    rows = pa.table(
        {**{name: groups.column(name) for name in keys}, **columns, OVERFLOWED: lost}
    ).combine_chunks()
    work = WindowWork(tuples.num_rows, 0, carried=False)
    return WorkedOut(rows, work, grouped - began, 0.0, clock() - grouped)


@dataclass(frozen=True, slots=True)
class _Sample:
    """The tuples that were drawn, and the number of the group of each."""

    tuples: pa.Table
    groups: Longs
    count: int
    sampled: Sampled

    def absent(self, aggregate: Aggregate) -> npt.NDArray[np.bool_]:
        """Of each group whether its aggregate is NULL: no value of it was drawn."""
        if aggregate.argument is None or aggregate.function == "count":
            return np.zeros(self.count, np.bool_)
        is_known = self.tuples.column(aggregate.argument).is_valid().to_numpy()
        nothing: npt.NDArray[np.bool_] = np.bincount(self.groups[is_known], minlength=self.count) == 0
        return nothing

    def estimates(self, aggregate: Aggregate, *, is_whole: bool) -> Estimates:
        """An aggregate of each group; `is_whole`: there is one group, of all tuples."""
        if aggregate.argument is None:
            counts = np.bincount(self.groups, minlength=self.count)
            found = estimated_counts(counts, self.sampled)
            return Estimates(found.values, np.zeros(self.count)) if is_whole else found
        column = self.tuples.column(aggregate.argument)
        is_known = column.is_valid().to_numpy()
        groups = self.groups[is_known]
        if aggregate.function == "count":
            return estimated_counts(np.bincount(groups, minlength=self.count), self.sampled)
        values = _real(column)[is_known]
        if aggregate.function in ("sum", "avg"):
            estimated = estimated_sums if aggregate.function == "sum" else estimated_means
            return estimated(groups, values, self.count, self.sampled)
        fraction = _MEDIAN if aggregate.parameter is None else aggregate.parameter
        is_interpolated = aggregate.function == _INTERPOLATED
        return estimated_quantiles(
            groups, values, self.count, fraction, self.sampled, interpolated=is_interpolated
        )


def _real(column: pa.ChunkedArray) -> npt.NDArray[np.float64]:
    """Numbers as float64, NULL as NaN."""
    return np.asarray(column.cast(pa.float64(), safe=False).to_numpy(), np.float64)


def _typed(values: npt.NDArray[np.float64], absent: npt.NDArray[np.bool_], aggregate: Aggregate) -> pa.Array:
    """Estimates as the type of the aggregate; NULL where there is none, and where it does not fit."""
    kind = aggregate.type
    if pa.types.is_floating(kind):
        return pa.array(values, mask=absent).cast(kind)
    if pa.types.is_decimal(kind):
        step, most = Decimal(1).scaleb(-kind.scale), Decimal(10) ** (kind.precision - kind.scale)
        decimals: list[Any] = [
            None if gone else Decimal(value) for value, gone in zip(values.tolist(), absent, strict=True)
        ]
        fitting = [
            None if each is None or abs(each) >= most else each.quantize(step, context=_EXACT)
            for each in decimals
        ]
        return pa.array(fitting, kind)
    # the largest float64 below 2^63 is 1,024 less
    fits = ~absent & (np.abs(values) < 2.0**63)
    whole = pa.array(np.rint(np.where(fits, values, 0)).astype(np.int64), mask=~fits)
    return pc.cast(whole, kind, safe=False)
