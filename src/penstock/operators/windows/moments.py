"""Central moments of a column, or of two: variances, skewness, kurtosis, covariances, correlation, regression.

The moments of a group are sums of powers of distances from its means. The binomial formula moves them to another point, where those of several
groups are added up. So partials merge in any order. Equal values have moments of exactly 0, as all distances are from a value of the group.

Sources: Chan, Golub, LeVeque, Updating formulae and a pairwise algorithm for computing sample variances, 1979; Pébay, Formulas for robust, one-pass
parallel computation of covariances and arbitrary-order statistical moments, 2008.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import comb

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.segments import sums_before
from penstock.operators.windows.grouping import without_nulls
from penstock.plan.windows import PAIRED, Aggregate

Floats = npt.NDArray[np.float64]
Longs = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
#: the powers of the distances from the mean of the first column and from that of the second
Powers = tuple[int, int]

_SPREAD: tuple[Powers, ...] = ((2, 0),)
_SHAPE: tuple[Powers, ...] = ((2, 0), (3, 0), (4, 0))
_PAIR: tuple[Powers, ...] = ((2, 0), (1, 1), (0, 2))
_FIRST: tuple[Powers, ...] = ((1, 0), (0, 1))
_POWERS = {
    **dict.fromkeys(("stddev_samp", "stddev_pop", "var_samp", "var_pop"), _SPREAD),
    **dict.fromkeys(("skewness", "kurtosis"), _SHAPE),
    **dict.fromkeys(PAIRED, _PAIR),
}
#: functions of central moments
OF_MOMENTS = frozenset(_POWERS)
#: column of the sum of squared distances from the mean: its name is older than the others
_SQUARES = "squares"


@dataclass(frozen=True, slots=True)
class Center:
    """Moments of several groups.

    Attributes:
        count: float64[groups], the values or pairs of each.
        means: float64[groups] of each column; any where there is no value.
        sums: float64[groups] by powers: sums of products of powers of the distances from the means; those that are missing are 0.
    """

    count: Floats
    means: tuple[Floats, ...]
    sums: Mapping[Powers, Floats]

    def about(self, apart: Sequence[Floats], powers: Iterable[Powers]) -> dict[Powers, Floats]:
        """Sums by powers of the distances from a point that lies so far below the means."""

        def shifted(amounts: Floats, first: int, second: int) -> Floats:
            for each, times in zip(apart, (first, second), strict=False):
                for _ in range(times):
                    amounts = amounts * each
            return amounts

        moved = {}
        for p, q in powers:
            total = shifted(self.count, p, q)
            for (i, j), own in self.sums.items():
                if i <= p and j <= q:
                    total = total + comb(p, i) * comb(q, j) * shifted(own, p - i, q - j)
            moved[p, q] = total
        return moved

    def united(self, cells: Longs, count: int, powers: Iterable[Powers]) -> Center:
        """The moments of each cell.

        Args:
            cells: int64[groups], the cell that each belongs to; no group is empty.
            count: of the cells.
            powers: the sums that are wanted.
        """

        def added(amounts: Floats) -> Floats:
            return np.bincount(cells, amounts, count).astype(np.float64, copy=False)

        total = added(self.count)
        means, apart = [], []
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            for own in self.means:
                origin = np.zeros(count)
                origin[cells[::-1]] = np.where(np.isfinite(own), own, 0.0)[::-1]
                distance = own - origin[cells]
                shift = added(self.count * distance) / total
                means.append(origin + shift)
                apart.append(distance - shift[cells])
            sums = {each: added(own) for each, own in self.about(apart, powers).items()}
        return Center(total, tuple(means), sums)


@dataclass(frozen=True, slots=True)
class Moments:
    """What is kept of a column, or of the tuples in which two columns are both there.

    Attributes:
        argument: the first column.
        by: the second one, if there are two.
        powers: the sums that are kept.
    """

    argument: str
    by: str | None
    powers: tuple[Powers, ...]

    @classmethod
    def of(cls, aggregate: Aggregate) -> Moments:
        """What an aggregate of `OF_MOMENTS` is computed from."""
        assert aggregate.argument is not None, "moments have an argument"
        return cls(aggregate.argument, aggregate.by, _POWERS[aggregate.function])

    def with_those_of(self, other: Moments | None) -> Moments:
        """The same columns with the sums of both."""
        return self if other is None else replace(self, powers=max(self.powers, other.powers, key=len))

    @property
    def arguments(self) -> tuple[str, ...]:
        """The columns."""
        return (self.argument,) if self.by is None else (self.argument, self.by)

    @property
    def count_column(self) -> str:
        """Name of the column of how many there are: of one argument that of its count."""
        return f"count:{self._name}"

    @property
    def mean_columns(self) -> tuple[str, ...]:
        """Names of the columns of means, float64; NULL where there is no value."""
        return tuple(
            f"{word}:{self._name}" for word, _ in zip(("mean", "mean by"), self.arguments, strict=False)
        )

    def sum_column(self, powers: Powers) -> str:
        """Name of a column of sums, float64; NULL where there is no value."""
        p, q = powers
        return f"{_SQUARES if powers == (2, 0) else f'moment{p}{q}'}:{self._name}"

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of means and sums."""
        return (*self.mean_columns, *map(self.sum_column, self.powers))

    @property
    def _name(self) -> str:
        # names of columns may have colons
        return self.argument if self.by is None else f"{len(self.by)}:{self.by}:{self.argument}"

    def lift(self, tuples: pa.Table, codes: Longs, groups: int) -> dict[str, pa.Array]:
        """The columns of each group.

        Args:
            tuples: with the arguments, which are numbers.
            codes: int64[tuples], the group of each.
            groups: how many there are.
        """
        # beyond 2^53 whole numbers are rounded, as Spark does
        every = [tuples.column(name).cast(pa.float64(), safe=False) for name in self.arguments]
        values = tuple(without_nulls(each, 0.0) for each in every)
        if any(each.null_count for each in every):
            there = np.logical_and.reduce([each.is_valid().to_numpy() for each in every])
            values, codes = tuple(each[there] for each in values), codes[there]
        alone = Center(np.ones(len(codes)), values, {})
        return self._columns(alone.united(codes, groups, self.powers))

    def merge(self, partials: pa.Table, rows: Longs, cells: Longs, count: int) -> dict[str, pa.Array]:
        """The columns of each cell.

        Args:
            partials: with the columns.
            rows, cells: int64[pairs], rows of the partials and the cell that each belongs to.
            count: of the cells.
        """
        is_there = partials.column(self.count_column).to_numpy()[rows] > 0
        own = self._read(partials, rows[is_there])
        return self._columns(own.united(cells[is_there], count, self.powers))

    def lower(self, function: str, merged: pa.Table) -> pa.Array:
        """The result of a function for each row, float64."""
        found, is_missing = _results(function, self._read(merged))
        return pa.array(found, mask=is_missing)

    def running(
        self, function: str, partials: pa.Table, order: Longs, bounds: Longs
    ) -> tuple[Floats, Floats]:
        """The result before each row of its group, and that of the whole group, both for each row; NaN for NULL.

        Args:
            function: one of `OF_MOMENTS`.
            partials: with the columns.
            order: int64[rows], those of a group together.
            bounds: int64[groups + 1], where each group begins in that order, and the end.
        """
        own = self._read(partials, order)
        first = np.repeat(bounds[:-1], np.diff(bounds))
        origin = [each[first] for each in own.means]
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            powers = (*_FIRST[: len(origin)], *self.powers)
            sums = own.about([mean - at for mean, at in zip(own.means, origin, strict=True)], powers)
            running = {each: sums_before(amounts, bounds) for each, amounts in sums.items()}
            found = []
            for side, count in enumerate(sums_before(own.count, bounds)):
                raw = {each: sides[side] for each, sides in running.items()}
                shifts = [raw[each] / count for each in _FIRST[: len(origin)]]
                means = tuple(at + shift for at, shift in zip(origin, shifts, strict=True))
                moved = Center(count, (), raw).about([-each for each in shifts], self.powers)
                # of numbers that are nearly equal the digits that are left may say less than nothing
                even = {(p, q): np.maximum(own, 0.0) for (p, q), own in moved.items() if not (p % 2 or q % 2)}
                values, is_missing = _results(function, Center(count, means, moved | even))
                found.append(np.where(is_missing, np.nan, values))
        return found[0], found[1]

    def _read(self, partials: pa.Table, rows: Longs | None = None) -> Center:
        own = slice(None) if rows is None else rows

        def numbers(name: str) -> Floats:
            found: Floats = without_nulls(partials.column(name), 0.0).astype(np.float64, copy=False)[own]
            return found

        return Center(
            numbers(self.count_column),
            tuple(map(numbers, self.mean_columns)),
            {each: numbers(self.sum_column(each)) for each in self.powers},
        )

    def _columns(self, center: Center) -> dict[str, pa.Array]:
        nothing = center.count == 0
        columns = zip(self.columns, (*center.means, *center.sums.values()), strict=True)
        found = {self.count_column: pa.array(center.count.astype(np.int64))}
        return found | {name: pa.array(own, mask=nothing) for name, own in columns}


def _results(function: str, center: Center) -> tuple[Floats, Bools]:
    """A function's results, and where they are NULL: where there is no value, too few of them, or Spark would divide by 0.

    Of `regr_...(y, x)` the first column is y.
    """
    n, sums = center.count, center.sums
    yy = sums[2, 0]
    is_missing = n < 1
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        match function:
            case "stddev_pop" | "var_pop":
                found = yy / n
            case "stddev_samp" | "var_samp":
                found, is_missing = yy / (n - 1), n < 2
            case "skewness":
                found, is_missing = np.sqrt(n) * sums[3, 0] / np.sqrt(yy * yy * yy), is_missing | (yy == 0)
            case "kurtosis":
                found, is_missing = n * sums[4, 0] / (yy * yy) - 3.0, is_missing | (yy == 0)
            case _:
                found, null = _of_pairs(function, center)
                is_missing = is_missing | null
        if function.startswith("stddev"):
            found = np.sqrt(found)
    return found, is_missing


def _of_pairs(function: str, center: Center) -> tuple[Floats, Bools]:
    n, sums = center.count, center.sums
    yy, xy, xx = sums[2, 0], sums[1, 1], sums[0, 2]
    never = np.zeros(len(n), np.bool_)
    match function:
        case "covar_pop":
            return xy / n, never
        case "covar_samp":
            return xy / (n - 1), n < 2
        case "corr":
            return xy / np.sqrt(yy * xx), (n < 2) | (yy == 0) | (xx == 0)
        case "regr_slope":
            return xy / xx, xx == 0
        case "regr_intercept":
            return center.means[0] - xy / xx * center.means[1], xx == 0
        case "regr_r2":
            return np.where(yy == 0, 1.0, (xy / np.sqrt(yy * xx)) ** 2), xx == 0
        case "regr_sxx":
            return xx, never
        case "regr_syy":
            return yy, never
        case "regr_sxy":
            return xy, never
    raise AssertionError(f"{function} has one argument")
