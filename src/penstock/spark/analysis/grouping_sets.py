"""Grouping sets in Spark: the keys of a row in each set."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock.plan.windows import GroupingSet
from penstock.sql.windows.query import key_name


def keys_by_sets(frame: DataFrame, keys: Sequence[Column], sets: Sequence[GroupingSet]) -> Column:
    """A row for each grouping set: a struct of the keys `_k0`, ..., NULL where the set lacks one, and behind them the grouping ID.

    Args:
        frame: what the keys are columns of.
        keys: the keys.
        sets: the grouping sets.
    """
    kinds = [field.dataType for field in frame.select(*keys).schema]
    ways = []
    for each in sets:
        own = [
            key if number in each.keys else F.lit(None).cast(kinds[number]) for number, key in enumerate(keys)
        ]
        own.append(F.lit(each.id).cast("bigint"))
        ways.append(F.struct(*(value.alias(key_name(number)) for number, value in enumerate(own))))
    return F.explode(F.array(*ways))
