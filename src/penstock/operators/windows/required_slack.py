"""The slack each answer would have needed: what a final window tells of its bound.

A slack of K answers a window when t_max passes end + K, from the tuples with arrival < end + K. Once
all its tuples are known, the error of every such answer is too. The *required slack* of a group is the
least K >= 0 from which on the error stays below epsilon; it takes in lateness, sample size, variance
and any dependence of the values on lateness, for whatever aggregates the view has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.kernels.compiled import filling
from penstock.kernels.segments import extremes_before, percentiles_before, sums_before
from penstock.operators.windows.aggregates import (
    ROWS,
    VALUE,
    count_of,
    extreme_of,
    sum_of,
)
from penstock.operators.windows.flattening import flattened
from penstock.operators.windows.grouping import BITWISE, group_codes, shared_codes, without_nulls
from penstock.operators.windows.moments import Moments
from penstock.operators.windows.of_values import KEEPING_VALUES
from penstock.operators.windows.picks import Pick
from penstock.operators.windows.sketches import Sketch, running
from penstock.plan.windows import Aggregate, ErrorBound

#: column of t_max before the batch that brought a row, microseconds
ARRIVAL = "arrival"
#: column of a window's end, microseconds
END = "end"
_NEVER = np.iinfo(np.int64).min

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
#: a running value before each row, and the whole of its group
_BeforeAndWhole = tuple[Floats, Floats]


class WindowHistory:
    """Windows by group and arrival: what an answer of each group would have been at any time.

    Args:
        partials: rows by (END, keys, arrival), those of a window together, at least one.
        values: the like for kept values, by argument, in any order.
        keys: the grouping columns, END the first of them.
        ends: int64[windows], where END is the number of a window, the end of each; None: END is the end.

    Attributes:
        bounds: int64[windows + 1], first group of each window, and the end. Groups are numbered in order of their
            first occurrence.
    """

    def __init__(
        self,
        partials: pa.Table,
        values: Mapping[str, pa.Table],
        keys: Sequence[str],
        ends: Ints | None = None,
    ) -> None:
        self.partials, self.values, self.keys = partials, values, keys
        codes = group_codes(partials, keys)
        arrivals = partials.column(ARRIVAL).to_numpy()
        # rows of a group lie together, in order of arrival; before row i an answer consists of the rows before it
        self._order = np.lexsort((arrivals, codes))
        self._codes, self._arrivals = codes[self._order], arrivals[self._order]
        groups = int(codes.max(initial=-1)) + 1
        self._segments = np.searchsorted(self._codes, np.arange(groups + 1))
        windows = self.of_groups(END)
        self.bounds = np.append(np.flatnonzero(np.append(True, np.diff(windows) != 0)), groups)
        self._ends = windows if ends is None else ends[windows]
        # several views look at one history
        self._known_sums: dict[str, _BeforeAndWhole] = {}
        self._known_values: dict[str, _ValueHistory] = {}

    def of_groups(self, column: str) -> Ints:
        """int64[groups]: a column that is the same in all rows of a group."""
        numbers: Ints = self.partials.column(column).to_numpy()[self._order][self._segments[:-1]]
        return numbers

    @property
    def nbytes(self) -> int:
        """Size in memory of the rows."""
        return int(self.partials.nbytes + sum(table.nbytes for table in self.values.values()))

    def required_slack(
        self, aggregates: Sequence[Aggregate], bound: ErrorBound, shares: Sequence[float] = (1.0,)
    ) -> Ints:
        """The required slack of each group of each window.

        Args:
            aggregates: a view's; the largest of their required slacks counts.
            bound: epsilon, relative or absolute.
            shares: of epsilon, one for each answer.

        Returns:
            int64[shares, groups], microseconds.
        """
        needed = np.full((len(shares), len(self._ends)), _NEVER)
        for aggregate in aggregates:
            if aggregate.function in KEEPING_VALUES and aggregate.argument is not None:
                own = self._values_of(aggregate.argument)
                if own is None:
                    continue
                errors = own.errors(aggregate, bound)
                codes, arrivals = own.codes, own.arrivals
            else:
                errors = _errors(aggregate, bound, *self._running(aggregate))
                codes, arrivals = self._codes, self._arrivals
            limits = [bound.epsilon * share for share in shares]
            needed = np.maximum(needed, _last_violations(errors, limits, codes, arrivals, len(self._ends)))
        return np.maximum(np.where(needed == _NEVER, 0, needed - self._ends + 1), 0)

    def _running(self, aggregate: Aggregate) -> tuple[Floats, Floats]:
        """The aggregate before each row and in the end; NaN for NULL and for a group not yet seen."""
        name = aggregate.argument
        if name is None:
            early, final = self._sums(ROWS)
            return np.where(early > 0, early, np.nan), final
        match aggregate.function:
            case "count":
                return self._sums(count_of(name))
            case "min" | "max":
                column = self.partials.column(extreme_of(aggregate.function, name))
                numbers = _comparable(column, aggregate.type)[self._order]
                return extremes_before(numbers, self._segments, aggregate.function == "min")
            case "max_by" | "min_by":
                return self._running_pick(Pick.of(aggregate))
            case "sum" | "avg":
                (early, every), (so_far, whole) = self._sums(count_of(name)), self._sums(sum_of(name))
                if aggregate.function == "sum":
                    return np.where(early > 0, so_far, np.nan), np.where(every > 0, whole, np.nan)
                with np.errstate(invalid="ignore", divide="ignore"):
                    return so_far / early, whole / every
            case "approx_count_distinct" | "approx_percentile":
                rows = np.split(self._order, self._segments[1:-1])
                return running(aggregate, self.partials.column(Sketch.of(aggregate).column), rows)
            case function if function in BITWISE:
                return self._running_bits(function, name)
            case function:
                return Moments.of(aggregate).running(function, self.partials, self._order, self._segments)

    def _running_pick(self, pick: Pick) -> _BeforeAndWhole:
        """A pick by the best rank before each row."""
        ranks = pick.ranks(self.partials)
        column = self.partials.column(pick.column)
        if pa.types.is_nested(column.type):
            parts = flattened(self.partials.select([pick.column]))
            codes = group_codes(parts, parts.column_names)
            numbers = np.where(column.is_valid().to_numpy(), codes, np.nan)
        else:
            numbers = _comparable(column, column.type)
        by_rank = np.full(len(ranks), np.nan)
        known = ~np.isnan(ranks)
        by_rank[ranks[known].astype(np.int64)] = numbers[known]
        early, final = (
            np.where(best < 0, np.nan, by_rank[np.maximum(best, 0).astype(np.int64)])
            for best in extremes_before(ranks[self._order], self._segments, False)
        )
        return early, final

    def _running_bits(self, function: str, name: str) -> _BeforeAndWhole:
        """The bits of the rows before each row; NaN where there is no number yet."""
        column, combine = self.partials.column(extreme_of(function, name)), BITWISE[function]
        bits = without_nulls(column, 0)[self._order]
        is_there = column.is_valid().to_numpy()[self._order]
        bits[~is_there] = combine.identity
        early, final = np.full(len(bits), combine.identity), np.empty(len(bits), np.int64)
        for first, end in pairwise(self._segments.tolist()):
            so_far = combine.accumulate(bits[first:end])
            early[first + 1 : end], final[first:end] = so_far[:-1], so_far[-1:]
        before, every = sums_before(is_there.astype(np.float64), self._segments)
        return np.where(before > 0, early, np.nan), np.where(every > 0, final, np.nan)

    def _values_of(self, argument: str) -> _ValueHistory | None:
        """The single values of an argument, None where there never were any."""
        if argument not in self._known_values:
            table = self.values.get(argument)
            if table is None:
                return None
            codes = shared_codes([self.partials, table], self.keys)[1]
            self._known_values[argument] = _ValueHistory(table, codes, len(self._ends))
        return self._known_values[argument]

    def _sums(self, column: str) -> _BeforeAndWhole:
        if column not in self._known_sums:
            numbers = _floats(self.partials, column)[self._order]
            self._known_sums[column] = sums_before(numbers, self._segments)
        return self._known_sums[column]


def ascending(slacks: Ints, bounds: Ints) -> Ints:
    """Slacks, int64[shares, groups], those between two bounds in ascending order."""
    window = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    return np.stack([each[np.lexsort((each, window))] for each in slacks])


@filling()
def warm_up() -> None:
    """Compiles or loads the kernels, before a process forks or is timed."""
    bounds = np.zeros(1, np.int64)
    sums_before(np.zeros(0), bounds)
    extremes_before(np.zeros(0), bounds, True)
    nothing = np.zeros(0, np.int64)
    percentiles_before(np.zeros(0), nothing, nothing, bounds, 0.5)


def _errors(aggregate: Aggregate, bound: ErrorBound, early: Floats, final: Floats) -> Floats:
    """Errors of numbers; a time or a text is right or wrong."""
    if _is_number(aggregate.type):
        return _distance(bound, early, final)
    return np.where(_same(early, final), 0.0, np.inf)


def _distance(bound: ErrorBound, early: Floats, final: Floats) -> Floats:
    """Relative or absolute error; infinite where there is no early value or it should be 0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        apart = np.abs(early - final)
        if not bound.absolute:
            apart = apart / np.abs(final)
    return np.where(_same(early, final), 0.0, np.where(np.isnan(apart), np.inf, apart))


def _same(early: Floats, final: Floats) -> npt.NDArray[np.bool_]:
    """Where both are equal, or no number."""
    same: npt.NDArray[np.bool_] = (early == final) | (np.isnan(early) & np.isnan(final))
    return same


class _ValueHistory:
    """Single values by group and arrival.

    Args:
        table: ARRIVAL, VALUE and ROWS, in any order.
        codes: the group of each row.
        groups: how many there are.
    """

    def __init__(self, table: pa.Table, codes: Ints, groups: int) -> None:
        arrivals = table.column(ARRIVAL).to_numpy()
        values = table.column(VALUE)
        self._is_number = _is_number(values.type)
        order = np.lexsort((arrivals, codes))
        self.codes, self.arrivals = codes[order], arrivals[order]
        numbers = _comparable(values, values.type)[order]
        self._counts = table.column(ROWS).to_numpy()[order]
        self._segments = np.searchsorted(self.codes, np.arange(groups + 1))
        #: the rows of each group in order of their numbers, those of one number in order of arrival
        self._ascending = np.lexsort((numbers, self.codes))
        self._numbers = numbers[self._ascending]

    def errors(self, aggregate: Aggregate, bound: ErrorBound) -> Floats:
        """The error before each row; an array, or a most frequent value that is no number, is right or wrong."""
        early, final = self.running(aggregate)
        is_number = self._is_number or aggregate.function != "mode"
        if is_number and not aggregate.function.startswith("collect"):
            return _distance(bound, early, final)
        return np.where(_same(early, final), 0.0, np.inf)

    def running(self, aggregate: Aggregate) -> _BeforeAndWhole:
        """The aggregate before each row and in the end; NaN where one of numbers has no value yet; of arrays how long they are."""
        match aggregate.function:
            case "count_distinct" | "collect_set":
                return sums_before(self._is_new(), self._segments)
            case "collect_list":
                return sums_before(self._counts.astype(np.float64), self._segments)
            case "sum_distinct" | "avg_distinct":
                return self._of_distinct(is_mean=aggregate.function == "avg_distinct")
            case "mode":
                return self._modes()
        places = np.empty_like(self._ascending)
        places[self._ascending] = np.arange(len(places))
        fraction = float(aggregate.parameter or 0.0)
        return percentiles_before(self._numbers, places, self._counts, self._segments, fraction)

    def _runs(self) -> npt.NDArray[np.bool_]:
        """bool[rows], in order of their numbers: whether a row is the first of its number and group."""
        codes, numbers = self.codes[self._ascending], self._numbers
        again = (codes[1:] == codes[:-1]) & _same(numbers[1:], numbers[:-1])
        return np.append(True, ~again)[: len(codes)]

    def _is_new(self) -> Floats:
        """1 for a row whose value its group did not have before, else 0."""
        is_new = np.zeros(len(self.codes))
        is_new[self._ascending] = self._runs()
        return is_new

    def _of_distinct(self, *, is_mean: bool) -> _BeforeAndWhole:
        """The sum or the mean of the numbers that differ; NaN where there is none yet."""
        is_new, numbers = self._is_new(), np.empty(len(self.codes))
        numbers[self._ascending] = self._numbers
        sums = sums_before(np.where(is_new > 0, numbers, 0.0), self._segments)
        counts = sums_before(is_new, self._segments)
        with np.errstate(invalid="ignore", divide="ignore"):
            early, final = (
                np.where(count > 0, total / count if is_mean else total, np.nan)
                for total, count in zip(sums, counts, strict=True)
            )
        return early, final

    def _modes(self) -> _BeforeAndWhole:
        """The least of the most frequent numbers, whose frequency grows only with a row of them; -inf where there is none yet."""
        runs = self._runs()
        rows, heads = self._counts[self._ascending], np.flatnonzero(runs)
        counts = np.cumsum(rows)
        reached = counts - np.repeat((counts - rows)[heads], np.diff(heads, append=len(runs)))
        # rows by how good a mode they make: the best one so far is it
        better = np.lexsort((np.cumsum(np.where(runs, -1, 0)), reached))
        merits = np.empty(len(runs))
        merits[self._ascending[better]] = np.arange(len(runs))
        numbers = np.append(self._numbers[better], -np.inf)
        early, final = (
            numbers[np.where(each < 0, len(runs), each).astype(np.int64)]
            for each in extremes_before(merits, self._segments, False)
        )
        return early, final


def _last_violations(
    errors: Floats, limits: Sequence[float], codes: Ints, arrivals: Ints, groups: int
) -> Ints:
    """Arrival of the last row of each group without which the error is not below a limit.

    Args:
        errors: before each row, those of a group together, in order of arrival.
        limits: of the error.
        codes, arrivals: of the rows.
        groups: how many there are.

    Returns:
        int64[limits, groups].
    """
    # rows of one arrival come together: an answer ends before the first of them
    opening = np.append(True, (np.diff(arrivals) != 0) | (np.diff(codes) != 0))[: len(codes)]
    found = np.full((len(limits), groups), _NEVER)
    for own, limit in zip(found, limits, strict=True):
        violated = np.flatnonzero(opening & ~(errors < limit))
        own[codes[violated]] = arrivals[violated]
    return found


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind))


def _floats(table: pa.Table, name: str) -> Floats:
    return without_nulls(table.column(name).cast(pa.float64()), 0.0)


def _comparable(column: pa.ChunkedArray, kind: pa.DataType) -> Floats:
    """Numbers in the order of values of any type, their own where they are numbers; NaN for NULL."""
    missing = column.is_null().to_numpy()
    if pa.types.is_floating(kind) and pa.types.is_integer(column.type):
        bits = without_nulls(column, 0)
        numbers = np.where(bits < 0, bits ^ (2**63 - 1), bits).view(np.float64)
        numbers = np.where(np.isnan(numbers), np.inf, numbers)
    elif pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        numbers = without_nulls(column, 0).astype(np.float64)
    elif pa.types.is_decimal(column.type):
        numbers = without_nulls(column.cast(pa.float64()), 0.0)
    else:
        numbers = pc.rank(column, tiebreaker="dense").to_numpy().astype(np.float64)
    return np.where(missing, np.nan, numbers)
