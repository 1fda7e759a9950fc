"""What a cut publishes of staged results: those that only Spark can make are made by one job."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import SparkSession

from penstock.spark.lanes.cells import CellJobs
from penstock.spark.publication.staged import BatchFiles, Staged
from penstock.spark.results.window_rows import make_results
from penstock.spark.results.window_staging import SaidWindows, StagedResults, ViewCounts
from penstock.sql.windows.bind import BoundWindow


def made(
    spark: SparkSession,
    jobs: CellJobs,
    staged: Sequence[StagedResults],
    views: Callable[[int], Mapping[str, BoundWindow]],
    store: BatchFiles,
) -> tuple[list[Staged], dict[str, ViewCounts]]:
    """The published files, and what they say by view.

    Args:
        spark: the session.
        jobs: the lane's.
        staged: what its tasks have staged.
        views: gives the views of an operator.
        store: stores the files.
    """
    raw = [each for each in staged if each.raw]
    if raw:
        jobs.own()
    found = make_results(spark, raw, lambda each: views(each.operator)[each.view], store)
    said: dict[str, SaidWindows] = {}
    for each in staged:
        said.setdefault(each.view, SaidWindows()).add(each.said)
    for result in (each for each in found if each.view):
        # the groups before HAVING are no rows of the view
        rows = sum(file.rows for file in result.files)
        said[result.view].judged(rows, rows - result.more)
    counts = {name: own.counts() for name, own in said.items()}
    return [*(each for each in staged if not each.raw), *found], counts
