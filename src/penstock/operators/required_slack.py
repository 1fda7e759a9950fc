"""The slack each answer would have needed: what a final window tells of its bound.

A slack of K answers a window when t_max passes end + K, from the tuples with arrival < end + K. Once
all its tuples are known, the error of every such answer is too. The *required slack* of a group is the
least K >= 0 from which on the error stays below epsilon; it takes in lateness, sample size, variance
and any dependence of the values on lateness, for whatever aggregates the view has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.operators.aggregates import (
    KEEPING_VALUES,
    ROWS,
    VALUE,
    count_of,
    extreme_of,
    group_codes,
    mean_of,
    shared_codes,
    squares_of,
    sum_of,
)
from penstock.operators.sketches import Sketch, running
from penstock.plan.windows import Aggregate, ErrorBound

#: column of t_max before the batch that brought a row, microseconds
ARRIVAL = "arrival"

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def required_slack(
    aggregates: Sequence[Aggregate],
    bound: ErrorBound,
    partials: pa.Table,
    values: dict[str, pa.Table],
    keys: Sequence[str],
    end: int,
) -> Ints:
    """The required slack of each group of a window.

    Args:
        aggregates: the view's; the largest of their required slacks counts.
        bound: epsilon, relative or absolute.
        partials: rows by (keys, arrival), at least one.
        values: the like for kept values, by argument.
        keys: the grouping columns.
        end: the window's end, microseconds.

    Returns:
        int64[groups], microseconds, in the groups' order of first occurrence in `partials`.
    """
    codes = group_codes(partials, keys)
    steps = _Steps(codes, partials.column(ARRIVAL).to_numpy())
    needed = np.full(steps.groups, np.iinfo(np.int64).min)
    for aggregate in aggregates:
        if aggregate.function in KEEPING_VALUES and aggregate.argument is not None:
            table = values.get(aggregate.argument)
            if table is None:
                continue
            _, own = shared_codes([partials, table], keys)
            slack = _of_values(aggregate, bound, table, own, steps.groups)
        else:
            errors = _errors(aggregate, bound, *_running(aggregate, partials, steps))
            slack = steps.last_violation(errors, bound.epsilon)
        needed = np.maximum(needed, slack)
    return np.maximum(np.where(needed == np.iinfo(np.int64).min, 0, needed - end + 1), 0)


class _Steps:
    """Rows in the order of group and arrival; a step is what one more row would have brought.

    Before row i of its group an answer consists of the group's rows 0 .. i - 1.
    """

    def __init__(self, codes: Ints, arrivals: Ints) -> None:
        self.groups_of_rows = codes
        self.order = np.lexsort((arrivals, codes))
        self.codes = codes[self.order]
        self.arrivals = arrivals[self.order]
        self.groups = int(codes.max(initial=-1)) + 1
        self.first = np.searchsorted(self.codes, np.arange(self.groups))
        self.last = np.append(self.first[1:], len(codes)) - 1

    def before(self, amounts: Floats) -> tuple[Floats, Floats]:
        """Sums of the group's earlier rows, for each row, and the group's total, for each row.

        Each group is summed by itself: one group's NaN or large values say nothing of another.
        """
        amounts = amounts[self.order]
        before, final = np.empty(len(amounts)), np.empty(self.groups)
        for group in range(self.groups):
            own = slice(self.first[group], self.last[group] + 1)
            reached = np.cumsum(amounts[own])
            before[own] = np.append(0.0, reached[:-1])
            final[group] = reached[-1]
        return before, final[self.codes]

    def extreme_before(self, numbers: Floats, least: bool) -> tuple[Floats, Floats]:
        """The like for the least or largest; the identity where there are no earlier rows."""
        accumulate = np.fmin.accumulate if least else np.fmax.accumulate
        numbers = numbers[self.order]
        identity = np.inf if least else -np.inf
        before, final = np.empty(len(numbers)), np.empty(self.groups)
        for group in range(self.groups):
            own = slice(self.first[group], self.last[group] + 1)
            reached = accumulate(numbers[own])
            before[own] = np.append(identity, reached[:-1])
            final[group] = reached[-1]
        return before, final[self.codes]

    def last_violation(self, errors: Floats, epsilon: float) -> Ints:
        """Arrival of the last row of each group without which the error is not below epsilon."""
        # rows of one arrival come together: an answer ends before the first of them
        opening = np.append(True, (np.diff(self.arrivals) != 0) | (np.diff(self.codes) != 0))
        violated = np.flatnonzero(opening & ~(errors < epsilon))
        found = np.full(self.groups, np.iinfo(np.int64).min)
        found[self.codes[violated]] = self.arrivals[violated]
        return found


def _errors(aggregate: Aggregate, bound: ErrorBound, early: Floats, final: Floats) -> Floats:
    """Errors of numbers; a time or a text is right or wrong."""
    kind = aggregate.type
    if pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return _distance(bound, early, final)
    return np.where(early == final, 0.0, np.inf)


def _distance(bound: ErrorBound, early: Floats, final: Floats) -> Floats:
    """Relative or absolute error; infinite where there is no early value or it should be 0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        apart = np.abs(early - final)
        if not bound.absolute:
            apart = apart / np.abs(final)
    same = (early == final) | (np.isnan(early) & np.isnan(final))
    return np.where(same, 0.0, np.where(np.isnan(apart), np.inf, apart))


def _running(aggregate: Aggregate, partials: pa.Table, steps: _Steps) -> tuple[Floats, Floats]:
    """The aggregate before each step and in the end; NaN for NULL and for a group not yet seen."""
    name = aggregate.argument
    if name is None:
        early, final = steps.before(_floats(partials, ROWS))
        return np.where(early > 0, early, np.nan), final
    match aggregate.function:
        case "count":
            return steps.before(_floats(partials, count_of(name)))
        case "min" | "max":
            column = partials.column(extreme_of(aggregate.function, name))
            least = aggregate.function == "min"
            return steps.extreme_before(_comparable(column, aggregate.type), least)
        case "sum" | "avg":
            count, total = (_floats(partials, column) for column in (count_of(name), sum_of(name)))
            (early, every), (so_far, whole) = steps.before(count), steps.before(total)
            if aggregate.function == "sum":
                return np.where(early > 0, so_far, np.nan), np.where(every > 0, whole, np.nan)
            with np.errstate(invalid="ignore", divide="ignore"):
                return so_far / early, whole / every
        case "approx_count_distinct" | "approx_percentile":
            rows = [
                steps.order[first : last + 1] for first, last in zip(steps.first, steps.last, strict=True)
            ]
            return running(aggregate, partials.column(Sketch.of(aggregate).column), rows)
        case _:
            return _running_deviation(aggregate, name, partials, steps)


def _running_deviation(
    aggregate: Aggregate, name: str, partials: pa.Table, steps: _Steps
) -> tuple[Floats, Floats]:
    count, mean, squares = (
        _floats(partials, column) for column in (count_of(name), mean_of(name), squares_of(name))
    )
    # centred on each group's first mean, so that squares of far values do not cancel
    moved = mean - mean[steps.order][steps.first][steps.groups_of_rows]
    pairs = [steps.before(part) for part in (count, count * moved, squares + count * moved**2)]
    found = []
    for number in (0, 1):
        n, first, second = (pair[number] for pair in pairs)
        with np.errstate(invalid="ignore", divide="ignore"):
            divisor = n - 1 if aggregate.function.endswith("samp") else n
            variance = np.maximum(second - first**2 / n, 0) / np.where(divisor > 0, divisor, np.nan)
        found.append(np.sqrt(variance) if aggregate.function.startswith("stddev") else variance)
    return found[0], found[1]


def _of_values(aggregate: Aggregate, bound: ErrorBound, table: pa.Table, codes: Ints, groups: int) -> Ints:
    """Arrival of the last row that an answer from single values could not do without."""
    found = np.full(groups, np.iinfo(np.int64).min)
    arrivals = table.column(ARRIVAL).to_numpy()
    values = table.column(VALUE)
    numbers = _comparable(values, values.type)
    counts = table.column(ROWS).to_numpy()
    for group in np.unique(codes).tolist():
        own = np.flatnonzero(codes == group)
        answer = _evaluator(aggregate, numbers[own], counts[own])
        final = answer(np.ones(len(own), np.bool_))
        for arrival in np.unique(arrivals[own])[::-1].tolist():
            early = answer(arrivals[own] < arrival)
            if not _distance(bound, np.array([early]), np.array([final]))[0] < bound.epsilon:
                found[group] = arrival
                break
    return found


def _evaluator(
    aggregate: Aggregate, numbers: Floats, counts: Ints
) -> Callable[[npt.NDArray[np.bool_]], float]:
    if aggregate.function == "count_distinct":
        return lambda known: float(len(np.unique(numbers[known])))
    fraction = aggregate.parameter or 0.0

    def percentile(known: npt.NDArray[np.bool_]) -> float:
        values = np.repeat(numbers[known], counts[known])
        return float(np.quantile(values, fraction)) if len(values) else np.nan

    return percentile


def _floats(table: pa.Table, name: str) -> Floats:
    column = table.column(name).cast(pa.float64())
    numbers: Floats = pc.fill_null(column, 0.0).to_numpy()
    return numbers


def _comparable(column: pa.ChunkedArray, kind: pa.DataType) -> Floats:
    """Numbers in the order of values of any type, their own where they are numbers; NaN for NULL."""
    missing = column.is_null().to_numpy()
    if pa.types.is_floating(kind) and pa.types.is_integer(column.type):
        bits = pc.fill_null(column, 0).to_numpy()
        numbers = np.where(bits < 0, bits ^ (2**63 - 1), bits).view(np.float64)
        numbers = np.where(np.isnan(numbers), np.inf, numbers)
    elif pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        numbers = pc.fill_null(column, 0).to_numpy().astype(np.float64)
    elif pa.types.is_decimal(column.type):
        numbers = pc.fill_null(column.cast(pa.float64()), 0.0).to_numpy()
    else:
        numbers = pc.rank(column, tiebreaker="dense").to_numpy().astype(np.float64)
    return np.where(missing, np.nan, numbers)
