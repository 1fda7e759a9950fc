"""Aggregates as partials: lifted from tuples, merged in any order, lowered to Spark's results.

A window view's aggregates share *parts*: COUNT(x), SUM(x) and AVG(x) need two of them together. A
table of partials has a row for each group and, for each part, its columns; merging two tables is
merging the rows of the same group. The same definitions serve map-side partials, state and batch.

Parts that keep single values (DISTINCT, modes, collected values, exact percentiles) live in tables of their own, one an
argument: a row for each group and distinct value, with the number of its occurrences.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InputError
from penstock.operators.hashing import canonical_columns
from penstock.operators.windows.grouping import (
    BITWISE,
    ListedPairs,
    Pairs,
    added,
    combined_bits,
    extreme,
    first_rows,
    group_codes,
    shared_codes,
    without_nulls,
)
from penstock.operators.windows.moments import OF_MOMENTS, Moments
from penstock.operators.windows.of_values import KEEPING_VALUES, from_values, without_values
from penstock.operators.windows.picks import Pick
from penstock.operators.windows.sketches import SKETCHED, Sketch, estimates
from penstock.operators.windows.sorting import ordered
from penstock.plan.windows import ERROR_BOUND, PICKING, Aggregate

Longs = npt.NDArray[np.int64]

#: the number of tuples in a group
ROWS = "rows"
#: the number of the condition whose tuples are counted, where an operator has several
SELECTION = "selection"
#: a distinct value of a table of values
VALUE = "value"
#: functions a window view may use
FUNCTIONS = (
    frozenset({"count", "sum", "avg", "min", "max"})
    | (OF_MOMENTS | KEEPING_VALUES | PICKING)
    | SKETCHED.keys()
    | BITWISE.keys()
)
_LARGEST = 2**63 - 1
_WIDE = pa.decimal128(38, 0)
#: sums of ten thousand million such decimals fit 38 digits
_SAFE_DIGITS = 28


def count_of(argument: str) -> str:
    """Column of the number of non-null arguments."""
    return f"count:{argument}"


def sum_of(argument: str) -> str:
    """Column of their sum: float64, or a decimal of 38 digits."""
    return f"sum:{argument}"


def extreme_of(function: str, argument: str) -> str:
    """Column of their least or largest one, floating point as `ordered` integers; or of their bits, int64."""
    return f"{function}:{argument}"


@dataclass(frozen=True, slots=True)
class Parts:
    """What the aggregates of one or several window views need of a group.

    Attributes:
        sums: arguments that are summed and counted.
        counts: arguments that are counted only.
        extremes: ("min" or "max", argument).
        bits: (function of `BITWISE`, argument).
        moments: central moments of one argument or two.
        values: arguments whose single values are kept.
        sketches: sketches of arguments.
        picks: arguments of the tuples in which another column is largest or least.
    """

    sums: tuple[str, ...] = ()
    counts: tuple[str, ...] = ()
    extremes: tuple[tuple[str, str], ...] = ()
    moments: tuple[Moments, ...] = ()
    values: tuple[str, ...] = ()
    sketches: tuple[Sketch, ...] = ()
    picks: tuple[Pick, ...] = ()
    bits: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, aggregates: Iterable[Aggregate]) -> Parts:
        """The parts these aggregates share."""
        sums, counts, values = (dict[str, None]() for _ in range(3))
        extremes, bits = (dict[tuple[str, str], None]() for _ in range(2))
        moments: dict[tuple[str, ...], Moments] = {}
        sketches: dict[Sketch, None] = {}
        picks: dict[Pick, None] = {}
        for each in aggregates:
            if each.function == ERROR_BOUND:
                continue
            if each.function not in FUNCTIONS:
                known = ", ".join(sorted(FUNCTIONS))
                raise InputError(f"no aggregate function {each.function}; known are {known}")
            if each.argument is None:
                continue
            if each.function in ("min", "max"):
                extremes[each.function, each.argument] = None
            elif each.function in SKETCHED:
                sketches[Sketch.of(each)] = None
            elif each.function in PICKING:
                picks[Pick.of(each)] = None
            elif each.function in BITWISE:
                bits[each.function, each.argument] = None
            elif each.function in OF_MOMENTS:
                own = Moments.of(each)
                moments[own.arguments] = own.with_those_of(moments.get(own.arguments))
            else:
                target = (
                    sums
                    if each.function in ("sum", "avg")
                    else values
                    if each.function in KEEPING_VALUES
                    else counts
                )
                target[each.argument] = None
        only_counted = [name for name in counts if name not in sums and (name,) not in moments]
        return cls(
            tuple(sums),
            tuple(only_counted),
            tuple(extremes),
            tuple(moments.values()),
            tuple(values),
            tuple(sketches),
            tuple(picks),
            tuple(bits),
        )

    @property
    def arguments(self) -> tuple[str, ...]:
        """The columns lifted."""
        every = [*self.sums, *self.counts, *self.values]
        every += [name for _, name in (*self.extremes, *self.bits)]
        every += [name for each in self.moments for name in each.arguments]
        every += [sketch.argument for sketch in self.sketches]
        every += [name for pick in self.picks for name in (pick.argument, pick.by)]
        return tuple(dict.fromkeys(every))

    def lift(self, tuples: pa.Table, keys: Sequence[str]) -> pa.Table:
        """Partials of tuples, all but the values.

        Args:
            tuples: the keys and arguments.
            keys: columns that make a group; NULL is a key of its own.
        """
        columns = {name: tuples.column(name) for name in keys}
        wanted: list[tuple[Any, str]] = [([], "count_all")]
        names = [*keys, ROWS]

        def ask(column: str, values: pa.ChunkedArray, function: str, result: str) -> None:
            columns[column] = values
            wanted.append((column, function))
            names.append(result)

        for name in dict.fromkeys((*self.sums, *self.counts)):
            ask(name, tuples.column(name), "count", count_of(name))
        for name in self.sums:
            ask(f"sum {name}", _summable(tuples.column(name)), "sum", sum_of(name))
        for function, name in self.extremes:
            ask(f"{function} {name}", ordered(tuples.column(name)), function, extreme_of(function, name))
        grouped = pa.table(columns).group_by(list(keys), use_threads=False).aggregate(wanted)
        partials = grouped.rename_columns(names)
        for name in self.sums:
            total = partials.column(sum_of(name))
            if not pa.types.is_floating(total.type):
                partials = _replaced(partials, sum_of(name), total.cast(_sum_type(total.type)))
        if self.sketches or self.picks or self.moments or self.bits:
            codes = _groups_of(tuples, partials, keys)
            for moments in self.moments:
                partials = _with(partials, moments.lift(tuples, codes, partials.num_rows))
            for function, name in self.bits:
                pairs = ListedPairs((np.arange(len(codes)), codes), partials.num_rows)
                lifted = combined_bits(tuples.column(name).cast(pa.int64()), function, pairs)
                partials = partials.append_column(extreme_of(function, name), lifted)
            for sketch in self.sketches:
                lifted = sketch.lift(tuples.column(sketch.argument), codes, partials.num_rows)
                partials = partials.append_column(sketch.column, lifted)
            for pick in self.picks:
                partials = _with(partials, pick.lift(tuples, codes, partials.num_rows))
        return partials

    def merge(self, partials: pa.Table, keys: Sequence[str]) -> pa.Table:
        """One row for each group, from any number of partials of it."""
        if not keys:
            constant = pa.array(np.zeros(partials.num_rows, np.int8))
            return self.merge(partials.append_column("", constant), [""]).drop_columns([""])
        partials = partials.combine_chunks()
        codes = group_codes(partials, keys)
        own = partials.select(list(keys)).take(pa.array(first_rows(codes)))
        return self.merge_pairs(own, partials, ListedPairs((np.arange(len(codes)), codes), own.num_rows))

    def merge_pairs(self, own: pa.Table, partials: pa.Table, pairs: Pairs) -> pa.Table:
        """One row for each cell: its keys, and the partials of the rows that belong to it, merged in the order of the pairs.

        Args:
            own: the keys of each cell.
            partials: with the columns of the parts.
            pairs: rows of the partials and the cells that they belong to.
        """
        every = partials.column(ROWS)
        merged = own.append_column(ROWS, added(every, pairs))
        for name in map(count_of, dict.fromkeys((*self.sums, *self.counts))):
            counts = partials.column(name)
            # where no argument is NULL
            same = counts.equals(every)
            merged = merged.append_column(name, merged.column(ROWS) if same else added(counts, pairs))
        for name in self.sums:
            nothing = merged.column(count_of(name)).to_numpy() == 0
            total = added(partials.column(sum_of(name)), pairs, nothing)
            merged = merged.append_column(sum_of(name), total)
        for function, name in self.extremes:
            column = extreme_of(function, name)
            merged = merged.append_column(column, extreme(partials.column(column), function, pairs))
        for pick in self.picks:
            merged = _with(merged, pick.merge(partials, *pairs.listed, pairs.count))
        for moments in self.moments:
            merged = _with(merged, moments.merge(partials, *pairs.listed, pairs.count))
        for function, name in self.bits:
            column = extreme_of(function, name)
            merged = merged.append_column(column, combined_bits(partials.column(column), function, pairs))
        if self.sketches:
            rows, cells = pairs.listed
            repeated = partials.take(pa.array(rows))
            for sketch in self.sketches:
                united = sketch.merge(repeated.column(sketch.column), cells, pairs.count)
                merged = merged.append_column(sketch.column, united)
        parts = [name for name in partials.column_names if name in merged.column_names[own.num_columns :]]
        return merged.select([*own.column_names, *parts])


def lift_values(tuples: pa.Table, keys: Sequence[str], argument: str) -> pa.Table:
    """A table of values: keys, `value`, `rows`; NULL arguments left out, -0.0 being 0.0."""
    present = tuples.select([*keys, argument]).rename_columns([*keys, VALUE])
    present = canonical_columns(present, [VALUE])
    return _counted(present.filter(pc.field(VALUE).is_valid()), keys, ([], "count_all"))


def merge_values(values: pa.Table, keys: Sequence[str]) -> pa.Table:
    """One row for each group and value."""
    return _counted(values, keys, (ROWS, "sum"))


def lower(aggregate: Aggregate, merged: pa.Table, values: pa.Table | None, keys: Sequence[str]) -> pa.Array:
    """The aggregate's result for each row of `merged`; NULL where a sum or mean does not fit its type, as `try_sum`; an error bound is 0.

    Args:
        aggregate: which one.
        merged: one row a group.
        values: merged values of its argument, None where there are none or it needs none.
        keys: the grouping columns of both.
    """
    name = aggregate.argument
    if aggregate.function == ERROR_BOUND:
        return pa.array(np.zeros(merged.num_rows))
    if name is None:
        return merged.column(ROWS).cast(aggregate.type).combine_chunks()
    match aggregate.function:
        case "count":
            found = merged.column(count_of(name))
        case "sum":
            found = _fitting(merged.column(sum_of(name)), aggregate.type)
        case "avg":
            return _average(merged.column(sum_of(name)), merged.column(count_of(name)), aggregate.type)
        case function if function in BITWISE:
            found = merged.column(extreme_of(function, name))
        case "min" | "max":
            found = _unordered(merged.column(extreme_of(aggregate.function, name)), aggregate.type)
        case function if function in KEEPING_VALUES:
            if values is None:
                return without_values(aggregate, merged.num_rows)
            return _from_values(aggregate, merged, values, keys)
        case "approx_count_distinct" | "approx_percentile":
            return estimates(aggregate, merged.column(Sketch.of(aggregate).column))
        case "max_by" | "min_by":
            found = merged.column(Pick.of(aggregate).column)
            # names and NULLs of parts may be said in another way
            return (found if found.type == aggregate.type else found.cast(aggregate.type)).combine_chunks()
        case _:
            return Moments.of(aggregate).lower(aggregate.function, merged)
    return found.cast(aggregate.type).combine_chunks()


def overflowed(
    aggregate: Aggregate, merged: pa.Table, lowered: pa.Array, values: pa.Table | None, keys: Sequence[str]
) -> npt.NDArray[np.bool_]:
    """bool[rows]: where the result is NULL although there are values: it does not fit its type; see `lower`."""
    if values is not None and aggregate.function in ("sum_distinct", "avg_distinct"):
        counted = np.bincount(_groups_of(values, merged, keys), minlength=merged.num_rows)
    elif aggregate.argument is None or aggregate.function not in ("sum", "avg"):
        return np.zeros(merged.num_rows, np.bool_)
    else:
        counted = merged.column(count_of(aggregate.argument)).to_numpy()
    lost: npt.NDArray[np.bool_] = (counted > 0) & lowered.is_null().to_numpy(zero_copy_only=False)
    return lost


def _fitting(total: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """NULL in place of decimals that a narrower decimal or an integer does not hold."""
    if not pa.types.is_decimal(total.type) or pa.types.is_floating(kind):
        return total
    if pa.types.is_decimal(kind):
        largest = Decimal((0, (9,) * kind.precision, -kind.scale))
        least = Decimal((1, (9,) * kind.precision, -kind.scale))
    else:
        least, largest = Decimal(-_LARGEST - 1), Decimal(_LARGEST)
    above = pc.greater_equal(total, pa.scalar(least, total.type))
    below = pc.less_equal(total, pa.scalar(largest, total.type))
    return pc.if_else(pc.and_(above, below), total, pa.scalar(None, total.type))


def _summable(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Integers that might overflow as decimals; the sum of the others is exact as it is."""
    if pa.types.is_floating(values.type):
        return values.cast(pa.float64())
    if pa.types.is_decimal(values.type) and values.type.precision > _SAFE_DIGITS:
        return values.cast(pa.decimal256(76, values.type.scale))
    if pa.types.is_int64(values.type) and len(values):
        bounds = pc.min_max(values).as_py()
        largest = max(abs(bounds["min"] or 0), abs(bounds["max"] or 0))
        if largest * len(values) > _LARGEST:
            return values.cast(_WIDE)
    return values


def _sum_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_decimal256(kind):
        return kind
    return pa.decimal128(38, kind.scale) if pa.types.is_decimal(kind) else _WIDE


def _with(table: pa.Table, columns: Mapping[str, pa.Array | pa.ChunkedArray]) -> pa.Table:
    """A table with further columns; those that it has are the same."""
    for name, column in columns.items():
        if name not in table.column_names:
            table = table.append_column(name, column)
    return table


def _replaced(table: pa.Table, name: str, column: pa.ChunkedArray) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), name, column)


def _counted(table: pa.Table, keys: Sequence[str], count: tuple[Any, str]) -> pa.Table:
    grouped = table.group_by([*keys, VALUE], use_threads=False).aggregate([count])
    return grouped.rename_columns([*keys, VALUE, ROWS])


def _groups_of(table: pa.Table, groups: pa.Table, keys: Sequence[str]) -> npt.NDArray[np.int64]:
    """The row of `groups` that each row of `table` belongs to. Arrow promises no order of groups."""
    # groups come first, each once: a group's code is its row
    return shared_codes([groups, table], keys)[1]


def _average(total: pa.ChunkedArray, count: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    if not pa.types.is_decimal(kind):
        known = pc.if_else(pc.greater(count, 0), count, None)
        return pc.divide(total.cast(pa.float64()), known.cast(pa.float64())).combine_chunks()
    step = Decimal(1).scaleb(-kind.scale)
    with localcontext() as context:
        context.prec = 76
        means = [
            None if s is None or not n else (s / n).quantize(step, ROUND_HALF_UP)
            for s, n in zip(total.to_pylist(), count.to_pylist(), strict=True)
        ]
    too_large = Decimal(10) ** (kind.precision - kind.scale)
    return pa.array([None if mean is None or abs(mean) >= too_large else mean for mean in means], kind)


def _unordered(values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if not pa.types.is_floating(kind):
        return values
    bits = without_nulls(values, 0)
    numbers = np.where(bits < 0, bits ^ _LARGEST, bits).view(np.float64)
    return pa.chunked_array([pa.array(numbers, mask=values.is_null().to_numpy(zero_copy_only=False))])


def _from_values(aggregate: Aggregate, merged: pa.Table, values: pa.Table, keys: Sequence[str]) -> pa.Array:
    groups, own = merged.num_rows, _groups_of(values, merged, keys)
    if aggregate.function not in ("sum_distinct", "avg_distinct"):
        return from_values(aggregate, values.column(VALUE), values.column(ROWS).to_numpy(), own, groups)
    # the sums of a table in which each value is one tuple
    found = Parts(sums=(VALUE,)).lift(pa.table({"group": own, VALUE: values.column(VALUE)}), ["group"])
    places = np.full(groups, -1)
    places[found.column("group").to_numpy()] = np.arange(found.num_rows)
    found = found.take(pa.array(places, mask=places < 0))
    total = found.column(sum_of(VALUE))
    if aggregate.function == "avg_distinct":
        return _average(total, found.column(count_of(VALUE)), aggregate.type)
    return _fitting(total, aggregate.type).cast(aggregate.type).combine_chunks()
