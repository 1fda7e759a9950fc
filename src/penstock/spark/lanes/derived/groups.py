"""The groups of a derived view, computed by Spark from rows of the view beneath."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, VariantType

from penstock.plan.rankings import DENSE_RANK, RANK, ROW_NUMBER, OrderKey, RankedPlan
from penstock.plan.windows import PICKING, Aggregate
from penstock.spark.analysis.gate import boxed, computed, tried
from penstock.spark.analysis.grouping_sets import keys_by_sets
from penstock.spark.recovery.messages import quoted
from penstock.spark.results.frames import published_frame
from penstock.spark.results.window_schemas import ROW, own_schema, row_type
from penstock.spark.storage.store_paths import StorePath
from penstock.sql.windows.bind import BoundWindow
from penstock.sql.windows.query import WHOLE, WINDOW_NAME, aggregate_name, key_name

_COUNT, _WAY = "_rows", "_way"
#: what does not fit its type is NULL, as in other window views
_TRIED = {"sum": "try_sum", "avg": "try_avg"}
#: of distinct values
_DISTINCT = {"count_distinct": "count", "sum_distinct": "try_sum", "avg_distinct": "try_avg"}
#: where Spark leaves the answer open: the least of the most frequent values, values that ascend
_DECIDED = {
    "mode": "mode({}, true)",
    "collect_set": "sort_array(collect_set({}))",
    "collect_list": "sort_array(collect_list({}))",
}


def groups_of(spark: SparkSession, view: BoundWindow, rows: StorePath, columns: StructType) -> pa.Table:
    """What a view says of some rows: its own columns and ROW, a row for each group that passes its HAVING.

    A condition that raises for a row is not met, a row for which another expression raises is left out; an expression over
    groups that raises is NULL.

    Args:
        spark: the session whose settings the view was bound under.
        view: the view, bound to the columns of the one beneath.
        rows: a Parquet file of these.
        columns: its columns.
    """
    frame = usable_rows(spark, view, published_frame(spark, columns, [rows]).coalesce(1))
    keys = [
        F.col(quoted(name)).alias(key_name(number)) for number, (name, _) in enumerate(view.plan.computed)
    ]
    grouped = (
        _ranked(frame, view.plan, keys)
        if isinstance(view.plan, RankedPlan)
        else _grouped(spark, view, frame, keys)
    )
    if view.having is not None:
        grouped = grouped.where(_holds(spark, view.having))
    own = [tried(spark, output.expression).alias(output.name) for output in view.outputs]
    row = F.struct(
        *(F.col(f"{WINDOW_NAME}.{part.name}").alias(part.name) for part in view.window_type),
        *(F.col(key_name(number)).alias(f"k{number}") for number in range(len(view.plan.keys))),
    )
    schema = own_schema(view).append(pa.field(ROW, row_type(view)))
    return grouped.select(*own, row.alias(ROW)).toArrow().rename_columns(schema.names).cast(schema)


def _grouped(spark: SparkSession, view: BoundWindow, frame: DataFrame, keys: Sequence[Column]) -> DataFrame:
    """The window, keys and aggregates of each group."""
    aggregates = [
        computed(spark, _call(each)).alias(aggregate_name(number))
        for number, each in enumerate(view.plan.aggregates)
    ]
    every = F.count(F.lit(1)).alias(_COUNT), *aggregates
    if view.plan.sets:
        frame = frame.withColumn(_WAY, keys_by_sets(frame, keys, view.plan.sets))
        names = map(key_name, range(len(view.plan.keys)))
        keys = [F.col(f"{_WAY}.{name}").alias(name) for name in names]
    if view.plan.is_running:
        return frame.groupBy(*keys).agg(*every).withColumn(WINDOW_NAME, _whole())
    return frame.groupBy(_window(spark, view).alias(WINDOW_NAME), *keys).agg(*every)


def _ranked(frame: DataFrame, plan: RankedPlan, keys: Sequence[Column]) -> DataFrame:
    """The window, keys and columns of the rows that a ranking keeps.

    Rows that are equal in its order are ordered by their other columns.
    """
    ranking = plan.ranking
    order = [_ordering(each) for each in ranking.order]
    kinds = {name: frame.schema[name].dataType for name in frame.columns}
    others = [F.col(quoted(name)).asc_nulls_first() for name, kind in kinds.items() if _is_orderable(kind)]
    within = Window.partitionBy(*(F.col(quoted(name)) for name, _ in plan.grouping))
    every = {
        ROW_NUMBER: F.row_number().over(within.orderBy(*order, *others)),
        RANK: F.rank().over(within.orderBy(*order)),
        DENSE_RANK: F.dense_rank().over(within.orderBy(*order)),
    }
    columns = [
        (F.col(quoted(each.argument)) if each.argument is not None else every[each.function]).alias(
            aggregate_name(number)
        )
        for number, each in enumerate(plan.aggregates)
    ]
    places = [every[ROW_NUMBER].alias(key_name(number)) for number in range(len(keys), len(plan.keys))]
    ranked = frame.select(*keys, *places, *columns, _whole(), every[ranking.function].alias(_COUNT))
    return ranked.where(F.col(_COUNT) <= ranking.limit)


def _ordering(key: OrderKey) -> Column:
    column = F.col(quoted(key.argument))
    if key.is_descending:
        return column.desc_nulls_first() if key.nulls_first else column.desc_nulls_last()
    return column.asc_nulls_first() if key.nulls_first else column.asc_nulls_last()


def _is_orderable(kind: DataType) -> bool:
    if isinstance(kind, ArrayType):
        return _is_orderable(kind.elementType)
    if isinstance(kind, StructType):
        return all(_is_orderable(field.dataType) for field in kind)
    return not isinstance(kind, MapType | VariantType)


def _whole() -> Column:
    return F.struct(F.lit(True).alias(WHOLE)).alias(WINDOW_NAME)


def _window(spark: SparkSession, view: BoundWindow) -> Column:
    windows, time = view.plan.windows, quoted(view.plan.time)
    return computed(spark, f"window({time}, {windows.size}, {windows.slide}, {windows.start})")


def usable_rows(
    spark: SparkSession, view: BoundWindow, rows: DataFrame, also: Sequence[str] = ()
) -> DataFrame:
    """The rows that the view selects, with the columns that its plan names, and `also`."""
    if view.condition is not None:
        rows = rows.where(_holds(spark, view.condition))
    plan, derived = view.plan, {each.name: each for each in view.derived}
    used = [*([] if plan.is_running else [plan.time]), *(name for name, _ in plan.computed)]
    used += [argument for each in plan.aggregates for argument in each.arguments]
    if isinstance(plan, RankedPlan):
        used += [each.argument for each in plan.ranking.order]
    plain = [F.col(quoted(name)) for name in dict.fromkeys([*also, *used]) if name not in derived]
    # a struct tells NULL from what could not be computed
    values = [boxed(spark, each.expression).alias(each.name) for each in derived.values()]
    # a view may need no column at all
    rows = rows.select(*(plain or [F.lit(True)]), *values)
    for name in derived:
        rows = rows.where(F.col(name).isNotNull())
    return rows.select(*(plain or [F.lit(True)]), *(F.col(f"{name}.v").alias(name) for name in derived))


def _holds(spark: SparkSession, condition: str) -> Column:
    return F.coalesce(tried(spark, condition), F.lit(False))


def _pick(function: str, argument: str, by: str) -> str:
    """The argument where `by` is largest or least, of equal ones the largest argument; see `operators.windows.picks`."""
    pair = f"CASE WHEN {by} IS NOT NULL THEN named_struct('by', {by}, 'x', {argument}) END"
    if function == "max_by":
        return f"max_by({argument}, {pair})"
    # a NULL is the least argument, so that of two pairs the one without is first
    order = (
        "(a, b) -> CASE WHEN a.by < b.by THEN -1 WHEN a.by > b.by THEN 1 WHEN a.x > b.x THEN -1 WHEN a.x < b.x THEN 1 "
        "WHEN a.x IS NOT NULL AND b.x IS NULL THEN -1 WHEN a.x IS NULL AND b.x IS NOT NULL THEN 1 ELSE 0 END"
    )
    return f"get(array_sort(collect_list({pair}), {order}), 0).x"


def _call(aggregate: Aggregate) -> str:
    """An aggregate in Spark SQL."""
    argument = "1" if aggregate.argument is None else quoted(aggregate.argument)
    if aggregate.by is not None:
        by = quoted(aggregate.by)
        is_pick = aggregate.function in PICKING
        return (
            _pick(aggregate.function, argument, by) if is_pick else f"{aggregate.function}({argument}, {by})"
        )
    if aggregate.function in _DISTINCT:
        return f"{_DISTINCT[aggregate.function]}(DISTINCT {argument})"
    if aggregate.function in _DECIDED:
        return _DECIDED[aggregate.function].format(argument)
    name = _TRIED.get(aggregate.function, aggregate.function)
    further = []
    if aggregate.parameter is not None:
        further.append(f"{aggregate.parameter!r}D")
    if aggregate.accuracy is not None:
        further.append(f"{aggregate.accuracy:.0f}" if further else f"{aggregate.accuracy!r}D")
    return f"{name}({', '.join([argument, *further])})"
