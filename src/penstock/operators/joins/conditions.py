"""What joined rows must satisfy, judged as soon as the inputs it is about are joined."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.kernels.gather import Ids
from penstock.operators.joins.columns import Bools, Column
from penstock.plan.joins import Comparison, JoinPlan, Operator

_COMPARE = {
    Operator.LESS: pc.less,
    Operator.LESS_EQUAL: pc.less_equal,
    Operator.GREATER: pc.greater,
    Operator.GREATER_EQUAL: pc.greater_equal,
    Operator.NOT_EQUAL: pc.not_equal,
}
_COMPARE_WORDS = {
    Operator.LESS: np.less,
    Operator.LESS_EQUAL: np.less_equal,
    Operator.GREATER: np.greater,
    Operator.GREATER_EQUAL: np.greater_equal,
    Operator.NOT_EQUAL: np.not_equal,
}


#: event times without a bound, microseconds, both inclusive
ALL_TIMES = (-(2**63), 2**63 - 1)


@dataclass(frozen=True, slots=True)
class Bound:
    """Event times of partners of a tuple: its own + lower to its own + upper.

    Attributes:
        source: the input the tuple is of.
        lower, upper: microseconds, both inclusive.
    """

    source: int
    lower: int
    upper: int


@dataclass(frozen=True, slots=True)
class Equality:
    """Two columns that are equal, NULL being equal to nothing.

    Attributes:
        left, right: the inputs.
        left_column, right_column: their columns.
    """

    left: int
    left_column: str
    right: int
    right_column: str


def bounds_of(plan: JoinPlan, target: int, joined: tuple[int, ...]) -> tuple[Bound, ...]:
    """The bounds of an input's event times by those of inputs that are joined already."""
    found = []
    for bound in plan.bounds:
        if bound.right == target and bound.left in joined:
            found.append(Bound(bound.left, bound.lower, bound.upper))
        elif bound.left == target and bound.right in joined:
            found.append(Bound(bound.right, -bound.upper, -bound.lower))
    return tuple(found)


def reach_of(plan: JoinPlan, source: int, target: int, span: tuple[int, int]) -> tuple[int, int]:
    """Event times that partners of tuples within a span may have, microseconds, both inclusive."""
    bounds = bounds_of(plan, target, (source,))
    return (span[0] + bounds[0].lower, span[1] + bounds[0].upper) if bounds else ALL_TIMES


def source_of(plan: JoinPlan, key: int, joined: tuple[int, ...]) -> int:
    """An input joined already that has a part in a key.

    Raises:
        ValueError: none has.
    """
    for number in joined:
        if plan.keys[key].columns[number] is not None:
            return number
    raise ValueError(f"join {plan.name}: no input joined before has a part in key {key}: {plan.keys[key]}")


def equalities_of(
    plan: JoinPlan, target: int, joined: tuple[int, ...], settled: int | None
) -> tuple[Equality, ...]:
    """The equalities between an input and those joined already, but for the key that settles itself, if any."""
    found = []
    for number, key in enumerate(plan.keys):
        column = key.columns[target]
        if column is None or number == settled:
            continue
        for source in joined:
            other = key.columns[source]
            if other is not None:
                found.append(Equality(source, other, target, column))
                break
    return tuple(found)


def comparisons_of(
    plan: JoinPlan, target: int, joined: tuple[int, ...]
) -> tuple[tuple[int, int, Comparison], ...]:
    """The comparisons between an input and those joined already, each with the inputs of its columns."""
    inputs = {column.name: number for number, each in enumerate(plan.inputs) for column in each.columns}
    found = []
    for comparison in plan.comparisons:
        sides = inputs[comparison.left], inputs[comparison.right]
        if target in sides and set(sides) <= {*joined, target}:
            found.append((*sides, comparison))
    return tuple(found)


def equal(left: Column, left_ids: Ids, right: Column, right_ids: Ids) -> Bools:
    """Which rows' values are equal: -0.0 equals 0.0, NaN equals NaN, NULL nothing."""
    words, others = left.words(left_ids), right.words(right_ids)
    if words is not None and others is not None:
        return _valid(words == others, left, left_ids, right, right_ids)
    same = left.same(left_ids, right, right_ids)
    if same is not None:
        return _valid(same, left, left_ids, right, right_ids)
    return _true(pc.equal(left.take(left_ids), right.take(right_ids)))


def compare(operator: Operator, left: Column, left_ids: Ids, right: Column, right_ids: Ids) -> Bools:
    """Which rows satisfy a comparison; NULL satisfies none, NaN is the largest number."""
    words, others = left.words(left_ids), right.words(right_ids)
    if words is not None and others is not None:
        found: Bools = _COMPARE_WORDS[operator](words, others)
        return _valid(found, left, left_ids, right, right_ids)
    return _true(_COMPARE[operator](left.take(left_ids), right.take(right_ids)))


def _valid(found: Bools, left: Column, left_ids: Ids, right: Column, right_ids: Ids) -> Bools:
    for valid in (left.valid(left_ids), right.valid(right_ids)):
        if valid is not None:
            found &= valid
    return found


def _true(found: pa.Array) -> Bools:
    values: Bools = pc.fill_null(found, False).to_numpy(zero_copy_only=False)
    return values


def kept(rows: Mapping[int, Ids], which: npt.NDArray[np.bool_]) -> dict[int, Ids]:
    """Some of the joined rows."""
    return {number: ids[which] for number, ids in rows.items()}
