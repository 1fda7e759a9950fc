"""Jobs whose tasks have nothing but a number: the cheapest ones that Spark runs.

A DataFrame is analysed, planned and compiled for more than half of the time that such a job takes. What `SparkContext.parallelize` makes of
numbers (a temporary file, an RDD of the JVM) is the same for each job of so many tasks, so that it is made once for a session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

from pyspark import RDD, SparkContext

from penstock.spark.sessions.priority import ApartContext

Report = TypeVar("Report")

#: RDDs without values, by session and number of partitions
_EMPTY: WeakKeyDictionary[SparkContext, dict[int, RDD[Any]]] = WeakKeyDictionary()


def run_numbered(
    context: SparkContext | ApartContext, function: Callable[[int], Report], tasks: int
) -> list[Report]:
    """Runs one job.

    Args:
        context: the session's, or one that gives its workers another priority and bounds the tasks that run at once.
        function: runs in a worker with the number of a task; it and what it returns can be pickled.
        tasks: how many there are.

    Returns:
        What the function returned, in the order of the numbers.
    """
    apart = context if isinstance(context, ApartContext) else None
    partitions = tasks if apart is None else min(tasks, apart.most_tasks or tasks)

    def reports(partition: int, nothing: Iterable[Any]) -> Iterator[Report]:
        # reading to the end lets Spark use the worker again
        list(nothing)
        for number in range(partition * tasks // partitions, (partition + 1) * tasks // partitions):
            yield function(number)

    return _empty(context, partitions).mapPartitionsWithIndex(reports).collect()


def _empty(context: SparkContext | ApartContext, partitions: int) -> RDD[Any]:
    whole = context.context if isinstance(context, ApartContext) else context
    known = _EMPTY.setdefault(whole, {})
    if partitions not in known:
        known[partitions] = whole.parallelize([], partitions)
    found = known[partitions]
    # the environment of the workers is that of the RDD's context
    return RDD(found._jrdd, cast(SparkContext, context), found._jrdd_deserializer)
