"""A bound join view answered in the simplest way: every combination of tuples is looked at, one input after the other."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from penstock.plan.joins import Comparison, JoinPlan, Lookup, Operator, OptionalJoin

Row = dict[str, Any]
_MICROSECOND = timedelta(microseconds=1)
_JUDGES = {
    Operator.LESS: operator.lt,
    Operator.LESS_EQUAL: operator.le,
    Operator.GREATER: operator.gt,
    Operator.GREATER_EQUAL: operator.ge,
    Operator.NOT_EQUAL: operator.ne,
}


def answer(spark: SparkSession, plan: JoinPlan) -> pa.Table:
    """The view's rows over tables of the session that are called as the plan's relations.

    Conditions of keys, bounds and comparisons are judged here; what the plan leaves to Spark is left to it.
    """
    tuples = [_tuples(spark, plan, number) for number in range(len(plan.inputs))]
    joined: list[Row] = [{}]
    before = joined
    for number, own in enumerate(tuples):
        before, joined = (
            joined,
            [
                {**row, **each, f"_row{number}": place}
                for row in joined
                for place, each in enumerate(own)
                if _matches(plan, {**row, **each}, number)
            ],
        )
    found = _frame(spark, plan, joined, plan.residual)
    if plan.optional:
        matched = found.toArrow().to_pylist()
        places = [f"_row{number}" for number in range(len(tuples) - 1)]
        partners = {tuple(row[place] for place in places) for row in matched}
        filled = [
            {**dict.fromkeys(found.columns), **row}
            for row in before
            if tuple(row[place] for place in places) not in partners
        ]
        if plan.is_as_of:
            time = plan.inputs[-1].time or ""
            last: dict[tuple[Any, ...], Row] = {}
            for row in sorted(matched, key=lambda row: row[time]):
                last[tuple(row[place] for place in places)] = row
            matched = list(last.values())
            filled = filled if plan.kind is OptionalJoin.LEFT_AS_OF else []
        elif plan.kind is OptionalJoin.ANTI:
            matched = []
        elif plan.kind is OptionalJoin.SEMI:
            matched = [row for row in before if tuple(row[place] for place in places) in partners]
            filled = []
        elif plan.kind is OptionalJoin.FULL:
            met = {row["_row1"] for row in matched}
            filled += [{**each, "_row1": place} for place, each in enumerate(tuples[1]) if place not in met]
        joined = [*matched, *filled]
        for number, lookup in enumerate(plan.lookups, len(plan.inputs)):
            own = _tuples(spark, plan, number)
            joined = [met for row in joined for met in _looked_up(lookup, row, own)]
        found = _frame(spark, plan, joined, plan.filters)
    outputs = [
        f"{output.text if output.column is None else f'`{output.column}`'}\n AS `{output.name}`"
        for output in plan.outputs
    ]
    return found.selectExpr(*outputs).toArrow()


def _tuples(spark: SparkSession, plan: JoinPlan, number: int) -> list[Row]:
    source = plan.relations[number]
    columns = ", ".join(f"{column.text}\n AS `{column.name}`" for column in source.columns)
    table = spark.sql(
        f"SELECT {columns or '1 AS _'} FROM {source.relation} WHERE {source.condition or 'TRUE'}"
    ).toArrow()
    for column in source.columns:
        assert str(table.schema.field(column.name).type).replace(" not null", "") == str(column.type)
    return table.to_pylist()


def _matches(plan: JoinPlan, row: Row, number: int) -> bool:
    """Whether a row of the inputs up to one satisfies what the plan says of these."""
    for key in plan.keys:
        names = [name for name in key.columns[: number + 1] if name is not None]
        values = [_comparable(row[name]) for name in names]
        if len(names) > 1 and (None in values or any(value != values[0] for value in values)):
            return False
    for bound in plan.bounds:
        if bound.right <= number:
            left, right = (row[plan.inputs[each].time or ""] for each in (bound.left, bound.right))
            if left is None or right is None:
                return False
            apart = (right.replace(tzinfo=None) - left.replace(tzinfo=None)) // _MICROSECOND
            if not bound.lower <= apart <= bound.upper:
                return False
    return all(_is_met(each, row) for each in plan.comparisons if each.left in row and each.right in row)


def _is_met(comparison: Comparison, row: Row) -> bool:
    left, right = _comparable(row[comparison.left]), _comparable(row[comparison.right])
    return left is not None and right is not None and bool(_JUDGES[comparison.operator](left, right))


def _looked_up(lookup: Lookup, row: Row, table: Sequence[Row]) -> list[Row]:
    """A row with each of its partners, or alone."""
    found = []
    for each in table:
        both = {**dict.fromkeys(lookup.columns), **row, **each}
        equal = [
            (_comparable(both[left or ""]), _comparable(both[right or ""]))
            for left, right in (key.columns for key in lookup.keys)
        ]
        if (
            all(left is not None and left == right for left, right in equal)
            and all(_is_met(one, both) for one in lookup.comparisons)
            and all(both[name] for name in lookup.required)
        ):
            found.append(both)
    return found or [row]


def _comparable(value: Any) -> Any:
    """A value in Spark's order: NaN is the largest number."""
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value)
    return value


def _frame(spark: SparkSession, plan: JoinPlan, rows: Sequence[Row], conditions: Sequence[str]) -> DataFrame:
    schema = pa.schema(
        [(column.name, column.type) for each in plan.relations for column in each.columns]
        + [(f"_row{number}", pa.int64()) for number in range(len(plan.inputs))]
    )
    columns = [pa.array([row.get(field.name) for row in rows], field.type) for field in schema]
    frame = spark.createDataFrame(pa.Table.from_arrays(columns, schema=schema))
    for condition in conditions:
        frame = frame.where(f"({condition}\n)")
    return frame
