"""A join view over frames at rest: which tuples of its inputs meet."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from itertools import chain

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from penstock.plan.joins import JoinInput, JoinPlan, Lookup, OptionalJoin, UserPredicate
from penstock.plan.times import BEFORE_ALL
from penstock.spark.analysis.gate import boxed, computed, tried
from penstock.spark.provenance.verdicts import holds
from penstock.spark.recovery.messages import quoted
from penstock.sql.conditions.outline import outline

_VALUE = "_value"
_LEFT_ROW, _RANK = "_left_row", "_rank"
#: a column of versions among which are others: whether it is asked for this one; it comes before others of its time
ASKED = "_asked"

#: Spark's names of joins with an optional input
_HOW = {
    OptionalJoin.LEFT: "left",
    OptionalJoin.FULL: "full",
    OptionalJoin.SEMI: "left_semi",
    OptionalJoin.ANTI: "left_anti",
    OptionalJoin.AS_OF: "inner",
    OptionalJoin.LEFT_AS_OF: "left",
}


@dataclass(frozen=True, slots=True)
class _Condition:
    """A condition on joined rows, and the inputs that it speaks of."""

    inputs: frozenset[int]
    column: Column


def taking_part(frame: DataFrame, each: JoinInput) -> DataFrame:
    """The tuples of an input that take part in a join.

    Args:
        frame: tuples of its relation.
        each: the input.

    Returns:
        The columns that are kept of it, by their names in the join.
    """
    spark = frame.sparkSession
    rows = frame if each.condition is None else frame.where(holds(spark, outline(each.condition)))
    boxes = rows.select(*(boxed(spark, column.text).alias(column.name) for column in each.columns))
    needed = [column.name for column in each.columns if column.name not in each.or_null]
    kept = reduce(DataFrame.where, (F.col(quoted(name)).isNotNull() for name in needed), boxes)
    return kept.select(
        *(F.col(quoted(column.name)).getField("v").alias(column.name) for column in each.columns)
    )


def partners(plan: JoinPlan, sides: Mapping[int, DataFrame], own: int, other: int) -> DataFrame:
    """The tuples of one input that satisfy every condition that speaks of it and of some tuples of another input alone.

    Args:
        plan: the join.
        sides: of both inputs, by number, see `taking_part`.
        own, other: their numbers; the result has the columns of `other`.
    """
    among = frozenset((own, other))
    spark = sides[own].sparkSession
    conditions = chain(_conditions(plan, spark), *(_matches(plan, each, spark) for each in plan.lookups))
    found = [each.column for each in conditions if each.inputs == among]
    right = sides[other]
    return right.join(sides[own], _all(found), "left_semi")


def joined_rows(plan: JoinPlan, sides: Sequence[DataFrame]) -> DataFrame:
    """The rows of a join.

    Args:
        plan: the join.
        sides: of every input and lookup, see `taking_part`.

    Returns:
        The columns of all inputs by their names in the join; `outputs` makes those of the view.
    """
    spark = sides[0].sparkSession
    conditions = list(_conditions(plan, spark))
    rows, among = sides[0], frozenset((0,))
    for number, side in enumerate(sides[1 : len(plan.inputs)], 1):
        among |= {number}
        new = [each.column for each in conditions if number in each.inputs and each.inputs <= among]
        if number in plan.optional and plan.is_as_of:
            rows = _newest(plan, rows, side, _all(new))
            continue
        rows = rows.join(side, _all(new), _HOW[plan.kind] if number in plan.optional else "inner")
    for lookup, side in zip(plan.lookups, sides[len(plan.inputs) :], strict=True):
        rows = rows.join(side, _all([each.column for each in _matches(plan, lookup, spark)]), "left")
    for text in plan.filters:
        rows = rows.where(tried(spark, text))
    for predicate in plan.predicates:
        rows = _satisfying(rows, predicate)
    return rows


def _newest(plan: JoinPlan, rows: DataFrame, versions: DataFrame, condition: Column) -> DataFrame:
    """Rows with the newest of the versions that satisfy a condition."""
    time = plan.inputs[-1].time
    assert time is not None, "versions are a stream's"
    numbered = rows.withColumn(_LEFT_ROW, F.monotonically_increasing_id())
    order = [F.col(quoted(time)), *(F.col(name) for name in versions.columns if name == ASKED)]
    newest = Window.partitionBy(_LEFT_ROW).orderBy(*(each.desc() for each in order))
    found = numbered.join(versions, condition, _HOW[plan.kind]).withColumn(_RANK, F.row_number().over(newest))
    return found.where(F.col(_RANK) == 1).drop(_LEFT_ROW, _RANK)


def _matches(plan: JoinPlan, lookup: Lookup, spark: SparkSession) -> Iterator[_Condition]:
    """What ON says of a lookup."""
    owners = _owners(plan)
    equal = [(left or "", "=", right or "") for left, right in (key.columns for key in lookup.keys)]
    compared = [(each.left, str(each.operator), each.right) for each in lookup.comparisons]
    for left, operator, right in (*equal, *compared):
        found = computed(spark, f"{quoted(left)} {operator} {quoted(right)}")
        yield _Condition(frozenset((owners[left], owners[right])), found)
    for name in lookup.required:
        yield _Condition(frozenset((owners[name],)), F.col(quoted(name)))


def _owners(plan: JoinPlan) -> dict[str, int]:
    """By name of a column the number of what it is of."""
    return {column.name: number for number, each in enumerate(plan.relations) for column in each.columns}


def _conditions(plan: JoinPlan, spark: SparkSession) -> Iterator[_Condition]:
    owners = _owners(plan)
    for key in plan.keys:
        named = [(number, name) for number, name in enumerate(key.columns) if name is not None]
        for position, (right, name) in enumerate(named):
            for left, other in named[:position]:
                yield _Condition(frozenset((left, right)), F.col(quoted(other)) == F.col(quoted(name)))
    for bound in plan.bounds:
        left_time, right_time = plan.inputs[bound.left].time, plan.inputs[bound.right].time
        assert left_time is not None
        assert right_time is not None
        between = F.col(quoted(right_time)) - F.col(quoted(left_time))
        is_within = between <= _interval(bound.upper)
        if bound.lower > BEFORE_ALL:
            is_within &= between >= _interval(bound.lower)
        yield _Condition(frozenset((bound.left, bound.right)), is_within)
    for each in plan.comparisons:
        found = computed(spark, f"{quoted(each.left)} {each.operator} {quoted(each.right)}")
        yield _Condition(frozenset((owners[each.left], owners[each.right])), found)
    for text in plan.residual:
        yield _Condition(_speaks_of(text, owners), tried(spark, text))


def _speaks_of(text: str, owners: Mapping[str, int]) -> frozenset[int]:
    """The inputs whose columns a condition has."""
    words: Collection[str] = {word for part in _tests(text) for word in part}
    return frozenset(number for name, number in owners.items() if name.upper() in words)


def _tests(text: str) -> Iterator[tuple[str, ...]]:
    remaining = [outline(text)]
    while remaining:
        part = remaining.pop()
        yield part.names
        remaining.extend(part.parts)


def _satisfying(rows: DataFrame, predicate: UserPredicate) -> DataFrame:
    """The rows that satisfy a condition on what a user's function makes of them."""
    spark = rows.sparkSession
    arguments = [
        F.col(quoted(each.column)) if each.column is not None else computed(spark, each.constant or "NULL")
        for each in predicate.arguments
    ]
    value = F.call_function(predicate.function, *arguments)
    return rows.withColumn(_VALUE, value).where(computed(spark, predicate.condition)).drop(_VALUE)


def _interval(microseconds: int) -> Column:
    seconds = Decimal(microseconds).scaleb(-6)
    return F.make_dt_interval(secs=F.lit(seconds).cast("decimal(18,6)"))


def _all(conditions: Sequence[Column]) -> Column:
    return reduce(Column.__and__, conditions, F.lit(True))
